"""Which KV-cache types and settings the engine refuses."""

from dataclasses import dataclass
from typing import Final

from vlm_operator.sizing.kv_cache.dtypes import FP8, KNOWN, PACKED, PLAIN, kv_dtype
from vlm_operator.sizing.kv_cache.specs import KVSettings
from vlm_operator.sizing.shape import ModelShape, StateLayers

SERVED_DTYPE: Final = "bfloat16"
"""What every plan renders as ``--dtype``, whatever the checkpoint is stored in."""

_FP8_CAPABILITY: Final = (8, 9)
_FP4_CAPABILITY: Final = (10, 0)
_EIGHT_BIT_FLOATS: Final = FP8 | {"fp8_per_token_head"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVRefusal:
    """Why the engine would not start with this KV cache: a CamelCase reason, and a message with what works."""

    reason: str
    message: str


def check_kv_cache(shape: ModelShape, settings: KVSettings) -> KVRefusal | None:
    """Return why the engine refuses ``settings`` for ``shape``, None where it takes them.

    Below capability 8.9 no attention backend has FP8 keys (``triton_attn.py:519-532``); packed FP4 needs 10.0. A
    plain type has to be the model's own (fact sheet 0.1). States and keys share a pool only with the hybrid manager.
    """
    dtype = kv_dtype(shape, settings.dtype)
    message = ""
    if dtype not in KNOWN:
        message = f"{dtype} has no known size; known are {', '.join(sorted(KNOWN))}"
    elif dtype in PLAIN and dtype not in {"auto", SERVED_DTYPE}:
        message = f"{dtype} differs from the {SERVED_DTYPE} that the model is served in; use auto or fp8"
    elif dtype not in PLAIN | FP8 and shape.text.latent_attention:
        message = f"{dtype} has no known size for latent attention; use auto or fp8"
    elif (least := _least_capability(dtype)) > settings.capability:
        needs, has = (".".join(map(str, version)) for version in (least, settings.capability))
        message = f"{dtype} needs compute capability {needs}, the GPU has {has}; use {SERVED_DTYPE} or a newer GPU"
    if message:
        return KVRefusal(reason="KVCacheDtype", message=f"KV cache: {message}")
    if not settings.hybrid_manager and any(isinstance(layers, StateLayers) for layers in shape.text.kv_layers):
        message = "layers with a state and layers with keys need the hybrid KV cache manager; leave it on"
        return KVRefusal(reason="HybridManager", message=message)
    return None


def _least_capability(dtype: str) -> tuple[int, int]:
    if dtype in _EIGHT_BIT_FLOATS:
        return _FP8_CAPABILITY
    return _FP4_CAPABILITY if dtype in PACKED else (0, 0)
