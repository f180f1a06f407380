"""One GPU's memory and one pod's host memory, by part (fact sheet 2, 4, 10).

Weights and KV cache are exact; activations, graphs and what lies outside the engine's budget are estimates
whose constants stand below with their source and spread. In: ``MemoryRequest``. Out: ``MemoryEstimate``,
which tells the bytes that remain for the KV cache, and ``breakdown`` of the whole GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kv_cache import BLOCK_TOKENS, count_groups
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.weights import EncoderMode, WeightsBreakdown, weights_per_rank
from vlm_operator.units import GIB, MIB, ceil_div

ALLOCATOR_SLACK: Final = 1.15
"""Blocks that the allocator cannot reuse. Calibrated: Qwen2.5-VL-7B with one 16,384-token image and 2,048
batched tokens takes 2.1-2.4 GiB beyond weights and KV cache (observed constants, memory 5); taken near the upper
end, spread -12 % to +2 %."""

SAMPLER_COPIES: Final = 4
"""Live fp32 copies of the logits while sampling: 3-4 by reading of the current runner (fact sheet 2.3). The runner
before it took 9.6: 4.76, 5.56 and 7.38 GiB for 1,024 rows of 128k, 152k and 201k words (start-up logs mem02)."""

RESIDUAL_COPIES: Final = 3
"""Residual, its normed copy and the layer's output, by reading; 2-4."""

NON_TORCH_BYTES: Final = 140 * MIB
"""Growth outside the allocator on one GPU: 0.05-0.14 GiB observed (memory 6); the largest is taken."""

NON_TORCH_PARALLEL_BYTES: Final = 560 * MIB
"""The same with tensor parallelism: 0.34-0.55 GiB observed on 2-4 GPUs (memory 6)."""

GRAPH_BYTES_PER_LAYER_AND_SIZE: Final = int(0.17 * MIB)
"""One CUDA graph over one layer. Gives 0.47 GiB for 28 layers (0.51 observed), 0.81 for 48 (0.66), 1.05 for
62 (1.02; memory 7). Spread -25 % to +10 %; 1.92 GiB was seen once on four GPUs without NVLink."""

GRAPH_SETS: Final = 2
"""FULL_AND_PIECEWISE captures two sets (fact sheet 1.4)."""

CONTEXT_BYTES: Final = 600 * MIB
"""CUDA context, kernels and cuBLAS workspaces, before the engine's first snapshot; 0.5-0.6 GiB."""

NCCL_BYTES: Final = 900 * MIB
"""NCCL communicators, before the first snapshot; with the context 0.5-1.5 GiB (fact sheet 10)."""

BATCHES_IN_FLIGHT: Final = 2
"""Asynchronous scheduling on one pipeline stage (fact sheet 3.3)."""

PROCESS_BYTES: Final = 3 * GIB
"""Host memory of one process: 2-4 GiB (fact sheet 8.3)."""

LOADER_BYTES: Final = 5 * GIB
"""One safetensors shard in the page cache and on its way to a GPU."""

SHARED_MEMORY_BYTES: Final = 2 * GIB
"""The engine's own example for one GPU (fact sheet 8.3); each further GPU adds a GiB for its queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A named share of one GPU's memory."""

    name: str
    size_bytes: int
    note: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What one pod needs beside its GPUs."""

    cpu_cores: int
    memory_bytes: int
    shared_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderBudget:
    """The engine's encoder budget in tokens (equal to its encoder cache) and the images behind it."""

    tokens: int
    items_per_prompt: int
    items_per_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRefusal:
    """Why the engine would not start with these encoder limits: a CamelCase reason and a message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What to estimate: one rank of a server with these flags.

    Attributes:
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

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens of the batches in flight, which sliding windows keep room for."""
        return BATCHES_IN_FLIGHT * self.max_num_batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationPeaks:
    """The three phases of the engine's profile run, in bytes; the largest counts."""

    encoder: int
    language_model: int
    sampler: int

    @property
    def peak(self) -> int:
        """The largest phase."""
        return max(self.encoder, self.language_model, self.sampler)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideBudget:
    """What has to fit beside the budget of the engine, in bytes."""

    context: int
    nccl: int
    block_tables: int
    encoder_cache: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.context + self.nccl + self.block_tables + self.encoder_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """One GPU's memory in bytes; ``kv_available_bytes`` is negative where the model exceeds the budget."""

    engine_total_bytes: int
    budget_bytes: int
    weights: WeightsBreakdown
    buffers_bytes: int
    non_torch_bytes: int
    activations: ActivationPeaks
    cuda_graphs_bytes: int
    outside: OutsideBudget

    @property
    def kv_available_bytes(self) -> int:
        """Budget less weights, buffers, activation peak and graphs (fact sheet 2.2)."""
        fixed = self.weights.total + self.buffers_bytes + self.non_torch_bytes
        return self.budget_bytes - fixed - self.activations.peak - self.cuda_graphs_bytes

    @property
    def fits_outside(self) -> bool:
        """Whether what lies outside the budget fits into what the utilization leaves."""
        return self.outside.total <= self.engine_total_bytes - self.budget_bytes


