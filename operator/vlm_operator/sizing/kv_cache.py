"""KV cache planning as the engine does it: groups, pages, blocks, does one request fit (fact sheet 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from vlm_operator.sizing.shape import ModelShape
from vlm_operator.units import ceil_div

AttentionKind = Literal["FullAttentionSpec", "SlidingWindowSpec"]

ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "auto": 2,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
"""Bytes of one KV element. ``auto`` is the model's element type: no KV scheme of a checkpoint is read yet."""

BLOCK_TOKENS: Final = 16
"""Default tokens of one block with the FlashAttention and Triton backends (SM80 to SM90)."""

UNEVEN_TYPES: Final = 1.5
"""Below this ratio of the layer counts of two attention types, a group is as large as the larger type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroups:
    """Layer groups of one attention kind that share block tables. ``layers`` counts each group's layers."""

    kind: AttentionKind
    layers: tuple[int, ...]
    page_bytes: int
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlan:
    """The KV cache of one rank, with the figures that the engine logs at start-up.

    Attributes:
        bytes_per_block: Bytes of one block over all layers of the largest group.
        blocks_per_request: Blocks of one request of the longest context, over all groups.
        needed_bytes: What one such request takes; ``min_available_bytes`` adds the null block.
        starts: Whether the engine accepts the memory.
        tokens: Capacity as the engine logs it, which for window models is no per-token capacity.
        concurrency: Requests of the longest context that fit at once.
    """

    groups: tuple[KVGroups, ...]
    block_size: int
    max_in_flight_tokens: int
    bytes_per_block: int
    blocks_per_request: int
    needed_bytes: int
    min_available_bytes: int
    starts: bool
    num_blocks: int
    tokens: int
    concurrency: float

    def blocks_per_group(self, length: int) -> list[int]:
        """Return the blocks that one request of ``length`` tokens takes in each group."""
        return [
            _blocks(group, length, self.block_size, self.max_in_flight_tokens)
            for group in self.groups
            for _ in group.layers
        ]

    def blocks_for(self, length: int) -> int:
        """Return the blocks that one request of ``length`` tokens takes, over all groups."""
        return sum(self.blocks_per_group(length))

    def requests_of(self, length: int) -> int:
        """Return how many requests of ``length`` tokens fit at once; one block is the engine's null block."""
        return max(0, self.num_blocks - 1) // self.blocks_for(length)


def kv_bytes_per_token(shape: ModelShape, tensor_parallel_size: int, dtype: str = "auto") -> int:
    """Return the KV bytes of one token over all layers on one rank, as if windows kept every token."""
    return shape.text.layers * _bytes_per_layer(shape, tensor_parallel_size, dtype)


def plan_kv_cache(
    shape: ModelShape,
    tensor_parallel_size: int,
    *,
    dtype: str = "auto",
    max_model_len: int,
    max_in_flight_tokens: int,
    available_bytes: int,
    block_size: int = BLOCK_TOKENS,
) -> KVCachePlan:
    """Plan the KV cache of one rank.

    ``bytes_per_block = max over groups of the sum of its layers' pages``; ``num_blocks = available //
    bytes_per_block``; the engine starts if one request of ``max_model_len`` fits beside one null block
    (``v1/core/kv_cache_planning.py:574-605``, ``:1461-1606``). ``max_in_flight_tokens`` is twice the batched
    tokens: asynchronous scheduling keeps two batches in flight.
    """
    page = _bytes_per_layer(shape, tensor_parallel_size, dtype) * block_size
    groups = _groups(shape, page)
    per_block = _group_size(shape) * page
    blocks = sum(
        len(group.layers) * _blocks(group, max_model_len, block_size, max_in_flight_tokens) for group in groups
    )
    num_blocks = max(0, available_bytes) // per_block
    concurrency = num_blocks / blocks
    return KVCachePlan(
        groups=groups,
        block_size=block_size,
        max_in_flight_tokens=max_in_flight_tokens,
        bytes_per_block=per_block,
        blocks_per_request=blocks,
        needed_bytes=blocks * per_block,
        min_available_bytes=(blocks + 1) * per_block,
        starts=blocks * per_block <= available_bytes - per_block,
        num_blocks=num_blocks,
        tokens=int(concurrency * max_model_len),
        concurrency=concurrency,
    )


def count_groups(shape: ModelShape) -> int:
    """Return how many groups, and so block tables, the cache has."""
    return sum(len(group.layers) for group in _groups(shape, 0))


def longest_context(plan: KVCachePlan, available_bytes: int, limit: int) -> int:
    """Return the longest context up to ``limit`` of which one request fits, 0 if none does.

    That is what ``--max-model-len auto`` picks. The need grows with the length, so a binary search finds it.
    """
    room = max(0, available_bytes) // plan.bytes_per_block - 1
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if plan.blocks_for(middle) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _bytes_per_layer(shape: ModelShape, size: int, dtype: str) -> int:
    """Return ``kv_heads_local x 2 x head_dim x element`` (``v1/kv_cache_interface.py:575-607``)."""
    heads = max(1, shape.text.kv_heads // size)
    return heads * 2 * shape.text.head_dim * ELEMENT_BYTES[dtype]


def _group_size(shape: ModelShape) -> int:
    counts = [count for count in (shape.text.full_layers, shape.text.window_layers) if count]
    return max(counts) if max(counts) < UNEVEN_TYPES * min(counts) else min(counts)


def _groups(shape: ModelShape, page: int) -> tuple[KVGroups, ...]:
    """Return the groups: each attention kind is cut into ``ceil(n / size)`` groups, dealt layer by layer."""
    text = shape.text
    size = _group_size(shape)
    found: list[KVGroups] = []
    if text.window_layers:
        layers = _deal(text.window_layers, ceil_div(text.window_layers, size))
        found.append(KVGroups(kind="SlidingWindowSpec", layers=layers, page_bytes=page, window=text.window))
    if text.full_layers:
        layers = _deal(text.full_layers, ceil_div(text.full_layers, size))
        found.append(KVGroups(kind="FullAttentionSpec", layers=layers, page_bytes=page))
    return tuple(found)


def _deal(layers: int, groups: int) -> tuple[int, ...]:
    return tuple(layers // groups + (1 if index < layers % groups else 0) for index in range(groups))


def _blocks(group: KVGroups, length: int, block_size: int, in_flight: int) -> int:
    """Return one group's blocks for a request of ``length`` tokens (fact sheet 3.3)."""
    if group.kind == "FullAttentionSpec":
        return ceil_div(length, block_size)
    return ceil_div(min(group.window - 1 + in_flight, length), block_size) + 1
