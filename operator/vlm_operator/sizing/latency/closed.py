"""Latency of a request without a simulation: closed formulas over ``StepModel`` for a steady closed loop.

They prune candidates; the distribution under a declared traffic is the simulation's (``sizing.traffic``). Where they
stop being true: a load near 1, bursts, a KV cache that is full.
"""

from collections.abc import Mapping
from dataclasses import field
from math import inf, log, sqrt
from typing import Final

from vlm_operator.dataclass import dataclass
from vlm_operator.sizing.latency.step import StepModel

RIDERS: Final = 64
"""Decoded tokens beside a chunk over which their mean cost is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine replica: what its steps cost, and how many prompt tokens one step takes."""

    costs: StepModel
    max_num_batched_tokens: int = 8192
    _alone: dict["RequestWork", tuple[float, float, float]] = field(default_factory=dict, repr=False, compare=False)
    _paces: dict[tuple["RequestWork", int], tuple[float, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def pace(self, typical: "RequestWork", concurrency: int) -> tuple[float, float]:
        """Return the wait of a prompt and the time per token while so many requests like ``typical`` are running."""
        key = typical, concurrency
        found = self._paces.get(key)
        if found is None:
            alone = concurrency == 1
            paced = (0.0, decode_step_seconds(self, typical, 1)) if alone else _pace(self, typical, concurrency)
            found = self._paces[key] = paced
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSeconds:
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
    return replica.costs.batch(concurrency, concurrency) + _attention_seconds(replica, typical, concurrency)


def _attention_seconds(replica: Replica, typical: RequestWork, concurrency: int) -> float:
    context = concurrency * (typical.prompt_tokens + typical.output_tokens / 2)
    return replica.costs.decode_attention(concurrency, context)


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
    return RequestSeconds(ttft=ttft, tpot=tpot, total=ttft + max(work.output_tokens - 1, 0) * tpot)


def _pace(replica: Replica, typical: RequestWork, concurrency: int) -> tuple[float, float]:
    """Return the wait of a prompt and the time per token of a closed loop of ``concurrency`` requests like ``typical``.

    A prompt takes ``chunks`` steps, each of which carries a token for every answer that is being written. Every other
    request is prefilled once in the time that this one lives, so the share of them that falls into the writing of its
    answer is the writing's share of its life: with the time to the first token, an equation of second degree. Where
    that life were shorter than the chunks of all requests take, every step carries a chunk, and prompts queue.
    """
    others, tokens = concurrency - 1, max(typical.output_tokens, 1)
    prepare, prompt, row = replica.alone(typical)
    chunks = max(1, -(-typical.prompt_tokens // replica.max_num_batched_tokens))
    step = decode_step_seconds(replica, typical, concurrency)
    riding = _attention_seconds(replica, typical, concurrency) + concurrency * row
    first = prepare + 1.5 * prompt
    waited = others * max(0.0, prompt - chunks * (step - riding))
    excess = first - tokens * step - waited
    writing = (sqrt(excess * excess + 4 * tokens * step * first) - excess) / 2
    writers = max(1, min(concurrency, round(tokens / chunks)))
    mixed = prompt / chunks + _attention_seconds(replica, typical, writers) + writers * row
    crowded = concurrency * chunks * mixed
    if tokens >= concurrency * chunks or first + writing >= crowded:
        return prompt / 2, writing / tokens
    return max(prompt / 2, crowded - tokens * mixed - prepare - prompt), mixed


def queue_seconds(
    replica: Replica, works: Mapping[int, RequestWork], typical: RequestWork, rate: float, percentile: int
) -> float:
    """Return how long the prompt of ``works[percentile]`` waits behind others where ``rate`` arrive per second.

    Large requests and long waits seldom meet: the percentile of their sum is taken for the larger of the two with the
    other at its median. What decoding takes from prompts is left out, so the wait is at least this long.
    """
    service = replica.alone(typical)[1]
    larger = sum(replica.alone(works[percentile])[:2]) - sum(replica.alone(works[50])[:2])
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
