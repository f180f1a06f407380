"""Requests through one replica: arrival, preprocessing on the CPU, the engine's scheduler, and their latencies."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import takewhile
from math import inf, log
from typing import Final, Protocol

from vlm_operator.sizing.traffic.arrivals import Arrivals, ClosedLoop
from vlm_operator.sizing.traffic.caches import ProcessorCache
from vlm_operator.sizing.traffic.engine import Engine, StepSeconds
from vlm_operator.sizing.traffic.requests import Draw, Randomness, Request, RequestMix
from vlm_operator.sizing.traffic.result import Goal, Patience, Promise, TrafficResult, summarise
from vlm_operator.sizing.traffic.server import ServerLimits

BACKLOG: Final = 1.2
"""A least waiting time that is this much longer in the last third of the arrivals than in the middle third is growing:
under overload it doubles."""
SMALL_BACKLOG: Final = 0.05
"""Least waiting time, in multiples of the median request, below which the queue drains."""


class RequestSeconds(StepSeconds, Protocol):
    """What requests cost: the steps of the engine, and what comes before them."""

    def preprocess(self, megapixels: float, patches: int) -> float:
        """Seconds of one core for fetching, decoding and resizing an image, and for cutting it into patches."""
        ...

    def request(self) -> float:
        """Mean seconds that a request spends in the front end; single ones are exponential, as behind an event loop."""
        ...


NO_GOAL: Final = Goal()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRun:
    """What is simulated.

    Attributes:
        seconds: How long requests arrive (a closed loop ends with its last request instead).
        warm_up: Share of that time that is not counted.
        promises: The simulation ends early once one of them is certain to be broken; then its result is that of the
            requests that ended, most of them too late.
    """

    mix: RequestMix
    arrivals: Arrivals
    limits: ServerLimits
    seconds: float = 3600.0
    warm_up: float = 0.0
    goal: Goal = NO_GOAL
    promises: tuple[Promise, ...] = ()


def simulate(run: TrafficRun, costs: RequestSeconds, generator: Randomness) -> TrafficResult:
    """Return the latencies of one replica; the same generator state gives the same result.

    Raises:
        ValueError: An image has more tokens than the encoder takes, which the engine refuses at once.
    """
    images = [image for kind in run.mix.kinds for image in kind.images] + [image for _, image in run.mix.sizes]
    largest = max((image.embeddings for image in images), default=0)
    if largest > run.limits.encoder_tokens:
        raise ValueError(f"an image of {largest} tokens exceeds the encoder budget of {run.limits.encoder_tokens}")
    engine = Engine(run.limits, costs, run.mix.shared_prefix_tokens)
    source = _Source(run, costs, generator)
    patience = Patience(run.promises, source.counted)
    lost = False
    while not lost:
        if source.next_ready <= engine.now:
            engine.waiting.extend(source.ready_by(engine.now))
        if engine.idle:
            if source.next_ready == inf:
                break
            engine.now = source.next_ready
            continue
        ended = len(engine.finished)
        engine.advance(source.next_ready)
        for request in engine.finished[ended:]:
            if source.closed:
                source.send(request.finished)
            lost = lost or (request.arrived >= source.counted_from and patience.lost(request))
    return summarise(engine, run.goal, source.counted_from, sustainable=_keeps_up(engine, source))


class _Source:
    """Requests in the order in which they are ready for the scheduler."""

    def __init__(self, run: TrafficRun, costs: RequestSeconds, generator: Randomness) -> None:
        self._draw = Draw(run.mix, generator)
        self._costs = costs
        self._workers = [0.0] * run.limits.preprocess_workers
        self._processed = ProcessorCache(run.limits.processor_cache_patches)
        self._random = generator.random
        self._coming: deque[float] = deque()
        self._ready: list[tuple[float, int, Request]] = []
        self._sent = 0
        self.closed = isinstance(run.arrivals, ClosedLoop)
        if isinstance(run.arrivals, ClosedLoop):
            self._most = self.counted = run.arrivals.requests
            self.counted_from = 0.0
            for _ in range(min(run.arrivals.clients, run.arrivals.requests)):
                self.send(0.0)
        else:
            self.counted_from = run.warm_up * run.seconds
            self._coming = deque(takewhile(lambda time: time < run.seconds, run.arrivals.times(generator)))
            self.counted = sum(time >= self.counted_from for time in self._coming)
        self._find_next()

    def send(self, now: float) -> None:
        """A client sends its next request, if any is left."""
        if self._sent < self._most:
            heappush(self._ready, self._prepare(now))
            self._find_next()

    def ready_by(self, now: float) -> Iterator[Request]:
        """Take the requests that are ready by ``now``."""
        while self.next_ready <= now:
            yield heappop(self._ready)[2]
            self._find_next()

    def _find_next(self) -> None:
        """Prepare those that come before the first ready one: one of them may overtake it."""
        ready, coming = self._ready, self._coming
        while coming and (not ready or coming[0] < ready[0][0]):
            heappush(ready, self._prepare(coming.popleft()))
        self.next_ready = ready[0][0] if ready else inf

    def _prepare(self, now: float) -> tuple[float, int, Request]:
        """Draw a request that arrives ``now`` and pass it through the first free worker."""
        request = self._draw(now)
        self._sent += 1
        work = sum(
            self._costs.preprocess(image.megapixels, image.patches)
            for image, name in zip(request.images, request.image_ids, strict=True)
            if not self._processed.take(name, image.patches)
        )
        request.ready = now
        if work:
            begin = max(now, self._workers[0])
            request.ready = begin + work
            heapreplace(self._workers, request.ready)
        front = -self._costs.request() * log(1.0 - self._random())
        request.ready += front
        request.prepare = work + front
        return request.ready, self._sent, request


def _keeps_up(engine: Engine, source: _Source) -> bool:
    """Whether the queue drains again and again; a closed loop always keeps up.

    The shortest wait tells a burst from overload: the queue of a burst drains before the next one.
    """
    requests = sorted(engine.finished, key=lambda request: request.arrived)
    third = len(requests) // 3
    if source.closed or not third:
        return True
    middle, last = (
        min(
            request.admitted - request.arrived - request.prepare
            for request in requests[third * part : third * (part + 1)]
        )
        for part in (1, 2)
    )
    typical = sorted(request.finished - request.admitted for request in requests)[len(requests) // 2]
    return last <= SMALL_BACKLOG * typical or last <= BACKLOG * middle
