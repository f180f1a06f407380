"""A cache in given memory: blocks, capacity, concurrency, and whether the engine starts."""

from dataclasses import dataclass

from vlm_operator.sizing.kv_cache.layout import KVLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlan:
    """The KV cache of one rank, with the figures that the engine logs at start-up.

    Attributes:
        blocks_per_request: Blocks of one request of the longest context, over all groups.
        needed_bytes: What one such request takes; ``min_available_bytes`` adds the null block.
        starts: Whether the engine accepts the memory.
        tokens: Capacity as the engine logs it, which for windows and states is no per-token capacity.
        concurrency: Requests of the longest context that fit at once.
    """

    layout: KVLayout
    max_in_flight_tokens: int
    blocks_per_request: int
    needed_bytes: int
    min_available_bytes: int
    starts: bool
    num_blocks: int
    tokens: int
    concurrency: float

    @property
    def block_size(self) -> int:
        """Tokens of one block, as the engine logs it."""
        return self.layout.block_tokens

    def blocks_for(self, length: int) -> int:
        """Return the blocks that one request of ``length`` tokens takes, over all groups."""
        return self.layout.blocks_for(length, self.max_in_flight_tokens)

    def requests_of(self, length: int) -> int:
        """Return how many requests of ``length`` tokens fit at once; one block is the engine's null block."""
        return max(0, self.num_blocks - 1) // self.blocks_for(length)


def plan_kv_cache(
    layout: KVLayout, *, max_model_len: int, max_in_flight_tokens: int, available_bytes: int
) -> KVCachePlan:
    """Plan the KV cache of one rank that has ``available_bytes`` for it.

    ``num_blocks = available // bytes_per_block``; the engine starts if one request of ``max_model_len`` fits beside
    one null block (``v1/core/kv_cache_planning.py:1461-1606``). ``max_in_flight_tokens`` is twice the batched
    tokens: asynchronous scheduling keeps two batches in flight.
    """
    blocks, per_block = layout.blocks_for(max_model_len, max_in_flight_tokens), layout.bytes_per_block
    num_blocks = max(0, available_bytes) // per_block
    concurrency = num_blocks / blocks
    return KVCachePlan(
        layout=layout,
        max_in_flight_tokens=max_in_flight_tokens,
        blocks_per_request=blocks,
        needed_bytes=blocks * per_block,
        min_available_bytes=(blocks + 1) * per_block,
        starts=(blocks + 1) * per_block <= available_bytes,
        num_blocks=num_blocks,
        tokens=int(concurrency * max_model_len),
        concurrency=concurrency,
    )


def longest_context(layout: KVLayout, available_bytes: int, limit: int, max_in_flight_tokens: int) -> int:
    """Return the longest context up to ``limit`` of which one request fits, 0 if none does.

    That is what ``--max-model-len auto`` picks. The need grows with the length, so a binary search finds it.
    """
    room = max(0, available_bytes) // layout.bytes_per_block - 1
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_for(middle, max_in_flight_tokens) <= room:
            low = middle
        else:
            high = middle - 1
    return low
