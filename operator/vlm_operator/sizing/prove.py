"""The cheapest judged plans tried under simulated traffic until one keeps up and keeps every target.

In: judged plans, the cheapest first. Out: the winner with its simulated figures, and a rejection for each that did
not hold. A plan that is late is tried again with smaller steps, which cost nothing, and with more replicas in its turn
of price, so the winner is the cheapest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

from vlm_operator.sizing.fit import SMALLER_STEPS
from vlm_operator.sizing.judge import judge_replicas, missed_target, reject
from vlm_operator.sizing.plan import Plan, Rejection, rank
from vlm_operator.sizing.question import Judged
from vlm_operator.sizing.traffic import Randomness
from vlm_operator.sizing.trial import try_plan

Seeded = Callable[[], Randomness]

MAX_TRIALS: Final = 10
"""Trials of one search; what is still untried then is not promised."""
LEAST_GAIN: Final = 0.9
"""Replicas that leave more than this share of what a target was missed by are the wrong remedy."""
STEP_REACH: Final = 0.5
"""A target that is missed by more than this share is beyond what smaller steps gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A plan to be tried, and how the same plan with larger steps, or with fewer replicas, missed its targets."""

    fit: Judged
    larger: Rejection | None = None
    fewer: Rejection | None = None
    why: str = ""


def prove(fits: Sequence[Judged], seeded: Seeded, trials: int) -> tuple[Plan | None, list[Rejection]]:
    """Return the cheapest plan that holds in a trial, None where none does, and why cheaper ones do not."""
    queue = [(rank(fit.plan), number, _Try(fit=fit)) for number, fit in enumerate(fits)]
    heapify(queue)
    missed: list[Rejection] = []
    for trial in range(trials):
        if not queue:
            return None, missed
        tried = heappop(queue)[2]
        plan = try_plan(tried.fit, seeded())
        late = _missed(tried.fit, plan)
        if late is None:
            return replace(plan, reasons=(*plan.reasons, tried.why)) if tried.why else plan, missed
        missed.append(late)
        for place, more in enumerate((_smaller_steps(tried, late), _more_replicas(tried, late))):
            if more is not None:
                heappush(queue, (rank(more.fit.plan), len(fits) + 2 * trial + place, more))
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
    where = "1 replica" if plan.replicas == 1 else f"{plan.replicas} replicas"
    steps = f"steps of {plan.flags.max_num_batched_tokens:,} tokens"
    message = f"{words} in simulated traffic on {where} with {steps}"
    return reject(fit.candidate, "Latency", message, shortfall=value / target.seconds - 1)


def _smaller_steps(tried: _Try, late: Rejection) -> _Try | None:
    """Return the plan with smaller steps, None where they cannot be had or would not help."""
    fit, larger = tried.fit, tried.larger
    worse = larger is not None and late.shortfall_fraction >= larger.shortfall_fraction
    step = next((step for step in SMALLER_STEPS if step < fit.plan.flags.max_num_batched_tokens), None)
    asked = fit.question.constraints.asked.max_num_batched_tokens
    if late.reason != "Latency" or late.shortfall_fraction > STEP_REACH or worse or asked or step is None:
        return None
    candidate = replace(fit.candidate, max_num_batched_tokens=step)
    case = replace(fit.case, runner=fit.case.runner.with_steps(step))
    verdict, _ = judge_replicas(candidate, fit.question, case, fit.plan.replicas)
    if not isinstance(verdict, Judged):
        return None
    return _Try(fit=verdict, larger=late, why=f"larger steps are late: {late.message.partition(': ')[2]}")


def _more_replicas(tried: _Try, late: Rejection) -> _Try | None:
    """Return the plan with more replicas, None where that is not allowed or gains too little."""
    if tried.larger is not None:  # they were asked for when the larger steps were late
        return None
    fewer = tried.fewer
    both_late = fewer is not None and late.reason == fewer.reason == "Latency"
    if both_late and fewer and late.shortfall_fraction > LEAST_GAIN * fewer.shortfall_fraction:
        return None
    fit = tried.fit
    replicas = fit.plan.replicas + max(1, fit.plan.replicas // 4)
    most = fit.question.constraints.max_replicas
    room = fit.candidate.node.room_for(fit.candidate.tensor_parallel_size)
    if (most is not None and replicas > most) or (room is not None and replicas > room):
        return None
    verdict, _ = judge_replicas(fit.candidate, fit.question, fit.case, replicas)
    return _Try(fit=verdict, fewer=late) if isinstance(verdict, Judged) else None
