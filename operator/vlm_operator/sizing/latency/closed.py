"""Latency of a request without a simulation: closed formulas over ``StepModel`` for a steady closed loop.

They prune candidates; the distribution under a declared traffic is the simulation's (``sizing.traffic``). Where they
stop being true: a load near 1, bursts, a KV cache that is full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Final, NamedTuple

from vlm_operator.sizing.latency.step import StepModel

RIDERS: Final = 64
"""Decoded tokens beside a chunk over which their mean cost is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine replica: what its steps cost, and how many prompt tokens one step takes."""

    costs: StepModel
    max_num_batched_tokens: int = 8192
    _alone: dict["RequestWork", tuple[float, float, float]] = field(default_factory=dict, repr=False, compare=False)
    _loops: dict["RequestWork", "_Loop"] = field(default_factory=dict, repr=False, compare=False)

    def pace(self, typical: "RequestWork", concurrency: int) -> tuple[float, float]:
        """Return the wait of a prompt and the time per token while so many requests like ``typical`` are running."""
        loop = self._loops.get(typical)
        if loop is None:
            loop = self._loops[typical] = _loop(self, typical)
        found = loop.paces.get(concurrency)
        if found is None:
            found = loop.paces[concurrency] = loop.pace(concurrency)
        return found

    def alone(self, work: "RequestWork") -> tuple[float, float, float]:
        """Return the seconds that ``work`` takes on the CPU and then in the engine before its first token, alone.

        The third figure is what each token decoded beside a chunk of its prompt adds to that step, attention apart.
        """
        found = self._alone.get(work)
        if found is None:
            engine = encode_seconds(self, work) + prefill_seconds(self, work)
            chunk = min(work.prompt_tokens, self.max_num_batched_tokens)
            row = (self.costs.batch(chunk + RIDERS, RIDERS) - self.costs.batch(chunk, 0)) / RIDERS
            found = self._alone[work] = preprocess_seconds(self, work), engine, row
        return found

    def with_steps(self, max_num_batched_tokens: int) -> "Replica":
        """Return the replica with steps of this size."""
        if max_num_batched_tokens == self.max_num_batched_tokens:
            return self
        return Replica(costs=self.costs, max_num_batched_tokens=max_num_batched_tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestWork:
    """One request: megapixels to preprocess, patches of ``images`` to encode, tokens to prefill and to generate.

    Told apart by identity: it is looked up for every number of requests that a candidate is judged at.

    ``span`` are the patches that attend to each other, None for all of an image. ``prepared`` are the patches that are
    cut on the CPU, None for all.
    """

    megapixels: float
    patches: float
    prompt_tokens: int
    output_tokens: int
    images: int = 1
    span: float | None = None
    prepared: float | None = None


class RequestSeconds(NamedTuple):
    """One request's time to first token, mean time per later token, and total."""

    ttft: float
    tpot: float
    total: float


def preprocess_seconds(replica: Replica, work: RequestWork) -> float:
    """Return the CPU time before the engine: fetching, decoding and resizing, image after image, and the front end."""
    images = work.images if work.megapixels else 0
    if not images:
        return replica.costs.request()
    patches = work.patches if work.prepared is None else work.prepared
    return images * replica.costs.preprocess(work.megapixels / images, patches / images) + replica.costs.request()


def encode_seconds(replica: Replica, work: RequestWork) -> float:
    """Return the time of the vision tower and projector over the request's images."""
    if not work.patches:
        return 0.0
    span = work.patches / work.images if work.span is None else work.span
    return replica.costs.encode(round(work.patches), round(work.patches * span), work.images)


def prefill_seconds(replica: Replica, work: RequestWork) -> float:
    """Return the time of the language model over the prompt, chunk by chunk."""
    costs, chunk = replica.costs, replica.max_num_batched_tokens
    whole, rest = divmod(work.prompt_tokens, chunk)
    sizes = [chunk] * whole + ([rest] if rest else [])
    seconds = 0.0
    for number, size in enumerate(sizes):
        seconds += costs.batch(size, 1) + costs.prefill_attention(size, number * chunk) + costs.prefill_overhead()
    return seconds


def decode_step_seconds(replica: Replica, typical: RequestWork, concurrency: int) -> float:
    """Return the time of one decode step over ``concurrency`` requests, each half-way through its output."""
    return _loop(replica, typical).decode_step(concurrency)


