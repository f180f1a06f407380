"""One object's plan, or why there is none, as the flat mapping that the page's templates read; no arithmetic there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.report.asked import asked
from vlm_operator.report.charts import histogram, scatter, strips
from vlm_operator.report.choices import Choices, Picture, latency_picture, pixels_picture
from vlm_operator.report.figures import (
    EVIDENCE_WORDS,
    count,
    gpu_words,
    megapixels,
    metric_words,
    money,
    percent,
    runs_on,
    seconds,
    tenths_that_sum,
)
from vlm_operator.sizing.frontier import kept_pixels, latency_seconds, meets
from vlm_operator.sizing.plan import Alternative, NoFit, Plan, Rejection
from vlm_operator.sizing.workload import Constraints, LatencyMetric, LatencyTarget, Workload
from vlm_operator.units import GIB, format_gib

HOURS_A_MONTH: Final = 730
_MOST_SIZES: Final = 12
_METRICS: Final[tuple[tuple[str, LatencyMetric], ...]] = (
    ("time to first token", "ttft"),
    ("time per output token", "tpot"),
    ("whole request", "request_latency"),
)
_CERTAINTIES: Final[Mapping[str, str]] = {
    "measured": "measured on such hardware",
    "datasheet": "from a datasheet",
    "estimated": "estimated by a model of the engine",
    "remembered": "remembered, not read from a file: check it",
    "unknown": "unknown",
}
_PARTS: Final[Mapping[str | None, str]] = {
    "computed": "computed by the engine's own rules",
    "calibrated": "calibrated against published logs",
    None: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a page shows of one object; ``file`` and ``inventory`` are what the commands at its end name."""

    choices: Choices
    workload: Workload
    constraints: Constraints
    engine_version: str
    file: str
    inventory: str = "catalogue"

    @property
    def options(self) -> str:
        """What the commands need beside the file."""
        return f"-f {self.file}" + ("" if self.inventory == "catalogue" else f" --inventory {self.inventory}")


def sheet_context(sheet: Sheet, key: str) -> dict[str, Any]:
    """Return every value that a template may name; ``key`` is unique on the page."""
    outcome = sheet.choices.declared
    where = {"catalogue": "the catalogue", "cluster": "the cluster"}.get(sheet.inventory, sheet.inventory)
    own = _no_fit(outcome, sheet) if isinstance(outcome, NoFit) else _plan(outcome, sheet)
    return {
        "key": key,
        "name": sheet.choices.name,
        "model": outcome.model_id,
        "engine": sheet.engine_version,
        "inventory": where,
        "plan": isinstance(outcome, Plan),
        "asked": asked(sheet.workload, sheet.constraints),
        **own,
        **_fronts(sheet.choices),
    }


def _plan(plan: Plan, sheet: Sheet) -> dict[str, Any]:
    targets = sheet.constraints.latency_targets
    return {
        "answer": f"{count(plan.replicas, 'replica')} × {plan.gpus_per_replica} {plan.gpu.display_name}",
        "verdict": _verdict(plan, targets),
        "figures": _figures(plan, sheet),
        "reasons": plan.reasons,
        "strips": strips(plan, targets),
        "latency": [_latency_row(name, metric, plan, targets) for name, metric in _METRICS],
        "latency_certainty": plan.latency.certainty,
        "rate": f"{plan.latency.requests_per_minute_per_replica:,.0f}",
        **_memory(plan),
        **_images(plan),
        "limits": [
            {
                "name": check.name,
                "needed": f"{check.needed:,}",
                "limit": f"{check.limit:,}",
                "used": round(100 * (1 - check.slack_fraction), 1),
                "slack": percent(check.slack_fraction),
            }
            for check in plan.limits
        ],
        "breaks_first": plan.binding_constraint,
        "others": [_other(other) for other in plan.alternatives],
        "sure": _sure(plan),
        "next": f"vlmctl render {sheet.options} | kubectl apply -f -",
    }


def _verdict(plan: Plan, targets: Sequence[LatencyTarget]) -> str:
    late = [target for target in targets if not meets(plan, (target,))]
    if late:
        return "; ".join(f"{_promise(plan, target)}: missed" for target in late)
    kept = "; ".join(_promise(plan, target) for target in targets)
    return f"Fits and keeps every latency target: {kept}." if kept else "Fits. No latency target is declared."


