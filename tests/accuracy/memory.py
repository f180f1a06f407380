"""Memory that the engine reports at start-up beside what the memory model predicts for the same flags."""

from collections.abc import Sequence
from pathlib import Path

from tests.accuracy.benchmarks import PublishedRow, load_published
from tests.accuracy.table import AccuracyRow

SECTION = "memory"


def memory_rows(benchmarks: Path | None = None) -> Sequence[AccuracyRow]:
    """Return one row for each figure of the published start-up logs that the model predicts."""
    return tuple(_compare(row) for row in load_published("memory_logs", benchmarks))


def _compare(row: PublishedRow) -> AccuracyRow:
    return AccuracyRow(
        id=row["id"],
        section=SECTION,
        quantity="KV cache",
        unit="GiB",
        source=row["source"],
        published=row.get("kv_cache_gib"),
        scored=False,
        why_not=row.get("outcome") or "no prediction",
        labels={"model": row["model"], "gpu": row.get("gpu") or "not stated"},
    )
