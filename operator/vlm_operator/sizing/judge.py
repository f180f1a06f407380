"""One candidate judged: GPU kind x tensor parallel size against everything that is asked.

In: ``Candidate`` and ``Question``. Out: ``Judged`` with a plan where every named check holds, else the first
``Rejection``. The checks run in the order in which the engine would trip over them: GPU, sharding, context, memory,
traffic, money.
"""

import math
from dataclasses import replace
from functools import partial

from vlm_operator.sizing import latency
from vlm_operator.sizing.assemble import Judged
from vlm_operator.sizing.fit import BATCHED_TOKENS, KV_RESERVE, FitRequest, MemoryFit, fit_memory
from vlm_operator.sizing.host import MEDIA_THREADS, engine_cores
from vlm_operator.sizing.inventory import Resources, find_shortage
from vlm_operator.sizing.kv_cache import KVSettings, check_kv_cache
from vlm_operator.sizing.legality import LengthRefusal, check_encoder_mode, check_gpu, check_tensor_parallel
from vlm_operator.sizing.plan import Rejection, late_words
from vlm_operator.sizing.question import Candidate, Case, Question, Setting
from vlm_operator.sizing.repeats import FreshShares, fresh_shares
from vlm_operator.sizing.start_up import Misfit
from vlm_operator.sizing.workload import Constraints, Workload

MAX_SEQUENCES = 256
SEQUENCE_STEP = 8
UNEVEN = 3
LEAST_OPEN_SEQUENCES = 16
MAX_REPLICAS = 64
"""Where scaling.maxReplicas sets no limit, more replicas than this are not searched."""
MOST_LOAD = 0.85
"""Share of its capacity that a replica is planned for: nearer to it, arrivals by chance queue without bound, and the
capacity itself is an estimate."""
PERCENTILES = (50, 95, 99)
LEAST_PREPROCESSING_CORES = 2
NEVER = 1e9
"""Shortfall of a candidate that no change of the workload would save: it is the farthest miss."""


def judge(candidate: Candidate, question: Question) -> Judged | Rejection:
    """Return the plan for ``candidate``, or the first check that it fails."""
    illegal = _check_legal(candidate, question)
    if illegal is not None:
        return illegal
    if isinstance(question.max_model_len, LengthRefusal):
        return reject(candidate, question.max_model_len.reason, question.max_model_len.message)
    return _with_traffic(candidate, question, question.max_model_len)


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


def _with_traffic(candidate: Candidate, question: Question, max_model_len: int) -> Judged | Rejection:
    """Return a plan with the fewest replicas that hold the traffic within the latency targets.

    A KV cache without its reserve is a plan only where no number of replicas gives it one.
    """
    constraints = question.constraints
    replicas = constraints.min_replicas
    most = constraints.max_replicas or max(MAX_REPLICAS, constraints.min_replicas)
    fresh = fresh_shares(question, _wanted_step(candidate, question) or BATCHED_TOKENS[0])
    case = Case(
        max_model_len=max_model_len,
        runner=_replica(candidate, question),
        works=_request_works(question, fresh),
        typical=_typical_work(question, fresh),
    )
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


