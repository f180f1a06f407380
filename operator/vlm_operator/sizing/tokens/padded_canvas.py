"""Images padded to a canvas of whole units within a number of tokens: GLM-5-Next.

Each side is rounded up to whole units of patch size x merge size x ``patch_expand_factor`` pixels. A canvas below the
least number of units is enlarged, the image keeping its aspect; one above the largest number is cut back to the
highest image, in whole pixels, whose canvas fits. A unit is ``patch_expand_factor`` squared tokens, since the factor
widens the canvas and not the token. Any aspect ratio is accepted.

Source: ``Glm5NextImageProcessor`` of ``transformers`` and the engine's processing information for the family.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.aspect_grid import squarest_rows
from vlm_operator.sizing.tokens.limits import check_size
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

_TAGS: Final = 2


class CanvasShape(NamedTuple):
    """What the count depends on: ``unit`` is a unit's side in pixels, ``expand`` its tokens along a side."""

    unit: int
    merge_size: int
    expand: int
    min_units: int
    max_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedCanvas(ImageRule):
    """The rule bound to one model and its settings; the engine computes its maximum from ``budget_units``."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: CanvasShape
    budget_units: int

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image, a canvas of as many units as the limit; the engine draws such a one too."""
        tokens_per_unit = self.shape.expand**2
        dummy_size = _squarest(self.budget_units, self.shape.unit)
        dummy = _measure(*dummy_size, self.shape)
        return MaximumTokens(
            true_tokens=self.shape.max_units * tokens_per_unit,
            true_size=_squarest(self.shape.max_units, self.shape.unit),
            engine_tokens=self.budget_units * tokens_per_unit,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the canvas and the tags around it."""
        return Part("canvas", tokens.embed_tokens, 1), Part("start and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The largest number of units, not below the least."""
        most = self.shape.max_units
        return Cap(name="max_image_tokens", value=most, tighter=range(self.shape.min_units, most))

    def with_cap(self, value: int) -> "PaddedCanvas":
        """Return the rule with ``max_image_tokens`` at ``value``, which the budget follows."""
        settings = caps.with_kwarg(self.settings, ("max_image_tokens", "max_pixels"), {"max_image_tokens": value})
        shape = self.shape._replace(max_units=value)
        return replace(self, settings=settings, ignored_settings=(), shape=shape, budget_units=value)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the image on its canvas, padding not counted."""
        columns, rows = fit_canvas(width, height, self.shape)
        wide, high = columns * self.shape.unit, rows * self.shape.unit
        scale = min(high / height, wide / width)
        if height * width >= self.shape.min_units * self.shape.unit**2:
            scale = min(1.0, scale)
        return max(1, min(wide, math.floor(width * scale))) * max(1, min(high, math.floor(height * scale)))


def build_glm5_next(source: reading.Source) -> PaddedCanvas:
    """Bind GLM-5-Next.

    ``max_image_tokens`` works; scoped to ``images_kwargs`` it does not move the budget. ``max_pixels`` moves the
    budget alone.
    """
    settings, name, files = source.settings, source.model_id, source.processor
    given = reading.flatten_images_kwargs(settings)
    reading.refuse_unknown(given, {"min_image_tokens", "max_image_tokens", "max_pixels"})
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    expand = reading.first_int(name, (files, "patch_expand_factor"), default=1)
    frames = reading.same_in_both(source, "temporal_patch_size", "vision_config.temporal_patch_size")
    shape = CanvasShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size * expand,
        merge_size=merge_size,
        expand=expand,
        min_units=reading.first_int(name, (given, "min_image_tokens"), (files, "min_image_tokens")),
        max_units=reading.first_int(name, (given, "max_image_tokens"), (files, "max_image_tokens")),
    )
    if shape.min_units > shape.max_units:
        raise reading.Refused(
            "InvalidSetting",
            f"min_image_tokens is {shape.min_units:,}, above max_image_tokens of {shape.max_units:,}: small images of "
            f"{name or 'this model'} would be enlarged and then cut back; lower the one or raise the other",
        )
    budget = reading.first_int(name, (settings.mm_processor_kwargs, "max_image_tokens"), (files, "max_image_tokens"))
    pixels = settings.mm_processor_kwargs.get("max_pixels")
    if pixels is not None:
        budget = max(1, reading.positive_int("max_pixels", pixels) // (frames * shape.unit**2))
    ignored = ("mm_processor_kwargs.max_pixels",) if "max_pixels" in given else ()
    return PaddedCanvas(settings=settings, model_id=name, ignored_settings=ignored, shape=shape, budget_units=budget)


def _squarest(units: int, unit: int) -> tuple[int, int]:
    rows = squarest_rows(units)
    return units // rows * unit, rows * unit


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: CanvasShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: CanvasShape) -> ImageTokens:
    columns, rows = fit_canvas(width, height, shape)
    unit, expand = shape.unit, shape.expand
    tokens = columns * rows * expand**2
    return image_tokens(
        tokens,
        tokens,
        tokens + _TAGS,
        tokens * shape.merge_size**2,
        (columns * unit, rows * unit),
        None,
        (columns * expand, rows * expand),
    )


def fit_canvas(width: int, height: int, shape: CanvasShape) -> tuple[int, int]:
    """Return (columns, rows) of units; the enlargement in the engine's floating point."""
    unit = shape.unit
    columns, rows = ceil_div(width, unit), ceil_div(height, unit)
    if columns * rows < shape.min_units:
        scale = math.sqrt(shape.min_units * unit**2 / (height * width))
        rows = ceil_div(max(1, math.ceil(height * scale)), unit)
        columns = ceil_div(max(1, math.ceil(width * scale)), unit)
    if columns * rows > shape.max_units:
        return _cut_back(width, height, shape)
    return columns, rows


def _cut_back(width: int, height: int, shape: CanvasShape) -> tuple[int, int]:
    """Return (columns, rows) under the highest image that fits, one unit where none does.

    From the top down, each number of rows is tried with the highest image that its columns leave room for. The root
    of limit x aspect bounds the rows, but for what rounding a side to pixels and units adds.
    """
    unit, most = shape.unit, shape.max_units
    bound = math.isqrt(most * height // width) + height // (width * unit) + 3
    rows = min(ceil_div(height, unit), most, bound)
    while rows > 0:
        # The content stays below one more column than there is room for.
        highest = min(height, rows * unit, ((most // rows * unit + 1) * height - 1) // width)
        if highest > (rows - 1) * unit:
            return ceil_div(max(1, width * highest // height), unit), rows
        rows -= 1
    return 1, 1
