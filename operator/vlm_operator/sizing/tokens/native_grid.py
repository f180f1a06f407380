"""Native-resolution grids: Qwen2-VL, Qwen2.5-VL, Qwen3-VL.

Both sides are rounded to multiples of ``unit`` = patch size x merge size. Above ``max_pixels`` the image is
scaled down with floor, below ``min_pixels`` scaled up with ceil. One embedding token per unit square, merge
size squared patches per token; the chat template adds a start and an end token outside the placeholder.
Source: the smart-resize rule of ``transformers`` (Qwen2VLImageProcessor) and the Qwen2-VL processing
information of the engine.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.types import Cap, ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal
from vlm_operator.units import ceil_div

MAX_ASPECT: Final = 200
_TAGS: Final = 2
_PIXEL_KEYS: Final = ("min_pixels", "max_pixels", "size")
_VIDEO_KEYS: Final = frozenset({"fps", "num_frames", "min_frames", "max_frames", "videos_kwargs"})
"""Settings of videos; images do not see them."""


class GridShape(NamedTuple):
    """What the count depends on; ``unit`` is the side in pixels of the square that becomes one token."""

    unit: int
    merge_size: int
    min_pixels: int
    max_pixels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeGrid(ImageRule):
    """The rule bound to one model and its settings. The engine computes its maximum from the pixel limit."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: GridShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the squarest grid of as many tokens as the pixel limit holds."""
        return _maximum(self.shape)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        return Part("grid", tokens.embed_tokens, 1), Part("start and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The pixel limit, in whole tokens and not below the floor."""
        square = self.shape.unit**2
        lowest = ceil_div(self.shape.min_pixels, square) * square
        return Cap(name="max_pixels", value=self.shape.max_pixels, tighter=range(lowest, self.shape.max_pixels, square))

    def with_cap(self, value: int) -> "NativeGrid":
        """Return the rule with ``max_pixels`` at ``value``."""
        given: dict[str, int] = {"max_pixels": value}
        kwargs = self.settings.mm_processor_kwargs
        if {"min_pixels", "size"} & (set(kwargs) | set(kwargs.get("images_kwargs", {}))):
            given["min_pixels"] = self.shape.min_pixels
        settings = caps.with_kwarg(self.settings, _PIXEL_KEYS, given)
        return replace(self, settings=settings, shape=self.shape._replace(max_pixels=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        wide, high = resize(width, height, self.shape)
        return wide * high


def build_native_grid(source: reading.Source, *, completes_size: bool) -> ImageRule:
    """Bind Qwen's rule; ``completes_size``: may ``size`` lack an edge (Qwen3-VL takes it from the file)."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"min_pixels", "max_pixels", "size"} | _VIDEO_KEYS)
    size = _read_size(source, given, completes_size=completes_size)
    override = {key: given[key] for key in ("min_pixels", "max_pixels") if given.get(key) is not None}
    name, processor = source.model_id, source.processor
    min_pixels = reading.first_int(
        name,
        (override, "min_pixels"),
        (size, "shortest_edge"),
        (processor, "min_pixels"),
        (processor, "size.shortest_edge"),
    )
    if min_pixels > MAX_DECODED_PIXELS:
        raise reading.Refused(
            "InvalidSetting",
            f"min_pixels is {min_pixels:,}, above the {MAX_DECODED_PIXELS:,} pixels of the largest image; lower it",
        )
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    shape = GridShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=min_pixels,
        max_pixels=reading.first_int(
            name, (override, "max_pixels"), (size, "longest_edge"), (processor, "max_pixels"),
            (processor, "size.longest_edge"),
        ),
    )  # fmt: skip
    return NativeGrid(settings=source.settings, model_id=name, shape=shape)


def _read_size(source: reading.Source, given: Mapping[str, Any], *, completes_size: bool) -> Mapping[str, Any]:
    size = given.get("size") or {}
    if not isinstance(size, Mapping):
        raise reading.Refused(
            "InvalidSetting", f"mm_processor_kwargs.size is {size!r}, but must be an object with both edges"
        )
    edges = {"shortest_edge", "longest_edge"}
    reading.refuse_unknown({f"size.{key}": value for key, value in size.items()}, {f"size.{e}" for e in edges})
    missing = edges - set(size)
    if size and missing and not completes_size:
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.size of {source.model_id or 'this model'} lacks {missing.pop()}: the "
            f"server would not "
            "start; give both edges, or max_pixels instead",
        )
    return size


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: GridShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height) or _check_aspect(width, height)
    if refusal is not None:
        return refusal
    return _measure(width, height, shape)


def _measure(width: int, height: int, shape: GridShape) -> ImageTokens:
    wide, high = resize(width, height, shape)
    columns, rows = wide // shape.unit, high // shape.unit
    tokens = columns * rows
    return ImageTokens(
        tokens, tokens, tokens + _TAGS, tokens * shape.merge_size**2, resized=(wide, high), grid=(columns, rows)
    )


@lru_cache(maxsize=1024)
def _maximum(shape: GridShape) -> MaximumTokens:
    unit, _, min_pixels, max_pixels = shape
    size = most_tokens_size(max_pixels, unit)
    # The engine makes this image itself, so what it refuses to decode does not matter here.
    dummy = _measure(*size, shape)
    return MaximumTokens(
        true_tokens=max(dummy.embed_tokens, _most_by_area(max_pixels, unit), _most_by_scaling_up(min_pixels, unit)),
        true_size=size,
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


def resize(width: int, height: int, shape: GridShape) -> tuple[int, int]:
    """Return (width, height) after the resize; divisions and roots are the engine's, in floating point."""
    unit, _, min_pixels, max_pixels = shape
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
