"""The latencies and throughputs that a published serving row states, under the names that benchmarks give them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.accuracy.fields import Fields, part, positive
from vlm_operator.sizing.latency import Quantity
from vlm_operator.sizing.traffic import TrafficResult

Under = Literal["one request at a time", "the stated load", "the most load"]

ALONE = ("single_stream_latency_s_derived_from_QPD", "single_stream_latency_s")
MOST = ("max_throughput_qps_derived_from_QPD", "max_throughput_qps")
PER_SECOND = (
    "req_s",
    "requests_per_s",
    "requests_per_second",
    "request_throughput",
    "throughput_qps",
    "qps",
    "samples_per_s",
    "completed_samples_per_s",
)
OUTPUT_PER_SECOND = ("out_tok_s", "output_throughput", "output_tok_s", "output_tokens_per_s")
METRICS: dict[str, Quantity] = {
    "ttft": "ttft",
    "tpot": "tpot",
    "e2e": "total",
    "e2el": "total",
    "latency": "total",
}
NAMES: dict[Quantity, str] = {"ttft": "TTFT", "tpot": "TPOT", "total": "end to end"}
CENTRES = {"p50": 50, "median": 50, "mean": None, "avg": None, "": None}
"""Words for the middle of a distribution, best first: its percentile, None for the mean, which hangs on a few requests,
such as those whose outputs end early."""
TAILS = {"p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure: seconds, requests or output tokens per second.

    ``percentile`` is None for a mean and for a throughput.
    """

    name: str
    unit: str
    value: float
    under: Under
    quantity: Quantity | None = None
    percentile: int | None = None

    def of(self, result: TrafficResult, replicas: int) -> float:
        """Return the same figure of a simulation of one of ``replicas``."""
        if self.unit == "requests/s":
            return replicas * result.requests_per_second
        if self.quantity is None:
            return replicas * result.output_tokens_per_second
        found = {"ttft": result.ttft, "tpot": result.tpot, "total": result.total}[self.quantity]
        return found.mean if self.percentile is None else found.percentiles[self.percentile]


def read_figures(row: Fields) -> tuple[Figure, ...]:
    """Return the figures of a row.

    Raises:
        UnclearRowError: A figure cannot be read.
    """
    results = part(row, "results")
    return (*_alone(results), *_throughput(results), *_latencies(results))


def _alone(results: Fields) -> Iterator[Figure]:
    alone = positive(results, *ALONE)
    if alone:
        yield Figure(name=NAMES["total"], unit="s", value=alone, under="one request at a time", quantity="total")


def _throughput(results: Fields) -> Iterator[Figure]:
    most, requests, tokens = (positive(results, *names) for names in (MOST, PER_SECOND, OUTPUT_PER_SECOND))
    if most:
        yield Figure(name="throughput", unit="requests/s", value=most, under="the most load")
    elif requests:
        yield Figure(name="throughput", unit="requests/s", value=requests, under="the stated load")
    elif tokens:
        yield Figure(name="output", unit="tokens/s", value=tokens, under="the stated load")


def _latencies(results: Fields) -> Iterator[Figure]:
    for quantity, stated in _by_quantity(results).items():
        centre = next((word for word in CENTRES if word in stated), None)
        shown = [word for word in (centre, *TAILS) if word is not None and word in stated]
        for word in shown:
            percentile = {**CENTRES, **TAILS}[word]
            label = "mean" if percentile is None else "median" if percentile == 50 else word
            name = f"{label} {NAMES[quantity]}"
            value = stated[word]
            yield Figure(
                name=name, unit="s", value=value, under="the stated load", quantity=quantity, percentile=percentile
            )


def _by_quantity(results: Fields) -> dict[Quantity, dict[str, float]]:
    """Return seconds by quantity and word: ``ttft_ms: {p50: 1}``, ``median_ttft_ms: 1`` and ``ttft_p50_s: 0.001``."""
    found: dict[Quantity, dict[str, float]] = {}
    for name, value in results.items():
        parts = re.split(r"[_ ]", str(name).lower())
        metric = next((METRICS[word] for word in parts if word in METRICS), None)
        rest = [word for word in parts if word not in METRICS]
        if metric is None or not rest or rest[-1] not in {"ms", "s"} or value is None:
            continue
        scale = 1000 if rest[-1] == "ms" else 1
        words = rest[:-1]
        if isinstance(value, dict):
            stated = {str(word): positive(value, word) for word in value} if not words else {}
        else:
            stated = {" ".join(words): positive(results, name)}
        known = {**CENTRES, **TAILS}
        seconds = {word: figure / scale for word, figure in stated.items() if word in known and figure}
        if seconds:
            found.setdefault(metric, {}).update(seconds)
    return found
