"""Native-resolution grids: Qwen2-VL and its successors, and the families that took over their image processor.

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
from vlm_operator.sizing.tokens.largest_grid import Limits, largest_image
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    grid_tokens,
)
from vlm_operator.units import ceil_div

MAX_ASPECT: Final = 200
PIXEL_SETTINGS: Final = ("min_pixels", "max_pixels", "size")
SAMPLING_SETTINGS: Final = ("fps", "num_frames", "min_frames", "max_frames")
"""Settings of how a video is sampled; images see neither them nor ``videos_kwargs``."""


class GridShape(NamedTuple):
    """What the count depends on.

    ``unit`` is the side in pixels of the square that becomes one token; ``tags`` are the prompt tokens around them.
    """

    unit: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    tags: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeGrid(ImageRule):
    """The rule bound to one model and its settings. The engine computes its maximum from the pixel limit.

    Attributes:
        shape: What the count depends on.
        settable: Do server settings reach the image processor?
        dummy_side: Side of the square image that the engine takes for the largest, where it does not work it out.
    """

    hint_lowers_budget: ClassVar[bool] = False
    shape: GridShape
    settable: bool = True
    dummy_side: int | None = None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is the squarest grid of as many tokens as the limit holds."""
        return _maximum(self.shape, self.dummy_side)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        return Part("grid", tokens.embed_tokens, 1), Part("start and end", self.shape.tags, 1, embedded=False)

    @property
    def cap(self) -> Cap | None:
        """The pixel limit, in whole tokens and not below the floor."""
        if not self.settable:
            return None
        square = self.shape.unit**2
        # Two tokens at least: a video of Qwen3-VL shares the limit between two frames.
        lowest = max(2, ceil_div(self.shape.min_pixels, square)) * square
        return Cap(name="max_pixels", value=self.shape.max_pixels, tighter=range(lowest, self.shape.max_pixels, square))

    def with_cap(self, value: int) -> "NativeGrid":
        """Return the rule with ``max_pixels`` at ``value``."""
        given: dict[str, int] = {"max_pixels": value}
        kwargs = self.settings.mm_processor_kwargs
        if {"min_pixels", "size"} & (set(kwargs) | set(kwargs.get("images_kwargs", {}))):
            given["min_pixels"] = self.shape.min_pixels
        settings = caps.with_kwarg(self.settings, PIXEL_SETTINGS, given)
        return replace(self, settings=settings, shape=self.shape._replace(max_pixels=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = fit_grid(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_native_grid(
    source: reading.Source, *, completes_size: bool, vision_config: str = "vision_config"
) -> NativeGrid:
    """Bind Qwen's rule.

    Args:
        source: The model.
        completes_size: May ``size`` lack an edge? Qwen3-VL then takes it from the file, Qwen2-VL does not start.
        vision_config: Dotted path of the vision section in config.json.
    """
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, (*PIXEL_SETTINGS, *SAMPLING_SETTINGS, "videos_kwargs"))
    size = read_size(source, given, completes_size=completes_size)
    override, name, processor = _read_flat_limits(given), source.model_id, source.processor

    def limit(pixels: str, edge: str) -> int:
        places = (override, pixels), (size, edge), (processor, pixels), (processor, f"size.{edge}")
        return reading.first_int(name, *places)

    min_pixels = limit("min_pixels", "shortest_edge")
    if min_pixels > MAX_DECODED_PIXELS:
        raise reading.Refused(
            "InvalidSetting",
            f"min_pixels is {min_pixels:,}, above the {MAX_DECODED_PIXELS:,} pixels of the largest image; lower it",
        )
    merge_size = reading.same_in_both(source, "merge_size", f"{vision_config}.spatial_merge_size")
    shape = GridShape(
        unit=reading.same_in_both(source, "patch_size", f"{vision_config}.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=min_pixels,
        max_pixels=limit("max_pixels", "longest_edge"),
    )
    if completes_size:
        _refuse_tiny_videos(source, 2 * shape.unit**2)
    return NativeGrid(settings=source.settings, model_id=name, shape=shape)


def _read_flat_limits(given: Mapping[str, Any]) -> Mapping[str, Any]:
    override = {key: given[key] for key in ("min_pixels", "max_pixels") if key in given}
    if None in override.values():
        raise reading.Refused(
            "StartupFails",
            "mm_processor_kwargs has min_pixels or max_pixels of null, and the server would not start (TypeError); "
            "drop it",
        )
    return override


def _refuse_tiny_videos(source: reading.Source, least: int) -> None:
    """Refuse a flat limit below ``least`` pixels: videos of Qwen3-VL take it too, two frames share it.

    The engine sizes them even where no video is allowed.
    """
    flat = source.settings.mm_processor_kwargs
    limits = (
        reading.find(flat, path) for path in ("videos_kwargs.size.longest_edge", "max_pixels", "size.longest_edge")
    )
    limit = next((value for value in limits if value is not None), least)
    if limit < least:
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs limits videos to {limit:,} pixels, which leaves none of two frames of "
            f"{least // 2:,}, and the server would not start (ZeroDivisionError); raise it to {least:,} or more",
        )


def build_opencua(source: reading.Source) -> NativeGrid:
    """Bind OpenCUA: Qwen's rule, but the engine's own processor hands no setting on to the images.

    Its prompt has one placeholder token for an image and none around it.
    """
    rule = _build_without_settings(source)
    return replace(rule, shape=rule.shape._replace(tags=0))


def build_llava_onevision2(source: reading.Source) -> NativeGrid:
    """Bind LLaVA-OneVision-2: Qwen's rule, but the engine takes 1800 x 1800 for the largest image."""
    return replace(_build_without_settings(source), dummy_side=1800)


def _build_without_settings(source: reading.Source) -> NativeGrid:
    for key in reading.flatten_images_kwargs(source.settings):
        raise reading.Refused(
            "SettingMismatch",
            f"mm_processor_kwargs.{key}: the images and the start-up budget of {source.model_id or 'this model'} do "
            "not both follow it; drop it",
        )
    rule = build_native_grid(source, completes_size=False)
    return replace(rule, settable=False)


def read_size(source: reading.Source, given: Mapping[str, Any], *, completes_size: bool) -> Mapping[str, Any]:
    """Return ``size`` of the settings, empty where it is not given.

    Raises:
        Refused: It is not an object of the two edges, or one is missing and the engine does not complete it.
    """
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
    too_long = width > MAX_ASPECT * height or height > MAX_ASPECT * width
    if too_long or width < 1 or height < 1 or width * height > MAX_DECODED_PIXELS:
        return check_size(width, height) or _refuse_aspect(width, height)
    return _measure(width, height, shape)


def _measure(width: int, height: int, shape: GridShape) -> ImageTokens:
    columns, rows = fit_grid(width, height, shape)
    return grid_tokens(columns, rows, shape.unit, shape.merge_size, around=shape.tags)


def _refuse_aspect(width: int, height: int) -> TokenRefusal:
    long, short = max(width, height), min(width, height)
    return TokenRefusal(
        reason="AspectRatioTooExtreme",
        message=f"image size {width}x{height} has an aspect ratio of {long / short:.1f}, and the engine "
        f"accepts at most {MAX_ASPECT}; crop the image or cut it into several",
    )


def fit_grid(width: int, height: int, shape: GridShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens after the resize; divisions and roots are the engine's, in floating point."""
    unit, _, min_pixels, max_pixels, _ = shape
    columns, rows = round(width / unit), round(height / unit)
    pixels = columns * rows * unit * unit
    if pixels > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        return math.floor(width / scale / unit) or 1, math.floor(height / scale / unit) or 1
    if pixels < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        return math.ceil(width * scale / unit), math.ceil(height * scale / unit)
    return columns, rows


@lru_cache(maxsize=1024)
def _maximum(shape: GridShape, dummy_side: int | None) -> MaximumTokens:
    size = most_tokens_size(shape.max_pixels, shape.unit)
    if dummy_side is not None:
        columns, rows = fit_grid(dummy_side, dummy_side, shape)
        size = columns * shape.unit, rows * shape.unit
    # The engine makes this image itself, so what it refuses to decode does not matter here.
    dummy = _measure(*size, shape)

    def count(width: int, height: int) -> int:
        columns, rows = fit_grid(width, height, shape)
        return columns * rows

    limits = Limits(shape.unit, shape.min_pixels, shape.max_pixels, MAX_ASPECT, MAX_DECODED_PIXELS)
    true_tokens, true_size = largest_image(limits, count)
    if dummy.embed_tokens == true_tokens and check_size(*size) is None:
        true_size = size
    return MaximumTokens(
        true_tokens=true_tokens,
        true_size=true_size,
        engine_tokens=dummy.embed_tokens,
        dummy_size=size,
        dummy_tokens=dummy.embed_tokens,
        dummy_patches=dummy.vit_patches,
    )


@lru_cache(maxsize=1024)
def most_tokens_size(max_pixels: int, unit: int) -> tuple[int, int]:
    """Return (width, height) of the engine's dummy: most tokens first, then the squarest factorisation."""
    for tokens in range(max(1, max_pixels // unit**2), 0, -1):
        rows = next(d for d in range(math.isqrt(tokens), 0, -1) if tokens % d == 0)
        columns = tokens // rows
        if columns <= MAX_ASPECT * rows:
            return columns * unit, rows * unit
    raise AssertionError("one token is always square")
