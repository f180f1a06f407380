"""Native-resolution grids under a pixel budget whose image processor departs from Qwen's.

As in Qwen's rule both sides are rounded to multiples of ``unit``, scaled down with floor above the budget and up
with ceil below it, and each unit square becomes a token. The families differ in four points:

* ``frames``: GLM-V's budget counts an image as two frames, so N tokens take 2 x N x unit squared of it;
* ``small``: what happens to an image with a side below one unit (see ``Small``);
* ``holds_short``: whether a side that is scaled down keeps at least one unit, or vanishes;
* ``row_end`` and ``ends``: HunYuan's tokens at the end of a row and of an image, embedding slots like the others.

Source: the smart-resize rules of ``transformers`` (Glm4v, HunYuanVL, PaddleOCRVL) and of the engine (Keye,
PaddleOCR-VL, ERNIE-4.5-VL, MiniMax-M3).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, Literal, NamedTuple

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.largest_grid import Limits, largest_image
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    image_tokens,
)
from vlm_operator.units import ceil_div

Small = Literal["as_is", "whole", "height_then_width", "rounded_up", "clamped"]
"""An image with a side below one unit: taken ``as_is``; enlarged as a ``whole``, sides cut to whole pixels (GLM);
``height_then_width``, each to one unit with the other side following (Keye, PaddleOCR); its side ``rounded_up`` to
one unit (MiniMax); the same and an extreme aspect ratio ``clamped`` instead of refused (ERNIE)."""


_HUGE: Final = 9_999_999
_FIXED_SIDE: Final = 10_000
"""Sides of the images from which the engine derives its dummies."""


class BudgetShape(NamedTuple):
    """What the count depends on.

    ``unit`` is the side in pixels of the square that becomes one token; the two limits count ``frames`` times the
    area; ``tags`` are the prompt tokens around the grid, ``tags_inside`` tells whether the placeholder holds them.
    """

    unit: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    small: Small
    frames: int = 1
    holds_short: bool = False
    row_end: int = 0
    ends: int = 0
    tags: int = 2
    tags_inside: bool = False


class Start(NamedTuple):
    """What the engine's start-up follows: ``max_pixels`` in place of the rule's, and the (width, height) it draws."""

    max_pixels: int
    size: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGrid(ImageRule):
    """The rule bound to one model and its settings; ``lever`` names what the cap sets.

    The engine takes its maximum from a processed dummy image.
    """

    shape: BudgetShape
    start: Start
    lever: Literal["max_pixels", "size"] = "max_pixels"

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is its dummy."""
        true_tokens, true_size = _largest(self.shape)
        dummy = _measure(*self.start.size, self.shape)
        if dummy.embed_tokens == true_tokens and check_size(*self.start.size) is None:
            true_size = self.start.size
        return MaximumTokens(
            true_tokens=true_tokens,
            true_size=true_size,
            engine_tokens=self._engine_tokens(dummy),
            dummy_size=self.start.size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def _engine_tokens(self, dummy: ImageTokens) -> int:
        return dummy.embed_tokens

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid, its row ends, and the tags around it."""
        columns, rows = tokens.grid or (0, 0)
        ends = (Part("row ends", rows, self.shape.row_end), Part("first and last", self.shape.ends, 1))
        inner = ends if self.shape.row_end else ()
        return Part("grid", columns * rows, 1), *inner, Part("start and end", self.shape.tags, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The pixel budget, in whole tokens and not below the floor."""
        square = self.shape.unit**2 * self.shape.frames
        lowest = ceil_div(self.shape.min_pixels, square) * square
        if self.shape.small == "clamped":
            # The square that the engine starts up with has to keep the floor as well.
            side = math.isqrt(lowest // square - 1) + 1
            above = itertools.count(side**2 * square, square)
            lowest = next(value for value in above if min(self.dummy_size(self.shape._replace(max_pixels=value))))
        name = "max_pixels" if self.lever == "max_pixels" else "size.longest_edge"
        return Cap(name=name, value=self.shape.max_pixels, tighter=range(lowest, self.shape.max_pixels, square))

    def with_cap(self, value: int) -> "BudgetGrid":
        """Return the rule with the budget at ``value``, which the start-up then follows."""
        low, kwargs = self.shape.min_pixels, self.settings.mm_processor_kwargs
        given: dict[str, object] = {"max_pixels": value}
        if self.lever == "size":
            given = {"size": {"shortest_edge": low, "longest_edge": value}}
        elif {"min_pixels", "size"} & set(kwargs):
            given["min_pixels"] = low
        settings = caps.with_kwarg(self.settings, ("min_pixels", "max_pixels", "size"), given)
        shape = self.shape._replace(max_pixels=value)
        return replace(
            self, settings=settings, ignored_settings=(), shape=shape, start=Start(value, self.dummy_size(shape))
        )

    @staticmethod
    def dummy_size(shape: BudgetShape) -> tuple[int, int]:
        """Return (width, height) of the dummy for the limit of ``shape``: as many rows as the root of its tokens."""
        tokens = max(1, shape.max_pixels // (shape.unit**2 * shape.frames))
        rows = math.isqrt(tokens)
        return tokens // rows * shape.unit, rows * shape.unit

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = fit_budget(width, height, self.shape)
        return columns * rows * self.shape.unit**2


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareBudgetGrid(BudgetGrid):
    """The same where the dummy is a square: a huge one that the resize brings within the limit."""

    @staticmethod
    def dummy_size(shape: BudgetShape) -> tuple[int, int]:
        """Return (width, height) of the dummy for the limit of ``shape``."""
        columns, rows = fit_budget(_HUGE, _HUGE, shape)
        return columns * shape.unit, rows * shape.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedBudgetGrid(SquareBudgetGrid):
    """The same where the engine computes its maximum from the limit that it reads at start-up."""

    hint_lowers_budget: ClassVar[bool] = False

    def _engine_tokens(self, dummy: ImageTokens) -> int:  # noqa: ARG002 - the figure is not the dummy's
        return _measure(*self.start.size, self.shape._replace(max_pixels=self.start.max_pixels)).embed_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RootBudgetGrid(ComputedBudgetGrid):
    """The same where the dummy has the root of the limit as its side, whole units or not."""

    @staticmethod
    def dummy_size(shape: BudgetShape) -> tuple[int, int]:
        """Return (width, height) of the dummy, the engine's fixed one where that has more tokens."""
        sides = (math.isqrt(shape.max_pixels), _FIXED_SIDE)
        tokens = [_measure(side, side, shape).embed_tokens for side in sides]
        side = sides[tokens.index(max(tokens))]
        return side, side


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: BudgetShape) -> ImageTokens | TokenRefusal:
    if width < 1 or height < 1 or width * height > MAX_DECODED_PIXELS:
        refusal = check_size(width, height)
        if refusal is not None:
            return refusal
    answer = _measure(width, height, shape)
    return answer if answer.vit_patches else _refuse_aspect(width, height, shape)


def _measure(width: int, height: int, shape: BudgetShape) -> ImageTokens:
    columns, rows = fit_budget(width, height, shape)
    squares, unit = columns * rows, shape.unit
    tokens = squares + rows * shape.row_end + shape.ends
    return image_tokens(
        tokens,
        tokens + shape.tags if shape.tags_inside else tokens,
        tokens + shape.tags,
        squares * shape.merge_size**2,
        (columns * unit, rows * unit),
        None,
        (columns, rows),
    )


def _refuse_aspect(width: int, height: int, shape: BudgetShape) -> TokenRefusal:
    long, short = max(width, height), min(width, height)
    limit = (
        f"and scaled into the limits of {shape.min_pixels:,} to {shape.max_pixels:,} pixels a side vanishes or the "
        "limits are missed"
        if long <= MAX_ASPECT * short or shape.small == "clamped"
        else f"and the engine accepts at most {MAX_ASPECT} once short sides are {shape.unit} pixels"
    )
    return TokenRefusal(
        reason="AspectRatioTooExtreme",
        message=f"image size {width}x{height} has an aspect ratio of {long / short:.1f}, {limit}; crop the image or "
        "cut it into several",
    )


def fit_budget(width: int, height: int, shape: BudgetShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens after the resize, (0, 0) where the engine refuses the image.

    Divisions and roots are the engine's, in floating point.
    """
    unit, _, min_pixels, max_pixels, small, frames, holds_short, *_ = shape
    if small != "as_is" and (width < unit or height < unit or small == "clamped"):
        width, height = _enlarge(width, height, unit, small)
    if width > MAX_ASPECT * height or height > MAX_ASPECT * width:
        return 0, 0
    columns, rows = round(width / unit), round(height / unit)
    if small == "rounded_up" or small == "clamped":  # noqa: PLR1714 - a set is slower
        columns, rows = columns or 1, rows or 1
    pixels = frames * columns * rows * unit * unit
    if pixels > max_pixels:
        scale = math.sqrt(frames * height * width / max_pixels)
        columns, rows = math.floor(width / scale / unit), math.floor(height / scale / unit)
        if holds_short:
            return columns or 1, rows or 1
    elif pixels < min_pixels:
        scale = math.sqrt(min_pixels / (frames * height * width))
        columns, rows = math.ceil(width * scale / unit), math.ceil(height * scale / unit)
    if not columns * rows or (small == "clamped" and not min_pixels <= columns * rows * unit * unit <= max_pixels):
        return 0, 0
    return columns, rows


def _enlarge(width: int, height: int, unit: int, small: Small) -> tuple[int, int]:
    """Return (width, height) that the resize starts from; ``small`` is not ``as_is``."""
    if small == "whole":
        scale = max(unit / height, unit / width)
        return int(width * scale), int(height * scale)
    if small == "height_then_width":
        if height < unit:
            width, height = round(width * unit / height), unit
        if width < unit:
            width, height = unit, round(height * unit / width)
    elif small == "clamped" and width > MAX_ASPECT * height:
        height = max(1, round(height / unit)) * unit
        width = height * MAX_ASPECT
    elif small == "clamped" and height > MAX_ASPECT * width:
        width = max(1, round(width / unit)) * unit
        height = width * MAX_ASPECT
    return width, height


@lru_cache(maxsize=1024)
def _largest(shape: BudgetShape) -> tuple[int, tuple[int, int]]:
    """Return the most tokens of any accepted image and its (width, height).

    An image with a side below one unit is resized like one whose short side is a unit, so those are tried one by
    one; among the others the search for Qwen's grid finds the largest. Where rows have an end the tallest grid
    takes the most, so images are counted upright.
    """
    unit, frames = shape.unit, shape.frames
    limits = Limits(unit, -(-shape.min_pixels // frames), shape.max_pixels // frames, MAX_ASPECT, MAX_DECODED_PIXELS)

    def grow(width: int, height: int) -> tuple[int, int]:
        times = 1 if shape.small == "as_is" else ceil_div(unit, min(width, height))
        return width * times, height * times

    def squares(width: int, height: int) -> int:
        columns, rows = fit_budget(*grow(width, height), shape)
        return columns * rows

    def upright(width: int, height: int) -> int:
        return _measure(height, width, shape).embed_tokens

    counts = (squares, upright) if shape.row_end else (squares,)
    candidates = [grow(*largest_image(limits, count)[1]) for count in counts]
    candidates += ((width, unit) for width in range(unit, MAX_ASPECT * unit + 1))
    candidates += _just_enlarged(limits)
    turned = [(height, width) for width, height in candidates] if shape.row_end else []
    tokens, size = max((_measure(*size, shape).embed_tokens, size) for size in candidates + turned)
    return tokens, size


def _just_enlarged(limits: Limits) -> Iterator[tuple[int, int]]:
    """Yield the longest small images that still end in each number of rows when they are enlarged."""
    for rows in range(1, math.isqrt(limits.min_pixels) // limits.unit + 2):
        for height in range(1, limits.unit + 1):
            longest = height * rows**2 * limits.unit**2 // limits.min_pixels
            yield max(height, min(longest, MAX_ASPECT * height)), height
