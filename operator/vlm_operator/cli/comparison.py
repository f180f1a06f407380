"""Outcomes side by side: the figures that a person chooses by, one column for each outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from vlm_operator.cli.output import COLUMNS, Style, clean
from vlm_operator.cli.text import MARGIN, fold, section
from vlm_operator.report.figures import (
    count,
    gpu_words,
    metric_words,
    money,
    runs_on,
    seconds,
)
from vlm_operator.sizing.frontier import TTFT_P95, latency_seconds
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.workload import LatencyTarget
from vlm_operator.units import format_gib

_NONE = "–"
_LABEL = 20
_GAP = 2
_DIFFERENCE = 12
_SHOWN = (
    TTFT_P95,
    LatencyTarget(metric="tpot", percentile=95, seconds=float("inf")),
    LatencyTarget(metric="request_latency", percentile=95, seconds=float("inf")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One outcome: how it is called, what came out, which targets were asked for."""

    title: str
    outcome: Plan | NoFit
    targets: Sequence[LatencyTarget] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of every outcome: in words, and as a number where a difference means something."""

    label: str
    cells: tuple[str, ...]
    numbers: tuple[float | None, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the outcomes that have this figure do not all say the same."""
        return len(set(self.cells) - {_NONE}) > 1


def compare(columns: Sequence[Column]) -> tuple[Row, ...]:
    """Return the figures of ``columns``; what an outcome has not is a dash."""
    targets = tuple(dict.fromkeys((t.metric, t.percentile) for column in columns for t in column.targets))
    shown = [LatencyTarget(metric=metric, percentile=p, seconds=float("inf")) for metric, p in targets]
    shown += [target for target in _SHOWN if (target.metric, target.percentile) not in targets]
    return (
        Row(label="verdict", cells=tuple(_verdict(column.outcome) for column in columns)),
        _words("model", columns, lambda plan: plan.model_id),
        _words("runs on", columns, runs_on),
        replace(
            _words("price", columns, lambda plan: money(plan.hourly_cents)),
            numbers=tuple(None if isinstance(it.outcome, NoFit) else it.outcome.hourly_cents for it in columns),
        ),
        _figures("1,000 images", columns, lambda plan: plan.cents_per_thousand_images, lambda n: f"${n / 100:.2f}"),
        _figures("tokens of an image", columns, lambda plan: plan.tokens.image_p99, lambda n: f"p99 {n:,.0f}"),
        _words("cap", columns, lambda plan: f"{plan.cap_name} {plan.cap_value:,}" if plan.cap_value else "none"),
        _figures("largest request", columns, lambda plan: plan.tokens.request_max, lambda n: f"{n:,.0f} tokens"),
        _figures("context length", columns, lambda plan: plan.flags.max_model_len, lambda n: f"{n:,.0f} tokens"),
        _figures("KV cache", columns, lambda plan: plan.kv_cache_tokens, lambda n: f"{n:,.0f} tokens"),
        _figures("held at once", columns, lambda plan: plan.concurrent_requests, lambda n: count(int(n), "request")),
        _words("headroom per GPU", columns, lambda plan: format_gib(plan.memory.parts[-1].size_bytes)),
        *(_latency(target, columns) for target in shown),
        _figures(
            "a replica serves",
            columns,
            lambda plan: plan.latency.requests_per_minute_per_replica,
            lambda rate: f"{rate:,.0f} requests/min",
        ),
        _words("breaks first", columns, lambda plan: plan.binding_constraint),
        _words("how sure", columns, lambda plan: f"{plan.certainty}; latency from {plan.latency.evidence}"),
    )


