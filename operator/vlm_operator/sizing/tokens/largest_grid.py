"""The largest image of a native-resolution grid, exactly: which size takes the most tokens, and how many.

An image takes its tokens in one of three ways, by the area of the sides rounded to whole units:

* within both limits the rounded grid itself counts, so the pixel limit bounds it, and the decoder's limit where
  that is tighter;
* above ``max_pixels`` the sides are rounded down, which stays within the limit, except that a side never falls
  below one unit: a very long image keeps one row while its long side follows the root of the limit;
* below ``min_pixels`` the sides are rounded up, which overshoots the floor the more the longer the image is.

Each way is searched over all grids; whether a grid can be reached is a question of the fractions width / height in
an interval, and the simplest fraction answers it, because it has the least width and the least height at once.
Source: follows from the smart-resize rule (``native_grid``).
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

Count = Callable[[int, int], int]


class Limits(NamedTuple):
    """What bounds an image; ``unit`` is the side of one token in pixels, ``max_area`` the decoder's limit."""

    unit: int
    min_pixels: int
    max_pixels: int
    max_aspect: int
    max_area: int


def largest_image(limits: Limits, count: Count) -> tuple[int, tuple[int, int]]:
    """Return the most tokens of any accepted image and its (width, height); ``count`` counts an accepted size."""
    best = max(largest_within_limits(limits, count), _scaled_down(limits, count))
    return max(best, _scaled_up(limits, count, best[0]))


def largest_within_limits(limits: Limits, count: Count) -> tuple[int, tuple[int, int]]:
    """Return the most tokens of an image that needs no scaling, and its (width, height).

    For each number of rows as many columns are tried as fit.
    """
    best = (0, (1, 1))
    most = limits.max_pixels // limits.unit**2
    for rows in range(1, min(math.isqrt(most), math.isqrt(limits.max_area) // limits.unit + 1) + 1):
        size = _widest(rows, most // rows, limits)
        if size is not None:
            best = max(best, (count(*size), size))
    return best


def _widest(rows: int, columns: int, limits: Limits) -> tuple[int, int] | None:
    """Return a decodable size that rounds to ``rows`` and as many of ``columns`` as possible, None where there is none.

    The widest grid is the one of the narrowest image that still rounds to it.
    """
    least, most = _rounds_to(rows, limits.unit)

    def size(columns: int) -> tuple[int, int] | None:
        width = _rounds_to(columns, limits.unit)[0]
        height = max(least, -(-width // limits.max_aspect))
        return (width, height) if height <= most and width * height <= limits.max_area else None

    low, high = rows, columns
    if high < low or size(low) is None:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(middle) is not None else (low, middle - 1)
    return size(low)


def _rounds_to(units: int, unit: int) -> tuple[int, int]:
    """Return the shortest and the longest side that round to ``units``; halves go to the even neighbour."""
    twice = (2 * units - 1) * unit, (2 * units + 1) * unit
    if units % 2 == 0:
        return max(1, -(-twice[0] // 2)), twice[1] // 2
    return twice[0] // 2 + 1, -(-twice[1] // 2) - 1


def _scaled_down(limits: Limits, count: Count) -> tuple[int, tuple[int, int]]:
    """Search the images whose short side is held at one unit: the longest one of each height."""
    best = (0, (1, 1))
    reach = max(1, math.isqrt(limits.max_pixels * limits.max_aspect) // limits.unit)
    if limits.max_pixels >= limits.max_aspect * limits.unit**2:
        return best
    for height in range(1, math.isqrt(limits.max_area) + 1):
        size = min(height * limits.max_aspect, limits.max_area // height), height
        if _rounded_pixels(*size, limits.unit) > limits.max_pixels:
            best = max(best, (count(*size), size))
            if best[0] >= reach:
                break
    return best


def _scaled_up(limits: Limits, count: Count, at_least: int) -> tuple[int, tuple[int, int]]:
    """Search the images that are enlarged: for each number of rows the most columns that some shape reaches.

    Only what beats ``at_least`` tokens is looked for.
    """
    best = (at_least, (0, 0))
    unit, floor = limits.unit, limits.min_pixels
    lowest = math.sqrt(floor / limits.max_aspect)
    # Rounding noise can lift an exact multiple by one, so one row and one column more are tried than should exist.
    for rows in range(max(1, math.floor(lowest / unit)), math.isqrt(floor) // unit + 3):
        short = max((rows - 1) * unit, lowest)
        columns = math.ceil(floor / short / unit) + 1
        while rows * columns > best[0] and columns >= rows:
            size = _enlarged_to(columns, rows, limits, count)
            if size is not None:
                best = (columns * rows, size)
            columns -= 1
    return best if best[0] > at_least else (0, (1, 1))


def _enlarged_to(columns: int, rows: int, limits: Limits, count: Count) -> tuple[int, int] | None:
    """Return a size that is enlarged to this grid, None where there is none."""
    square, floor = limits.unit**2, limits.min_pixels
    low = max(Fraction(1), Fraction((columns - 1) ** 2 * square, floor), Fraction(floor, rows**2 * square))
    high = min(Fraction(limits.max_aspect), Fraction(columns**2 * square, floor))
    if rows > 1:
        high = min(high, Fraction(floor, (rows - 1) ** 2 * square))
    if low > high:
        return None
    for ratio in _candidates(low, high):
        for width, height in _multiples(ratio, limits):
            if count(width, height) == columns * rows:
                return width, height
            if low < ratio < high:
                break
    return None


def _candidates(low: Fraction, high: Fraction) -> Iterator[Fraction]:
    """Yield the simplest shape between the ends, then the ends, where only rounding noise decides."""
    if low < high:
        yield _simplest_between(low, high)
    yield low
    yield high


def _multiples(ratio: Fraction, limits: Limits) -> Iterator[tuple[int, int]]:
    """Yield the sizes of this shape that are enlarged, smallest first."""
    width, height = ratio.numerator, ratio.denominator
    while _is_enlarged(width, height, limits):
        yield width, height
        width, height = width + ratio.numerator, height + ratio.denominator


def _is_enlarged(width: int, height: int, limits: Limits) -> bool:
    pixels = _rounded_pixels(width, height, limits.unit)
    return pixels < limits.min_pixels and pixels <= limits.max_pixels and width * height <= limits.max_area


def _rounded_pixels(width: int, height: int, unit: int) -> int:
    return round(width / unit) * round(height / unit) * unit**2


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction with the least denominator strictly between ``low`` and ``high``, both at least 0."""
    whole = math.floor(low)
    if whole + 1 < high:
        return Fraction(whole + 1)
    # Nothing whole fits, so both are at most the next whole number, and their reciprocals are searched.
    rest = high - whole
    if low == whole:
        return whole + Fraction(1, math.floor(1 / rest) + 1)
    return whole + 1 / _simplest_between(1 / rest, 1 / (low - whole))