def _promise(plan: Plan, target: LatencyTarget) -> str:
    return f"{metric_words(target)} {seconds(latency_seconds(plan, target))} (target {seconds(target.seconds)})"


def _figures(plan: Plan, sheet: Sheet) -> list[dict[str, str]]:
    choices, cents = sheet.choices, plan.hourly_cents
    month = f"about ${cents / 100 * HOURS_A_MONTH:,.0f} a month of {HOURS_A_MONTH} h" if cents is not None else ""
    images = plan.cents_per_thousand_images
    headroom = plan.memory.parts[-1]
    found = [
        {"name": "Price", "value": money(cents), "note": f"{month}; {plan.gpu.price_note or 'as given'}".lstrip("; ")},
        {
            "name": metric_words(choices.compared),
            "value": seconds(latency_seconds(plan, choices.compared)),
            "note": _latency_note(plan, choices),
        },
        {
            "name": "Memory left",
            "value": format_gib(headroom.size_bytes),
            "note": f"per GPU; {headroom.note}".rstrip("; "),
        },
    ]
    if images is not None:
        note = "at the declared rate"
        found.insert(1, {"name": "1,000 images", "value": f"${images / 100:,.2f}", "note": note})
    return found


def _latency_note(plan: Plan, choices: Choices) -> str:
    compared = choices.compared
    value = latency_seconds(plan, compared)
    low, high = (seconds(value * share) for share in plan.latency.spread[compared.metric])
    target = f"target {seconds(compared.seconds)}; " if choices.targets else ""
    return f"{target}{low} to {high} in nine of ten measurements"


def _latency_row(name: str, metric: LatencyMetric, plan: Plan, targets: Sequence[LatencyTarget]) -> dict[str, Any]:
    figures = plan.latency.of(metric)
    low, high = (seconds(figures.p95 * share) for share in plan.latency.spread[metric])
    own = [target for target in targets if target.metric == metric]
    return {
        "name": name,
        "figures": [seconds(figures.at(p)) for p in (50, 95, 99)],
        "interval": f"{low} to {high}",
        "targets": [(f"p{target.percentile} ≤ {seconds(target.seconds)}", meets(plan, (target,))) for target in own],
    }


def _memory(plan: Plan) -> dict[str, Any]:
    """Return the waterfall: each part starts where the one above it ends."""
    memory, tenths = plan.memory, tenths_that_sum(plan.memory)
    total = memory.total_bytes
    rows, start = [], 0
    for part in memory.parts:
        known = "; ".join(words for words in (part.note, _PARTS[part.certainty]) if words)
        rows.append(
            {
                "name": part.name,
                "size": f"{tenths[part.name] / 10:.1f}",
                "start": round(100 * start / total, 2),
                "width": max(round(100 * part.size_bytes / total, 2), 0.3 if part.size_bytes > 0 else 0),
                "note": known,
            }
        )
        start += part.size_bytes
    return {
        "memory": rows,
        "memory_total": f"{total / GIB:.1f}",
        "kv_tokens": f"{plan.kv_cache_tokens:,}",
        "held": count(plan.concurrent_requests, "request"),
    }


def _images(plan: Plan) -> dict[str, Any]:
    figures = plan.tokens
    total = sum(image.share for image in figures.images) or 1.0
    shown = sorted(figures.images, key=lambda image: -image.share)[:_MOST_SIZES]
    rows = []
    for image in shown:
        seen = f"{image.resized[0]}×{image.resized[1]}" if image.resized else ""
        tiles = count(image.tiles, "tile") if image.tiles else ""
        rows.append(
            {
                "share": percent(image.share / total),
                "size": f"{image.width}×{image.height}",
                "seen": " in ".join(words for words in (seen, tiles) if words) or "as it is",
                "tokens": f"{image.tokens:,}",
            }
        )
    left = len(figures.images) - len(shown)
    capped = plan.cap_value is not None
    return {
        "bars": histogram(figures.images),
        "images": rows,
        "images_left": count(left, "other size") if left else "",
        "cap": f"Tokens of an image, capped by {plan.cap_name} {plan.cap_value:,}."
        if capped
        else "Tokens of an image.",
        "per_request": f"A request of up to {count(plan.images_per_prompt, 'image')} with its text and answer: "
        f"p50 {figures.request_p50:,} · p99 {figures.request_p99:,} · most {figures.request_max:,} tokens.",
    }


