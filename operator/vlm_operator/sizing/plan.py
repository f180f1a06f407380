"""The answer of the engine: Plan | NoFit, and the parts they are made of.

Filled by ``search.py`` and ``judge.py``; read by ``render``, ``report`` and ``cli``. Bytes, seconds and cents; texts in
``message`` fields are for people and name the thing, the value, the limit and the next step.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vlm_operator.sizing.host import HostResources
from vlm_operator.sizing.inventory import Certainty, GpuKind
from vlm_operator.sizing.memory import MemoryBreakdown
from vlm_operator.sizing.workload import LatencyMetric, LatencyTarget

EncoderParallelMode = Literal["weights", "data"]
LimitName = Literal["context length", "encoder budget", "batch tokens", "KV cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One of the four limits: what the largest declared request needs and what the server offers, in tokens."""

    name: LimitName
    needed: int
    limit: int

    @property
    def slack_fraction(self) -> float:
        """The unused share of the limit."""
        return 1 - self.needed / self.limit if self.limit else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A quantity at its median, 95th and 99th percentile over the declared requests."""

    p50: float
    p95: float
    p99: float

    def at(self, percentile: int) -> float:
        """Return the figure for 50, 95 or 99."""
        return {50: self.p50, 95: self.p95, 99: self.p99}[percentile]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyEstimate:
    """Seconds at percentiles of the declared mix, and what they rest on.

    Attributes:
        requests_per_minute_per_replica: What a replica serves with every target kept.
        evidence: Whether served runs of this GPU were compared, its kernels measured, or only its datasheet is known.
        spread: By metric, the lowest and highest share of the figure that nine measurements of ten lie between.
    """

    ttft: Percentiles
    tpot: Percentiles
    request: Percentiles
    requests_per_minute_per_replica: float
    certainty: Certainty
    evidence: Literal["runs", "kernels", "datasheet"]
    spread: Mapping[LatencyMetric, tuple[float, float]]

    def of(self, metric: LatencyMetric) -> Percentiles:
        """Return the percentiles of one latency."""
        return {"ttft": self.ttft, "tpot": self.tpot, "request_latency": self.request}[metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficFigures:
    """One replica under the declared traffic, simulated.

    Attributes:
        utilisation: Share of the time in which the engine works.
        kv_usage: Mean share of the KV cache in use while it works.
        mean_queue: Requests that wait for the scheduler, on average.
        preemptions: Requests that had to give up their blocks, in all.
        on_time: Share of the requests that keep every target (all of them where there is none).
        sustainable: Whether the replica keeps up, and no request is too large for it.
        requests: How many requests were simulated to their end.
    """

    utilisation: float
    kv_usage: float
    mean_queue: float
    preemptions: int
    on_time: float
    sustainable: bool
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShare:
    """One declared image size and what becomes of it.

    ``kept_pixels`` is how many pixels of detail the tower sees; None where the family has no setting that changes it.
    """

    width: int
    height: int
    share: float
    tokens: int
    prompt_tokens: int
    resized: tuple[int, int] | None
    tiles: int | None
    kept_pixels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFigures:
    """Tokens per image and per request (image + text + output) at p50, p99 and most."""

    images: tuple[ImageShare, ...]
    image_p50: int
    image_p99: int
    image_max: int
    request_p50: int
    request_p99: int
    request_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why one candidate cannot be used. ``shortfall_fraction`` orders near misses (0 is nearest)."""

    gpu: str
    gpus_per_replica: int
    reason: str
    message: str
    shortfall_fraction: float = 1.0
    hourly_cents: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another candidate: one that fits but costs more, or one that does not fit."""

    gpu: str
    gpus_per_replica: int
    tensor_parallel_size: int
    replicas: int
    hourly_cents: float | None
    fits: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The numbers that become engine flags; each has its one home here. ``extra_args`` are the user's, as they are."""

    tensor_parallel_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int
    limit_mm_per_prompt: Mapping[str, Any]
    mm_processor_kwargs: Mapping[str, Any]
    hf_overrides: Mapping[str, Any]
    encoder_parallel_mode: EncoderParallelMode
    dtype: str
    kv_cache_dtype: str
    mm_processor_cache_gib: int
    trust_remote_code: bool
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run and what to expect of it.

    ``hourly_cents`` is the price of all replicas; ``images_per_hour`` arrive at them, where the rate is declared.
    ``model_revision`` is the commit that the plan is for, where that is known.
    """

    model_id: str
    quantisation: str
    engine_version: str
    gpu: GpuKind
    gpus_per_replica: int
    replicas: int
    flags: ServerFlags
    images_per_prompt: int
    cap_name: str
    cap_value: int | None
    host: HostResources
    memory: MemoryBreakdown
    kv_cache_tokens: int
    tight_kv_cache: bool
    concurrent_requests: int
    limits: tuple[LimitCheck, ...]
    tokens: TokenFigures
    latency: LatencyEstimate
    hourly_cents: float | None
    certainty: Certainty
    binding_constraint: str
    reasons: tuple[str, ...]
    traffic: TrafficFigures | None = None
    alternatives: tuple[Alternative, ...] = ()
    model_revision: str = ""
    images_per_hour: float | None = None

    @property
    def cents_per_thousand_images(self) -> float | None:
        """The price of 1,000 images at the declared rate; None where the rate or the price is unknown."""
        if self.hourly_cents is None or not self.images_per_hour:
            return None
        return self.hourly_cents * 1000 / self.images_per_hour


def missed_target(estimate: LatencyEstimate, targets: Iterable[LatencyTarget]) -> tuple[LatencyTarget, str] | None:
    """Return the first of ``targets`` that ``estimate`` misses, and by how much in words."""
    for target in targets:
        value = estimate.of(target.metric).at(target.percentile)
        if value > target.seconds:
            return target, late_words(target, value)
    return None


def late_words(target: LatencyTarget, value: float) -> str:
    """Return for example ``TTFT p95 3.9 s > 2 s``."""
    name = {"ttft": "TTFT", "tpot": "TPOT", "request_latency": "request latency"}[target.metric]
    return f"{name} p{target.percentile} {value:.3g} s > {target.seconds:.3g} s"


Rank = tuple[bool, bool, float, int, str, int]
"""The order of plans: KV cache with its reserve, known price, price, GPUs, name, tensor parallel size."""


def rank(plan: Plan) -> Rank:
    """Return the place of ``plan`` among others; the smallest wins."""
    return (
        plan.tight_kv_cache,
        plan.hourly_cents is None,
        plan.hourly_cents or 0.0,
        plan.gpus_per_replica * plan.replicas,
        plan.gpu.id,
        plan.flags.tensor_parallel_size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One change after which a plan is found: what comes of it in words, and the fields to write.

    ``changes`` maps paths below ``spec`` to values; None drops the field.
    """

    words: str
    changes: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the words with the fields behind them."""
        fields = ", ".join(
            f"drop {path}" if value is None else f"{path}: {_yaml(value)}" for path, value in self.changes.items()
        )
        return f"{self.words} ({fields})"


def _yaml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    plain = not isinstance(value, str) or (re.fullmatch(r"[-\w./=]+", value) and not value.isdecimal())
    return str(value) if plain else json.dumps(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFit:
    """Nothing fits: a CamelCase reason (``api.names``), one message, the nearest misses, what would make it fit."""

    model_id: str
    reason: str
    message: str
    candidates: int
    nearest: tuple[Rejection, ...] = ()
    by_reason: tuple[tuple[str, int], ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
