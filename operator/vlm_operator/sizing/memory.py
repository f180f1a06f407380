"""One GPU's memory by part (fact sheet 2, 4, 10).

Weights and KV cache are exact; activations, graphs and what lies outside the engine's budget are estimates with
calibrated constants, taken at one end of their spread. In: ``MemoryRequest``. Out: ``MemoryEstimate``,
which tells the bytes that remain for the KV cache, and ``breakdown`` of the whole GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from vlm_operator.sizing.activations import ActivationPeaks, Step, measure_activations, measure_encoder
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kept import kept_for_two
from vlm_operator.sizing.kv_cache import KVSettings, kv_layout
from vlm_operator.sizing.memory_constants import MemoryConstants
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.weights import EncoderMode, WeightsBreakdown, weights_per_rank
from vlm_operator.units import MIB, ceil_div

FABRIC_CAPABILITIES: Final = ((9, 0), (12, 0))
"""From the first on and below the second (no NVLink) the engine holds symmetric and multicast memory beside NCCL's."""

BATCHES_IN_FLIGHT: Final = 2
"""Asynchronous scheduling on one pipeline stage (fact sheet 3.3)."""

PartCertainty = Literal["computed", "calibrated"]
"""By the engine's own rules from the checkpoint, or from calibrated constants."""

PARTS: Final[Mapping[str, tuple[PartCertainty | None, str]]] = {
    "weights": ("computed", "language model and its tables"),
    "weights, vision": ("computed", "vision tower and projector"),
    "activations": ("calibrated", "peak of one step"),
    "buffers": ("calibrated", "sampler, inputs"),
    "CUDA graphs": ("calibrated", ""),
    "uncertainty": ("calibrated", "these parts at their bad end"),
    "KV cache": (None, "what the parts above leave"),
    "outside budget": ("calibrated", "CUDA context, NCCL, caches"),
    "headroom": (None, "left at the bad end of all estimates"),
}
"""The parts of a GPU's memory in the order in which they are shown: how their size is known, and what they hold."""


class MemoryPart(NamedTuple):
    """A named share of one GPU's memory, what it holds and how its size is known."""

    name: str
    size_bytes: int
    note: str = ""
    certainty: PartCertainty | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """One GPU's memory by part; ``headroom`` is last, so the parts sum to ``total_bytes`` exactly."""

    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        """What the engine sees on the GPU."""
        return sum(part.size_bytes for part in self.parts)

    def part(self, name: str) -> MemoryPart:
        """Return the part called ``name``; KeyError if there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)


class ImageBatch(NamedTuple):
    """Images that one step encodes: how many, and the patches and tokens of each, rounded up."""

    items: int
    patches: int
    tokens: int


class Rank(NamedTuple):
    """What decides the need of one rank beside the shape: layout, flags, the batches that its encoder takes."""

    tensor_parallel_size: int
    encoder_mode: EncoderMode
    capability: tuple[int, int] | None
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    profiled: ImageBatch
    served: ImageBatch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What to estimate: one rank of a server with these flags.

    Attributes:
        served: The step of declared images with the most patches, None where nothing is declared.
        dummy_patches: Patches of the image that the engine profiles with.
        engine_tokens: The engine's own maximum of tokens per image, which sizes the encoder budget.
        items: Images in the profiled batch (``EncoderBudget.items_per_batch``).
    """

    shape: ModelShape
    gpu: GpuKind
    tensor_parallel_size: int
    encoder_mode: EncoderMode = "weights"
    utilization_percent: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    dummy_patches: int
    engine_tokens: int
    items: int = 1
    served: ImageBatch | None = None

    @property
    def rank(self) -> Rank:
        """All of it but the shape and the size of the GPU."""
        return Rank(
            tensor_parallel_size=self.tensor_parallel_size,
            encoder_mode=self.encoder_mode,
            capability=self.gpu.compute_capability,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            profiled=ImageBatch(items=self.items, patches=self.dummy_patches, tokens=self.engine_tokens),
            served=self.served,
        )

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens of the batches in flight, which sliding windows keep room for."""
        return BATCHES_IN_FLIGHT * self.max_num_batched_tokens

    def kv_settings(self, dtype: str) -> KVSettings:
        """Return what lays the KV cache out where its type is ``dtype``."""
        return KVSettings(
            tensor_parallel_size=self.tensor_parallel_size,
            capability=self.gpu.compute_capability or (0, 0),
            dtype=dtype,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideBudget:
    """What has to fit beside the budget of the engine, in bytes.

    Attributes:
        unprofiled: What a step of declared images takes beyond the step that the engine profiled. Some families
            profile a square or a single tile where elongated images have more; a server that has started would run
            out of memory at the first of them.
    """

    context: int
    nccl: int
    block_tables: int
    encoder_cache: int
    unprofiled: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.context + self.nccl + self.block_tables + self.encoder_cache + self.unprofiled


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """What one rank takes of its GPU, in bytes, however large that is."""

    weights: WeightsBreakdown
    loader_residue_bytes: int
    buffers_bytes: int
    non_torch_bytes: int
    activations: ActivationPeaks
    cuda_graphs_bytes: int
    outside: OutsideBudget

    @property
    def taken_bytes(self) -> int:
        """Weights, buffers, activation peak and graphs."""
        fixed = self.weights.total + self.loader_residue_bytes + self.buffers_bytes + self.non_torch_bytes
        return fixed + self.activations.peak + self.cuda_graphs_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """One GPU's memory in bytes; ``kv_available_bytes`` is negative where the model exceeds the budget."""

    engine_total_bytes: int
    budget_bytes: int
    need: MemoryNeed

    @property
    def kv_available_bytes(self) -> int:
        """Budget less everything that the engine takes before it (fact sheet 2.2)."""
        return self.budget_bytes - self.need.taken_bytes

    @property
    def fits_outside(self) -> bool:
        """Whether what lies outside the budget fits into what the utilization leaves."""
        return self.need.outside.total <= self.engine_total_bytes - self.budget_bytes


