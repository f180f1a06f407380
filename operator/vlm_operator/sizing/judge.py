"""One candidate judged: GPU kind x tensor parallel size against everything that is asked.

In: ``Candidate`` and ``Question``. Out: ``Plan`` where every named check holds, else the first ``Rejection``.
The checks run in the order in which the engine would trip over them: GPU, sharding, context, memory, traffic, money.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vlm_operator.sizing import latency
from vlm_operator.sizing.assemble import assemble_latency, assemble_plan
from vlm_operator.sizing.fit import FitRequest, MemoryFit, fit_memory
from vlm_operator.sizing.kv_cache import KVSettings, check_kv_cache
from vlm_operator.sizing.legality import LengthRefusal, check_gpu, check_tensor_parallel
from vlm_operator.sizing.plan import Plan, Rejection
from vlm_operator.sizing.question import Candidate, Question, Setting
from vlm_operator.sizing.start_up import Misfit
from vlm_operator.sizing.workload import Workload
from vlm_operator.units import format_gib

MAX_SEQUENCES = 256
SEQUENCE_STEP = 8
MAX_REPLICAS = 64
"""Where scaling.maxReplicas sets no limit, more replicas than this are not searched."""
PERCENTILES = (50, 95, 99)
NEVER = 1e9
"""Shortfall of a candidate that no change of the workload would save: it is the farthest miss."""


def judge(candidate: Candidate, question: Question) -> Plan | Rejection:
    """Return the plan for ``candidate``, or the first check that it fails."""
    illegal = _check_legal(candidate, question)
    if illegal is not None:
        return illegal
    if isinstance(question.max_model_len, LengthRefusal):
        return _reject(candidate, question.max_model_len.reason, question.max_model_len.message)
    return _with_traffic(candidate, question, question.max_model_len)


def _check_legal(candidate: Candidate, question: Question) -> Rejection | None:
    """Return the first rule of the engine that the GPU, the layout or the type of the KV cache breaks."""
    gpu, size = candidate.node.gpu, candidate.tensor_parallel_size
    broken = check_gpu(question.shape, gpu) or check_tensor_parallel(question.shape, size, candidate.encoder_mode)
    if broken:
        return _reject(candidate, broken[0].rule, broken[0].message, shortfall=NEVER)
    settings = KVSettings(
        tensor_parallel_size=size, capability=gpu.compute_capability or (0, 0), dtype=candidate.kv_cache_dtype
    )
    refused = check_kv_cache(question.shape, settings)
    return _reject(candidate, refused.reason, refused.message, shortfall=NEVER) if refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What is the same for every replica count of one candidate."""

    max_model_len: int
    runner: latency.Replica
    works: Mapping[int, latency.RequestWork]


def _with_traffic(candidate: Candidate, question: Question, max_model_len: int) -> Plan | Rejection:
    """Return a plan with the fewest replicas that hold the traffic within the latency targets."""
    constraints = question.constraints
    replicas = constraints.min_replicas
    most = constraints.max_replicas or max(MAX_REPLICAS, constraints.min_replicas)
    case = _Case(
        max_model_len=max_model_len,
        runner=_replica(candidate, question),
        works=_request_works(question),
    )
    hopeless = _late(candidate, question, latency.percentiles_seconds(case.runner, case.works, 1))
    if hopeless is not None:  # late with a replica for itself: more replicas would not help
        return hopeless
    last: Rejection | None = None
    while replicas <= most:
        no_room = _check_free_gpus(candidate, replicas)
        if no_room is not None:
            return last or no_room
        verdict = _at_replicas(candidate, question, case, replicas)
        if isinstance(verdict, Plan) or verdict[1] is None:
            return verdict if isinstance(verdict, Plan) else verdict[0]
        last, replicas = verdict[0], max(verdict[1], replicas + 1)
    return last or _reject(candidate, "TooManyReplicas", f"more than {most} replicas would be needed")


