"""The human screen of a plan: the answer first, then why, then what else could be had."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlm_operator.cli.output import COLUMNS, Style, clean
from vlm_operator.cli.text import LABEL_WIDTH, MARGIN, fold, section, table
from vlm_operator.cli.waterfall import waterfall
from vlm_operator.report.figures import EVIDENCE_WORDS, count, gpu_words, metric_words, money, percent, seconds
from vlm_operator.sizing.frontier import latency_seconds
from vlm_operator.sizing.plan import Alternative, LatencyEstimate, Plan
from vlm_operator.sizing.workload import LatencyMetric, LatencyTarget
from vlm_operator.units import GIB

_METRICS: tuple[tuple[str, LatencyMetric], ...] = (
    ("time to first token", "ttft"),
    ("time per output token", "tpot"),
    ("whole request", "request_latency"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the screen repeats of the question: the object's name, its targets, where it came from."""

    name: str
    file: str = "FILE"
    inventory: str = "catalogue"
    model_dir: str | None = None
    targets: Sequence[LatencyTarget] = field(default_factory=tuple)
    what_if: Sequence[str] = ()


def plan_screen(plan: Plan, asked: Asked, style: Style) -> list[str]:
    """Return the lines of the screen for ``plan``."""
    blocks = [
        _headline(plan, asked, style),
        section("Images", _images(plan)),
        _memory(plan),
        _limits(plan),
        _latency(plan, asked.targets, style),
        section("Others", _others(plan.alternatives)),
        section("What if", asked.what_if),
        section("Why", plan.reasons),
        section("How sure", _how_sure(plan)),
        _next_step(asked),
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines.extend([*block, ""])
    return lines[:-1]


def _headline(plan: Plan, asked: Asked, style: Style) -> list[str]:
    title = clean(f"{asked.name} · {plan.model_id} · vLLM {plan.engine_version}")
    answer = f"{count(plan.replicas, 'replica')} × {plan.gpus_per_replica} {plan.gpu.display_name}"
    price = money(plan.hourly_cents)
    if plan.cents_per_thousand_images is not None:
        price += f" · ${plan.cents_per_thousand_images / 100:.2f} per 1,000 images"
    promises = [
        f"{metric_words(t)} {seconds(latency_seconds(plan, t))} (target {seconds(t.seconds)})" for t in asked.targets
    ]
    promise = promises[0] if promises else f"TTFT p95 {seconds(plan.latency.ttft.p95)}"
    parts = (clean(answer), price, promise)
    answer_line = "    ".join(parts)
    lines = [style.paint("strong", row) for row in fold(title, COLUMNS)]
    if len(answer_line) + 2 <= COLUMNS:
        return [*lines, "", f"{style.paint('good', '✔')} {answer_line}"]
    return [*lines, "", f"{style.paint('good', '✔')} {parts[0]}    {parts[1]}", f"  {parts[2]}"]


def _images(plan: Plan) -> list[str]:
    total = sum(image.share for image in plan.tokens.images) or 1
    rows = []
    for image in plan.tokens.images:
        seen = f"→ {image.resized[0]}×{image.resized[1]}" if image.resized else ""
        if image.tiles:
            seen = f"{seen} in {count(image.tiles, 'tile')}".strip()
        size = f"{image.width}×{image.height}"
        rows.append([percent(image.share / total), size, seen, count(image.tokens, "token")])
    figures = plan.tokens
    lines = table(rows, right=(0, 1, 3))
    if plan.cap_value is not None:
        lines.append(f"capped by {plan.cap_name} {plan.cap_value:,}")
    lines.append(
        f"per request of up to {count(plan.images_per_prompt, 'image')}:  p50 {figures.request_p50:,} · "
        f"p99 {figures.request_p99:,} · most {figures.request_max:,} tokens"
    )
    return lines


def _memory(plan: Plan) -> list[str]:
    total = f"{plan.memory.total_bytes / GIB:.1f} GiB seen by the engine"
    held = f"{plan.kv_cache_tokens:,} tokens of KV cache hold {count(plan.concurrent_requests, 'request')}"
    return [
        f"{MARGIN}{'Memory per GPU':<{LABEL_WIDTH}}{total}",
        *waterfall(plan.memory),
        f"{MARGIN}  {held} of the largest kind at once",
    ]


def _limits(plan: Plan) -> list[str]:
    rows = [["", "largest need", "limit", "slack", ""]]
    for check in plan.limits:
        first = "← breaks first" if check.name == plan.binding_constraint else ""
        rows.append([check.name, f"{check.needed:,}", f"{check.limit:,}", percent(check.slack_fraction), first])
    lines = _titled("Limits", rows, right=(1, 2, 3))
    if plan.binding_constraint and all(check.name != plan.binding_constraint for check in plan.limits):
        lines.extend(f"{MARGIN}  {row}" for row in fold(f"breaks first: {plan.binding_constraint}", COLUMNS - 4))
    return lines


def _latency(plan: Plan, targets: Sequence[LatencyTarget], style: Style) -> list[str]:
    latency, traffic = plan.latency, plan.traffic
    rows = [["", "p50", "p95", "p99", "target"]]
    for name, metric in _METRICS:
        figures = latency.of(metric)
        words = [
            f"p{t.percentile} ≤ {seconds(t.seconds)} {'✔' if figures.at(t.percentile) <= t.seconds else '✘'}"
            for t in targets
            if t.metric == metric
        ]
        rows.append([name, *(seconds(figures.at(p)) for p in (50, 95, 99)), " · ".join(words)])
    lines = _titled("Latency", rows, right=(1, 2, 3))
    lines.append(f"{MARGIN}  one replica serves about {latency.requests_per_minute_per_replica:,.0f} requests a minute")
    if traffic is not None:
        cache, queue = percent(traffic.kv_usage), f"{traffic.mean_queue:.1f} requests wait"
        lines.append(f"{MARGIN}  simulated traffic: on average {queue} and {cache} of the KV cache is in use")
    return [line.replace("✔", style.paint("good", "✔")).replace("✘", style.paint("bad", "✘")) for line in lines]


def _titled(title: str, rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> list[str]:
    """Return a table whose title stands in the empty corner above its first column."""
    names = max(24, *(len(row[0]) for row in rows))
    padded = [[row[0].ljust(names), *row[1:]] for row in rows]
    lines = [f"{MARGIN}  {line}" for line in table(padded, right=right)]
    lines[0] = f"{MARGIN}{title}" + lines[0][len(MARGIN) + len(title) :]
    return lines


def _others(alternatives: Sequence[Alternative]) -> list[str]:
    rows = []
    for other in alternatives:
        what = gpu_words(other.gpus_per_replica, other.gpu)
        message = other.message.removeprefix(f"{what}: ")
        if other.replicas > 1:
            what = f"{other.replicas} × ({what})"
        verdict = message if other.fits else f"✘ {message}"
        rows.append([what, money(other.hourly_cents), verdict])
    return table(rows, right=(1,))


def _how_sure(plan: Plan) -> list[str]:
    price = f"price from {plan.gpu.price_note}" if plan.gpu.price_note else "price as given"
    if plan.hourly_cents is None:
        price = "price unknown"
    return [
        f"model {plan.certainty} · GPU memory {plan.gpu.engine_memory_certainty} · {price}",
        f"latency: {EVIDENCE_WORDS[plan.latency.evidence]}",
        *_spread(plan.latency),
    ]


def _spread(latency: LatencyEstimate) -> list[str]:
    """Return how far nine measurements of ten are from the figure of each latency."""
    words = []
    for name, metric in _METRICS:
        low, high = latency.spread[metric]
        words.append(f"{name} −{1 - low:.0%} to +{high - 1:.0%}")
    return ["nine of ten measurements lie within " + " · ".join(words)]


def _next_step(asked: Asked) -> list[str]:
    option = "" if asked.inventory == "catalogue" else f" --inventory {asked.inventory}"
    option += f" --model-dir {asked.model_dir}" if asked.model_dir else ""
    command = f"Next: vlmctl render -f {asked.file}{option} | kubectl apply -f -"
    operator = f"kubectl apply -f {asked.file}  with the operator"
    one_line = f"{command}     or     {operator}"
    return [clean(one_line)] if len(one_line) <= COLUMNS else [clean(command), clean(f"  or: {operator}")]
