"""An overview and crops that overlap, pooled two by two: Molmo and Molmo2.

Crops lie on a grid of windows with a margin on each side. Of all grids of up to ``max_crops`` crops the smallest
scale that does not shrink the image wins; if all shrink it, the one that shrinks least, the first of equals in either
case. Tokens of a view = start + rows x (columns + row end) + end. Molmo embeds the pooled patches alone, Molmo2 the
marks as well. Source: the engine's processing information for both, and ``Molmo2ImageProcessor`` of ``transformers``.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tile_grids import tightest_grid
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
_MOST_CROPS: Final = 200
"""The engine tries all grids on each image, so larger limits are of no use."""
_MOLMO_POOLING: Final = 2


class CropShape(NamedTuple):
    """What the count depends on.

    ``window`` and ``margin`` are pixels, the margin that of both sides together; ``columns_along`` and ``rows_along``
    give the tokens along 1, 2, ... ``max_crops`` crops; ``overview`` is (columns, rows) of tokens.
    """

    max_crops: int
    window: int
    margin: int
    columns_along: tuple[int, ...]
    rows_along: tuple[int, ...]
    overview: tuple[int, int]
    overview_row_end: int
    row_end: int
    embeds_marks: bool
    patches_per_crop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapCrops(ImageRule):
    """The rule bound to one model and its settings.

    Attributes:
        dummy_unit: Pixels that a crop adds to the dummy images of which the engine takes the largest.
        dummy_margin: Pixels that those images have besides; 0 for Molmo.
    """

    shape: CropShape
    dummy_unit: int
    dummy_margin: int

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: one that fills the grid of most tokens exactly."""
        shape = self.shape
        rows, columns = max(
            candidate_grids(shape.max_crops), key=lambda grid: _assemble(grid[1], grid[0], shape).embed_tokens
        )
        size = (columns * shape.window + shape.margin, rows * shape.window + shape.margin)
        dummy_size = self._dummy_size()
        dummy = _measure(*dummy_size, shape)
        return MaximumTokens(
            true_tokens=_measure(*size, shape).embed_tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def _dummy_size(self) -> tuple[int, int]:
        unit, margin = self.dummy_unit, self.dummy_margin
        grids = candidate_grids(self.shape.max_crops)
        if not margin:
            # Molmo reads the same list as (columns, rows).
            grids = tuple((columns, rows) for rows, columns in grids)
        sizes = [(columns * unit + margin, rows * unit + margin) for rows, columns in grids]
        return max(sizes, key=lambda size: _measure(size[0], size[1], self.shape).prompt_tokens)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the pooled patches of both views, the ends of their rows and their tags."""
        shape = self.shape
        columns, rows = tokens.grid or (1, 1)
        wide, high = shape.columns_along[columns - 1], shape.rows_along[rows - 1]
        row_ends = shape.overview[1] * shape.overview_row_end + high * shape.row_end
        return (
            Part("overview", 1, shape.overview[0] * shape.overview[1]),
            Part("crops", 1, wide * high),
            Part("row ends", row_ends, 1, embedded=shape.embeds_marks),
            Part("start and end of a view", 2, _TAGS, embedded=shape.embeds_marks),
        )

    @property
    def cap(self) -> Cap:
        """The limit on crops. A larger one may fit an image more tightly, with fewer pixels."""
        most = self.shape.max_crops
        return Cap(name="max_crops", value=most, tighter=range(1, most), monotone=False)

    def with_cap(self, value: int) -> "OverlapCrops":
        """Return the rule with at most ``value`` crops, the overview not counted."""
        shape = self.shape
        settings = caps.with_kwarg(self.settings, ("max_crops",), {"max_crops": value})
        capped = shape._replace(
            max_crops=value, columns_along=shape.columns_along[:value], rows_along=shape.rows_along[:value]
        )
        return replace(self, settings=settings, shape=capped)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the crops' windows."""
        columns, rows = choose_grid(width, height, self.shape)
        return columns * rows * self.shape.window**2


def build_molmo(source: reading.Source) -> ImageRule:
    """Bind Molmo's rule; all figures are the processor's, which comes with the checkpoint."""
    given, processor, name = source.settings.mm_processor_kwargs, source.processor, source.model_id
    reading.refuse_unknown(given, {"max_crops"})
    base = _read_pair(source, "base_image_input_size")
    geometry = _read_geometry(source, given, base[0], "image_patch_size", _Defaults())
    along = tuple(_pool_molmo(crops, geometry) for crops in range(1, geometry.max_crops + 1))
    shape = CropShape(
        max_crops=geometry.max_crops,
        window=geometry.window_patches * geometry.patch_size,
        margin=geometry.margin_patches * geometry.patch_size,
        columns_along=along,
        rows_along=along,
        overview=(
            reading.first_int(name, (processor, "image_token_length_w")),
            reading.first_int(name, (processor, "image_token_length_h")),
        ),
        overview_row_end=1,
        row_end=1,
        embeds_marks=False,
        patches_per_crop=geometry.crop_patches**2,
    )
    return OverlapCrops(settings=source.settings, model_id=name, shape=shape, dummy_unit=base[0], dummy_margin=0)


def build_molmo2(source: reading.Source) -> ImageRule:
    """Bind Molmo2's rule; what the files leave out is the default of ``Molmo2ImageProcessor`` in ``transformers``."""
    given, processor, name = source.settings.mm_processor_kwargs, source.processor, source.model_id
    if "images_kwargs" in given:
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.images_kwargs stops the server of {name or 'this Molmo2'} from starting "
            "(AssertionError); give max_crops itself instead",
        )
    reading.refuse_unknown(given, {"max_crops"})
    height = reading.first_int(name, (processor, "size.height"), default=378)
    width = reading.first_int(name, (processor, "size.width"), default=378)
    pool_high, pool_wide = _read_pair(source, "pooling_size", (2, 2))
    geometry = _read_geometry(source, given, height, "patch_size", _Defaults(14, 8, (4, 4)))
    window, margin = geometry.window_patches, geometry.margin_patches
    row_end = _read_switch(processor, "image_use_col_tokens", default=True)
    shape = CropShape(
        max_crops=geometry.max_crops,
        window=window * geometry.patch_size,
        margin=margin * geometry.patch_size,
        columns_along=tuple(ceil_div(n * window + margin, pool_wide) for n in range(1, geometry.max_crops + 1)),
        rows_along=tuple(ceil_div(n * window + margin, pool_high) for n in range(1, geometry.max_crops + 1)),
        overview=(
            ceil_div(width // geometry.patch_size, pool_wide),
            ceil_div(geometry.crop_patches, pool_high),
        ),
        overview_row_end=_read_switch(processor, "use_single_crop_col_tokens", default=row_end),
        row_end=row_end,
        embeds_marks=True,
        patches_per_crop=geometry.crop_patches**2,
    )
    return OverlapCrops(
        settings=source.settings, model_id=name, shape=shape, dummy_unit=shape.window, dummy_margin=shape.margin
    )


class _Defaults(NamedTuple):
    """What a processor class takes where the file says nothing; None: the file has to say it."""

    patch_size: int | None = None
    max_crops: int | None = None
    margins: tuple[int, int] | None = None


class _Geometry(NamedTuple):
    """The crops, in patches but for ``patch_size`` (pixels); ``left`` and ``right`` are the margins."""

    max_crops: int
    patch_size: int
    crop_patches: int
    left: int
    right: int

    @property
    def margin_patches(self) -> int:
        """Both margins together."""
        return self.left + self.right

    @property
    def window_patches(self) -> int:
        """What a crop adds to its neighbours."""
        return self.crop_patches - self.margin_patches


def _read_geometry(
    source: reading.Source, given: Mapping[str, Any], crop_size: int, patch_key: str, defaults: _Defaults
) -> _Geometry:
    name, processor = source.model_id, source.processor
    max_crops = reading.first_int(name, (given, "max_crops"), (processor, "max_crops"), default=defaults.max_crops)
    if max_crops > _MOST_CROPS:
        raise reading.Refused(
            "InvalidSetting",
            f"max_crops is {max_crops}, but the engine tries all grids on each image, and above {_MOST_CROPS} crops "
            "that takes long; lower it",
        )
    patch_size = reading.first_int(name, (processor, patch_key), default=defaults.patch_size)
    left, right = _read_pair(source, "overlap_margins", defaults.margins)
    geometry = _Geometry(max_crops, patch_size, reading.divide(patch_key, crop_size, patch_size), left, right)
    if geometry.window_patches < 1:
        raise reading.Refused(
            "InvalidSetting",
            f"overlap_margins are {left} and {right} patches, but a crop has only {geometry.crop_patches}; correct "
            "them",
        )
    return geometry


def _read_pair(source: reading.Source, key: str, default: tuple[int, int] | None = None) -> tuple[int, int]:
    value = source.processor.get(key, default)
    if isinstance(value, int):
        value = (value, value)
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return reading.positive_int(key, value[0]), reading.positive_int(key, value[1])
    if value is None:
        return reading.first_int(source.model_id, (source.processor, key)), 0
    raise reading.Refused("InvalidSetting", f"{key} is {value!r}, but must be two whole numbers; correct it")


def _read_switch(processor: Mapping[str, Any], key: str, *, default: int) -> int:
    value = processor.get(key)
    return default if value is None else int(reading.boolean(key, value))


def _pool_molmo(crops: int, geometry: _Geometry) -> int:
    """Return the tokens along ``crops`` crops of Molmo, which pads each crop's share to whole pools."""
    if crops == 1:
        return ceil_div(geometry.crop_patches, _MOLMO_POOLING)
    first = ceil_div(geometry.window_patches + geometry.left, _MOLMO_POOLING)
    middle = ceil_div(geometry.window_patches, _MOLMO_POOLING)
    last = ceil_div(geometry.window_patches + geometry.right, _MOLMO_POOLING)
    return first + (crops - 2) * middle + last


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: CropShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: CropShape) -> ImageTokens:
    return _assemble(*choose_grid(width, height, shape), shape)


