"""From a shape and a server's settings to the layout of its cache: what does not depend on memory or length."""

from dataclasses import dataclass

from vlm_operator.sizing.kept import kept
from vlm_operator.sizing.kv_cache.dtypes import kv_dtype
from vlm_operator.sizing.kv_cache.groups import KVGroups, group_layers
from vlm_operator.sizing.kv_cache.specs import KVSettings, layer_specs
from vlm_operator.sizing.shape import KVLayers, ModelShape
from vlm_operator.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The groups of a cache and the sizes of their blocks, on one rank.

    Attributes:
        block_tokens: Block size of the engine's configuration; groups with small pages hold multiples of it.
        bytes_per_block: Bytes of one block of the pool: that of the largest group (``kv_cache_planning.py:574-605``).
    """

    groups: tuple[KVGroups, ...]
    block_tokens: int
    bytes_per_block: int

    @property
    def group_count(self) -> int:
        """Groups, and so block tables of each request."""
        return sum(len(group.layers) for group in self.groups)

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a state of fixed size."""
        return any(group.spec.states for group in self.groups)

    @property
    def least_step(self) -> int:
        """Tokens that ``--max-num-batched-tokens`` must reach: states are kept where whole blocks end.

        The engine asserts it while prefix caching is on (``config/vllm.py``, "In Mamba cache align mode").
        """
        return max((group.spec.block_tokens or 1 for group in self.groups if group.spec.states), default=1)

    def blocks_per_group(self, length: int, in_flight: int) -> list[int]:
        """Return the blocks that one request of ``length`` tokens takes in each group."""
        return [group.blocks(length, in_flight) for group in self.groups for _ in group.layers]

    def blocks_for(self, length: int, in_flight: int) -> int:
        """Return the blocks that one request of ``length`` tokens takes, over all groups."""
        return sum(len(group.layers) * group.blocks(length, in_flight) for group in self.groups)

    def table_entries(self, max_model_len: int) -> int:
        """Return the entries of one request's block tables: they cover the whole context even in a window."""
        return sum(
            len(group.layers) * (ceil_div(max_model_len, group.spec.block_tokens) if group.spec.block_tokens else 1)
            for group in self.groups
        )


@kept
def kv_layout(shape: ModelShape, settings: KVSettings) -> KVLayout:
    """Return the layout of ``shape``'s cache. ``check_kv_cache`` tells whether the engine takes the settings.

    Raises:
        ValueError: The size of the KV-cache type is not known.
    """
    return lay_out(shape.text.kv_layers, settings._replace(dtype=kv_dtype(shape, settings.dtype)))


def lay_out(layers: tuple[KVLayers, ...], settings: KVSettings) -> KVLayout:
    """Return the layout of a cache of ``layers``, whose type is the one of ``settings``."""
    specs = layer_specs(layers, settings)
    groups = group_layers(specs, hybrid_manager=settings.hybrid_manager)
    return KVLayout(
        groups=groups,
        block_tokens=max(spec.block_tokens or 0 for spec, _ in specs),
        bytes_per_block=max(group.block_bytes for group in groups),
    )
