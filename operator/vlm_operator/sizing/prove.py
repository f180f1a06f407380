"""The cheapest judged plans tried under simulated traffic until one keeps up and keeps every target.

In: judged plans, the cheapest first. Out: the winner with its simulated figures, and a rejection for each that did
not hold. A plan that is late is tried again with more replicas in its turn of price, so the winner is the cheapest.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from vlm_operator.sizing.judge import judge_replicas, missed_target, reject
from vlm_operator.sizing.plan import Plan, Rejection, rank
from vlm_operator.sizing.question import Judged
from vlm_operator.sizing.traffic import Randomness
from vlm_operator.sizing.trial import try_plan

Seeded = Callable[[], Randomness]

MAX_TRIALS: Final = 10
"""Trials of one search; what is still untried then is not promised."""


def prove(fits: Sequence[Judged], seeded: Seeded, trials: int) -> tuple[Plan | None, list[Rejection]]:
    """Return the cheapest plan that holds in a trial, None where none does, and why cheaper ones do not."""
    queue = [(rank(fit.plan), number, fit) for number, fit in enumerate(fits)]
    heapify(queue)
    missed: list[Rejection] = []
    for trial in range(trials):
        if not queue:
            return None, missed
        fit = heappop(queue)[2]
        plan = try_plan(fit, seeded())
        late = _missed(fit, plan)
        if late is None:
            return plan, missed
        missed.append(late)
        more = _more_replicas(fit)
        if more is not None:
            heappush(queue, (rank(more.plan), len(fits) + trial, more))
    return None, missed


def _missed(fit: Judged, plan: Plan) -> Rejection | None:
    """Return why the simulated ``plan`` does not hold: it falls behind, or it is late."""
    if plan.traffic is not None and not plan.traffic.sustainable:
        message = f"{plan.replicas} replicas fall behind under the declared traffic: requests queue without end"
        return reject(fit.candidate, "Throughput", message)
    late = missed_target(plan.latency, fit.question.constraints.latency_targets)
    if late is None:
        return None
    target, words = late
    value = plan.latency.of(target.metric).at(target.percentile)
    message = f"{words} in simulated traffic on {plan.replicas} replicas"
    return reject(fit.candidate, "Latency", message, shortfall=value / target.seconds - 1)


def _more_replicas(fit: Judged) -> Judged | None:
    """Return the plan with more replicas, None where that is not allowed or helps nothing."""
    replicas = fit.plan.replicas + max(1, fit.plan.replicas // 4)
    most = fit.question.constraints.max_replicas
    room = fit.candidate.node.room_for(fit.candidate.tensor_parallel_size)
    if (most is not None and replicas > most) or (room is not None and replicas > room):
        return None
    verdict, _ = judge_replicas(fit.candidate, fit.question, fit.case, replicas)
    return verdict if isinstance(verdict, Judged) else None
