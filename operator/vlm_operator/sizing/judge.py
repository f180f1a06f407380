"""One candidate judged: GPU kind x tensor parallel size against everything that is asked.

In: ``Candidate`` and ``Question``. Out: ``Judged`` with a plan where every named check holds, else the first
``Rejection``. The checks run in the order in which the engine would trip over them: GPU, sharding, context, memory,
traffic, money.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from vlm_operator.sizing import latency
from vlm_operator.sizing.assemble import SPREADS, Judged
from vlm_operator.sizing.fit import KV_RESERVE, FitRequest, MemoryFit, fit_memory
from vlm_operator.sizing.host import MEDIA_THREADS, engine_cores
from vlm_operator.sizing.inventory import Resources, find_shortage
from vlm_operator.sizing.kv_cache import KVSettings, check_kv_cache
from vlm_operator.sizing.legality import LengthRefusal, check_encoder_mode, check_gpu, check_tensor_parallel
from vlm_operator.sizing.load import (
    MAX_SEQUENCES,
    arrivals_per_second,
    make_case,
    replicas_for_rate,
    running_per_replica,
    wanted_step,
)
from vlm_operator.sizing.plan import Plan, Rejection, late_words
from vlm_operator.sizing.question import Candidate, Case, Question, Setting
from vlm_operator.sizing.start_up import Misfit
from vlm_operator.sizing.workload import Constraints, Workload

SEQUENCE_STEP = 8
UNEVEN = 3
LEAST_OPEN_SEQUENCES = 16
MAX_REPLICAS = 64
"""Where scaling.maxReplicas sets no limit, more replicas than this are not searched."""
LEAST_PREPROCESSING_CORES = 2
NEVER = 1e9
"""Shortfall of a candidate that no change of the workload would save: it is the farthest miss."""


def judge(
    candidate: Candidate, question: Question, slack: float = 0.0, below: Plan | None = None
) -> Judged | Rejection:
    """Return the plan for ``candidate``, or the first check that it fails.

    Args:
        candidate: What is judged.
        question: What is asked of it.
        slack: Share by which closed formulas may miss a target or the traffic where a trial is to decide.
        below: A plan that holds: only cheaper ones are of interest.
    """
    if _affordable(candidate, below) < question.constraints.least_replicas:
        return reject(candidate, "TooExpensive", "a cheaper plan holds")
    illegal = _check_legal(candidate, question)
    if illegal is not None:
        return illegal
    if isinstance(question.max_model_len, LengthRefusal):
        return reject(candidate, question.max_model_len.reason, question.max_model_len.message)
    case = make_case(candidate, question, question.max_model_len, slack)
    return _with_traffic(candidate, question, case, below)


def _check_legal(candidate: Candidate, question: Question) -> Rejection | None:
    """Return the first rule of the engine that the GPU, the layout or the type of the KV cache breaks."""
    gpu, size = candidate.node.gpu, candidate.tensor_parallel_size
    broken = (
        check_gpu(question.shape, gpu)
        or check_encoder_mode(question.shape, candidate.encoder_mode)
        or check_tensor_parallel(question.shape, size, candidate.encoder_mode)
    )
    if broken:
        return reject(candidate, broken[0].rule, broken[0].message, shortfall=NEVER)
    settings = KVSettings(
        tensor_parallel_size=size, capability=gpu.compute_capability or (0, 0), dtype=candidate.kv_cache_dtype
    )
    refused = check_kv_cache(question.shape, settings)
    return reject(candidate, refused.reason, refused.message, shortfall=NEVER) if refused else None


def _with_traffic(candidate: Candidate, question: Question, case: Case, below: Plan | None) -> Judged | Rejection:
    """Return a plan with the fewest replicas that hold the traffic within the latency targets.

    A KV cache without its reserve is a plan only where no number of replicas gives it one.
    """
    constraints = question.constraints
    replicas = constraints.least_replicas
    most = min(most_replicas(constraints), _affordable(candidate, below))
    hopeless = _late(candidate, question, case, 1)
    if hopeless is not None:  # late with a replica for itself: more replicas would not help
        return hopeless
    tight: Judged | None = None
    last: Rejection | None = None
    while replicas <= most:
        no_room = _check_room(candidate, Resources(gpus=candidate.tensor_parallel_size), replicas)
        if no_room is not None:
            return tight or last or no_room
        verdict, next_count = judge_replicas(candidate, question, case, replicas)
        if isinstance(verdict, Rejection):
            last = verdict
        elif not verdict.tight_kv_cache:
            return verdict
        else:
            tight = tight or verdict
        if next_count is None:
            break
        replicas = max(next_count, replicas + 1)
    return tight or last or reject(candidate, "TooManyReplicas", f"more than {most} replicas would be needed")


def most_replicas(constraints: Constraints) -> int:
    """Return how many replicas may be had."""
    return constraints.max_replicas or max(MAX_REPLICAS, constraints.least_replicas)


def _affordable(candidate: Candidate, below: Plan | None) -> float:
    """Return how many replicas cost less than ``below``, or as much with fewer GPUs."""
    price = candidate.node.gpu.hourly_cents
    if below is None or below.hourly_cents is None or below.tight_kv_cache:
        return math.inf
    return 0 if price is None else below.hourly_cents / (price * candidate.tensor_parallel_size or 1e-9)


def judge_replicas(
    candidate: Candidate, question: Question, case: Case, replicas: int
) -> tuple[Judged | Rejection, int | None]:
    """Judge one replica count; with the verdict comes the count that is worth trying next, None where none is.

    Spare replicas are part of the count and carry none of the load.
    """
    spare = question.constraints.spare_replicas
    verdict, serving = _judge_serving(candidate, question, case, replicas - spare)
    return verdict, None if serving is None else serving + spare


def _judge_serving(
    candidate: Candidate, question: Question, case: Case, replicas: int
) -> tuple[Judged | Rejection, int | None]:
    """Judge a number of replicas that carry the load; with the verdict comes the number worth trying next."""
    asked = question.constraints.asked.max_num_seqs
    most = asked or MAX_SEQUENCES
    running = running_per_replica(question.workload, case, replicas, most)
    if running is None:
        wanted = replicas_for_rate(question.workload, case, most)
        return _reject_rate(candidate, question.constraints, replicas, wanted), wanted
    if running > most and case.slack:
        running = most  # the others wait their turn, and a trial tells for how long
    if asked is not None and running > asked:
        message = f"{running} requests run at once on each of {replicas} replicas; --max-num-seqs allows {asked}"
        crowded = reject(candidate, "RunningSequences", message, shortfall=0)  # nothing lacks but the flag
        return crowded, _next_count(question.workload, replicas, running, asked)
    sequences = asked or _max_num_seqs(question.workload, running)
    setting = Setting(
        max_model_len=case.max_model_len,
        max_num_seqs=sequences,
        serving=replicas,
        replicas=replicas + question.constraints.spare_replicas,
        running=running,
        preprocessing_cores=_preprocessing_cores(candidate, question.workload, case, replicas, running),
    )
    fit, next_count = _fit(candidate, question, setting)
    if isinstance(fit, Rejection):
        return fit, next_count
    case = replace(case, runner=case.runner.with_steps(fit.max_num_batched_tokens))
    rate = arrivals_per_second(question.workload, replicas) / (1 + case.slack)
    late = _late(candidate, question, case, running, rate)
    if late is not None:
        return late, replicas + 1 if running > 1 or rate else None
    seconds = latency.percentiles_seconds(case.runner, case.works, case.typical, running, rate)
    judged = Judged(
        candidate=candidate,
        question=question,
        case=case,
        setting=setting,
        fit=fit,
        seconds=seconds,
        strain=_strain(question, case, setting, seconds, most),
        most_on_time=partial(_most_on_time, candidate, question, case, fit),
    )
    dear = _check_price(judged)
    if dear is not None:
        return dear, None
    wanted = _next_count(question.workload, replicas, math.ceil(running * (1 + KV_RESERVE)), fit.peak_requests)
    return judged, wanted if judged.tight_kv_cache and running > 1 else None


def _strain(
    question: Question, case: Case, setting: Setting, seconds: Mapping[int, latency.RequestSeconds], most: int
) -> float:
    """Return the largest share of a latency target, or in bursts of what a replica with ``most`` requests serves."""
    arriving = arrivals_per_second(question.workload, setting.serving) * question.workload.burst_percent / 100
    served = latency.requests_per_minute(case.runner, case.typical, most) / 60
    late: list[float] = [
        getattr(seconds[target.percentile], SPREADS[target.metric]) / target.seconds
        for target in question.constraints.latency_targets
    ]
    return max((arriving / served, *late))


def _next_count(workload: Workload, replicas: int, running: int, held: int) -> int:
    """Return how many replicas to try next where each runs ``running`` requests and holds ``held``.

    The clients of a closed loop spread evenly. At a rate, what runs falls faster than replicas grow, so that a quarter
    of the way may be enough.
    """
    even = -(-replicas * running // held)
    return even if workload.concurrent_requests is not None else replicas + max(1, (even - replicas) // 4)


def _fit(candidate: Candidate, question: Question, setting: Setting) -> tuple[MemoryFit | Rejection, int | None]:
    """Return how the setting fits GPU and host and holds its requests, or why not and the replicas worth trying."""
    fit = fit_memory(_fit_request(candidate, question, setting))
    if isinstance(fit, Misfit):
        return reject(candidate, fit.reason, fit.message, shortfall=fit.shortfall_fraction), None
    no_room = _check_room(candidate, fit.host.pod(candidate.tensor_parallel_size), setting.replicas)
    if no_room is not None:
        return no_room, None
    running, held = setting.running, fit.peak_requests
    if held >= running:
        return fit, None
    message = f"the KV cache holds {held} requests of the 99th percentile; {running} run at once"
    short = reject(candidate, "KVCache", message, shortfall=running / max(held, 1) - 1)
    return short, _next_count(question.workload, setting.serving, running, held) if held else None


def _max_num_seqs(workload: Workload, running: int) -> int:
    """Return the sequences that a step takes: arrivals at a rate come unevenly, a closed loop never has more."""
    wanted = running if workload.requests_per_minute is None else max(LEAST_OPEN_SEQUENCES, UNEVEN * running)
    return min(MAX_SEQUENCES, -(-wanted // SEQUENCE_STEP) * SEQUENCE_STEP)


def _most_on_time(candidate: Candidate, question: Question, case: Case, fit: MemoryFit) -> int:
    """Return how many requests a replica can run at once with every latency target kept."""
    low, high = 1, min(fit.peak_requests, question.constraints.asked.max_num_seqs or MAX_SEQUENCES)
    if not question.constraints.latency_targets:
        return high
    arriving, case = question.workload.requests_per_minute is not None, replace(case, slack=0.0)
    while low < high:
        middle = (low + high + 1) // 2
        served = latency.requests_per_minute(case.runner, case.typical, middle) / 60 if arriving else 0.0
        if _late(candidate, question, case, middle, served) is None:
            low = middle
        else:
            high = middle - 1
    return low


def _fit_request(candidate: Candidate, question: Question, setting: Setting) -> FitRequest:
    return FitRequest(
        calibration=question.calibration,
        shape=question.shape,
        gpu=candidate.node.gpu,
        tensor_parallel_size=candidate.tensor_parallel_size,
        encoder_mode=candidate.encoder_mode,
        kv_cache_dtype=candidate.kv_cache_dtype,
        max_model_len=setting.max_model_len,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=wanted_step(candidate, question),
        utilization_percent=question.constraints.asked.utilization_percent,
        images_per_prompt=question.workload.max_images_per_request,
        largest_image_tokens=question.demand.largest_image_tokens,
        largest_request_tokens=question.demand.figures.request_max,
        peak_request_tokens=question.demand.figures.request_p99,
        running=setting.running,
        preprocessing_cores=setting.preprocessing_cores,
        maximum=question.rule.maximum(),
        images=question.demand.images,
    )


def _preprocessing_cores(candidate: Candidate, workload: Workload, case: Case, replicas: int, running: int) -> int:
    """Return the cores that prepare images: twice what requests keep busy, within the engine's threads.

    At a declared rate that is in bursts; in a closed loop images come as fast as requests end. A replica takes no
    larger share of a node's cores than of its GPUs, as long as that leaves it the least.
    """
    busy = latency.preprocess_seconds(case.runner, case.typical) - case.runner.costs.request()
    rate = arrivals_per_second(workload, replicas) * workload.burst_percent / 100
    rate = rate or latency.requests_per_minute(case.runner, case.typical, running) / 60
    wanted = math.ceil(2 * rate * busy)
    cores = min(max(LEAST_PREPROCESSING_CORES, wanted), MEDIA_THREADS)
    others = engine_cores(candidate.tensor_parallel_size)
    share = candidate.node.fair_cores(candidate.tensor_parallel_size, others + LEAST_PREPROCESSING_CORES)
    return cores if share is None else min(cores, share - others)


def _check_room(candidate: Candidate, pod: Resources, replicas: int) -> Rejection | None:
    short = find_shortage(candidate.node, pod, replicas)
    return reject(candidate, short.reason, short.message, shortfall=short.fraction) if short else None


def _reject_rate(candidate: Candidate, constraints: Constraints, replicas: int, wanted: int) -> Rejection:
    message = f"the declared requests per minute take {wanted} replicas or more; {replicas} cannot keep up"
    if constraints.max_replicas is None and wanted > MAX_REPLICAS:
        message += f"; more than {MAX_REPLICAS} are searched only where scaling.maxReplicas allows them"
    return reject(candidate, "Throughput", message, shortfall=wanted / replicas - 1)


def _late(candidate: Candidate, question: Question, case: Case, running: int, rate: float = 0.0) -> Rejection | None:
    """Return the first latency target that is missed with ``running`` requests at once, by closed formulas.

    ``rate`` arrive per second by chance; what bursts make of it is left to a trial, for few requests may see them.
    """
    for target in question.constraints.latency_targets:
        works, typical = case.lightest if case.slack else case.works, case.typical
        work = works[target.percentile]
        queue = latency.queue_seconds(case.runner, works, typical, rate, target.percentile)
        figures = latency.request_seconds(case.runner, work, typical, running, queue)
        value = {"ttft": figures.ttft, "tpot": figures.tpot, "request_latency": figures.total}[target.metric]
        if value > target.seconds * (1 + case.slack):
            words, prepare = late_words(target, value), case.runner.alone(work)[0]
            if target.metric != "tpot" and prepare > value / 2:
                words += f", {prepare:.3g} s of it on the CPU that prepares images"
            return reject(candidate, "Latency", words, shortfall=value / target.seconds - 1)
    return None


def _check_price(judged: Judged) -> Rejection | None:
    candidate, cents = judged.candidate, judged.hourly_cents
    most = judged.question.constraints.max_hourly_cost_cents
    if most is None:
        return None
    if cents is None:
        message = f"the price is unknown, so the limit of ${most / 100:.2f}/h cannot be checked"
        return reject(candidate, "PriceUnknown", message)
    if cents > most:
        message = f"${cents / 100:.2f}/h exceeds the limit of ${most / 100:.2f}/h"
        return reject(candidate, "TooExpensive", message, shortfall=cents / most - 1)
    return None


def reject(candidate: Candidate, reason: str, message: str, *, shortfall: float = 1.0) -> Rejection:
    """Return ``candidate`` with why it cannot be used; ``shortfall`` orders near misses."""
    gpu = candidate.node.gpu
    size = candidate.tensor_parallel_size
    return Rejection(
        gpu=gpu.display_name,
        gpus_per_replica=size,
        reason=reason,
        message=f"{size} × {gpu.display_name}: {message}",
        shortfall_fraction=shortfall,
        hourly_cents=None if gpu.hourly_cents is None else gpu.hourly_cents * size,
    )
