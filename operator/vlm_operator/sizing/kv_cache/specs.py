"""One layer's page: how many tokens a block holds and how many bytes they take (``platforms/interface.py:940-1137``).

In: the layers of a shape and the settings of a server. Out: ``Spec`` for layers that are alike, before grouping.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from vlm_operator.sizing.kv_cache.dtypes import FP8, PLAIN_BYTES, layer_bytes
from vlm_operator.sizing.shape import AttentionKind, AttentionLayers, KVLayers, StateLayers
from vlm_operator.units import ceil_div

SpecKind = AttentionKind | Literal["MambaSpec", "UniformTypeKVCacheSpecs"]

BLOCK_TOKENS: Final = 16
"""Tokens of one block unless a backend or a state asks for more."""

WIDE_BLOCK: Final = 64
"""FlashMLA (latents in FP8), FlashAttention with FP8 keys wider than 256, FlashInfer's gated delta net."""

FLASHINFER_MLA_BLOCK: Final = 32
_WIDEST_NARROW_HEAD: Final = 256
_FLASHINFER_DELTA_NET_HEAD: Final = 128
_HOPPER: Final = (9, 0)


class KVSettings(NamedTuple):
    """What of a server's flags and its GPU decides how the cache is laid out.

    Attributes:
        dtype: ``--kv-cache-dtype``.
        capability: Compute capability of the GPU, which decides the attention backend.
        prefix_caching: Off with ``--no-enable-prefix-caching``.
        hybrid_manager: Off with ``--disable-hybrid-kv-cache-manager``: windows are then kept whole.
    """

    tensor_parallel_size: int
    capability: tuple[int, int]
    dtype: str = "auto"
    prefix_caching: bool = True
    hybrid_manager: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One layer as the cache sees it.

    Attributes:
        block_tokens: Tokens of one block; None for a state that is kept once for the whole context.
        page_bytes: Bytes of one block of one layer on one rank, padding included.
        reach: Tokens of a window or chunk.
        states: Blocks that one request takes of a state, 0 where blocks follow its length.
        heads: Heads on a rank and the widths of a key and a value: layers that differ in them are no like layers,
            even where their pages are of one size.
    """

    kind: SpecKind
    block_tokens: int | None
    page_bytes: int
    reach: int = 0
    states: int = 0
    heads: tuple[int, int, int] = (0, 0, 0)


def layer_specs(layers: tuple[KVLayers, ...], settings: KVSettings) -> tuple[tuple[Spec, int], ...]:
    """Return (spec, layers) for layers that are alike, in the order of their first."""
    attention = tuple(one for one in layers if isinstance(one, AttentionLayers))
    states = tuple(one for one in layers if isinstance(one, StateLayers))
    block = _backend_block(attention, settings)
    if states:
        block = _aligned_block(attention, states, settings, block)
    return tuple((_spec(one, attention, settings, block), one.layers) for one in layers)


def _spec(one: KVLayers, attention: tuple[AttentionLayers, ...], settings: KVSettings, block: int) -> Spec:
    size, dtype = settings.tensor_parallel_size, settings.dtype
    if isinstance(one, AttentionLayers):
        return Spec(
            kind=one.kind,
            block_tokens=block,
            page_bytes=layer_bytes(one, size, dtype) * block,
            reach=one.reach,
            heads=(one.heads_on(size), one.key_dim, one.value_dim),
        )
    page = block * _token_bytes(attention, settings)
    if not settings.prefix_caching:
        return Spec(kind="MambaSpec", block_tokens=None, page_bytes=page, states=1)
    # The running state, the one at the last block's end, and one that a chunked prefill leaves on its way.
    return Spec(
        kind="MambaSpec", block_tokens=block, page_bytes=page, states=2 + _uses_flashinfer(one, settings.capability)
    )


def _token_bytes(attention: Iterable[AttentionLayers], settings: KVSettings) -> int:
    return max(layer_bytes(one, settings.tensor_parallel_size, settings.dtype) for one in attention)


def _backend_block(attention: tuple[AttentionLayers, ...], settings: KVSettings) -> int:
    """Return the block that the attention backend prefers (``v1/attention/backend.py``, ``platforms/cuda.py:84-181``).

    FlashAttention, FlashInfer and Triton take 16. Latents run on FlashMLA where they are FP8 on Hopper, on FlashInfer's
    kernel for them at capability 10, else on FlashAttention or Triton. Above Hopper wide FP8 heads are taken to need
    the same block as there: no run has told, and the larger block never promises too much.
    """
    fp8, major = settings.dtype in FP8, settings.capability[0]
    if any(one.kind == "MLAAttentionSpec" for one in attention):
        if major == _HOPPER[0]:
            return WIDE_BLOCK if fp8 else BLOCK_TOKENS
        return FLASHINFER_MLA_BLOCK if major == _HOPPER[0] + 1 else BLOCK_TOKENS
    widest = max((one.key_dim for one in attention), default=0)
    wide = fp8 and settings.dtype != "fp8_e5m2" and widest > _WIDEST_NARROW_HEAD
    return WIDE_BLOCK if wide and settings.capability >= _HOPPER else BLOCK_TOKENS


def _aligned_block(
    attention: tuple[AttentionLayers, ...], states: tuple[StateLayers, ...], settings: KVSettings, block: int
) -> int:
    """Return the smallest block whose page holds a state (``_align_hybrid_block_size``)."""
    checkpoints = settings.prefix_caching and any(_uses_flashinfer(one, settings.capability) for one in states)
    align = max(block, WIDE_BLOCK if checkpoints else BLOCK_TOKENS)
    largest = max(one.bytes_on(settings.tensor_parallel_size, PLAIN_BYTES) for one in states)
    return max(block, align * ceil_div(largest, align * _token_bytes(attention, settings)))


def _uses_flashinfer(one: StateLayers, capability: tuple[int, int]) -> bool:
    """Return whether FlashInfer prefills a gated delta net (``qwen_gdn_linear_attn.py:691-750``)."""
    if one.kernel != "gated_delta_net" or capability < _HOPPER:
        return False
    return capability == _HOPPER or one.head_dim == _FLASHINFER_DELTA_NET_HEAD