def request_seconds(
    replica: Replica, work: RequestWork, typical: RequestWork, concurrency: int, queue: float = 0.0
) -> RequestSeconds:
    """Return the latency of ``work`` while ``concurrency`` requests like ``typical`` are running.

    On arrival half of a foreign prompt is in its way on average; where prompts queue, it waits as long as they do, or
    for ``queue`` seconds where arrivals by chance make more of that.
    """
    wait, tpot = replica.pace(typical, concurrency)
    prepare, prompt, _ = replica.alone(work)
    ttft = prepare + prompt + max(wait, queue)
    return RequestSeconds(ttft, tpot, ttft + max(work.output_tokens - 1, 0) * tpot)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """A closed loop of requests that are all alike, and what is the same however many of them are running.

    Attributes:
        prepare: Seconds of one on the CPU, and ``prompt`` those in the engine before its first token, alone.
        row: What each token decoded beside a chunk of a prompt adds to that step, attention apart.
        context: Tokens of one half-way through its output.
        chunks: Steps that one prompt takes, and ``tokens`` those that its answer takes.
        paces: The paces that were asked for, by the number of requests.
    """

    costs: StepModel
    prepare: float
    prompt: float
    row: float
    context: float
    chunks: int
    tokens: int
    paces: dict[int, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

    def decode_step(self, concurrency: int) -> float:
        """Return the time of one decode step over so many."""
        return self.costs.batch(concurrency, concurrency) + self._attention(concurrency)

    def pace(self, concurrency: int) -> tuple[float, float]:
        """Return the wait of a prompt and the time per token while so many are running.

        A prompt takes ``chunks`` steps, each of which carries a token for every answer that is being written. Every
        other request is prefilled once in the time that this one lives, so the share of them that falls into the
        writing of its answer is the writing's share of its life: with the time to the first token, an equation of
        second degree. Where that life were shorter than the chunks of all requests take, every step carries a chunk,
        and prompts queue.
        """
        if concurrency == 1:
            return 0.0, self.decode_step(1)
        tokens, chunks, prompt = self.tokens, self.chunks, self.prompt
        attention = self._attention(concurrency)
        step = self.costs.batch(concurrency, concurrency) + attention
        riding = attention + concurrency * self.row
        first = self.prepare + 1.5 * prompt
        waited = (concurrency - 1) * max(0.0, prompt - chunks * (step - riding))
        excess = first - tokens * step - waited
        writing = (sqrt(excess * excess + 4 * tokens * step * first) - excess) / 2
        writers = max(1, min(concurrency, round(tokens / chunks)))
        mixed = prompt / chunks + self._attention(writers) + writers * self.row
        crowded = concurrency * chunks * mixed
        if tokens >= concurrency * chunks or first + writing >= crowded:
            return prompt / 2, writing / tokens
        return max(prompt / 2, crowded - tokens * mixed - self.prepare - prompt), mixed

    def _attention(self, concurrency: int) -> float:
        return self.costs.decode_attention(concurrency, concurrency * self.context)


def _loop(replica: Replica, typical: RequestWork) -> _Loop:
    prepare, prompt, row = replica.alone(typical)
    return _Loop(
        costs=replica.costs,
        prepare=prepare,
        prompt=prompt,
        row=row,
        context=typical.prompt_tokens + typical.output_tokens / 2,
        chunks=max(1, -(-typical.prompt_tokens // replica.max_num_batched_tokens)),
        tokens=max(typical.output_tokens, 1),
    )


def queue_seconds(
    replica: Replica, works: Mapping[int, RequestWork], typical: RequestWork, rate: float, percentile: int
) -> float:
    """Return how long the prompt of ``works[percentile]`` waits behind others where ``rate`` arrive per second.

    Large requests and long waits seldom meet: the percentile of their sum is taken for the larger of the two with the
    other at its median. What decoding takes from prompts is left out, so the wait is at least this long.
    """
    service = replica.alone(typical)[1]
    prepare, prompt, _ = replica.alone(works[percentile])
    usual_prepare, usual_prompt, _ = replica.alone(works[50])
    larger = (prepare + prompt) - (usual_prepare + usual_prompt)
    return max(_queue(service, rate, 50), _queue(service, rate, percentile) - larger)


def _queue(service: float, rate: float, percentile: int) -> float:
    """Return the wait in M/D/1: the mean by Pollaczek and Khinchine, the tail exponential."""
    load, beyond = rate * service, 1 - percentile / 100
    if load >= 1:
        return inf
    return service / (2 * (1 - load)) * log(load / beyond) if load > beyond else 0.0


def requests_per_minute(replica: Replica, typical: RequestWork, concurrency: int) -> float:
    """Return the throughput of one replica with ``concurrency`` requests running (Little's law)."""
    return 60 * concurrency / request_seconds(replica, typical, typical, concurrency).total


def percentiles_seconds(
    replica: Replica, works: Mapping[int, RequestWork], typical: RequestWork, concurrency: int, rate: float = 0.0
) -> dict[int, RequestSeconds]:
    """Return the latency at each percentile of the declared mix, beside requests like the typical one.

    ``rate`` are the requests that arrive per second, 0 in a closed loop.
    """
    return {
        p: request_seconds(replica, work, typical, concurrency, queue_seconds(replica, works, typical, rate, p))
        for p, work in works.items()
    }
