"""A judged plan tried: one of its replicas simulated under the declared traffic with the engine's scheduling rules.

In: ``Judged`` from ``judge.py`` and a generator that the caller seeds. Out: the plan with the percentiles of the
simulation. ``search.py`` tries the cheapest plans only: the closed formulas of ``judge.py`` have pruned the rest.
"""

import math
from dataclasses import replace
from typing import Final

from vlm_operator.sizing.assemble import PROCESSOR_CACHE_GIB, SPREADS, Judged
from vlm_operator.sizing.fit import KV_RESERVE
from vlm_operator.sizing.host import MEDIA_THREADS, PIXEL_BYTES, engine_cores
from vlm_operator.sizing.kv_cache import KVCachePlan
from vlm_operator.sizing.plan import Percentiles, Plan, TrafficFigures
from vlm_operator.sizing.question import Question
from vlm_operator.sizing.tokens.types import ImageTokens
from vlm_operator.sizing.traffic import (
    Bursty,
    ClosedLoop,
    Distribution,
    Goal,
    ImageWork,
    KVBlocks,
    Lengths,
    Poisson,
    Promise,
    Randomness,
    RequestKind,
    RequestMix,
    ServerLimits,
    TrafficRun,
    simulate,
)
from vlm_operator.sizing.workload import Workload
from vlm_operator.units import GIB, ceil_div

REQUESTS: Final = 1000
"""Requests of one trial: the 99th percentile then rests on the slowest 10."""
LEAST_SECONDS: Final = 120.0
LEAST_TURNS: Final = 10
"""Times over that the requests in flight are replaced in one trial: a queue that grows shows by then."""
WARM_UP: Final = 0.1
BURST_SHARE: Final = 0.1
"""Bursts fill this share of the time (assumed: ``burstPercent`` says only how high they are)."""
BURST_SECONDS: Final = 30.0
"""Their length (assumed)."""


def try_plan(judged: Judged, generator: Randomness, *, hurried: bool = False) -> Plan:
    """Return the plan of ``judged`` with the latency and the traffic figures of a simulated replica.

    A hurried trial ends once a target is certain to be missed; how far it is missed is then a guess.
    """
    plan = judged.plan
    workload = judged.question.workload
    arrivals = _arrivals(workload, judged.setting.serving)
    run = TrafficRun(
        mix=_mix(judged.question),
        arrivals=arrivals,
        limits=_limits(judged),
        seconds=_seconds(arrivals, plan.latency.request.p50),
        warm_up=WARM_UP,
        goal=_goal(judged.question),
        promises=_promises(judged.question) if hurried else (),
    )
    result = simulate(run, judged.case.runner.costs, generator)
    estimate = replace(
        plan.latency,
        ttft=_percentiles(result.ttft),
        tpot=_percentiles(result.tpot),
        request=_percentiles(result.total),
        requests_per_minute_per_replica=max(plan.latency.requests_per_minute_per_replica, 60 * result.goodput),
    )
    figures = TrafficFigures(
        utilisation=result.utilisation,
        kv_usage=result.kv_usage,
        mean_queue=result.queue,
        preemptions=result.preemptions,
        on_time=result.goodput / result.requests_per_second if result.requests_per_second else 0.0,
        sustainable=result.sustainable and not result.rejected,
        requests=result.requests,
    )
    binding = plan.binding_constraint if result.binding == "none" else result.binding
    tight = plan.tight_kv_cache or result.kv_peak * (1 + KV_RESERVE) > 1
    return replace(plan, latency=estimate, traffic=figures, binding_constraint=binding, tight_kv_cache=tight)


def _percentiles(found: Distribution) -> Percentiles:
    return Percentiles(p50=found.percentiles[50], p95=found.percentiles[95], p99=found.percentiles[99])


