"""One GPU's memory as a waterfall: part, GiB, bar, how the size is known, what it holds. Shared by all screens."""

from collections.abc import Sequence

from vlm_operator.cli.output import COLUMNS
from vlm_operator.cli.text import MARGIN, bar, fold
from vlm_operator.report.figures import tenths_that_sum
from vlm_operator.sizing.memory import MemoryBreakdown
from vlm_operator.units import GIB

_NAMES = 17
_BAR = 20
_SHORT_BAR = 12
_CERTAINTIES = 12


def waterfall(memory: MemoryBreakdown, worst: MemoryBreakdown | None = None) -> list[str]:
    """Return a line for each part of ``memory``; ``worst`` adds a column with the pessimistic end of each estimate."""
    largest = max(part.size_bytes for part in memory.parts) or 1
    names = max(_NAMES, *(len(part.name) for part in memory.parts))
    figures = tenths_that_sum(memory)
    at_worst = {} if worst is None else {part.name: f"{part.size_bytes / GIB:9.1f}" for part in worst.parts}
    width = _BAR if worst is None else _SHORT_BAR
    lines = [] if worst is None else [f"{MARGIN}  {'':<{names}}{'likely':>6}{'at worst':>9}"]
    for part in memory.parts:
        share = f"{bar(part.size_bytes / largest, width):<{width}}"
        head = f"{MARGIN}  {part.name:<{names}}{figures[part.name] / 10:6.1f}{at_worst.get(part.name, '')}  {share}  "
        lines += _with_notes(head, part.certainty or "", part.note)
    return lines


def _with_notes(head: str, certainty: str, note: str) -> Sequence[str]:
    known = f"{certainty:<{_CERTAINTIES}}"
    room = COLUMNS - len(head) - len(known)
    first, *rest = fold(note, room)
    return [f"{head}{known}{first}".rstrip(), *(" " * (len(head) + len(known)) + row for row in rest)]