def estimate_memory(request: MemoryRequest, constants: MemoryConstants) -> MemoryEstimate:
    """Return one rank's memory: ``KV = ceil(total x utilization) - need`` (fact sheet 10)."""
    return with_budget(request, memory_need(request, constants))


def with_budget(request: MemoryRequest, need: MemoryNeed) -> MemoryEstimate:
    """Return the memory of a rank that takes ``need``."""
    total = request.gpu.engine_memory_bytes
    budget = ceil_div(total * request.utilization_percent, 100)
    return MemoryEstimate(engine_total_bytes=total, budget_bytes=budget, need=need)


def memory_need(request: MemoryRequest, constants: MemoryConstants) -> MemoryNeed:
    """Return what one rank takes; GPUs of one compute capability do not differ in it."""
    return _need(request.shape, constants, request.rank)


@kept_for_two
def _need(shape: ModelShape, constants: MemoryConstants, rank: Rank) -> MemoryNeed:
    """Return what ``rank`` takes; the engine's persistent buffers are those of fact sheet 2.4."""
    activations = measure_activations(_step(shape, rank, rank.profiled), constants)
    return MemoryNeed(
        weights=weights_per_rank(shape, rank.tensor_parallel_size, rank.encoder_mode),
        loader_residue_bytes=constants.loader_residue,
        buffers_bytes=_persistent_buffers(shape, rank),
        non_torch_bytes=_non_torch(rank, constants),
        activations=activations,
        cuda_graphs_bytes=_cuda_graphs(shape, rank, constants),
        outside=_outside(shape, rank, constants, activations),
    )


@lru_cache
def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """Return the batch sizes that CUDA graphs are captured for (``config/vllm.py:2398-2656``)."""
    top = min(max_num_seqs * 2, 512)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16), max_num_seqs}
    if max_num_batched_tokens <= top:
        sizes.add(max_num_batched_tokens)
    return tuple(sorted(n for n in sizes if n <= min(top, max_num_batched_tokens)))