def _mix(question: Question) -> RequestMix:
    """Return the declared requests; below the median a length is taken for the median, which is all that is known."""
    workload = question.workload
    shared = workload.shared_prefix_tokens
    p50, most = workload.prompt_tokens_p50 - shared, workload.prompt_tokens_max - shared
    text = Lengths(points=((0.0, p50), (0.5, p50), (0.99, most), (1.0, most)))
    middle, longest = workload.output_tokens_p50, workload.output_tokens_max
    output = Lengths(points=((0.0, middle), (0.5, middle), (1.0, longest)))
    return RequestMix(
        kinds=tuple(
            RequestKind(weight=entry.weight, text=text, output=output, drawn=entry.count)
            for entry in workload.images_per_request
            if entry.weight
        ),
        sizes=tuple((size.weight, _image(question, size.width, size.height)) for size in workload.image_sizes),
        shared_prefix_tokens=shared,
        repeat_share=workload.repeat_percent / 100,
    )


def _image(question: Question, width: int, height: int) -> ImageWork:
    tokens = question.rule.count_image(width, height)
    if not isinstance(tokens, ImageTokens):  # the demand was measured with the same rule and sizes
        raise TypeError(tokens.message)
    return ImageWork(
        megapixels=width * height / 1e6,
        patches=tokens.vit_patches,
        span=ceil_div(tokens.vit_patches, tokens.tiles or 1),
        embeddings=tokens.embed_tokens,
        prompt_tokens=tokens.prompt_tokens,
    )


def _arrivals(workload: Workload, replicas: int) -> Poisson | Bursty | ClosedLoop:
    """Return what one of ``replicas`` sees; a balancer that knows nothing thins a Poisson process to one."""
    if workload.requests_per_minute is None:
        clients = ceil_div(workload.concurrent_requests or 1, replicas)
        return ClosedLoop(clients=clients, requests=max(REQUESTS, 4 * clients))
    rate = workload.requests_per_minute / 60 / replicas
    peak = workload.burst_percent / 100
    if peak <= 1:
        return Poisson(rate=rate)
    return Bursty(rate=rate, peak=peak, burst_share=min(BURST_SHARE, 1 / peak), burst_seconds=BURST_SECONDS)


def _seconds(arrivals: Poisson | Bursty | ClosedLoop, request_seconds: float) -> float:
    """Return how long requests come: long enough for percentiles, for a growing queue to show, for whole bursts."""
    if isinstance(arrivals, ClosedLoop):
        return LEAST_SECONDS
    seconds = max(LEAST_SECONDS, REQUESTS / arrivals.rate, LEAST_TURNS * request_seconds)
    if isinstance(arrivals, Poisson):
        return seconds
    return math.ceil(seconds / arrivals.cycle_seconds) * arrivals.cycle_seconds


def _limits(judged: Judged) -> ServerLimits:
    flags, vision = judged.plan.flags, judged.question.shape.vision
    cores = judged.plan.host.cpu_cores - engine_cores(judged.plan.gpus_per_replica)
    return ServerLimits(
        max_num_seqs=flags.max_num_seqs,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        kv=kv_blocks(judged.fit.cache),
        encoder_tokens=judged.fit.encoder_budget_tokens,
        preprocess_workers=max(1, min(cores, MEDIA_THREADS)),
        processor_cache_patches=PROCESSOR_CACHE_GIB * GIB // (vision.patch_row * PIXEL_BYTES),
    )


def kv_blocks(cache: KVCachePlan) -> KVBlocks:
    """Return the cache in blocks of one size; groups with other blocks count in proportion, rounded up."""
    size = cache.block_size
    growing = bounded = states = bound = 0
    for group in cache.layout.groups:
        spec, number = group.spec, len(group.layers)
        if spec.states or spec.block_tokens is None:
            states += number * spec.states
            continue
        scaled = number * ceil_div(size, spec.block_tokens)
        if spec.reach:
            bounded += scaled
            bound = max(bound, spec.reach + cache.max_in_flight_tokens)
        else:
            growing += scaled
    return KVBlocks(
        total=max(0, cache.num_blocks - 1),
        block_tokens=size,
        growing_groups=growing,
        bounded_groups=bounded,
        bound_tokens=bound,
        state_blocks=states,
    )


def _goal(question: Question) -> Goal:
    limits = {target.metric: target.seconds for target in question.constraints.latency_targets}
    return Goal(ttft=limits.get("ttft"), tpot=limits.get("tpot"), total=limits.get("request_latency"))


def _promises(question: Question) -> tuple[Promise, ...]:
    return tuple(
        Promise(latency=SPREADS[target.metric], percentile=target.percentile, seconds=target.seconds)
        for target in question.constraints.latency_targets
    )
