"""A scatter plot in characters; what stands out is drawn last, over the rest."""

from collections.abc import Sequence

from vlm_operator.cli.text import MARGIN
from vlm_operator.report.axes import Axis

_WIDTH = 72
_HEIGHT = 14
_LABELS = 9


def plot(points: Sequence[tuple[float, float, str]], x: Axis, y: Axis) -> list[str]:
    """Return the lines of a plot of (x, y, mark); later points cover earlier ones."""
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for across, up, mark in points:
        row = _HEIGHT - 1 - round(y.place(up) * (_HEIGHT - 1))
        grid[row][round(x.place(across) * (_WIDTH - 1))] = mark
    labels = {_HEIGHT - 1 - round(y.place(tick) * (_HEIGHT - 1)): y.words(tick) for tick in y.ticks()}
    lines = [f"{MARGIN}{y.title}"]
    for at, cells in enumerate(grid):
        edge = "┤" if at in labels else "│"
        lines.append(f"{MARGIN}{labels.get(at, ''):>{_LABELS}} {edge}{''.join(cells)}".rstrip())
    return [*lines, *_foot(x)]


def _foot(x: Axis) -> list[str]:
    """Return the line below the plot and the figures under it; one that would touch its neighbour is left out."""
    line, words = ["─"] * _WIDTH, ""
    for tick in x.ticks():
        at, text = round(x.place(tick) * (_WIDTH - 1)), x.words(tick)
        start = max(0, at - len(text) // 2)
        if words and start < len(words) + 2:
            continue
        line[at] = "┴"
        words = words.ljust(start) + text
    margin = f"{MARGIN}{'':>{_LABELS}} "
    return [f"{margin}└{''.join(line)}", f"{margin} {words}", f"{margin} {x.title:>{_WIDTH}}"]
