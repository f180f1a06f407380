"""The cheapest judged plans tried under simulated traffic until one keeps up and keeps every target.

In: judged plans, the cheapest first. Out: the winner with its simulated figures, and a rejection for each that did
not hold. A plan that is late is tried again with smaller steps, which cost nothing, and with more replicas. Where
several are added at a time, the numbers between are tried before anything dearer, so the winner is the cheapest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from operator import itemgetter
from typing import Final

from vlm_operator.sizing.assemble import Judged
from vlm_operator.sizing.fit import STEPS
from vlm_operator.sizing.judge import NEVER, judge_replicas, most_replicas, reject
from vlm_operator.sizing.plan import Plan, Rank, Rejection, missed_target, rank
from vlm_operator.sizing.question import Candidate
from vlm_operator.sizing.traffic import Randomness
from vlm_operator.sizing.trial import REQUESTS, try_plan
from vlm_operator.units import ceil_div

Seeded = Callable[[int], Randomness]
"""Returns a generator for the traffic of this number, the same for the same number."""
_Key = tuple[Candidate, str, int, int, int]

MAX_TRIALS: Final = 4
"""Whole trials of the plans that the closed formulas let pass; what is still untried then is not promised."""
MORE_TRIALS: Final = 3
"""Times as many trials of cheaper plans that the closed formulas refuse narrowly or rank behind another layout."""
LEAST_COST: Final = 0.2
"""Of a trial that ends with its first requests, in whole ones: judging and setting up take their time too."""
LEAST_GAIN: Final = 0.9
"""Twice the replicas that leave more than this share of what a target was missed by are the wrong remedy."""
STEP_REACH: Final = 0.5
"""A TTFT that is missed by more than this share is beyond what other steps gain."""
CROWDED: Final = "bursts fill the KV cache further: at times it keeps less than that reserve, since nothing else fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A plan to be tried, and what is known of it with other steps, with fewer and with more replicas.

    ``before`` is how it missed its targets with the steps before, of which these are the next smaller (``toward`` is
    -1) or larger ones (1), ``fewer`` how it did with fewer replicas, ``too_few`` the most replicas that are known to be
    too few, ``held`` the plan that held with more replicas than ``fit`` has, and ``doubled`` whether ``fit`` has twice
    as many as were late.
    """

    fit: Judged
    too_few: int
    toward: int = 0
    before: Rejection | None = None
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

    Attributes:
        spent: What all trials took, in whole ones.
    """

    def __init__(self, seeded: Seeded) -> None:
        self._seeded = seeded
        self._done: dict[_Key, Plan] = {}
        self.spent = 0.0

    def hold(self, fit: Judged, *, hurried: bool = False) -> tuple[Plan, Rejection | None]:
        """Return the plan of ``fit`` with its simulated figures, and why it does not hold, None where it does.

        Of many that are tried some hold by chance, so a plan has to hold twice. A hurried trial ends once a target is
        missed.
        """
        plan = self._under(0, fit, hurried=hurried)
        late = _missed(fit, plan)
        if late is not None:
            return plan, late
        again = self._under(1, fit, hurried=hurried)
        late = _missed(fit, again)
        return (plan, None) if late is None else (again, late)

    def _under(self, traffic: int, fit: Judged, *, hurried: bool) -> Plan:
        key = (fit.candidate, fit.question.model_id, fit.replicas, fit.fit.max_num_batched_tokens, traffic)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = try_plan(fit, self._seeded(traffic), hurried=hurried)
            self.spent += LEAST_COST + (found.traffic.requests / REQUESTS if found.traffic else 0.0)
        return found


def prove(fits: Sequence[Judged], trials: Trials, most: int) -> tuple[Plan | None, list[Rejection]]:
    """Return the cheapest plan that holds in a trial, None where none does, and why cheaper ones do not.

    Args:
        fits: What the formulas let pass.
        trials: Where they are tried, the cheapest first.
        most: How much may be spent on them, in whole trials.
    """
    numbers, most_spent = count(), trials.spent + most
    queue = [(tried.least, next(numbers), tried) for tried in map(_begin, fits)]
    heapify(queue)
    missed: list[Rejection] = []
    crowded: list[Plan] = []
    while queue and queue[0][2].winner is None and trials.spent < most_spent:
        tried = heappop(queue)[2]
        plan, late = trials.hold(tried.fit)
        missed += [late] if late is not None else []
        crowded += [plan] if late is not None and late.reason == "KVCache" else []
        for more in _next_tries(tried, plan, late):
            heappush(queue, (more.least, next(numbers), more))
    held = [tried.held for _, _, tried in queue if tried.held is not None]
    held = held or [replace(plan, reasons=(*plan.reasons, CROWDED)) for plan in crowded]
    if held:
        return min(held, key=rank), missed
    return None, missed + [_untried(tried.fit, most) for _, _, tried in sorted(queue, key=itemgetter(0, 1))]


def improve(best: Plan | None, fits: Iterable[Judged], trials: Trials, most: int) -> Plan | None:
    """Return the cheapest plan that holds in a trial: ``best``, which does, or what comes of one of ``fits``.

    Args:
        best: What is known to hold, None where nothing is.
        fits: What the formulas refuse narrowly or rank behind another layout.
        trials: Where they are tried; a trial ends once a target is missed.
        most: How much may be spent on them, in whole trials.
    """
    most_spent, missed_at = trials.spent + most, inf
    tries = [_relax(fit, best) for fit in fits]
    while tries and trials.spent < most_spent:
        tried = min(tries, key=partial(_promise, missed_at=missed_at, any_holds=best is not None))
        tries.remove(tried)
        if not _cheaper(tried.least, best):
            continue
        plan, late = trials.hold(tried.fit, hurried=True)
        missed_at = missed_at if late is None else min(missed_at, tried.fit.strain)
        for more in _next_tries(tried, plan, late):
            if more.held is not None and _cheaper(rank(more.held), best):
                best = more.held
            if more.winner is None:
                tries.append(more)
    return best


def _promise(tried: _Try, missed_at: float, *, any_holds: bool) -> tuple[bool, bool, bool, float, Rank]:
    """Return the order in which to try: the surest until any holds, then the cheapest for what it has to carry.

    What the formulas find no less strained than something that missed comes later.
    """
    tight, unpriced, cents, *_ = rank = tried.fit.rank
    strain = tried.fit.strain
    return tight, unpriced, any_holds and strain >= missed_at, cents * strain if any_holds else strain, rank


def _begin(fit: Judged) -> _Try:
    return _Try(fit=fit, too_few=fit.replicas - 1)


def _relax(fit: Judged, best: Plan | None) -> _Try:
    """Return ``fit`` with as many replicas as the formulas ask for, as far as that is cheaper than ``best``.

    Where they hold, the numbers down to those of ``fit`` are tried next.
    """
    begun, most = _begin(fit), _most_replicas(fit)
    while begun.fit.strain > 1:
        more = begun.fit.replicas + max(1, begun.fit.replicas // 4)
        verdict = judge_replicas(fit.candidate, fit.question, fit.case, more)[0] if more <= most else None
        if not isinstance(verdict, Judged) or not _cheaper(verdict.rank, best):
            break
        begun = replace(begun, fit=verdict)
    return begun


def _cheaper(least: Rank, plan: Plan | None) -> bool:
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
    more = _more_replicas(tried, late)
    return [*_other_steps(tried, plan, late), *([more] if more is not None else [])]


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
    if late is None and plan.tight_kv_cache and not fit.tight_kv_cache:
        message = f"the KV cache of {plan.replicas} replicas keeps less than its reserve in simulated traffic"
        return reject(fit.candidate, "KVCache", message, shortfall=0)
    if late is None:
        return None
    target, words = late
    value = plan.latency.of(target.metric).at(target.percentile)
    where = "1 replica" if plan.replicas == 1 else f"{plan.replicas} replicas"
    steps = f"steps of {plan.flags.max_num_batched_tokens:,} tokens"
    message = f"{words} in simulated traffic on {where} with {steps}"
    return reject(fit.candidate, "Latency", message, shortfall=value / target.seconds - 1)


def _other_steps(tried: _Try, plan: Plan, late: Rejection) -> Iterator[_Try]:
    """Yield the plan with smaller and with larger steps, whichever may help against being ``late``.

    Smaller ones hurry answers along, larger ones prompts, and with few prompts at a time either may help both. Steps
    that hold a whole prompt are all alike, so much smaller ones are tried at once.
    """
    fit = tried.fit
    missed = missed_target(plan.latency, fit.question.constraints.latency_targets)
    worse = tried.before is not None and late.shortfall_fraction > tried.before.shortfall_fraction
    beyond = missed is not None and missed[0].metric == "ttft" and late.shortfall_fraction > STEP_REACH
    if late.reason == "KVCache" or worse or beyond or fit.question.constraints.asked.max_num_batched_tokens:
        return
    for step in _near_steps(fit.fit.max_num_batched_tokens, tried.toward) if missed or not tried.toward else ():
        toward = 1 if step > fit.fit.max_num_batched_tokens else -1
        candidate = replace(fit.candidate, max_num_batched_tokens=step)
        case = replace(fit.case, runner=fit.case.runner.with_steps(step))
        verdict = judge_replicas(candidate, fit.question, case, fit.replicas)[0]
        if isinstance(verdict, Judged):
            why = f"{'larger' if toward < 0 else 'smaller'} steps are late: {late.message.partition(': ')[2]}"
            yield _Try(fit=verdict, too_few=tried.too_few, toward=toward, before=late, why=why)


def _near_steps(now: int, toward: int) -> tuple[int, ...]:
    """Return the next steps in one direction, or for 0 in both and much smaller ones."""
    smaller = [step for step in STEPS if step < now]
    larger = [step for step in reversed(STEPS) if step > now]
    if toward:
        return tuple((smaller if toward < 0 else larger)[:1])
    return (*smaller[:1], *smaller[3:4], *larger[:1])


def _more_replicas(tried: _Try, late: Rejection) -> _Try | None:
    """Return the plan with more replicas, None where that is not allowed or gains too little."""
    if tried.held is not None:
        return _between(replace(tried, too_few=tried.fit.replicas), tried.held)
    if tried.before is not None:  # they were asked for when the steps before were late
        return None
    fewer = tried.fewer
    both_late = fewer is not None and late.reason == fewer.reason == "Latency"
    useless = both_late and fewer is not None and late.shortfall_fraction > LEAST_GAIN * fewer.shortfall_fraction
    if useless and tried.doubled:
        return None
    fit, replicas = tried.fit, tried.fit.replicas
    added = replicas if useless else max(1, replicas // 4)
    more = min(max(replicas + added, _fewer_clients(fit)), _most_replicas(fit))
    if more <= replicas:
        return None
    verdict, _ = judge_replicas(fit.candidate, fit.question, fit.case, more)
    return _Try(fit=verdict, too_few=replicas, fewer=late, doubled=useless) if isinstance(verdict, Judged) else None


def _most_replicas(fit: Judged) -> int:
    """Return how many replicas are allowed and have room."""
    allowed = most_replicas(fit.question.constraints)
    room = fit.candidate.node.room_for(fit.fit.host.pod(fit.candidate.tensor_parallel_size))
    return allowed if room is None else min(allowed, room)


def _fewer_clients(fit: Judged) -> int:
    """Return the fewest replicas that leave each of them fewer clients of a closed loop; 0 where it is none."""
    every, serving = fit.question.workload.concurrent_requests or 0, fit.setting.serving
    clients = ceil_div(every, serving)
    return fit.replicas - serving + ceil_div(every, clients - 1) if clients > 1 else 0