def encoder_budget(
    *,
    max_num_batched_tokens: int,
    max_tokens_per_item: int,
    chunked: bool,
    limit: int,
    max_model_len: int,
    max_num_seqs: int,
) -> EncoderBudget | EncoderRefusal:
    """Return the budget of a server that takes images only; ``chunked`` False marks prefix-LM models.

    ``v1/core/encoder_cache_manager.py:333-380`` and ``multimodal/encoder_budget.py:43-175``.
    """
    budget = encoder_tokens({"image": max_tokens_per_item}, max_num_batched_tokens, chunked=chunked)
    if isinstance(budget, EncoderRefusal):
        return budget
    return encoder_items(
        budget,
        tokens_per_item=max_tokens_per_item,
        limit=limit,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
    )


def encoder_items(
    budget: int, *, tokens_per_item: int, limit: int, max_model_len: int, max_num_seqs: int
) -> EncoderBudget:
    """Return the items of one modality that a prompt and a batch may carry within ``budget`` tokens."""
    per_prompt = max(1, min(limit, max_model_len // tokens_per_item))
    per_batch = max(1, min(budget // tokens_per_item, max_num_seqs * per_prompt))
    return EncoderBudget(tokens=budget, items_per_prompt=per_prompt, items_per_batch=per_batch)


def encoder_tokens(
    max_tokens_per_item: Mapping[str, int], max_num_batched_tokens: int, *, chunked: bool
) -> int | EncoderRefusal:
    """Return the encoder budget over all active modalities, 0 without any, or the engine's refusal E6."""
    if not max_tokens_per_item:
        return 0
    largest = max(max_tokens_per_item.values())
    if largest > max_num_batched_tokens and not chunked:
        message = (
            f"an image of {largest:,} tokens must fit into one step, which takes {max_num_batched_tokens:,}; "
            f"set max_num_batched_tokens to at least {largest:,}"
        )
        return EncoderRefusal(reason="EncoderBudget", message=message)
    return max(max_num_batched_tokens, largest)


def estimate_memory(request: MemoryRequest) -> MemoryEstimate:
    """Return one rank's memory.

    ``KV = ceil(total x utilization) - weights - buffers - activation peak - graphs`` (fact sheet 10). The
    engine's persistent buffers are those of fact sheet 2.4.
    """
    shape, size = request.shape, request.tensor_parallel_size
    total = request.gpu.engine_memory_bytes
    graphs = GRAPH_BYTES_PER_LAYER_AND_SIZE * shape.text.layers * len(capture_sizes(request)) * GRAPH_SETS
    return MemoryEstimate(
        engine_total_bytes=total,
        budget_bytes=ceil_div(total * request.utilization_percent, 100),
        weights=weights_per_rank(shape, size, request.encoder_mode),
        buffers_bytes=_persistent_buffers(request),
        non_torch_bytes=NON_TORCH_BYTES if size == 1 else NON_TORCH_PARALLEL_BYTES,
        activations=_activations(request),
        cuda_graphs_bytes=graphs,
        outside=_outside(request),
    )


def capture_sizes(request: MemoryRequest) -> tuple[int, ...]:
    """Return the batch sizes that CUDA graphs are captured for (``config/vllm.py:2398-2656``)."""
    top = min(request.max_num_seqs * 2, 512)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16), request.max_num_seqs}
    if request.max_num_batched_tokens <= top:
        sizes.add(request.max_num_batched_tokens)
    return tuple(sorted(n for n in sizes if n <= min(top, request.max_num_batched_tokens)))


def breakdown(estimate: MemoryEstimate, kv_bytes: int) -> MemoryBreakdown:
    """Return the whole GPU by part, ``kv_bytes`` given to the KV cache.

    Parts are whole MiB, rounded up (the KV cache down); ``headroom`` is the rest and takes the rounding. It
    can be negative only where the plan does not fit.
    """
    weights, outside = estimate.weights, estimate.outside
    tower = weights.vision_tower + weights.projector
    sizes = (
        ("weights", weights.total - tower, "language model and its tables"),
        ("weights, vision", tower, "vision tower and projector"),
        ("activations", estimate.activations.peak, "peak of one step, calibrated"),
        ("buffers", estimate.buffers_bytes + estimate.non_torch_bytes, "sampler and input buffers"),
        ("CUDA graphs", estimate.cuda_graphs_bytes, "calibrated"),
    )
    parts = [MemoryPart(name=name, size_bytes=_whole(size), note=note) for name, size, note in sizes]
    parts.append(MemoryPart(name="KV cache", size_bytes=max(0, kv_bytes) // MIB * MIB))
    parts.append(MemoryPart(name="outside budget", size_bytes=_whole(outside.total), note="CUDA context, NCCL, caches"))
    rest = estimate.engine_total_bytes - sum(part.size_bytes for part in parts)
    return MemoryBreakdown(parts=(*parts, MemoryPart(name="headroom", size_bytes=rest)))


def estimate_host(
    request: MemoryRequest, *, preprocessing_cores: int = 2, processor_cache_gib: int = 4, processes: int = 1
) -> HostResources:
    """Return what a pod needs: ``processes`` API processes, the engine core and one worker per GPU.

    CPU: 2 + GPUs (fact sheet 4.8) and the cores that prepare images. Memory: processor cache, pinned request
    state of each rank (2.4), a loader buffer, every process, and the shared memory, which counts against the
    container's limit.
    """
    size = request.tensor_parallel_size
    positions = 4 if request.shape.text.mrope else 1
    pinned = request.max_num_seqs * request.max_model_len * 4 * positions * size
    shared = SHARED_MEMORY_BYTES + (size - 1) * GIB
    cache = processor_cache_gib * GIB * processes
    base = PROCESS_BYTES * (processes + 1 + size)
    return HostResources(
        cpu_cores=2 + size + preprocessing_cores,
        memory_bytes=_whole(cache + pinned + LOADER_BYTES + base + shared),
        shared_memory_bytes=shared,
    )


def _whole(size_bytes: int) -> int:
    return ceil_div(size_bytes, MIB) * MIB


def _persistent_buffers(request: MemoryRequest) -> int:
    """Return the buffers of fact sheet 2.4 that are allocated before profiling."""
    text = request.shape.text
    penalties = request.max_num_seqs * text.vocab * 4
    mask = request.max_num_seqs * ceil_div(text.vocab, 32) * 4
    row = text.hidden * text.dtype_bytes
    return penalties + mask + (1 + request.shape.deepstack_levels) * request.max_num_batched_tokens * row


def _activations(request: MemoryRequest) -> ActivationPeaks:
    text, size = request.shape.text, request.tensor_parallel_size
    outputs = request.items * request.engine_tokens * request.shape.vision.out_width * text.dtype_bytes
    mlp = 3 * text.intermediate // size
    attention = (2 * text.heads + 2 * max(text.kv_heads, size)) * text.head_dim // size
    row = RESIDUAL_COPIES * text.hidden + max(mlp, attention)
    language = int(ALLOCATOR_SLACK * request.max_num_batched_tokens * row * text.dtype_bytes)
    rows = min(request.max_num_batched_tokens, request.max_num_seqs)
    return ActivationPeaks(
        encoder=int(ALLOCATOR_SLACK * _encoder_phase(request)) + outputs,
        language_model=language + outputs,
        sampler=SAMPLER_COPIES * rows * text.padded_vocab * 4,
    )


def _encoder_phase(request: MemoryRequest) -> int:
    """Return the tower's live tensors: pixels, residuals, the wider of MLP and attention (fact sheet 2.3).

    The MLP holds its input projection (twice as wide with a gate) and the activated copy; attention holds the
    joint projection, rotated queries and keys, and its output. Data mode deals whole images to ranks.
    """
    vision, size = request.shape.vision, request.tensor_parallel_size
    whole = request.encoder_mode == "data" and request.shape.supports_encoder_data_parallel
    items = ceil_div(request.items, size) if whole else request.items
    shards = 1 if whole else size
    mlp = (3 if vision.gated else 2) * vision.intermediate // shards
    uncut = not vision.split_heads or (vision.replicates_odd_heads and vision.heads % shards)
    attention_shards = 1 if uncut else shards
    attention = 6 * vision.hidden // attention_shards
    row = vision.patch_row + 2 * vision.hidden + max(mlp, attention)
    return items * request.dummy_patches * row * request.shape.text.dtype_bytes


def _outside(request: MemoryRequest) -> OutsideBudget:
    """Return what is allocated before the first snapshot or after profiling (fact sheet 2.1, 2.4, 4.4)."""
    groups = count_groups(request.shape)
    blocks = ceil_div(request.max_model_len, BLOCK_TOKENS)
    tables = 2 * groups * request.max_num_seqs * blocks * 4
    slots = groups * request.max_num_batched_tokens * 8
    cached = max(request.max_num_batched_tokens, request.engine_tokens)
    return OutsideBudget(
        context=CONTEXT_BYTES,
        nccl=NCCL_BYTES if request.tensor_parallel_size > 1 else 0,
        block_tables=tables + slots,
        encoder_cache=cached * request.shape.vision.out_width * request.shape.text.dtype_bytes,
    )
