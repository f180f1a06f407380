"""What a simulation found: latency percentiles, throughput, how busy the replica was and what held requests up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vlm_operator.sizing.traffic.engine import KV_LEVELS, Engine
from vlm_operator.sizing.traffic.requests import Request

PERCENTILES: Final = (50, 90, 95, 99)

Latency = Literal["ttft", "tpot", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Mean and percentiles of a latency in seconds."""

    mean: float
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution":
        """Summarise ``values``; the percentile is the smallest value that so many per cent do not exceed."""
        ordered = sorted(values)
        count = len(ordered)
        if not count:
            return cls(mean=0.0, percentiles=dict.fromkeys(PERCENTILES, 0.0))
        places = {p: ordered[max(0, -(-p * count // 100) - 1)] for p in PERCENTILES}
        return cls(mean=sum(ordered) / count, percentiles=places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Latencies that a request must keep, in seconds, to count as good; None is no limit."""

    ttft: float | None = None
    tpot: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A percentile of a latency that is to stay within a number of seconds."""

    latency: Latency
    percentile: int
    seconds: float


class Patience:
    """Tells when a promise is certain to be broken, whatever the requests that have not ended yet do.

    Args:
        promises: What is to be kept.
        requests: How many requests are counted in all.
    """

    def __init__(self, promises: Sequence[Promise], requests: int) -> None:
        self._promises = [(promise.latency, promise.seconds) for promise in promises]
        self._left = [requests - -(-promise.percentile * requests // 100) for promise in promises]

    def lost(self, request: Request) -> bool:
        """Count an ended request; return whether too many were late by now."""
        for place, (latency, seconds) in enumerate(self._promises):
            if latency_of(request, latency) > seconds:
                self._left[place] -= 1
                if self._left[place] < 0:
                    return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResult:
    """One replica under one traffic.

    Attributes:
        requests: Requests that ended within what is counted.
        ttft, tpot, total: Seconds; TPOT is over requests with more than one token.
        seconds: Time that is counted, warm-up left out.
        requests_per_second: Ended requests over that time.
        goodput: Of these, the ones per second that kept the goal.
        output_tokens_per_second: Tokens of ended requests over that time.
        utilisation: Share of the time in which a step ran.
        kv_usage: Mean share of the KV blocks in use while steps ran.
        kv_peak: Share that was not exceeded for 99 % of that time.
        queue: Mean number of requests that were waiting for the scheduler.
        preemptions: How often a request had to give up its blocks.
        rejected: Requests that no empty replica could hold.
        preprocess_wait: Mean seconds between arrival and the scheduler's queue.
        binding: What held requests up longest; ``none`` where they hardly waited.
        sustainable: Whether the replica kept up: no backlog that grows for as long as requests come.
    """

    requests: int
    ttft: Distribution
    tpot: Distribution
    total: Distribution
    seconds: float
    requests_per_second: float
    goodput: float
    output_tokens_per_second: float
    utilisation: float
    kv_usage: float
    kv_peak: float
    queue: float
    preemptions: int
    rejected: int
    preprocess_wait: float
    binding: str
    sustainable: bool


def summarise(engine: Engine, goal: Goal, counted_from: float, *, sustainable: bool) -> TrafficResult:
    """Return the result over the requests that arrived at or after ``counted_from`` seconds."""
    ended = [request for request in engine.finished if request.arrived >= counted_from]
    seconds = max(max((request.finished for request in ended), default=0.0) - counted_from, 1e-9)
    tpots = [latency_of(request, "tpot") for request in ended if request.output_tokens > 1]
    good = sum(_is_good(request, goal) for request in ended)
    waiting = sum(engine.waited.values())
    return TrafficResult(
        requests=len(ended),
        ttft=Distribution.of([request.first_token - request.arrived for request in ended]),
        tpot=Distribution.of(tpots),
        total=Distribution.of([request.finished - request.arrived for request in ended]),
        seconds=seconds,
        requests_per_second=len(ended) / seconds,
        goodput=good / seconds,
        output_tokens_per_second=sum(request.output_tokens for request in ended) / seconds,
        utilisation=min(1.0, engine.busy / max(engine.now, 1e-9)),
        kv_usage=_mean_level(engine.kv_seconds),
        kv_peak=_peak_level(engine.kv_seconds),
        queue=waiting / max(engine.now, 1e-9),
        preemptions=engine.preemptions,
        rejected=len(engine.rejected),
        preprocess_wait=_mean(request.ready - request.arrived for request in ended),
        binding=_binding(engine, ended),
        sustainable=sustainable,
    )


def latency_of(request: Request, latency: Latency) -> float:
    """Return one latency of an ended request in seconds; the TPOT of a single token is 0."""
    if latency == "ttft":
        return request.first_token - request.arrived
    if latency == "total":
        return request.finished - request.arrived
    return (request.finished - request.first_token) / max(request.output_tokens - 1, 1)


def _is_good(request: Request, goal: Goal) -> bool:
    limits: tuple[tuple[Latency, float | None], ...] = (("ttft", goal.ttft), ("tpot", goal.tpot), ("total", goal.total))
    return all(limit is None or latency_of(request, latency) <= limit for latency, limit in limits)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _mean_level(seconds: Sequence[float]) -> float:
    """Return the mean of a level that held for ``seconds[level]``, as a share of the highest."""
    return sum(level * held for level, held in enumerate(seconds)) / max(KV_LEVELS * sum(seconds), 1e-9)


def _peak_level(seconds: Sequence[float]) -> float:
    """Return the level that is exceeded for 1 % of the time, as a share of the highest."""
    beyond, level = 0.01 * sum(seconds), KV_LEVELS
    while level and seconds[level] <= beyond:
        beyond -= seconds[level]
        level -= 1
    return level / KV_LEVELS


HARDLY: Final = 0.01
"""Share of the requests' time below which waiting is not worth naming."""


def _binding(engine: Engine, ended: Sequence[Request]) -> str:
    """The cause for which requests waited longest, preprocessing among them."""
    waits: dict[str, float] = {str(cause): seconds for cause, seconds in engine.waited.items()}
    waits["preprocessing"] = sum(request.ready - request.arrived - request.prepare for request in ended)
    worst = max(waits, key=lambda cause: (waits[cause], cause))
    spent = sum(request.finished - request.arrived for request in ended)
    return worst if waits[worst] > HARDLY * spent else "none"
