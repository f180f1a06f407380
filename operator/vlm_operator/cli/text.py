"""Paragraphs, tables and bars of the screens."""

import textwrap
from collections.abc import Sequence

from vlm_operator.cli.output import COLUMNS, clean

LABEL_WIDTH = 17
MARGIN = "  "


def section(label: str, lines: Sequence[str]) -> list[str]:
    """Return lines under a label: the label before the first, every line wrapped to the screen."""
    body = COLUMNS - len(MARGIN) - LABEL_WIDTH
    rows: list[str] = []
    for line in lines:
        rows.extend(fold(line, body))
    heads = [label, *[""] * (len(rows) - 1)]
    return [f"{MARGIN}{head:<{LABEL_WIDTH}}{row}" for head, row in zip(heads, rows, strict=False)]


def fold(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of at most ``width``; a line that fits keeps its spacing."""
    text = clean(text)
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), gap: int = 3) -> list[str]:
    """Return rows as aligned text; columns named in ``right`` are flush right, the last is never padded."""
    if not rows:
        return []
    widths = [max(len(clean(row[i])) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            clean(cell).rjust(widths[i]) if i in right else clean(cell).ljust(widths[i] if i < last else 0)
            for i, cell in enumerate(row)
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def bar(fraction: float, width: int) -> str:
    """Return a bar of at most ``width`` characters in half steps; nothing only for zero."""
    halves = round(max(0.0, min(1.0, fraction)) * width * 2)
    if fraction > 0 and halves == 0:
        return "▏"
    return "█" * (halves // 2) + "▌" * (halves % 2)