def comparison_screen(columns: Sequence[Column], style: Style) -> list[str]:
    """Return the outcomes side by side, what differs marked, and below it why one does not fit."""
    rows = compare(columns)
    with_difference = len(columns) == 2 and any(row.differs for row in rows)
    room = COLUMNS - 2 - _LABEL - (_DIFFERENCE + _GAP if with_difference else 0)
    width = max(12, room // len(columns) - _GAP)
    titles = Row(label="", cells=tuple(column.title for column in columns))
    lines = _laid_out(titles, width, "difference" if with_difference else "")
    lines = [style.paint("strong", line) for line in lines]
    for row in (row for row in rows if set(row.cells) != {_NONE}):
        lines += _laid_out(row, width, _difference(row) if with_difference else "")
    lines = [line.replace("✔", style.paint("good", "✔")).replace("✘", style.paint("bad", "✘")) for line in lines]
    if not any(row.differs for row in rows):
        return [*lines, *_why_not(columns[0]), "", "no difference"]
    return [*lines, *(line for column in columns for line in _why_not(column))]


def differences(left: Any, right: Any, path: str = "") -> list[dict[str, Any]]:
    """Return each value that differs between two documents: its path, and both values (None where absent)."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = dict.fromkeys((*left, *right))
        return [d for key in keys for d in differences(left.get(key), right.get(key), f"{path}.{key}".lstrip("."))]
    if isinstance(left, list) and isinstance(right, list):
        pairs = enumerate(zip_longest(left, right))
        return [d for index, (a, b) in pairs for d in differences(a, b, f"{path}[{index}]")]
    return [] if left == right else [{"path": path, "left": left, "right": right}]


def _verdict(outcome: Plan | NoFit) -> str:
    return f"✘ {outcome.reason}" if isinstance(outcome, NoFit) else "✔ fits"


def _words(label: str, columns: Sequence[Column], words: Callable[[Plan], str]) -> Row:
    cells = (_NONE if isinstance(column.outcome, NoFit) else words(column.outcome) for column in columns)
    return Row(label=label, cells=tuple(cells))


def _figures(
    label: str, columns: Sequence[Column], figure: Callable[[Plan], float | None], words: Callable[[float], str]
) -> Row:
    numbers = tuple(None if isinstance(column.outcome, NoFit) else figure(column.outcome) for column in columns)
    return Row(label=label, cells=tuple(_NONE if n is None else words(n) for n in numbers), numbers=numbers)


def _latency(target: LatencyTarget, columns: Sequence[Column]) -> Row:
    """Return a latency with its interval, and the column's own target and whether it is met where it has one."""
    cells: list[str] = []
    numbers: list[float | None] = []
    for column in columns:
        if isinstance(column.outcome, NoFit):
            cells.append(_NONE)
            numbers.append(None)
            continue
        value = latency_seconds(column.outcome, target)
        own = [t for t in column.targets if (t.metric, t.percentile) == (target.metric, target.percentile)]
        marks = [f" {'✔' if value <= t.seconds else '✘'} ≤ {seconds(t.seconds)}" for t in own]
        low, high = (seconds(value * share) for share in column.outcome.latency.spread[target.metric])
        cells.append(f"{seconds(value)} ({low} to {high}){''.join(marks)}")
        numbers.append(value)
    return Row(label=metric_words(target), cells=tuple(cells), numbers=tuple(numbers))


def _difference(row: Row) -> str:
    """Return how much more the second figure is than the first."""
    if not row.differs:
        return ""
    if len(row.numbers) == 2 and row.numbers[0] and row.numbers[1] is not None:
        change = 100 * (row.numbers[1] / row.numbers[0] - 1)
        if abs(change) >= 1000:
            return f"× {row.numbers[1] / row.numbers[0]:,.0f}"
        return f"{'−' if change < 0 else '+'}{abs(change):.0f} %"
    return "differs"


def _laid_out(row: Row, width: int, difference: str) -> list[str]:
    """Return the row as lines; a cell that is too long goes on below itself."""
    folded = [fold(cell, width) for cell in (*row.cells, difference)]
    mark = "≠" if row.differs and row.label else " "
    lines = []
    for at, parts in enumerate(zip_longest(*folded, fillvalue="")):
        head = f"{mark} {row.label:<{_LABEL}}" if at == 0 else " " * (_LABEL + 2)
        lines.append((head + "".join(f"{part:<{width + _GAP}}" for part in parts)).rstrip())
    return lines


def _why_not(column: Column) -> list[str]:
    """Return the nearest misses and what would fit, where nothing does."""
    no_fit = column.outcome
    if not isinstance(no_fit, NoFit):
        return []
    nearest = [
        f"{what}     {miss.message.removeprefix(f'{what}: ')}"
        for miss in no_fit.nearest
        for what in [gpu_words(miss.gpus_per_replica, miss.gpu)]
    ]
    lines = [
        "",
        f"{MARGIN}✘ {clean(column.title)}",
        *section("nearest" if nearest else "why", nearest or [no_fit.message]),
    ]
    if no_fit.suggestions:
        lines += section("what would fit", [str(change) for change in no_fit.suggestions])
    return lines
