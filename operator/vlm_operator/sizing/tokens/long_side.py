"""A grid under a limit of the long side: MiniMax-M3 where ``max_long_side_pixel`` is set.

An image whose long side is above the limit is shrunk to it. Any other whose short side is below 112 pixels is enlarged
until it has them. Both sides are then rounded to whole tokens, at least one, and an area above 12,845,056 pixels is an
error. Source: the engine's processor for the family.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    grid_tokens,
)

SHORT_SIDE: Final = 112
MAX_PIXELS: Final = 12_845_056
_TAGS: Final = 2


class LongSideShape(NamedTuple):
    """What the count depends on: ``unit`` is the side in pixels of the square that becomes one token."""

    unit: int
    merge_size: int
    long_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSide(ImageRule):
    """The rule bound to one model and its settings. The engine computes its maximum, that of a square."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: LongSideShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: a square of the limit, or a strip that is enlarged."""
        unit, long_side = self.shape.unit, self.shape.long_side
        largest = min(long_side, math.isqrt(MAX_PIXELS))
        side = max(unit, largest // unit * unit)
        dummy = _measure(side, side, self.shape)
        # A square of the limit itself may round up; a strip of one pixel is enlarged most.
        sizes = [(side, side), (largest, largest), (min(MAX_ASPECT, long_side), 1)]
        answers = [(_count(*size, self.shape), size) for size in sizes]
        true_tokens, true_size = max(
            (answer.embed_tokens, size) for answer, size in answers if isinstance(answer, ImageTokens)
        )
        return MaximumTokens(
            true_tokens=true_tokens,
            true_size=true_size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=(side, side),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        return Part("grid", tokens.embed_tokens, 1), Part("start and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The limit of the long side in whole tokens; one limit more can turn away an image that is too large."""
        most = self.shape.long_side
        lowest = -(-SHORT_SIDE // self.shape.unit) * self.shape.unit
        return Cap(name="max_long_side_pixel", value=most, tighter=range(lowest, most, self.shape.unit), monotone=False)

    def with_cap(self, value: int) -> "LongSide":
        """Return the rule with ``max_long_side_pixel`` at ``value``, which the budget follows."""
        settings = caps.with_kwarg(self.settings, ("max_long_side_pixel",), {"max_long_side_pixel": value})
        return replace(self, settings=settings, shape=self.shape._replace(long_side=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = fit_long_side(width, height, self.shape)
        return columns * rows * self.shape.unit**2


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: LongSideShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    if width > MAX_ASPECT * height or height > MAX_ASPECT * width:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: the engine accepts an aspect ratio of at most {MAX_ASPECT}; crop "
            "the image or cut it into several",
        )
    answer = _measure(width, height, shape)
    pixels = answer.embed_tokens * shape.unit**2
    if pixels > MAX_PIXELS:
        return TokenRefusal(
            reason="ImageTooLarge",
            message=f"image size {width}x{height} is {pixels:,} pixels after the resize, and the processor accepts at "
            f"most {MAX_PIXELS:,}; scale the image down, or lower max_long_side_pixel",
        )
    return answer


def _measure(width: int, height: int, shape: LongSideShape) -> ImageTokens:
    columns, rows = fit_long_side(width, height, shape)
    return grid_tokens(columns, rows, shape.unit, shape.merge_size, inside=_TAGS)


def fit_long_side(width: int, height: int, shape: LongSideShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens; in the engine's floating point."""
    wide: float = width
    high: float = height
    scale = 1.0
    if max(width, height) > shape.long_side:
        scale = shape.long_side / max(width, height)
    elif min(width, height) < SHORT_SIDE:
        scale = SHORT_SIDE / min(width, height)
    if scale != 1.0:
        wide, high = width * scale, height * scale
    return max(1, round(wide / shape.unit)), max(1, round(high / shape.unit))
