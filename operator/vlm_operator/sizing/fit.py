"""Batch limits, utilization and memory chosen together for one GPU kind and tensor parallel size.

In: ``FitRequest`` from ``judge.py``. Out: ``MemoryFit``, or the name and numbers of the part that is too large as a
``Misfit``. Larger batches are tried first; the first that holds the wanted requests with a reserve wins, else
the roomiest.
"""

from dataclasses import dataclass
from functools import lru_cache

from vlm_operator.catalogue.types import MemoryCalibration
from vlm_operator.sizing.encoder_budget import EncoderBudget, EncoderRefusal, encoder_budget
from vlm_operator.sizing.host import HostResources, estimate_host
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kv_cache import KVCachePlan, KVSettings, kv_layout
from vlm_operator.sizing.memory import ImageBatch, MemoryBreakdown, MemoryRequest
from vlm_operator.sizing.memory_constants import constants_at
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.start_up import Misfit, StartUp, start_up
from vlm_operator.sizing.tokens.types import MaximumTokens
from vlm_operator.sizing.weights import EncoderMode
from vlm_operator.units import ceil_div

BATCHED_TOKENS = (8192, 4096, 2048)
"""Step sizes that are tried: the engine's defaults on large and small GPUs, and one between."""
SMALLER_STEPS = (2048, 512)
"""Step sizes that formulas look at where a latency target is missed."""
STEPS = (16_384, *BATCHED_TOKENS, 1024, 512, 256)
"""Step sizes that trials look at where a latency target is missed. While a prompt is computed every answer gets one
token per step, so smaller steps shorten TPOT, until a GPU computes steps so small inefficiently and prompts queue."""
BATCHED_TOKENS_STEP = 256
MAX_UTILIZATION_PERCENT = 92
"""The engine's own default. Above it run-time growth has been seen to end vision servers."""


