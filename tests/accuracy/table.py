"""One row of the accuracy tables, their summary, and how both are shown.

A row compares what the product predicts with what was published. Rows that cannot be compared are shown with the
reason and are in no summary.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from vlm_operator.cli.text import table as align

FEWEST_ROWS = 2
"""Rows of one GPU or model from which on they are summarised by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow:
    """A prediction beside the published figure, both in ``unit``.

    Attributes:
        id: Row of the published data.
        section: Table that the row stands in, such as ``memory``.
        quantity: What is compared; rows of one section and quantity are summarised together.
        predicted: The product's likely figure, None where it makes no prediction.
        published: The published figure, None where the source has none.
        low, high: The product's interval, from the least to the largest value.
        scored: Whether the row counts.
        why_not: Why it does not count; required then.
        better: Whether a larger or a smaller figure is the better one: it says which error is optimistic.
        labels: Groups of the row, such as ``{"gpu": "h100", "model": "Qwen/Qwen3-32B"}``.
    """

    id: str
    section: str
    quantity: str
    unit: str
    source: str
    predicted: float | None = None
    published: float | None = None
    low: float | None = None
    high: float | None = None
    scored: bool = True
    why_not: str = ""
    better: Literal["higher", "lower"] = "higher"
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scored and (self.predicted is None or not self.published):
            raise ValueError(f"{self.id}: a scored row needs a prediction and a published figure")
        if not self.scored and not self.why_not:
            raise ValueError(f"{self.id}: a row that is not scored says why")

    @property
    def error(self) -> float | None:
        """The difference as a share of the published figure, whatever its sign; None where either is missing."""
        if self.predicted is None or not self.published:
            return None
        return (self.predicted - self.published) / abs(self.published)

    @property
    def optimism(self) -> float | None:
        """The error in the direction that promises too much; negative where the prediction is cautious."""
        error = self.error
        return error if error is None or self.better == "higher" else -error

    @property
    def contains(self) -> bool | None:
        """Whether the interval holds the published figure; None where a side is missing."""
        if self.low is None or self.high is None or self.published is None:
            return None
        return self.low <= self.published <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The scored rows of one section and quantity; fractions, None where no row has an interval."""

    section: str
    quantity: str
    rows: int
    median_error: float
    p90_error: float
    largest_optimism: float
    contained: float | None


def summarise(rows: Iterable[AccuracyRow]) -> tuple[Summary, ...]:
    """Return one summary for each section and quantity with scored rows, in order of appearance."""
    groups: dict[tuple[str, str], list[AccuracyRow]] = {}
    for row in rows:
        if row.scored:
            groups.setdefault((row.section, row.quantity), []).append(row)
    return tuple(summarise_group(group) for group in groups.values())


def summarise_group(rows: Sequence[AccuracyRow]) -> Summary:
    """Return the summary of scored rows of one kind; at least one row."""
    errors = sorted(abs(row.error) for row in rows if row.error is not None)
    holds = [row.contains for row in rows if row.contains is not None]
    return Summary(
        section=rows[0].section,
        quantity=rows[0].quantity,
        rows=len(rows),
        median_error=median(errors),
        p90_error=errors[math.ceil(0.9 * len(errors)) - 1],
        largest_optimism=max(row.optimism for row in rows if row.optimism is not None),
        contained=sum(holds) / len(holds) if holds else None,
    )


def summarise_labels(rows: Sequence[AccuracyRow]) -> tuple[tuple[str, Summary], ...]:
    """Return a summary for each GPU and each model with enough scored rows of one kind."""
    found: list[tuple[str, Summary]] = []
    for label in ("gpu", "model"):
        groups: dict[str, list[AccuracyRow]] = {}
        for row in rows:
            groups.setdefault(row.labels.get(label, ""), []).append(row)
        large = [(name, group) for name, group in groups.items() if len(group) >= FEWEST_ROWS]
        found += [(name, summarise_group(group)) for name, group in sorted(large)]
    return tuple(found)


def to_text(rows: Sequence[AccuracyRow]) -> str:
    """Return the tables for a terminal: scored rows and summary by section, then what is not scored and why."""
    parts = [_section_text([row for row in rows if row.section == name]) for name in _sections(rows)]
    return ("\n\n".join(parts) or "no published rows") + "\n"


def to_json(rows: Sequence[AccuracyRow]) -> str:
    """Return rows and summaries as one JSON document; errors are fractions."""
    document = {
        "rows": [_row_document(row) for row in rows],
        "summary": [_summary_document(summary) for summary in summarise(rows)],
        "by_label": [
            {"label": name, **_summary_document(summary)}
            for kind in summarise(rows)
            for name, summary in summarise_labels(
                [r for r in rows if r.scored and (r.section, r.quantity) == (kind.section, kind.quantity)]
            )
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _sections(rows: Iterable[AccuracyRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.section for row in rows))


def _row_document(row: AccuracyRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in AccuracyRow.__slots__}
    return {**fields, "labels": dict(row.labels), "error": row.error, "contains": row.contains}


def _section_text(rows: Sequence[AccuracyRow]) -> str:
    lines = [rows[0].section]
    for summary in summarise(rows):
        group = [row for row in rows if row.scored and row.quantity == summary.quantity]
        lines += ["", f"{summary.quantity}, {group[0].unit}", "", *_table(group), "", _summary_text(summary)]
        lines += [f"  {name}: {_error_text(part)}" for name, part in summarise_labels(group)]
    others = [row for row in rows if not row.scored]
    if others:
        lines += ["", "not scored", ""]
        lines += align([(row.id, row.quantity, _figures(row), row.why_not) for row in others], gap=2)
    return "\n".join(lines)


def _table(rows: Sequence[AccuracyRow]) -> list[str]:
    head = ("row", "model", "gpu", "predicted", "published", "error", "interval", "", "source")
    return align([head, *(_cells(row) for row in rows)], right=(3, 4, 5, 6), gap=2)


def _cells(row: AccuracyRow) -> tuple[str, ...]:
    mark = {True: "", False: "outside", None: "no interval"}[row.contains]
    interval = "" if row.low is None or row.high is None else f"{_number(row.low)} to {_number(row.high)}"
    error = "" if row.error is None else f"{row.error * 100:+.1f} %"
    names = (row.id, row.labels.get("model", ""), row.labels.get("gpu", ""))
    return (*names, _number(row.predicted), _number(row.published), error, interval, mark, row.source)


def _figures(row: AccuracyRow) -> str:
    if row.predicted is None and row.published is None:
        return ""
    return f"{_number(row.predicted)} predicted, {_number(row.published)} published {row.unit}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def _summary_text(summary: Summary) -> str:
    contained = "no intervals" if summary.contained is None else f"{summary.contained * 100:.0f} % inside the interval"
    optimistic = f"most optimistic {summary.largest_optimism * 100:+.1f} %"
    return f"{summary.quantity}: {_error_text(summary)}, {optimistic}, {contained}"


def _error_text(summary: Summary) -> str:
    errors = f"median error {summary.median_error * 100:.1f} %, p90 {summary.p90_error * 100:.1f} %"
    return f"{summary.rows} rows, {errors}"


def _summary_document(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in Summary.__slots__}
