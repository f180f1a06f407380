"""The published rows: those of ``data/``, or a file of the same format that the caller names."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

PublishedRow = Mapping[str, Any]
"""One published row: its fields as the source states them."""


def load_published(kind: str, benchmarks: Path | None = None) -> Sequence[PublishedRow]:
    """Return the rows of one kind, such as ``memory_logs``; none where a given file has no such kind."""
    if benchmarks is None:
        rows: Sequence[PublishedRow] = json.loads((DATA / f"{kind}.json").read_text())
        return rows
    return tuple(json.loads(benchmarks.read_text()).get(kind, ()))
