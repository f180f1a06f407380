"""The cheapest judged plans tried under simulated traffic until one keeps up and keeps every target.

In: judged plans, the cheapest first. Out: the winner with its simulated figures, and a rejection for each that did
not hold. A plan that is late is tried again with smaller steps, which cost nothing, and with more replicas. Where
several are added at a time, the numbers between are tried before anything dearer, so the winner is the cheapest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Final

from vlm_operator.sizing.assemble import Judged
from vlm_operator.sizing.fit import SMALLER_STEPS
from vlm_operator.sizing.judge import NEVER, judge_replicas, reject
from vlm_operator.sizing.plan import Plan, Rank, Rejection, missed_target, rank
from vlm_operator.sizing.question import Candidate
from vlm_operator.sizing.traffic import Randomness
from vlm_operator.sizing.trial import try_plan
from vlm_operator.units import ceil_div

Seeded = Callable[[], Randomness]
_Key = tuple[Candidate, str, int, int]

MAX_TRIALS: Final = 16
"""Trials of the plans that the closed formulas let pass; what is still untried then is not promised."""
MORE_TRIALS: Final = 2
"""Times as many trials of cheaper plans that the closed formulas refuse narrowly or rank behind another layout: they
are hurried."""
LEAST_GAIN: Final = 0.9
"""Twice the replicas that leave more than this share of what a target was missed by are the wrong remedy."""
STEP_REACH: Final = 0.5
"""A target that is missed by more than this share is beyond what smaller steps gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A plan to be tried, and what is known of it with larger steps, with fewer and with more replicas.

    ``larger`` and ``fewer`` are how it missed its targets so, ``too_few`` the most replicas that are known to be too
    few, ``held`` the plan that held with more replicas than ``fit`` has, and ``doubled`` whether ``fit`` has twice as
    many as were late.
    """

    fit: Judged
    too_few: int
    larger: Rejection | None = None
    fewer: Rejection | None = None
    held: Plan | None = None
    doubled: bool = False
    why: str = ""

    @property
    def winner(self) -> Plan | None:
        """The plan that held, once no smaller number of replicas is left to be tried."""
        return self.held if self.held is not None and self.held.replicas - self.too_few <= 1 else None

    @property
    def least(self) -> Rank:
        """The rank of the cheapest plan that may come of it."""
        if self.winner is not None:
            return rank(self.winner)
        return self.fit.rank_with(self.too_few + 1)


class Trials:
    """Simulated traffic over judged plans; the same plan is simulated once.

    Args:
        seeded: Returns a fresh generator for each trial, so that none depends on those before it.
        hurried: Whether a trial ends as soon as its plan is certain to miss a target.
    """

    def __init__(self, seeded: Seeded, *, hurried: bool = False) -> None:
        self._seeded, self._hurried = seeded, hurried
        self._done: dict[_Key, Plan] = {}

    def of(self, fit: Judged) -> Plan:
        """Return the plan of ``fit`` with its simulated figures."""
        key = (fit.candidate, fit.question.model_id, fit.replicas, fit.fit.max_num_batched_tokens)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = try_plan(fit, self._seeded(), hurried=self._hurried)
        return found


def prove(
    fits: Sequence[Judged], trials: Trials, most: int, below: Plan | None = None
) -> tuple[Plan | None, list[Rejection]]:
    """Return the cheapest plan that holds in a trial, None where none does, and why cheaper ones do not.

    Args:
        fits: What the formulas let pass.
        trials: Where they are tried.
        most: How many of them may be tried.
        below: A plan that holds: only cheaper ones are of interest.
    """
    tries = [_Try(fit=fit, too_few=fit.replicas - 1) for fit in fits]
    queue = [(tried.least, number, tried) for number, tried in enumerate(tries)]
    heapify(queue)
    missed: list[Rejection] = []
    for trial in range(most):
        if not queue or queue[0][2].winner is not None or not cheaper(queue[0][0], below):
            break
        tried = heappop(queue)[2]
        plan = trials.of(tried.fit)
        late = _missed(tried.fit, plan)
        missed += [late] if late is not None else []
        for place, more in enumerate(_next_tries(tried, plan, late)):
            heappush(queue, (more.least, len(fits) + 2 * trial + place, more))
    held = [tried.held for _, _, tried in queue if tried.held is not None and cheaper(rank(tried.held), below)]
    if held:
        return min(held, key=rank), missed
    untried = [tried for least, _, tried in sorted(queue, key=itemgetter(0, 1)) if cheaper(least, below)]
    return None, missed + [_untried(tried.fit, most) for tried in untried]


def cheaper(least: Rank, plan: Plan | None) -> bool:
    """Return whether a plan of this rank would be preferred to ``plan`` for more than its name."""
    return plan is None or least[:3] < rank(plan)[:3]


def _untried(fit: Judged, trials: int) -> Rejection:
    replicas = f"{fit.replicas} replica{'s' if fit.replicas > 1 else ''}"
    message = f"{replicas} fit by closed formulas; the {trials} cheapest plans were late in trials, dearer ones untried"
    return reject(fit.candidate, "NotTried", f"{message}; allow fewer GPU kinds to try them", shortfall=NEVER)


def _next_tries(tried: _Try, plan: Plan, late: Rejection | None) -> list[_Try]:
    """Return what comes of a trial: fewer replicas after one that held, else what may hold instead."""
    if late is None:
        held = replace(plan, reasons=(*plan.reasons, tried.why)) if tried.why else plan
        return [_between(replace(tried, held=held), held)]
    remedies = (_smaller_steps(tried, late), _more_replicas(tried, late))
    return [remedy for remedy in remedies if remedy is not None]


def _between(tried: _Try, held: Plan) -> _Try:
    """Return ``tried`` with the number of replicas halfway between too few and enough."""
    fit, too_few = tried.fit, tried.too_few
    while held.replicas - too_few > 1:
        middle = (too_few + held.replicas) // 2
        verdict, _ = judge_replicas(fit.candidate, fit.question, fit.case, middle)
        if isinstance(verdict, Judged):
            return replace(tried, fit=verdict, too_few=too_few)
        too_few = middle
    return replace(tried, too_few=too_few)


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
    worse = larger is not None and late.shortfall_fraction > larger.shortfall_fraction
    step = next((step for step in SMALLER_STEPS if step < fit.fit.max_num_batched_tokens), None)
    asked = fit.question.constraints.asked.max_num_batched_tokens
    if late.reason != "Latency" or late.shortfall_fraction > STEP_REACH or worse or asked or step is None:
        return None
    candidate = replace(fit.candidate, max_num_batched_tokens=step)
    case = replace(fit.case, runner=fit.case.runner.with_steps(step))
    verdict, _ = judge_replicas(candidate, fit.question, case, fit.replicas)
    if not isinstance(verdict, Judged):
        return None
    why = f"larger steps are late: {late.message.partition(': ')[2]}"
    return _Try(fit=verdict, too_few=tried.too_few, larger=late, why=why)


def _more_replicas(tried: _Try, late: Rejection) -> _Try | None:
    """Return the plan with more replicas, None where that is not allowed or gains too little."""
    if tried.held is not None:
        return _between(replace(tried, too_few=tried.fit.replicas), tried.held)
    if tried.larger is not None:  # they were asked for when the larger steps were late
        return None
    fewer = tried.fewer
    both_late = fewer is not None and late.reason == fewer.reason == "Latency"
    useless = both_late and fewer is not None and late.shortfall_fraction > LEAST_GAIN * fewer.shortfall_fraction
    if useless and tried.doubled:
        return None
    fit, replicas = tried.fit, tried.fit.replicas
    added = replicas if useless else max(1, replicas // 4)
    more = max(replicas + added, _fewer_clients(fit))
    for most in (
        fit.question.constraints.max_replicas,
        fit.candidate.node.room_for(fit.fit.host.pod(fit.candidate.tensor_parallel_size)),
    ):
        more = more if most is None else min(more, most)
    if more <= replicas:
        return None
    verdict, _ = judge_replicas(fit.candidate, fit.question, fit.case, more)
    return _Try(fit=verdict, too_few=replicas, fewer=late, doubled=useless) if isinstance(verdict, Judged) else None


def _fewer_clients(fit: Judged) -> int:
    """Return the fewest replicas that leave each of them fewer clients of a closed loop; 0 where it is none."""
    every, serving = fit.question.workload.concurrent_requests or 0, fit.setting.serving
    clients = ceil_div(every, serving)
    return fit.replicas - serving + ceil_div(every, clients - 1) if clients > 1 else 0
