"""What one replica has to do: the work of the declared requests, how many arrive and how many run at once.

In: ``Candidate`` and ``Question``. Out: ``Case`` and the figures that ``judge.py`` holds against memory and targets.
Closed formulas; what chance and bursts make of the same load is found in ``trial.py``.
"""

import math

from vlm_operator.sizing import latency
from vlm_operator.sizing.fit import BATCHED_TOKENS
from vlm_operator.sizing.question import Candidate, Case, Question
from vlm_operator.sizing.repeats import FreshShares, fresh_shares
from vlm_operator.sizing.workload import Workload

MAX_SEQUENCES = 256
"""Requests that run at once on one replica at most."""
MOST_LOAD = 0.85
"""Share of its capacity that a replica is planned for: nearer to it, arrivals by chance queue without bound, and the
capacity itself is an estimate."""
PERCENTILES = (50, 95, 99)


def make_case(candidate: Candidate, question: Question, max_model_len: int, slack: float) -> Case:
    """Return what is the same for every replica count of ``candidate``."""
    fresh = fresh_shares(question, wanted_step(candidate, question) or BATCHED_TOKENS[0])
    return Case(
        max_model_len=max_model_len,
        runner=_replica(candidate, question),
        works=_request_works(question, fresh),
        lightest=_lightest_works(question, fresh),
        typical=_typical_work(question, fresh),
        slack=slack,
    )


def _replica(candidate: Candidate, question: Question) -> latency.Replica:
    layout = latency.Layout(
        gpu=candidate.node.gpu,
        ranks=candidate.tensor_parallel_size,
        kv_dtype=candidate.kv_cache_dtype,
        whole_images=candidate.encoder_mode == "data",
    )
    costs = latency.step_model(question.shape, layout, question.latency)
    return latency.Replica(costs=costs, max_num_batched_tokens=wanted_step(candidate, question) or BATCHED_TOKENS[0])


def wanted_step(candidate: Candidate, question: Question) -> int | None:
    """Return the step size that the user or the search asks for, None where memory decides."""
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


def _lightest_works(question: Question, fresh: FreshShares) -> dict[int, latency.RequestWork]:
    """Return the least work of a request at each percentile of the image tokens."""
    workload, tokens = question.workload, question.demand.image_tokens_at
    return {
        p: _work(question, fresh, tokens[p], workload.prompt_tokens_p50, workload.output_tokens_p50)
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


def running_per_replica(workload: Workload, case: Case, replicas: int, most: int) -> int | None:
    """Return how many requests run at once on each replica, or None where ``most`` do not keep up with the rate."""
    if workload.concurrent_requests is not None:
        return -(-workload.concurrent_requests // replicas)
    if workload.requests_per_minute is None:
        return 1
    rate = _planned_rate(workload, case) / replicas
    low, high = 1, most
    if _most_rate(case, most) < rate:
        return None
    if case.slack:  # nearer to its capacity the formulas fill the replica, and only a trial tells how full it gets
        rate = min(rate, MOST_LOAD * latency.requests_per_minute(case.runner, case.typical, most))
    while low < high:
        middle = (low + high) // 2
        if latency.requests_per_minute(case.runner, case.typical, middle) >= rate:
            high = middle
        else:
            low = middle + 1
    return low


def replicas_for_rate(workload: Workload, case: Case, most: int) -> int:
    """Return the fewest replicas that keep up with the declared rate, each with ``most`` requests at once."""
    return math.ceil(_planned_rate(workload, case) / _most_rate(case, most))


def _planned_rate(workload: Workload, case: Case) -> float:
    """Return the requests per minute that all replicas together are planned for.

    Without a trial they keep up with bursts; a trial tells whether they may fall behind in a burst and catch up.
    """
    bursts = 1.0 if case.slack else workload.burst_percent / 100
    return (workload.requests_per_minute or 0) * bursts


def _most_rate(case: Case, most: int) -> float:
    """Return the requests per minute that a replica with ``most`` requests at once is planned for."""
    share = 1 + case.slack if case.slack else MOST_LOAD
    return share * latency.requests_per_minute(case.runner, case.typical, most)


def arrivals_per_second(workload: Workload, replicas: int) -> float:
    """Return the requests that reach one of ``replicas`` per second on average, 0 in a closed loop."""
    return (workload.requests_per_minute or 0) / 60 / replicas
