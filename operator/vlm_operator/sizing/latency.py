"""A first roofline of latency: seconds per phase from FLOPs and bytes.

In: what one replica runs on (``Replica``) and what a request asks (``RequestWork``). Out: ``RequestSeconds``.
``judge.py`` is the only caller, through ``percentiles_seconds`` and ``requests_per_minute``; a measured model can
replace this module without touching anything else.

Where it stops being true: no queueing theory beyond a steady closed loop, no kernel tables, no burst within a
second. Efficiencies are assumed shares of datasheet figures, so the certainty is never better than ``estimated``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vlm_operator.sizing.inventory import GpuKind

COMPUTE_EFFICIENCY = 0.55
"""Share of dense BF16 FLOPS reached by large matrix products. Measured medians of published kernel tables lie
between 0.54 and 0.87 (language-model shapes) and 0.54 and 0.68 (vision-tower shapes); the lower end is taken."""

BANDWIDTH_EFFICIENCY = 0.75
"""Share of datasheet bandwidth reached when weights and KV cache are read. Measured medians: 0.63 to 0.91."""

SECONDS_PER_LAYER = 18e-6
"""Launch and synchronisation cost of one decoder layer in a decode step (fitted to published decode runs)."""

SECONDS_PER_STEP = 5e-3
"""Host cost of one engine step (residual of published single-stream runs: about 5 ms)."""

PREPROCESS_SECONDS_PER_MEGAPIXEL = 0.02
"""Decoding, resizing and normalising one megapixel on one core. Assumed; not measured for this engine."""

ALL_REDUCE_SECONDS = {True: 8e-6, False: 28e-6}
"""One small all-reduce with and without a fast link between the GPUs (upper ends of measured ranges)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine replica: its GPUs, and the work that a token costs it.

    Parameters are counts, ``weights_bytes`` and ``kv_bytes_per_token`` are per rank.
    """

    gpu: GpuKind
    tensor_parallel_size: int
    decoder_parameters: int
    encoder_parameters: int
    decoder_layers: int
    weights_bytes: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """One request: megapixels to preprocess, patches to encode, tokens to prefill and to generate."""

    megapixels: float
    patches: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSeconds:
    """One request's time to first token, mean time per later token, and total."""

    ttft: float
    tpot: float
    total: float


def request_seconds(replica: Replica, work: RequestWork, typical: RequestWork, concurrency: int) -> RequestSeconds:
    """Return the latency of ``work`` while ``concurrency`` requests like ``typical`` are running.

    In a closed loop every other running request is prefilled once while this one lives, so this one waits, spread
    over its tokens, for ``concurrency - 1`` foreign prefills; on arrival half of one is in its way on average.
    """
    own = _prefill_seconds(replica, work)
    foreign = _prefill_seconds(replica, typical)
    others = concurrency - 1
    ttft = work.megapixels * PREPROCESS_SECONDS_PER_MEGAPIXEL + own + (foreign / 2 if others else 0.0)
    step = _decode_step_seconds(replica, typical, concurrency)
    tpot = step + others * foreign / max(typical.output_tokens, 1)
    return RequestSeconds(ttft=ttft, tpot=tpot, total=ttft + max(work.output_tokens - 1, 0) * tpot)


def requests_per_minute(replica: Replica, typical: RequestWork, concurrency: int) -> float:
    """Return the throughput of one replica with ``concurrency`` requests running (Little's law)."""
    return 60 * concurrency / request_seconds(replica, typical, typical, concurrency).total


def percentiles_seconds(
    replica: Replica, works: Mapping[int, RequestWork], concurrency: int
) -> dict[int, RequestSeconds]:
    """Return the latency at each percentile of the declared mix; ``works[50]`` is the typical request."""
    return {p: request_seconds(replica, work, works[50], concurrency) for p, work in works.items()}


def _prefill_seconds(replica: Replica, work: RequestWork) -> float:
    """Encoder and decoder passes over one prompt: 2 FLOPs per parameter and token or patch."""
    flops = (replica.gpu.bf16_flops or 0.0) * COMPUTE_EFFICIENCY * replica.tensor_parallel_size
    if not flops:
        return float("inf")
    encode = 2 * replica.encoder_parameters * work.patches / flops
    prefill = 2 * replica.decoder_parameters * work.prompt_tokens / flops
    return encode + prefill + SECONDS_PER_STEP


def _decode_step_seconds(replica: Replica, typical: RequestWork, concurrency: int) -> float:
    """One decode step: weights and KV cache read once, plus launch, all-reduce and host costs."""
    context = typical.prompt_tokens + typical.output_tokens // 2
    read = replica.weights_bytes + concurrency * context * replica.kv_bytes_per_token
    step = read / (replica.gpu.bandwidth_bytes_per_second * BANDWIDTH_EFFICIENCY)
    step += replica.decoder_layers * SECONDS_PER_LAYER + SECONDS_PER_STEP
    if replica.tensor_parallel_size > 1:
        fast = replica.gpu.link_bytes_per_second is not None
        step += 2 * replica.decoder_layers * ALL_REDUCE_SECONDS[fast]
    return step
