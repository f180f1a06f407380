"""A judged candidate, and its parts put together into a ``Plan``. No decision is taken here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_operator.sizing import latency
from vlm_operator.sizing.fit import BATCHED_TOKENS, KV_RESERVE, MAX_UTILIZATION_PERCENT, MemoryFit
from vlm_operator.sizing.plan import LatencyEstimate, LimitCheck, Percentiles, Plan, Rank, ServerFlags
from vlm_operator.sizing.question import Candidate, Case, Question, Setting
from vlm_operator.sizing.workload import LatencyMetric

SPREADS: Final[Mapping[LatencyMetric, latency.Quantity]] = {
    "ttft": "ttft",
    "tpot": "tpot",
    "request_latency": "total",
}
BUSY_TOWER: Final = 0.7
"""Above this share of the time, images wait for the tower and answers for images."""
PROCESSOR_CACHE_GIB = 4
"""The engine's default size of the cache of processed images."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A candidate that fits, with what it was judged by.

    Its plan is put together when it is asked for: most candidates are only compared by price.

    Attributes:
        seconds: The latency of the request at each percentile, by closed formulas.
        strain: The largest share of a latency target or of what a replica serves that is used, by closed formulas.
        most_on_time: Returns how many requests a replica can run at once with every latency target kept.
    """

    candidate: Candidate
    question: Question
    case: Case
    setting: Setting
    fit: MemoryFit
    seconds: Mapping[int, latency.RequestSeconds]
    strain: float
    most_on_time: Callable[[], int]
    _plan: list[Plan] = field(default_factory=list, repr=False)

    @property
    def plan(self) -> Plan:
        """The whole plan."""
        if not self._plan:
            estimate = assemble_latency(self.question, self.case, self.seconds, self.most_on_time())
            self._plan.append(assemble_plan(self.candidate, self.question, self.case, self.setting, self.fit, estimate))
        return self._plan[0]

    @property
    def replicas(self) -> int:
        """How many replicas the plan has."""
        return self.setting.replicas

    @property
    def tight_kv_cache(self) -> bool:
        """Whether the KV cache lacks its reserve."""
        return self.fit.peak_requests < (1 + KV_RESERVE) * self.setting.running

    @property
    def hourly_cents(self) -> float | None:
        """The price of all replicas, None where it is unknown."""
        return self.cents_of(self.replicas)

    @property
    def rank(self) -> Rank:
        """The rank of the plan."""
        return self.rank_with(self.replicas)

    def cents_of(self, replicas: int) -> float | None:
        """Return the price of so many replicas, None where it is unknown."""
        price = self.candidate.node.gpu.hourly_cents
        return None if price is None else price * self.candidate.tensor_parallel_size * replicas

    def rank_with(self, replicas: int) -> Rank:
        """Return the rank that the plan would have with so many replicas."""
        cents, size = self.cents_of(replicas), self.candidate.tensor_parallel_size
        gpu = self.candidate.node.gpu.id
        return (self.tight_kv_cache, cents is None, cents or 0.0, size * replicas, gpu, size)


def assemble_latency(
    question: Question, case: Case, seconds: Mapping[int, latency.RequestSeconds], most: int
) -> LatencyEstimate:
    """Return the percentiles of the mix; ``most`` is how many requests a replica runs when it is full."""

    def over(metric: str) -> Percentiles:
        values = {p: getattr(figures, metric) for p, figures in seconds.items()}
        return Percentiles(p50=values[50], p95=values[95], p99=values[99])

    evidence = case.runner.costs.speed.evidence
    return LatencyEstimate(
        ttft=over("ttft"),
        tpot=over("tpot"),
        request=over("total"),
        requests_per_minute_per_replica=latency.requests_per_minute(case.runner, case.typical, most),
        certainty="estimated",
        evidence=evidence,
        spread=spread_of(question, evidence),
    )


def spread_of(question: Question, evidence: latency.Evidence) -> Mapping[LatencyMetric, tuple[float, float]]:
    """Return what measured figures are of predicted ones, lowest and highest, for each latency."""
    return {metric: latency.spread_of(key, evidence, question.latency) for metric, key in SPREADS.items()}


def assemble_plan(
    candidate: Candidate, question: Question, case: Case, setting: Setting, fit: MemoryFit, estimate: LatencyEstimate
) -> Plan:
    """Return the plan: the candidate with its flags, memory, limits, latency and cost."""
    gpu = candidate.node.gpu
    size = candidate.tensor_parallel_size
    images = question.workload.max_images_per_request
    limits = _limits(question, setting, fit)
    cap = question.rule.cap
    cents = None if gpu.hourly_cents is None else gpu.hourly_cents * size * setting.replicas
    return Plan(
        model_id=question.model_id,
        quantisation=question.shape.format,
        engine_version=question.engine_version,
        gpu=gpu,
        gpus_per_replica=size,
        replicas=setting.replicas,
        flags=_flags(candidate, question, setting, fit),
        images_per_prompt=images,
        cap_name=cap.name if cap else "",
        cap_value=cap.value if cap else None,
        host=fit.host,
        memory=fit.memory,
        kv_cache_tokens=fit.cache.tokens,
        tight_kv_cache=fit.peak_requests < (1 + KV_RESERVE) * setting.running,
        concurrent_requests=fit.largest_requests,
        limits=limits,
        tokens=question.demand.figures,
        latency=estimate,
        hourly_cents=cents,
        certainty="remembered" if question.remembered else "estimated",
        binding_constraint="KV cache" if fit.largest_requests <= setting.max_num_seqs else "running sequences",
        reasons=(*_reasons(candidate, question, setting, fit), *_load_reasons(question, case, setting)),
        images_per_hour=question.workload.images_per_hour,
    )


def _flags(candidate: Candidate, question: Question, setting: Setting, fit: MemoryFit) -> ServerFlags:
    return ServerFlags(
        tensor_parallel_size=candidate.tensor_parallel_size,
        limit_mm_per_prompt=_modality_limits(question, question.workload.max_images_per_request),
        mm_processor_kwargs=question.rule.settings.mm_processor_kwargs,
        hf_overrides=question.rule.settings.hf_overrides,
        encoder_parallel_mode=candidate.encoder_mode,
        dtype="bfloat16",
        kv_cache_dtype=candidate.kv_cache_dtype,
        mm_processor_cache_gib=PROCESSOR_CACHE_GIB,
        trust_remote_code=question.trust_remote_code,
        max_model_len=setting.max_model_len,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=fit.max_num_batched_tokens,
        gpu_memory_utilization_percent=fit.gpu_memory_utilization_percent,
        extra_args=question.constraints.asked.passed,
    )


def _reasons(candidate: Candidate, question: Question, setting: Setting, fit: MemoryFit) -> tuple[str, ...]:
    """Say what was chosen and why: the GPUs, then whatever differs from the model as it was published."""
    reasons = ["the cheapest GPUs per hour that keep every declared limit"]
    if question.model_id != question.declared_id:
        reasons.append(f"{question.model_id} holds the same model in fewer bytes, which makes the plan cheaper")
    spare = question.constraints.spare_replicas
    if spare:
        reasons.append(f"the traffic needs {setting.serving} of {setting.replicas} replicas: {spare} may fail")
    asked = question.constraints.asked
    if candidate.kv_cache_dtype != "auto" and asked.kv_cache_dtype is None:
        reasons.append(f"a KV cache in {candidate.kv_cache_dtype} holds more requests, which makes the plan cheaper")
    if candidate.encoder_mode == "data" and asked.mm_encoder_tp_mode is None:
        reasons.append("each GPU encodes whole images, since the vision tower is small or cannot be split that way")
    reasons += [_step_reason(candidate, question, fit), _cache_reason(setting, fit), *_credit_reasons(question)]
    if asked.obeyed:
        reasons.append(f"as engine.extraArgs asks: {', '.join(asked.obeyed)}")
    if (asked.utilization_percent or 0) > MAX_UTILIZATION_PERCENT:
        reasons.append(
            f"above {MAX_UTILIZATION_PERCENT / 100:.2f} of the memory, growth while serving has ended vision servers; "
            "the estimate leaves room for what is known"
        )
    if asked.passed:
        reasons.append(f"passed on from engine.extraArgs: {' '.join(asked.passed)}")
    return (*reasons, _cap_reason(question))


def _step_reason(candidate: Candidate, question: Question, fit: MemoryFit) -> str:
    words = f"prompts are computed in chunks: a step takes at most {fit.max_num_batched_tokens:,} tokens"
    if question.constraints.asked.max_num_batched_tokens is not None:
        return words
    if candidate.max_num_batched_tokens is not None:
        return f"{words}, since larger steps miss a latency target or need more replicas"
    if fit.max_num_batched_tokens < BATCHED_TOKENS[0]:
        return f"{words}, since larger steps leave less memory to the KV cache"
    return words


def _cache_reason(setting: Setting, fit: MemoryFit) -> str:
    held = f"the KV cache holds {fit.peak_requests} requests of the 99th percentile for {setting.running} that run"
    if fit.peak_requests < (1 + KV_RESERVE) * setting.running:
        return f"{held}: less than the usual reserve of {100 * KV_RESERVE:.0f} %, since nothing else fits"
    return f"{held}: {100 * KV_RESERVE:.0f} % or more is kept in reserve"


def _credit_reasons(question: Question) -> Iterator[str]:
    """Say what is not computed twice."""
    workload = question.workload
    if workload.repeat_percent:
        cache = f"a cache of {PROCESSOR_CACHE_GIB} GiB saves preparing them"
        yield f"{workload.repeat_percent} % of the images come again: {cache}, the encoder's cache encoding the latest"
    if workload.shared_prefix_tokens:
        yield f"{workload.shared_prefix_tokens:,} tokens that begin every prompt are computed once"


def _load_reasons(question: Question, case: Case, setting: Setting) -> Iterator[str]:
    """Say where images cost most: on the CPU before the engine, and in the vision tower, by the formulas."""
    runner, typical, declared = case.runner, case.typical, question.workload.requests_per_minute
    if not typical.patches:
        return
    prepare, engine, _ = runner.alone(typical)
    if prepare > engine:
        yield (
            f"a typical request alone waits {prepare:.2g} s for the CPU that prepares its images, {engine:.2g} s for "
            "GPUs: smaller images or a lower cap help more than faster GPUs"
        )
    served = latency.requests_per_minute(runner, typical, setting.running)
    rate = min(served, declared / setting.serving) if declared else served
    busy = min(1.0, latency.encode_seconds(runner, typical) * rate / 60)
    words = f"the vision tower takes {100 * busy:.0f} % of a replica's time"
    yield f"{words}: encoding apart from decoding would pay, which is not planned" if busy > BUSY_TOWER else words


def _cap_reason(question: Question) -> str:
    constraints = question.constraints
    floors = [
        f"{value:,} {unit}"
        for value, unit in ((constraints.min_pixels_per_image, "pixels"), (constraints.min_image_tokens, "tokens"))
        if value is not None
    ]
    if question.rule.cap is None:
        return "images keep the size that the model gives them: no setting caps this model's images"
    if floors:
        return f"images are capped as far as the quality floor of {' and '.join(floors)} allows"
    return "images keep the size that the model's own settings give them"


def _modality_limits(question: Question, images: int) -> dict[str, Any]:
    """Name every modality: an unnamed one keeps the engine's default of 999.

    The profiling hint is the engine's own dummy image under the cap, so cap, profile and estimate are one number.
    """
    width, height = question.rule.maximum().dummy_size
    return {"image": {"count": images, "width": width, "height": height}, "video": 0, "audio": 0}


def _limits(question: Question, setting: Setting, fit: MemoryFit) -> tuple[LimitCheck, ...]:
    figures = question.demand.figures
    return (
        LimitCheck(name="context length", needed=figures.request_max, limit=setting.max_model_len),
        LimitCheck(
            name="encoder budget",
            needed=question.demand.largest_image_tokens,
            limit=fit.encoder_budget_tokens,
        ),
        LimitCheck(
            name="batch tokens",
            # Only a model that may not chunk an image has to take the whole of it in one step.
            needed=question.demand.largest_image_tokens if question.shape.prefix_lm else 1,
            limit=fit.max_num_batched_tokens,
        ),
        LimitCheck(
            name="KV cache",
            needed=setting.running * figures.request_p99,
            limit=max(fit.peak_requests, 1) * figures.request_p99,
        ),
    )