def _other(other: Alternative) -> dict[str, Any]:
    what = gpu_words(other.gpus_per_replica, other.gpu)
    replicas = f"{other.replicas} × ({what})" if other.replicas > 1 else what
    message = other.message.removeprefix(f"{what}: ")
    return {"what": replicas, "price": money(other.hourly_cents), "fits": other.fits, "message": message}


def _sure(plan: Plan) -> list[tuple[str, str]]:
    memory = plan.gpu.engine_memory_certainty
    price = plan.gpu.price_note or "as given"
    return [
        ("Plan", _CERTAINTIES[plan.certainty]),
        ("Latency", f"{_CERTAINTIES[plan.latency.certainty]}; {EVIDENCE_WORDS[plan.latency.evidence]}; {_tried(plan)}"),
        ("GPU memory", f"what the engine sees of it: {_CERTAINTIES[memory]}"),
        ("Memory parts", "a plan fits only if it does with every estimate at its bad end; that is “uncertainty” above"),
        ("Price", f"list price, {price}; yours may differ" if plan.hourly_cents is not None else "unknown"),
    ]


def _tried(plan: Plan) -> str:
    traffic = plan.traffic
    if traffic is None:
        return "by closed formulas, not under simulated traffic"
    late = f"{percent(traffic.on_time)} of the requests in time"
    busy = f"engine busy {percent(traffic.utilisation)} of the time, KV cache {percent(traffic.kv_usage)} full"
    queue = f"{traffic.mean_queue:.1f} requests waiting on average, {count(traffic.preemptions, 'preemption')}"
    return f"percentiles of simulated traffic on one replica: {late}, {busy}, {queue}"


def _no_fit(no_fit: NoFit, sheet: Sheet) -> dict[str, Any]:
    most = max((number for _, number in no_fit.by_reason), default=1)
    tried = f"Nothing fits ({count(no_fit.candidates, 'candidate')} judged)"
    return {
        "answer": tried if no_fit.candidates else f"It cannot be planned ({no_fit.reason})",
        "verdict": no_fit.message,
        "suggestions": [str(change) for change in no_fit.suggestions],
        "nearest": [_miss(rejection) for rejection in no_fit.nearest],
        "by_reason": [
            {"name": name, "number": f"{number:,}", "width": round(100 * number / most, 1)}
            for name, number in no_fit.by_reason
        ],
        "sure": [],
        "next": f"change {sheet.file}, then: vlmctl plan {sheet.options}",
    }


def _miss(rejection: Rejection) -> dict[str, str]:
    what = gpu_words(rejection.gpus_per_replica, rejection.gpu)
    message = rejection.message.removeprefix(f"{what}: ")
    return {"what": what, "price": money(rejection.hourly_cents), "message": message}


def _fronts(choices: Choices) -> dict[str, Any]:
    pictures = [picture for picture in (latency_picture(choices), pixels_picture(choices)) if picture is not None]
    note = "" if len(pictures) > 1 or not pictures else "No setting of this model changes how much of an image it sees."
    fixed = choices.plans and kept_pixels(choices.plans[0]) is None
    return {"fronts": [_front(picture, choices) for picture in pictures], "fronts_note": note if fixed else ""}


def _front(picture: Picture, choices: Choices) -> dict[str, Any]:
    rows = []
    for mark in picture.front:
        pixels = kept_pixels(mark.plan)
        rows.append(
            {
                "number": mark.number,
                "what": runs_on(mark.plan),
                "declared": mark.standing == "declared",
                "price": money(mark.plan.hourly_cents),
                "latency": seconds(latency_seconds(mark.plan, choices.compared)),
                "late": mark.standing == "late",
                "sees": "" if pixels is None else megapixels(pixels),
            }
        )
    return {
        "chart": scatter(picture),
        "note": picture.note,
        "rows": rows,
        "latency_name": metric_words(choices.compared),
        "pixels": any(row["sees"] for row in rows),
    }