def judge_replicas(
    candidate: Candidate, question: Question, case: Case, replicas: int
) -> tuple[Judged | Rejection, int | None]:
    """Judge one replica count; with the verdict comes the count that is worth trying next, None where none is."""
    running = _running_per_replica(question.workload, case.runner, case.typical, replicas)
    if running is None:
        wanted = _replicas_for_rate(question.workload, case)
        return _reject_rate(candidate, question.constraints, replicas, wanted), wanted
    asked = question.constraints.asked.max_num_seqs
    if asked is not None and running > asked:
        message = f"{running} requests run at once on each of {replicas} replicas; --max-num-seqs allows {asked}"
        crowded = reject(candidate, "RunningSequences", message, shortfall=0)  # nothing lacks but the flag
        return crowded, -(-replicas * running // asked)
    sequences = asked or _max_num_seqs(question.workload, running)
    setting = Setting(
        max_model_len=case.max_model_len,
        max_num_seqs=sequences,
        replicas=replicas,
        running=running,
        preprocessing_cores=_preprocessing_cores(candidate, question.workload, case, replicas),
    )
    fit, next_count = _fit(candidate, question, setting)
    if isinstance(fit, Rejection):
        return fit, next_count
    case = replace(case, runner=case.runner.with_steps(fit.max_num_batched_tokens))
    rate = _arrivals(question.workload, replicas)
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
        most_on_time=partial(_most_on_time, candidate, question, case, fit),
    )
    dear = _check_price(judged)
    if dear is not None:
        return dear, None
    wanted = -(-math.ceil(replicas * running * (1 + KV_RESERVE)) // fit.peak_requests)
    return judged, wanted if judged.tight_kv_cache and running > 1 else None


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
    return short, -(-setting.replicas * running // held) if held else None


def _max_num_seqs(workload: Workload, running: int) -> int:
    """Return the sequences that a step takes: arrivals at a rate come unevenly, a closed loop never has more."""
    wanted = running if workload.requests_per_minute is None else max(LEAST_OPEN_SEQUENCES, UNEVEN * running)
    return min(MAX_SEQUENCES, -(-wanted // SEQUENCE_STEP) * SEQUENCE_STEP)


def _most_on_time(candidate: Candidate, question: Question, case: Case, fit: MemoryFit) -> int:
    """Return how many requests a replica can run at once with every latency target kept."""
    low, high = 1, min(fit.peak_requests, question.constraints.asked.max_num_seqs or MAX_SEQUENCES)
    if not question.constraints.latency_targets:
        return high
    arriving = question.workload.requests_per_minute is not None
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
        max_num_batched_tokens=_wanted_step(candidate, question),
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


def _preprocessing_cores(candidate: Candidate, workload: Workload, case: Case, replicas: int) -> int:
    """Return the cores that prepare images: twice what the declared rate keeps busy, within the engine's threads.

    In a closed loop images come when a request ends, so a share of the threads is kept for them. A replica takes no
    larger share of a node's cores than of its GPUs, as long as that leaves it the least.
    """
    busy = latency.preprocess_seconds(case.runner, case.typical) - case.runner.costs.request()
    rate = _arrivals(workload, replicas) * workload.burst_percent / 100
    wanted = math.ceil(2 * rate * busy) if rate else MEDIA_THREADS // 2
    cores = min(max(LEAST_PREPROCESSING_CORES, wanted), MEDIA_THREADS)
    others = engine_cores(candidate.tensor_parallel_size)
    share = candidate.node.fair_cores(candidate.tensor_parallel_size, others + LEAST_PREPROCESSING_CORES)
    return cores if share is None else min(cores, share - others)


def _check_room(candidate: Candidate, pod: Resources, replicas: int) -> Rejection | None:
    short = find_shortage(candidate.node, pod, replicas)
    return reject(candidate, short.reason, short.message, shortfall=short.fraction) if short else None


def _replica(candidate: Candidate, question: Question) -> latency.Replica:
    layout = latency.Layout(
        gpu=candidate.node.gpu,
        ranks=candidate.tensor_parallel_size,
        kv_dtype=candidate.kv_cache_dtype,
        whole_images=candidate.encoder_mode == "data",
    )
    costs = latency.step_model(question.shape, layout, question.latency)
    return latency.Replica(costs=costs, max_num_batched_tokens=_wanted_step(candidate, question) or BATCHED_TOKENS[0])


def _wanted_step(candidate: Candidate, question: Question) -> int | None:
    return question.constraints.asked.max_num_batched_tokens or candidate.max_num_batched_tokens


def _request_works(question: Question, fresh: FreshShares) -> dict[int, latency.RequestWork]:
    """Return the work of the request at each percentile of the declared mix; what caches answer is no work."""
    workload = question.workload
    return {
        p: _work(
            question,
            fresh,
            question.demand.image_tokens_at[p],
            workload.prompt_tokens_p50 if p == 50 else workload.prompt_tokens_max,
            workload.output_tokens_p50 if p == 50 else workload.output_tokens_max,
        )
        for p in PERCENTILES
    }


def _typical_work(question: Question, fresh: FreshShares) -> latency.RequestWork:
    """Return the mean request, which decides what a replica serves."""
    workload = question.workload
    tokens = round(workload.mean_images_per_request * question.demand.mean_tokens_per_image)
    return _work(question, fresh, tokens, workload.mean_prompt_tokens, workload.mean_output_tokens)


def _work(
    question: Question, fresh: FreshShares, image_tokens: int, prompt_tokens: int, output_tokens: int
) -> latency.RequestWork:
    demand, workload = question.demand, question.workload
    return latency.RequestWork(
        megapixels=image_tokens * demand.mean_megapixels_per_token * fresh.prepared,
        patches=image_tokens * demand.mean_patches_per_token * fresh.encoded,
        prepared=image_tokens * demand.mean_patches_per_token * fresh.prepared,
        prompt_tokens=image_tokens + prompt_tokens - workload.shared_prefix_tokens,
        output_tokens=output_tokens,
        images=max(1, round(image_tokens / demand.mean_tokens_per_image)),
        span=demand.mean_span,
    )


def _running_per_replica(
    workload: Workload, runner: latency.Replica, typical: latency.RequestWork, replicas: int
) -> int | None:
    """Return how many requests run at once on each replica, or None where no number keeps up with the rate."""
    if workload.concurrent_requests is not None:
        return -(-workload.concurrent_requests // replicas)
    if workload.requests_per_minute is None:
        return 1
    rate = workload.requests_per_minute * workload.burst_percent / 100 / replicas
    low, high = 1, MAX_SEQUENCES
    if MOST_LOAD * latency.requests_per_minute(runner, typical, high) < rate:
        return None
    while low < high:
        middle = (low + high) // 2
        if latency.requests_per_minute(runner, typical, middle) >= rate:
            high = middle
        else:
            low = middle + 1
    return low


def _reject_rate(candidate: Candidate, constraints: Constraints, replicas: int, wanted: int) -> Rejection:
    message = f"the declared requests per minute take {wanted} replicas or more; {replicas} cannot keep up"
    if constraints.max_replicas is None and wanted > MAX_REPLICAS:
        message += f"; more than {MAX_REPLICAS} are searched only where scaling.maxReplicas allows them"
    return reject(candidate, "Throughput", message, shortfall=wanted / replicas - 1)


def _replicas_for_rate(workload: Workload, case: Case) -> int:
    """Return the fewest replicas that keep up with the declared rate in bursts, each as full as it may be."""
    rate = (workload.requests_per_minute or 0) * workload.burst_percent / 100
    return math.ceil(rate / (MOST_LOAD * latency.requests_per_minute(case.runner, case.typical, MAX_SEQUENCES)))


def _arrivals(workload: Workload, replicas: int) -> float:
    """Return the requests that reach one of ``replicas`` per second on average, 0 in a closed loop."""
    return (workload.requests_per_minute or 0) / 60 / replicas


def _late(candidate: Candidate, question: Question, case: Case, running: int, rate: float = 0.0) -> Rejection | None:
    """Return the first latency target that is missed with ``running`` requests at once, by closed formulas.

    ``rate`` arrive per second by chance; what bursts make of it is left to a trial, for few requests may see them.
    """
    for target in question.constraints.latency_targets:
        work, typical = case.works[target.percentile], case.typical
        queue = latency.queue_seconds(case.runner, case.works, typical, rate, target.percentile)
        figures = latency.request_seconds(case.runner, work, typical, running, queue)
        value = {"ttft": figures.ttft, "tpot": figures.tpot, "request_latency": figures.total}[target.metric]
        if value > target.seconds:
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