def _at_replicas(
    candidate: Candidate, question: Question, case: _Case, replicas: int
) -> Plan | tuple[Rejection, int | None]:
    """Judge one replica count. A rejection comes with the replica count worth trying next, or None."""
    running = _running_per_replica(question.workload, case.runner, case.works[50], replicas)
    if running is None:
        rejection = _reject(
            candidate,
            "Throughput",
            f"{replicas} replicas cannot keep up with the declared requests per minute",
        )
        return rejection, replicas + 1
    sequences = min(MAX_SEQUENCES, -(-running // SEQUENCE_STEP) * SEQUENCE_STEP)
    setting = Setting(max_model_len=case.max_model_len, max_num_seqs=sequences, replicas=replicas, running=running)
    fit = fit_memory(_fit_request(candidate, question, setting))
    if isinstance(fit, Misfit):
        return _reject(candidate, fit.reason, fit.message, shortfall=fit.shortfall_fraction), None
    small = _check_host(candidate, fit)
    if small is not None:
        return small, None
    if fit.largest_requests < running:
        rejection = _reject(
            candidate,
            "KVCache",
            f"the KV cache holds {fit.largest_requests} of the largest requests; {running} run at once",
            shortfall=running / max(fit.largest_requests, 1) - 1,
        )
        next_count = -(-replicas * running // fit.largest_requests) if fit.largest_requests else None
        return rejection, next_count
    seconds = latency.percentiles_seconds(case.runner, case.works, running)
    late = _late(candidate, question, seconds)
    if late is not None:
        return late, replicas + 1 if running > 1 else None
    estimate = assemble_latency(case.runner, case.works, seconds, min(fit.largest_requests, sequences))
    return _price(candidate, assemble_plan(candidate, question, setting, fit, estimate), question)


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
        images_per_prompt=question.workload.max_images_per_request,
        largest_image_tokens=question.demand.largest_image_tokens,
        largest_request_tokens=question.demand.figures.request_max,
        running=setting.running,
        maximum=question.rule.maximum(),
    )


def _check_free_gpus(candidate: Candidate, replicas: int) -> Rejection | None:
    size = candidate.tensor_parallel_size
    room = candidate.node.room_for(size)
    if room is None or replicas <= room:
        return None
    free = sum(candidate.node.free_by_node or ())
    return _reject(
        candidate,
        "NotEnoughGPUs",
        f"{replicas} replicas of {size} GPUs are needed; {free} GPUs are free, with room for {room} on single nodes",
        shortfall=replicas / max(room, 0.5) - 1,
    )


def _check_host(candidate: Candidate, fit: MemoryFit) -> Rejection | None:
    """A pod that asks for more than a node has would stay Pending for ever."""
    node, host = candidate.node, fit.host
    if node.cpu_cores is not None and host.cpu_cores > node.cpu_cores:
        message = f"a pod needs {host.cpu_cores} CPU cores; the node offers {node.cpu_cores}"
        return _reject(candidate, "HostTooSmall", message, shortfall=host.cpu_cores / max(node.cpu_cores, 1) - 1)
    if node.host_memory_bytes is not None and host.memory_bytes > node.host_memory_bytes:
        needed, offered = format_gib(host.memory_bytes), format_gib(node.host_memory_bytes)
        message = f"a pod needs {needed} of host memory; the node offers {offered}"
        return _reject(
            candidate, "HostTooSmall", message, shortfall=host.memory_bytes / max(node.host_memory_bytes, 1) - 1
        )
    return None


def _replica(candidate: Candidate, question: Question) -> latency.Replica:
    layout = latency.Layout(
        gpu=candidate.node.gpu,
        ranks=candidate.tensor_parallel_size,
        kv_dtype=candidate.kv_cache_dtype,
        whole_images=candidate.encoder_mode == "data",
    )
    return latency.Replica(costs=latency.step_model(question.shape, layout, question.latency))


def _request_works(question: Question) -> dict[int, latency.RequestWork]:
    """Return the work of the request at each percentile of the declared mix."""
    demand, workload = question.demand, question.workload
    return {
        p: latency.RequestWork(
            megapixels=demand.image_tokens_at[p] * demand.mean_megapixels_per_token,
            patches=demand.image_tokens_at[p] * demand.mean_patches_per_token,
            prompt_tokens=demand.image_tokens_at[p]
            + (workload.prompt_tokens_p50 if p == 50 else workload.prompt_tokens_max),
            output_tokens=workload.output_tokens_p50 if p == 50 else workload.output_tokens_max,
        )
        for p in PERCENTILES
    }


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
    if latency.requests_per_minute(runner, typical, high) < rate:
        return None
    while low < high:
        middle = (low + high) // 2
        if latency.requests_per_minute(runner, typical, middle) >= rate:
            high = middle
        else:
            low = middle + 1
    return low


def _late(candidate: Candidate, question: Question, seconds: Mapping[int, latency.RequestSeconds]) -> Rejection | None:
    for target in question.constraints.latency_targets:
        figures = seconds[target.percentile]
        value = {"ttft": figures.ttft, "tpot": figures.tpot, "request_latency": figures.total}[target.metric]
        if value > target.seconds:
            name = {"ttft": "TTFT", "tpot": "TPOT", "request_latency": "request latency"}[target.metric]
            return _reject(
                candidate,
                "Latency",
                f"{name} p{target.percentile} {value:.3g} s > {target.seconds:.3g} s",
                shortfall=value / target.seconds - 1,
            )
    return None


def _price(candidate: Candidate, plan: Plan, question: Question) -> Plan | tuple[Rejection, None]:
    most = question.constraints.max_hourly_cost_cents
    if most is None:
        return plan
    if plan.hourly_cents is None:
        message = f"the price is unknown, so the limit of ${most / 100:.2f}/h cannot be checked"
        return _reject(candidate, "PriceUnknown", message), None
    if plan.hourly_cents > most:
        message = f"${plan.hourly_cents / 100:.2f}/h exceeds the limit of ${most / 100:.2f}/h"
        return _reject(candidate, "TooExpensive", message, shortfall=plan.hourly_cents / most - 1), None
    return plan


def _reject(candidate: Candidate, reason: str, message: str, *, shortfall: float = 1.0) -> Rejection:
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
