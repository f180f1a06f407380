"""What one engine replica may take at once: sequences, tokens of a step, KV blocks, images, preprocessing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBlocks:
    """The KV cache in blocks, over all groups of layers (fact sheet 3.2 to 3.5).

    Attributes:
        total: Blocks that requests may take; the engine's null block is not among them.
        block_tokens: Tokens of one block.
        growing_groups: Groups of layers that keep every token; each takes a block for every ``block_tokens``.
        bounded_groups: Groups that keep at most ``bound_tokens`` (sliding windows) and one block more.
        state_blocks: Blocks of a request whatever its length (recurrent states).
    """

    total: int
    block_tokens: int = 16
    growing_groups: int = 1
    bounded_groups: int = 0
    bound_tokens: int = 0
    state_blocks: int = 0

    def blocks_for(self, tokens: int) -> int:
        """Return the blocks that a request of ``tokens`` holds."""
        size = self.block_tokens
        found = self.growing_groups * -(-tokens // size) + self.state_blocks
        if self.bounded_groups:
            found += self.bounded_groups * (-(-min(tokens, self.bound_tokens) // size) + 1)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits that the scheduler keeps.

    Attributes:
        encoder_tokens: Image tokens that a step may encode, and as many that the encoder cache holds.
        preprocess_workers: Images or requests that the CPU prepares at once.
        processor_cache_patches: Patches of prepared images that the processor cache keeps for repeats; 0 is off.
        prefix_caching: Whether the KV of finished requests serves later ones that begin alike.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv: KVBlocks
    encoder_tokens: int = 0
    preprocess_workers: int = 1
    processor_cache_patches: int = 0
    prefix_caching: bool = True