KV_RESERVE = 0.2
"""Share of the peak need that the KV cache keeps beyond it: a full cache preempts requests and computes them anew.
Practice keeps 20 to 30 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """What has to fit: the model on its GPUs, its images, and how many requests run at once.

    ``peak_request_tokens`` is the 99th percentile of their lengths. It fits where the pessimistic end of
    ``calibration`` fits. ``images`` has the tokens and patches of each declared size.
    """

    calibration: MemoryCalibration
    shape: ModelShape
    gpu: GpuKind
    tensor_parallel_size: int
    encoder_mode: EncoderMode
    kv_cache_dtype: str
    max_model_len: int
    max_num_seqs: int
    images_per_prompt: int
    largest_image_tokens: int
    largest_request_tokens: int
    peak_request_tokens: int
    running: int
    preprocessing_cores: int
    maximum: MaximumTokens
    images: tuple[tuple[int, int], ...] = ()
    max_num_batched_tokens: int | None = None
    utilization_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """A choice of batch limits that starts, and the memory that comes of it.

    ``largest_requests`` of the largest kind fit at once, and ``peak_requests`` of the 99th percentile.
    """

    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int
    encoder_budget_tokens: int
    begun: StartUp
    host: HostResources
    largest_requests: int
    peak_requests: int

    @property
    def memory(self) -> MemoryBreakdown:
        """The whole GPU by part."""
        return self.begun.memory

    @property
    def cache(self) -> KVCachePlan:
        """The KV cache that the pessimistic end leaves."""
        return self.begun.cache


def fit_memory(request: FitRequest) -> MemoryFit | Misfit:
    """Return the best batch limits that start, or the misfit of the batch that came nearest."""
    choices = _batch_choices(request)
    if isinstance(choices, Misfit):
        return choices
    fits: list[MemoryFit] = []
    misfits: list[Misfit] = []
    for batched_tokens in choices:
        verdict = _try_batch(request, batched_tokens)
        if isinstance(verdict, Misfit):
            misfits.append(verdict)
            if verdict.reason == "Weights":  # no smaller step makes room for them
                break
        elif verdict.peak_requests >= (1 + KV_RESERVE) * request.running:
            return verdict
        else:
            fits.append(verdict)
    if fits:
        return max(fits, key=lambda fit: fit.peak_requests)
    return min(misfits, key=lambda misfit: misfit.shortfall_fraction)


def _batch_choices(request: FitRequest) -> tuple[int, ...] | Misfit:
    """Return the step sizes that every declared request may pass, largest first; the one that is asked for alone."""
    asked = request.max_num_batched_tokens
    needs = _least_batch(request)
    least = max(needs.values())
    if asked is not None and asked < least:
        needed = " and ".join(what for what, tokens in needs.items() if tokens == least)
        message = f"--max-num-batched-tokens {asked:,} is below the {least:,} that {needed} takes"
        # Nothing lacks but the flag, so no other miss is nearer.
        return Misfit(reason="BatchTooSmall", message=f"{message}; raise it or leave it out", shortfall_fraction=0)
    if asked is not None:
        return (asked,)
    choices = tuple(tokens for tokens in BATCHED_TOKENS if tokens >= least)
    return choices or (ceil_div(least, BATCHED_TOKENS_STEP) * BATCHED_TOKENS_STEP,)


def _least_batch(request: FitRequest) -> dict[str, int]:
    """Return the fewest tokens of a step by what needs them.

    An image that may not be chunked has to fit into one step, and an image above the engine's own maximum is refused
    unless a step is at least as large (the encoder budget is the larger of the two). A step also holds a whole block
    of a cache that keeps states.
    """
    settings = KVSettings(
        tensor_parallel_size=request.tensor_parallel_size,
        capability=request.gpu.compute_capability or (0, 0),
        dtype=request.kv_cache_dtype,
    )
    needs = {
        f"a token for each of --max-num-seqs {request.max_num_seqs}": request.max_num_seqs,
        "a block of the KV cache": kv_layout(request.shape, settings).least_step,
    }
    if request.shape.prefix_lm:
        needs["an image in one step"] = max(request.maximum.engine_tokens, request.largest_image_tokens)
    elif request.largest_image_tokens > request.maximum.engine_tokens:
        needs["the largest declared image"] = request.largest_image_tokens
    return needs


def _try_batch(request: FitRequest, batched_tokens: int) -> MemoryFit | Misfit:
    budget = encoder_budget(
        max_num_batched_tokens=batched_tokens,
        max_tokens_per_item=request.maximum.engine_tokens,
        chunked=not request.shape.prefix_lm,
        limit=request.images_per_prompt,
        max_model_len=request.max_model_len,
        max_num_seqs=request.max_num_seqs,
    )
    if isinstance(budget, EncoderRefusal):
        return Misfit(reason=budget.reason, message=budget.message, shortfall_fraction=1.0)
    begun = start_up(
        _memory_request(request, batched_tokens, budget),
        request.calibration,
        kv_cache_dtype=request.kv_cache_dtype,
        leave_room=request.utilization_percent is None,
    )
    if begun.misfit is not None:
        return begun.misfit
    return MemoryFit(
        max_num_batched_tokens=batched_tokens,
        gpu_memory_utilization_percent=begun.request.utilization_percent,
        encoder_budget_tokens=budget.tokens,
        begun=begun,
        host=estimate_host(
            begun.request,
            constants_at(request.calibration, "high"),
            preprocessing_cores=request.preprocessing_cores,
        ),
        largest_requests=begun.cache.requests_of(request.largest_request_tokens),
        peak_requests=begun.cache.requests_of(request.peak_request_tokens),
    )


def _memory_request(request: FitRequest, batched_tokens: int, budget: EncoderBudget) -> MemoryRequest:
    return MemoryRequest(
        shape=request.shape,
        gpu=request.gpu,
        tensor_parallel_size=request.tensor_parallel_size,
        encoder_mode=request.encoder_mode,
        utilization_percent=request.utilization_percent or MAX_UTILIZATION_PERCENT,
        max_num_seqs=request.max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        max_model_len=request.max_model_len,
        dummy_patches=request.maximum.dummy_patches,
        engine_tokens=request.maximum.engine_tokens,
        items=budget.items_per_batch,
        served=_largest_step(request.images, budget.tokens, request.max_num_seqs * request.images_per_prompt),
    )


@lru_cache(maxsize=1024)
def _largest_step(images: tuple[tuple[int, int], ...], budget: int, most: int) -> ImageBatch | None:
    """Return the step of declared images with the most patches that the encoder's budget lets through.

    Of each size as many as pass, then of the others, larger ones first, ``most`` in all.
    """
    if not images:
        return None
    sizes = sorted(images, reverse=True)
    steps = []
    for first in sizes:
        left, free, patches, tokens = budget, most, 0, 0
        for size in (first, *sizes):
            count = min(left // size[0], free)
            left, free = left - count * size[0], free - count
            patches, tokens = patches + count * size[1], tokens + count * size[0]
        steps.append((patches, tokens, max(1, most - free)))
    patches, tokens, items = max(steps)
    return ImageBatch(items=items, patches=ceil_div(patches, items), tokens=ceil_div(tokens, items))