def _assemble(columns: int, rows: int, shape: CropShape) -> ImageTokens:
    wide, high = shape.columns_along[columns - 1], shape.rows_along[rows - 1]
    overview_wide, overview_high = shape.overview
    pooled = overview_wide * overview_high + wide * high
    total = pooled + overview_high * shape.overview_row_end + high * shape.row_end + 2 * _TAGS
    crops = columns * rows + 1
    return image_tokens(
        total if shape.embeds_marks else pooled,
        total,
        total,
        crops * shape.patches_per_crop,
        tiles=crops,
        grid=(columns, rows),
    )


def choose_grid(width: int, height: int, shape: CropShape) -> tuple[int, int]:
    """Return (columns, rows) of crops.

    The engine divides in single precision, where scales tie that differ in double. An image smaller than the margins
    has a negative scale and gets one crop.
    """
    high, wide = height - shape.margin, width - shape.margin
    if high < 0 or wide < 0:
        return 1, 1
    # A side of nothing but margins is enlarged without end, as good as one of a pixel.
    rounded_wide, rounded_high = array("f", [wide or 1, high or 1])
    return tightest_grid(rounded_wide, rounded_high, shape.window, shape.max_crops, single=True)


@lru_cache(maxsize=64)
def candidate_grids(max_crops: int) -> tuple[tuple[int, int], ...]:
    """Return all (rows, columns) of up to ``max_crops`` crops, fewest crops first, then fewest rows."""
    pairs = [(rows, columns) for rows in range(1, max_crops + 1) for columns in range(1, max_crops // rows + 1)]
    return tuple(sorted(pairs, key=lambda grid: grid[0] * grid[1]))
