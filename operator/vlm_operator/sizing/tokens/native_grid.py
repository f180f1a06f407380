"""Native-resolution grids: Qwen2-VL, Qwen2.5-VL, Qwen3-VL.

Both sides are rounded to multiples of ``unit`` = patch size x merge size. Above ``max_pixels`` the image is
scaled down with floor, below ``min_pixels`` scaled up with ceil. One embedding token per unit square, merge
size squared patches per token; the chat template adds a start and an end token outside the placeholder.
Source: the smart-resize rule of ``transformers`` (Qwen2VLImageProcessor) and the Qwen2-VL processing
information of the engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal

MAX_ASPECT: Final = 200
_TAGS: Final = 2
_PIXEL_KEYS: Final = ("min_pixels", "max_pixels", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeGrid:
    """The rule bound to one model and its settings."""

    settings: ServerSettings
    model_id: str
    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    ignored_settings: tuple[str, ...] = ()

    @property
    def unit(self) -> int:
        """Side of the square of pixels that becomes one token."""
        return self.patch_size * self.merge_size

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.unit, self.merge_size, self.min_pixels, self.max_pixels

    @property
    def hint_lowers_budget(self) -> bool:
        """No: the engine computes the maximum from the pixel limit."""
        return False

    @property
    def cap_name(self) -> str:
        """The pixel limit."""
        return "max_pixels"

    @property
    def cap_value(self) -> int:
        """The pixel limit's value."""
        return self.max_pixels

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self._shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the squarest grid of as many tokens as the pixel limit holds."""
        return _maximum(self._shape)

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return the lowest ``max_pixels`` (in whole tokens) under which each image keeps ``min_pixels``.

        An image never has to keep more than it has without the cap; None for ``min_pixels`` keeps that.
        """
        needs = [
            (size, area if min_pixels is None else min(area, min_pixels))
            for size in caps.countable(self.count_image, sizes)
            for area in [self._kept(size, self.max_pixels)]
        ]
        square = self.unit**2
        highest = self.max_pixels // square
        lowest = min(highest, max(1, -(-self.min_pixels // square)))
        if highest < 1 or not needs:
            return self.settings
        units = caps.smallest(
            lowest, highest + 1, lambda n: all(self._kept(size, n * square) >= need for size, need in needs)
        )
        if units >= highest:
            return self.settings
        given: dict[str, int] = {"max_pixels": units * square}
        if "min_pixels" in self._own_keys() or "size" in self._own_keys():
            given["min_pixels"] = self.min_pixels
        return caps.with_kwarg(self.settings, _PIXEL_KEYS, given)

    def _own_keys(self) -> set[str]:
        kwargs = self.settings.mm_processor_kwargs
        return set(kwargs) | set(kwargs.get("images_kwargs", {}))

    def _kept(self, size: tuple[int, int], max_pixels: int) -> int:
        width, height = resize(*size, unit=self.unit, min_pixels=self.min_pixels, max_pixels=max_pixels)
        return width * height


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: tuple[int, int, int, int]) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height) or _check_aspect(width, height)
    if refusal is not None:
        return refusal
    return _measure(width, height, shape)


def _measure(width: int, height: int, shape: tuple[int, int, int, int]) -> ImageTokens:
    unit, merge_size, min_pixels, max_pixels = shape
    resized = resize(width, height, unit=unit, min_pixels=min_pixels, max_pixels=max_pixels)
    tokens = (resized[0] // unit) * (resized[1] // unit)
    return ImageTokens(
        embed_tokens=tokens,
        placeholder_length=tokens,
        prompt_tokens=tokens + _TAGS,
        vit_patches=tokens * merge_size**2,
        resized=resized,
    )


@lru_cache(maxsize=1024)
def _maximum(shape: tuple[int, int, int, int]) -> MaximumTokens:
    unit, _, min_pixels, max_pixels = shape
    size = most_tokens_size(max_pixels, unit)
    # The engine makes this image itself, so what it refuses to decode does not matter here.
    dummy = _measure(*size, shape)
    return MaximumTokens(
        true_tokens=max(dummy.embed_tokens, _most_by_area(max_pixels, unit), _most_by_scaling_up(min_pixels, unit)),
        engine_tokens=dummy.embed_tokens,
        dummy_size=size,
        dummy_tokens=dummy.embed_tokens,
        dummy_patches=dummy.vit_patches,
    )


def _most_by_area(max_pixels: int, unit: int) -> int:
    """Return the most tokens of an image at the pixel limit.

    A very long image can exceed the limit: its short side is held at one unit while the long side shrinks.
    """
    clamped = math.isqrt(max_pixels * MAX_ASPECT) // unit if max_pixels < MAX_ASPECT * unit**2 else 0
    return max(max_pixels // unit**2, clamped)


def _most_by_scaling_up(min_pixels: int, unit: int) -> int:
    """Return the most tokens of an image scaled up to ``min_pixels``: both sides are rounded up."""
    most = 0
    shortest = math.sqrt(min_pixels / MAX_ASPECT)
    for units in range(1, math.isqrt(min_pixels) // unit + 2):
        if units * unit >= shortest:
            short = max((units - 1) * unit, shortest)
            most = max(most, units * math.ceil(min_pixels / short / unit))
    return most


def _check_aspect(width: int, height: int) -> TokenRefusal | None:
    long, short = max(width, height), min(width, height)
    if long <= MAX_ASPECT * short:
        return None
    return TokenRefusal(
        reason="AspectRatioTooExtreme",
        message=f"image size {width}x{height} has an aspect ratio of {long / short:.1f}, and the engine "
        f"accepts at most {MAX_ASPECT}; crop the image or cut it into several",
    )


def resize(width: int, height: int, *, unit: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Return (width, height) after the resize; divisions and roots are the engine's, in floating point."""
    wide, high = round(width / unit) * unit, round(height / unit) * unit
    if wide * high > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        wide = max(unit, math.floor(width / scale / unit) * unit)
        high = max(unit, math.floor(height / scale / unit) * unit)
    elif wide * high < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        wide = math.ceil(width * scale / unit) * unit
        high = math.ceil(height * scale / unit) * unit
    # With a floor below one unit a thin image can round to nothing; the tower always sees at least one unit.
    return max(wide, unit), max(high, unit)


@lru_cache(maxsize=1024)
def most_tokens_size(max_pixels: int, unit: int) -> tuple[int, int]:
    """Return (width, height) of the engine's dummy: most tokens first, then the squarest factorisation."""
    for tokens in range(max(1, max_pixels // unit**2), 0, -1):
        rows = next(d for d in range(math.isqrt(tokens), 0, -1) if tokens % d == 0)
        columns = tokens // rows
        if columns <= MAX_ASPECT * rows:
            return columns * unit, rows * unit
    raise AssertionError("one token is always square")
