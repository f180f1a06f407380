"""Native-resolution grids that treat thin images in their own way: Cosmos3 Edge, Dots3 Note, Kanana-V, MiMo Omni.

Sides are rounded to whole units and scaled to the pixel limits as in Qwen's rule (``native_grid``), but:

* Dots3 Note takes a side for at least one unit before the limits are compared, the others first scale an image whose
  short side is below one unit until it is one, MiMo Omni whatever its aspect ratio;
* Cosmos3 Edge and Dots3 Note keep one unit of a side that is shrunk, the others fail where nothing is left; and Dots3
  Note turns away an image with a side below a quarter unit.

Each of these concerns only strips, so the largest image is one that needs no scaling as long as the two pixel limits
are apart; checkpoints where they are not are refused. Source: the image processor of Cosmos3 Edge in
``transformers``, the engine's own processors, and for Kanana-V that of its checkpoint.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.largest_grid import Limits, largest_within_limits
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT, most_tokens_size
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

_SETTINGS: Final = ("min_pixels", "max_pixels")


class ThinShape(NamedTuple):
    """What the count depends on.

    Attributes:
        unit: Side in pixels of the square that becomes one token.
        merge_size: Patches of a token along one side.
        min_pixels: Pixels below which an image is enlarged.
        max_pixels: Pixels above which it is shrunk.
        lift: How a short side below one unit is scaled up to it: not at all, with the aspect ratio checked afterwards,
            or without a check.
        keeps_unit: Does shrinking leave at least one unit of a side, or fail?
        least_side: The shortest side that is accepted.
        tags: Prompt tokens around the grid.
        tags_inside: Are they part of the placeholder?
    """

    unit: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    lift: Literal["none", "checked", "unchecked"] = "none"
    keeps_unit: bool = False
    least_side: int = 1
    tags: int = 2
    tags_inside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinGrid(ImageRule):
    """The rule bound to one model and its settings. The engine computes its maximum from the pixel limit.

    Attributes:
        shape: What the count depends on.
        budget_pixels: The limit that the engine computes with.
        settable: Do server settings reach the images?
        dummy_side: Side of the square image that the engine takes for the largest, where it does not work it out.
    """

    hint_lowers_budget: ClassVar[bool] = False
    shape: ThinShape
    budget_pixels: int
    settable: bool
    dummy_side: int | None = None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is the squarest grid of as many tokens as its limit holds."""
        return _maximum(self.shape, self.budget_pixels, self.dummy_side)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        return Part("grid", tokens.embed_tokens, 1), Part("start and end", self.shape.tags, 1, embedded=False)

    @property
    def cap(self) -> Cap | None:
        """The pixel limit in whole tokens, as far down as its maximum is that of an image without scaling."""
        if not self.settable:
            return None
        square, least = self.shape.unit**2, least_limit(self.shape)
        lowest = ceil_div(least, square) * square
        return Cap(name="max_pixels", value=self.shape.max_pixels, tighter=range(lowest, self.shape.max_pixels, square))

    def with_cap(self, value: int) -> "ThinGrid":
        """Return the rule with ``max_pixels`` at ``value``."""
        settings = caps.with_kwarg(self.settings, ("max_pixels",), {"max_pixels": value})
        return replace(self, settings=settings, shape=self.shape._replace(max_pixels=value), budget_pixels=value)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = _fit(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_cosmos3_edge(source: reading.Source) -> ThinGrid:
    """Bind Cosmos3 Edge; of its settings only the two pixel limits are known to reach the images."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, _SETTINGS)
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    name, files = source.model_id, source.processor
    shape = ThinShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=reading.first_int(name, (given, "min_pixels"), (files, "min_pixels"), (files, "size.shortest_edge")),
        max_pixels=reading.first_int(name, (given, "max_pixels"), (files, "max_pixels"), (files, "size.longest_edge")),
        lift="checked",
        keeps_unit=True,
    )
    return _bind(source, shape, settable=True)


def build_dots3_note(source: reading.Source) -> ThinGrid:
    """Bind Dots3 Note, whose values are the section ``vision_config`` of preprocessor_config.json.

    An image comes with the detail ``auto``, which can have limits of its own; the budget does not follow them.
    """
    _refuse_settings(source)
    section = source.processor.get("vision_config")
    values: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
    auto = reading.find(values, "image_details.auto") or {}
    if reading.find(auto, "target_height") or reading.find(auto, "target_width"):
        raise reading.Refused(
            "UnsupportedProcessor",
            f"{source.model_id or 'this model'}: image_details.auto sets a target size, for which images are not "
            "counted; remove it from preprocessor_config.json",
        )
    name = source.model_id
    merge_size = reading.first_int(name, (values, "merge_size"))
    unit = reading.first_int(name, (values, "patch_size")) * merge_size
    budget = reading.first_int(name, (values, "max_pixels"))
    if math.prod(most_tokens_size(budget, unit)) // unit**2 != budget // unit**2:
        raise reading.Refused(
            "StartupFails",
            f"max_pixels of {name or 'this model'} is {budget:,}, which holds {budget // unit**2:,} tokens: the "
            "engine finds no image of so many to start with; choose a limit whose tokens form a rectangle",
        )
    shape = ThinShape(
        unit=unit,
        merge_size=merge_size,
        min_pixels=reading.first_int(name, (auto, "min_pixels"), (values, "min_pixels")),
        max_pixels=reading.first_int(name, (auto, "max_pixels"), (values, "max_pixels")),
        keeps_unit=True,
        least_side=max(1, unit // 4),
        tags_inside=True,
    )
    return _bind(source, shape, settable=False, budget_pixels=budget)


def build_mimo_omni(source: reading.Source) -> ThinGrid:
    """Bind MiMo Omni, whose values are in config.json; its processor has defaults for the two pixel limits."""
    _refuse_settings(source)
    name, config = source.model_id, source.config
    merge_size = reading.first_int(name, (config, "vision_config.spatial_merge_size"))
    unit = reading.first_int(name, (config, "vision_config.patch_size")) * merge_size
    shape = ThinShape(
        unit=unit,
        merge_size=merge_size,
        min_pixels=reading.first_int(name, (config, "processor_config.image_min_pixels"), default=4 * unit**2),
        max_pixels=reading.first_int(name, (config, "processor_config.image_max_pixels"), default=4096 * unit**2),
        lift="unchecked",
    )
    return _bind(source, shape, settable=False)


def build_kanana(source: reading.Source) -> ThinGrid:
    """Bind Kanana-V, whose prompt has nothing around an image; the engine takes 9999 x 9999 for the largest."""
    _refuse_settings(source)
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    shape = ThinShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=reading.first_int(source.model_id, (source.processor, "min_pixels")),
        max_pixels=reading.first_int(source.model_id, (source.processor, "max_pixels")),
        lift="checked",
        tags=0,
    )
    return replace(_bind(source, shape, settable=False), dummy_side=9999)


def _refuse_settings(source: reading.Source) -> None:
    for key in source.settings.mm_processor_kwargs:
        raise reading.Refused(
            "SettingMismatch",
            f"mm_processor_kwargs.{key}: the processor of {source.model_id or 'this model'} and the start-up budget "
            "do not both follow it; drop it",
        )


def _bind(source: reading.Source, shape: ThinShape, *, settable: bool, budget_pixels: int = 0) -> ThinGrid:
    least = least_limit(shape)
    if shape.max_pixels < least:
        raise reading.Refused(
            "InvalidSetting",
            f"max_pixels is {shape.max_pixels:,}, but with min_pixels {shape.min_pixels:,} images of "
            f"{source.model_id or 'this model'} are counted from {least:,} on; raise it, or lower min_pixels",
        )
    if shape.max_pixels > MAX_DECODED_PIXELS:
        raise reading.Refused(
            "InvalidSetting",
            f"max_pixels is {shape.max_pixels:,}, above the {MAX_DECODED_PIXELS:,} pixels of the largest image; "
            "lower it",
        )
    return ThinGrid(
        settings=source.settings,
        model_id=source.model_id,
        shape=shape,
        budget_pixels=budget_pixels or shape.max_pixels,
        settable=settable,
    )


def least_limit(shape: ThinShape) -> int:
    """Return the ``max_pixels`` from which on no enlarged image and no strip takes more than the limit holds.

    An enlarged image overshoots by less than one row and one column, so Dots3 Note never has to shrink it again; its
    longest row has what an aspect ratio of 200 allows, and where short sides are lifted what ``min_pixels`` holds. A
    strip that is shrunk to one row has fewer columns than the limit holds once that is above 200.
    """
    unit = shape.unit
    floor = ceil_div(shape.min_pixels, unit**2)
    longest = floor if shape.lift == "unchecked" else math.isqrt(MAX_ASPECT * shape.min_pixels) // unit + 1
    return 2 * (floor + longest + math.isqrt(shape.min_pixels) // unit + 2 * MAX_ASPECT) * unit**2


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: ThinShape) -> ImageTokens | TokenRefusal:
    thin = width < shape.unit or height < shape.unit or width > MAX_ASPECT * height or height > MAX_ASPECT * width
    refusal = check_size(width, height) or (_check_sides(width, height, shape) if thin else None)
    if refusal is not None:
        return refusal
    columns, rows = _fit(width, height, shape)
    if not columns or not rows:
        return _refuse(width, height, "shrinking it leaves nothing of its short side")
    return _tokens(columns, rows, shape)


def _tokens(columns: int, rows: int, shape: ThinShape) -> ImageTokens:
    inside, around = (shape.tags, 0) if shape.tags_inside else (0, shape.tags)
    return grid_tokens(columns, rows, shape.unit, shape.merge_size, inside=inside, around=around)


def _check_sides(width: int, height: int, shape: ThinShape) -> TokenRefusal | None:
    if min(width, height) < shape.least_side:
        return _refuse(width, height, f"a side must have at least {shape.least_side} pixels")
    wide, high = _lift(width, height, shape)
    if min(wide, high) < shape.unit and shape.lift != "none" and not shape.keeps_unit:
        return _refuse(width, height, "scaling up its short side falls one pixel short of a unit")
    free = shape.lift == "unchecked" and min(width, height) < shape.unit
    if max(wide, high) > MAX_ASPECT * min(wide, high) and not free:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: the engine accepts an aspect ratio of at most {MAX_ASPECT}; crop "
            "the image or cut it into several",
        )
    return None


def _refuse(width: int, height: int, why: str) -> TokenRefusal:
    return TokenRefusal(
        reason="ImageTooThin",
        message=f"image size {width}x{height}: the engine fails, because {why}; crop the image or scale it up",
    )


def _fit(width: int, height: int, shape: ThinShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens, 0 where nothing of a side is left; in the engine's floating point."""
    unit, _, min_pixels, max_pixels, *_ = shape
    if width < unit or height < unit:
        width, height = _lift(width, height, shape)
    columns, rows = round(width / unit) or 1, round(height / unit) or 1
    pixels = columns * rows * unit**2
    if pixels > max_pixels:
        scale, least = math.sqrt(width * height / max_pixels), int(shape.keeps_unit)
        return math.floor(width / scale / unit) or least, math.floor(height / scale / unit) or least
    if pixels < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        return math.ceil(width * scale / unit), math.ceil(height * scale / unit)
    return columns, rows


def _lift(width: int, height: int, shape: ThinShape) -> tuple[int, int]:
    """Return the size after a short side below one unit is scaled up to it; each family has its own rounding."""
    unit, short = shape.unit, min(width, height)
    if shape.lift == "none" or short >= unit:
        return width, height
    if shape.lift == "checked":
        scale = unit / short
        return int(width * scale), int(height * scale)
    return (int(width * unit / height), unit) if height < width else (unit, int(height * unit / width))


@lru_cache(maxsize=1024)
def _maximum(shape: ThinShape, budget_pixels: int, dummy_side: int | None) -> MaximumTokens:
    unit = shape.unit

    def count(width: int, height: int) -> int:
        columns, rows = _fit(width, height, shape)
        return columns * rows

    if shape.lift == "unchecked":
        true_tokens = shape.max_pixels // unit**2
        true_size = true_tokens, 1
    else:
        limits = Limits(unit, shape.min_pixels, shape.max_pixels, MAX_ASPECT, MAX_DECODED_PIXELS)
        true_tokens, true_size = largest_within_limits(limits, count)
    dummy_size = most_tokens_size(budget_pixels, unit) if dummy_side is None else (dummy_side, dummy_side)
    dummy = _tokens(*_fit(*dummy_size, shape), shape)
    if dummy.embed_tokens == true_tokens:
        true_size = dummy_size
    return MaximumTokens(
        true_tokens=true_tokens,
        true_size=true_size,
        engine_tokens=math.prod(dummy_size) // unit**2 if dummy_side is None else dummy.embed_tokens,
        dummy_size=dummy_size,
        dummy_tokens=dummy.embed_tokens,
        dummy_patches=dummy.vit_patches,
    )
