"""Figures and paragraphs for people: the one place where the screens' numbers are formatted."""

import textwrap
from collections.abc import Sequence

from vlm_operator.cli.output import COLUMNS, clean

LABEL_WIDTH = 17
MARGIN = "  "


def seconds(value: float) -> str:
    """Return a duration such as ``410 ms`` or ``1.2 s``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def money(cents: float | None) -> str:
    """Return dollars per hour, or that the price is unknown."""
    return "price unknown" if cents is None else f"${cents / 100:,.2f}/h"


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(fraction: float) -> str:
    """Return a share as whole percent."""
    return f"{fraction * 100:.0f} %"


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
