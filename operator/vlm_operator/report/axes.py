"""Axes of charts, drawn on paper or in a terminal: where a figure lies, and where the marks of the axis are."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_NICE = (1, 2, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from ``low`` to ``high``, both above 0: what it shows, and how its figures are written.

    What costs nothing has no place on it and stands at the low end.
    """

    title: str
    low: float
    high: float
    words: Callable[[float], str]

    def place(self, value: float) -> float:
        """Return where ``value`` lies: 0 at the low end, 1 at the high end."""
        inside = min(max(value, self.low), self.high)
        return math.log(inside / self.low) / math.log(self.high / self.low)

    def ticks(self) -> tuple[float, ...]:
        """Return 1, 2 and 5 times powers of ten within the axis; at most eight."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = [n * 10.0**power for power in range(first, last + 1) for n in _NICE]
        inside = [value for value in values if self.low <= value <= self.high]
        return tuple(inside if len(inside) <= 8 else inside[:: math.ceil(len(inside) / 8)])


def axis_over(values: Iterable[float], title: str, words: Callable[[float], str]) -> Axis:
    """Return an axis that holds all ``values`` with room at both ends, and spans at least a factor of two."""
    found = [value for value in values if value > 0] or [1.0]
    low, high = min(found) / 1.15, max(found) * 1.15
    if high < low * 2:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return Axis(title=title, low=low, high=high, words=words)
