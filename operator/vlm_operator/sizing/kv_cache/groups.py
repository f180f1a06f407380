"""Layers with pages of one size, dealt into groups that share block tables (``v1/core/kv_cache_planning.py``)."""

from dataclasses import dataclass, replace
from typing import Final

from vlm_operator.sizing.kv_cache.specs import Spec, SpecKind
from vlm_operator.units import ceil_div

UNEVEN_TYPES: Final = 1.5
"""Below this ratio of the layer counts of two attention types, a group is as large as the larger type."""

_KEEPS_ALL: Final[frozenset[SpecKind]] = frozenset({"FullAttentionSpec", "RSWASpec", "MLAAttentionSpec"})
_LOCAL: Final[frozenset[SpecKind]] = frozenset({"SlidingWindowSpec", "ChunkedLocalAttentionSpec"})

Counted = tuple[tuple[Spec, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroups:
    """Groups of layers that are alike; every group has block tables of its own.

    Attributes:
        layers: Each group's layers.
        mixed: Whether it is one group of layers whose pages differ: ``spec.page_bytes`` is then the sum over them.
    """

    spec: Spec
    layers: tuple[int, ...]
    mixed: bool = False

    @property
    def kind(self) -> SpecKind:
        """The engine's name for the group."""
        return "UniformTypeKVCacheSpecs" if self.mixed else self.spec.kind

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over the layers of the largest of these groups."""
        return self.spec.page_bytes * (1 if self.mixed else max(self.layers))

    def blocks(self, length: int, in_flight: int) -> int:
        """Return the blocks that a request of ``length`` tokens takes in each of the groups (fact sheet 3.3).

        ``in_flight`` are the tokens of the batches in flight: a window keeps them beside its own.
        """
        spec = self.spec
        if spec.states or spec.block_tokens is None:
            return spec.states
        if spec.kind == "SlidingWindowSpec":
            # One block more, because the window need not start where a block does.
            return ceil_div(min(spec.reach - 1 + in_flight, length), spec.block_tokens) + 1
        if spec.kind == "ChunkedLocalAttentionSpec":
            return ceil_div(min(spec.reach + in_flight, length), spec.block_tokens)
        return ceil_div(length, spec.block_tokens)


def group_layers(specs: Counted, *, hybrid_manager: bool) -> tuple[KVGroups, ...]:
    """Return the groups of ``specs``, in the engine's order of decisions (``kv_cache_planning.py:1113-1200``).

    Layers of one spec are one group; so are layers that need the same token slots with pages of different size;
    else pages are brought to one size and each kind is cut into groups of as many layers.
    """
    if not hybrid_manager:
        specs = _keep_everything(specs)
    if len(specs) == 1:
        return (KVGroups(spec=specs[0][0], layers=(specs[0][1],)),)
    if _need_same_slots(specs):
        return (_one_group(specs),)
    counted: dict[Spec, int] = {}
    for spec, layers in _with_one_page_size(specs):
        counted[spec] = counted.get(spec, 0) + layers
    size = _group_size(tuple(counted.values()))
    return tuple(KVGroups(spec=spec, layers=_deal(layers, ceil_div(layers, size))) for spec, layers in counted.items())


def _keep_everything(specs: Counted) -> Counted:
    """Treat windows and chunks as full attention where a layer with full attention stands beside them (``:346``)."""
    if not any(spec.kind in _KEEPS_ALL for spec, _ in specs):
        return specs
    merged: dict[Spec, int] = {}
    for spec, layers in specs:
        whole = replace(spec, kind="FullAttentionSpec", reach=0) if spec.kind in _LOCAL else spec
        merged[whole] = merged.get(whole, 0) + layers
    return tuple(merged.items())


def _need_same_slots(specs: Counted) -> bool:
    kinds = {spec.kind for spec, _ in specs}
    if len({spec.block_tokens for spec, _ in specs}) > 1:
        return False
    if kinds <= _KEEPS_ALL:
        return True
    return len(kinds) == 1 and kinds <= _LOCAL and len({spec.reach for spec, _ in specs}) == 1


def _one_group(specs: Counted) -> KVGroups:
    page = sum(spec.page_bytes * layers for spec, layers in specs)
    layers = sum(layers for _, layers in specs)
    return KVGroups(spec=replace(specs[0][0], page_bytes=page), layers=(layers,), mixed=True)


def _with_one_page_size(specs: Counted) -> Counted:
    """Bring pages to the size of the largest: by more tokens a block where that is a whole multiple, else padded."""
    largest = max(spec.page_bytes for spec, _ in specs)

    def grow(spec: Spec) -> Spec:
        ratio = largest // spec.page_bytes
        if spec.kind == "MambaSpec" or spec.block_tokens is None or largest % spec.page_bytes:
            return replace(spec, page_bytes=largest)
        return replace(spec, page_bytes=largest, block_tokens=spec.block_tokens * ratio)

    return tuple((grow(spec), layers) for spec, layers in specs)


def _group_size(counts: tuple[int, ...]) -> int:
    return max(counts) if max(counts) < UNEVEN_TYPES * min(counts) else min(counts)


def _deal(layers: int, groups: int) -> tuple[int, ...]:
    return tuple(layers // groups + (1 if index < layers % groups else 0) for index in range(groups))
