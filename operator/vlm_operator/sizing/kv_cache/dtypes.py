"""Bytes of keys and values by the type that they are stored in (fact sheet 3.1)."""

from typing import Final

from vlm_operator.sizing.shape import AttentionLayers, ModelShape

PLAIN: Final = frozenset({"auto", "float16", "bfloat16"})
"""Types of two bytes an element: the model's own."""

FP8: Final = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2"})
"""Types of one byte an element, with one scale for a whole tensor."""

SCALED_BYTE: Final = frozenset({"int8_per_token_head", "fp8_per_token_head"})
SCALED_NIBBLE: Final = frozenset({"int4_per_token_head"})
PACKED: Final = frozenset({"nvfp4"})

KNOWN: Final = PLAIN | FP8 | SCALED_BYTE | SCALED_NIBBLE | PACKED
"""Types whose size is known. Others are packed as their backend likes (turboquant, octave) and are refused."""

PLAIN_BYTES: Final = 2
"""Bytes of one element of the model's own type; the engine serves no model in another than two."""

_SCALES: Final = 8
"""A float32 scale for the key and one for the value of each head."""


def kv_dtype(shape: ModelShape, dtype: str) -> str:
    """Return the type that the engine stores: ``auto`` honours the KV scheme of a quantised checkpoint."""
    if dtype == "auto" and shape.quantisation is not None:
        return shape.quantisation.kv_dtype or dtype
    return dtype


def head_bytes(dtype: str, key_dim: int, value_dim: int) -> int:
    """Return the bytes of one head of one token, keys and values together.

    Raises:
        ValueError: ``dtype`` is not in ``KNOWN``; ``check_kv_cache`` tells so before.
    """
    both = key_dim + value_dim
    if dtype in PLAIN:
        return both * PLAIN_BYTES
    if dtype in FP8:
        return both
    if dtype in SCALED_BYTE:
        return both + _SCALES
    if dtype in SCALED_NIBBLE:
        return both // 2 + _SCALES
    if dtype in PACKED:  # four bits an element, and a byte of scale for every sixteen
        return sum(dim // 2 + dim // 16 for dim in (key_dim, value_dim))
    raise ValueError(f"no size is known for the KV-cache type {dtype!r}")


def layer_bytes(layers: AttentionLayers, size: int, dtype: str) -> int:
    """Return the bytes of a token in one of ``layers`` on one of ``size`` ranks.

    ``v1/kv_cache_interface.py:575-607``.
    """
    return layers.heads_on(size) * head_bytes(dtype, layers.key_dim, layers.value_dim)


def kv_bytes_per_token(shape: ModelShape, tensor_parallel_size: int, dtype: str = "auto") -> int:
    """Return the KV bytes of one token over all layers on one rank, as if windows kept every token."""
    stored = kv_dtype(shape, dtype)
    attention = (layers for layers in shape.text.kv_layers if isinstance(layers, AttentionLayers))
    return sum(layers.layers * layer_bytes(layers, tensor_parallel_size, stored) for layers in attention)