def breakdown(likely: MemoryEstimate, safe: MemoryEstimate, kv_bytes: int) -> MemoryBreakdown:
    """Return the whole GPU by part, ``kv_bytes`` given to the KV cache.

    Parts stand at their likely size; what the pessimistic end takes beyond them is the part ``uncertainty``. Parts
    are whole MiB, rounded up (the KV cache down); ``headroom`` is the rest and takes the rounding. It can be negative
    only where the plan does not fit.
    """
    need, most = likely.need, safe.need
    weights = need.weights
    tower = weights.vision_tower + weights.projector
    uncertain = most.taken_bytes + most.outside.total - need.taken_bytes - need.outside.total
    sizes = (
        ("weights", weights.total - tower),
        ("weights, vision", tower),
        ("activations", need.activations.peak),
        ("buffers", need.buffers_bytes + need.non_torch_bytes + need.loader_residue_bytes),
        ("CUDA graphs", need.cuda_graphs_bytes),
        ("uncertainty", uncertain),
    )
    parts = [describe_part(name, whole_mib(size)) for name, size in sizes]
    parts.append(describe_part("KV cache", max(0, kv_bytes) // MIB * MIB))
    parts.append(describe_part("outside budget", whole_mib(need.outside.total)))
    rest = likely.engine_total_bytes - sum(part.size_bytes for part in parts)
    return MemoryBreakdown(parts=(*parts, describe_part("headroom", rest)))


def describe_part(name: str, size_bytes: int) -> MemoryPart:
    """Return the part with what is known of its name; a name of another release stays bare."""
    certainty, note = PARTS.get(name, (None, ""))
    return MemoryPart(name=name, size_bytes=size_bytes, note=note, certainty=certainty)


def whole_mib(size_bytes: int) -> int:
    """Return the bytes rounded up to whole MiB."""
    return ceil_div(size_bytes, MIB) * MIB


def _step(shape: ModelShape, rank: Rank, batch: ImageBatch) -> Step:
    return Step(
        shape=shape,
        tensor_parallel_size=rank.tensor_parallel_size,
        encoder_mode=rank.encoder_mode,
        tokens=rank.max_num_batched_tokens,
        rows=rank.max_num_seqs,
        items=batch.items,
        patches=batch.patches,
        item_tokens=batch.tokens,
    )


def _non_torch(rank: Rank, constants: MemoryConstants) -> int:
    """Return what grows outside the allocator while profiling: kernels, and the buffers of communication."""
    if rank.tensor_parallel_size == 1:
        return constants.non_torch
    return constants.non_torch_fabric if _has_fabric(rank) else constants.non_torch_parallel


def _nccl(rank: Rank, constants: MemoryConstants) -> int:
    if rank.tensor_parallel_size == 1:
        return 0
    return constants.nccl_fabric if _has_fabric(rank) else constants.nccl


def _has_fabric(rank: Rank) -> bool:
    first, end = FABRIC_CAPABILITIES
    return first <= (rank.capability or first) < end


def _cuda_graphs(shape: ModelShape, rank: Rank, constants: MemoryConstants) -> int:
    """Return the graphs' memory: one of pieces for every size, one of a whole decode up to ``max_num_seqs``."""
    captures = _count_captures(rank.max_num_seqs, rank.max_num_batched_tokens)
    experts = constants.graph_experts if shape.text.experts else 0
    return constants.graph_per_layer_and_size * shape.text.layers * captures + experts


@lru_cache(maxsize=1024)
def _count_captures(max_num_seqs: int, max_num_batched_tokens: int) -> int:
    sizes = capture_sizes(max_num_seqs, max_num_batched_tokens)
    return len(sizes) + sum(size <= max_num_seqs for size in sizes)


def _persistent_buffers(shape: ModelShape, rank: Rank) -> int:
    """Return the buffers of fact sheet 2.4 that are allocated before profiling.

    Where layers take inputs of their own, the engine keeps them for every batched token as well
    (``per_layer_embeddings``, ``M/gemma3n_mm.py`` and ``M/gemma4_mm.py``).
    """
    text = shape.text
    penalties = rank.max_num_seqs * text.vocab * 4
    mask = rank.max_num_seqs * ceil_div(text.vocab, 32) * 4
    rows = (1 + shape.deepstack_levels) * text.hidden + text.per_layer_inputs
    return penalties + mask + rank.max_num_batched_tokens * rows * text.dtype_bytes


def _outside(shape: ModelShape, rank: Rank, constants: MemoryConstants, profiled: ActivationPeaks) -> OutsideBudget:
    """Return what is allocated before the first snapshot or after profiling (fact sheet 2.1, 2.4, 4.4)."""
    settings = KVSettings(tensor_parallel_size=rank.tensor_parallel_size, capability=rank.capability or (0, 0))
    layout = kv_layout(shape, settings)
    tables = 2 * rank.max_num_seqs * layout.table_entries(rank.max_model_len) * 4
    slots = layout.group_count * rank.max_num_batched_tokens * 8
    cached = max(rank.max_num_batched_tokens, rank.profiled.tokens)
    return OutsideBudget(
        context=constants.context,
        nccl=_nccl(rank, constants),
        block_tables=tables + slots,
        encoder_cache=cached * shape.vision.out_width * shape.text.dtype_bytes,
        unprofiled=_unprofiled(shape, rank, constants, profiled),
    )


def _unprofiled(shape: ModelShape, rank: Rank, constants: MemoryConstants, profiled: ActivationPeaks) -> int:
    """Return what the encoder takes in the largest step of declared images beyond the profiled step.

    The sampler's share of the profile is left out: it is the least certain, and too small where it is smallest.
    """
    if rank.served is None:
        return 0
    served = measure_encoder(_step(shape, rank, rank.served), constants)
    return max(0, served - max(profiled.encoder, profiled.language_model))
