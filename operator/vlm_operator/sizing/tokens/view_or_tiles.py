"""One view if the image is small, else tiles and a thumbnail: LFM2-VL.

An image is small if its area, sides rounded to whole tokens, is at most ``max_image_tokens`` x ``tolerance``.
A small image becomes one view, resized to between ``min_image_tokens`` and ``max_image_tokens``; a long strip may
exceed them. A large one becomes the grid of ``min_tiles`` to ``max_tiles`` square tiles closest in aspect, and the
view as thumbnail, unless the grid is a single tile. Tokens = tiles x tokens per tile + tokens of the view; start,
end and one tag for each tile and the thumbnail stand inside the placeholder. Source: Lfm2VlImageProcessor of
``transformers`` and the LFM2-VL processing information of the engine.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tile_grids import grid_aspects
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
_DEFAULTS: Final[Mapping[str, Any]] = {
    "downsample_factor": 2,
    "encoder_patch_size": 16,
    "min_image_tokens": 64,
    "max_image_tokens": 256,
    "min_tiles": 2,
    "max_tiles": 10,
    "tile_size": 512,
    "max_pixels_tolerance": 2.0,
    "do_image_splitting": True,
    "use_thumbnail": True,
}
"""Defaults of the class Lfm2VlImageProcessor, for files that omit the key."""
_COUNTED_FROM_PIXELS: Final = "min_image_tokens"
"""The one setting that also works in ``images_kwargs``: the engine does not read it, but measures the view."""


class ViewShape(NamedTuple):
    """What the count depends on.

    ``unit`` is the side in pixels of the square that becomes one token, ``merge_size`` its side in patches,
    ``longest_view`` the tokens that a view may have: the processor cannot stack a longer one with others.
    """

    unit: int
    merge_size: int
    min_tokens: int
    max_tokens: int
    tolerance: float
    tile_size: int
    min_tiles: int
    max_tiles: int
    longest_view: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOrTiles(ImageRule):
    """The rule bound to one model and its settings."""

    shape: ViewShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: a strip cut into most tiles, with the longest view as its thumbnail.

        The engine profiles with a square of ``max_image_tokens``, which is no larger than one view.
        """
        shape = self.shape
        tiles = shape.max_tiles if shape.max_tiles > 1 else 0
        side = int(math.sqrt(shape.max_tokens * shape.unit**2))
        dummy = _measure(side, side, shape)
        return MaximumTokens(
            true_tokens=tiles * _tile_tokens(shape) + shape.longest_view,
            true_size=_longest_strip(shape),
            engine_tokens=dummy.embed_tokens,
            dummy_size=(side, side),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the view (the thumbnail of a large image) and the tags."""
        columns, rows = tokens.grid or (1, 1)
        tiles = columns * rows if columns * rows > 1 else 0
        each = _tile_tokens(self.shape)
        return (
            Part("tile", tiles, each),
            Part("thumbnail" if tiles else "view", 1, tokens.embed_tokens - tiles * each),
            Part("start, end and tags of tiles", tokens.prompt_tokens - tokens.embed_tokens, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The limit on tiles; 1 keeps every image in one view. Fewer tiles may fit an aspect ratio better."""
        most = self.shape.max_tiles
        return Cap(name="max_tiles", value=most, tighter=range(1, most), monotone=False)

    def with_cap(self, value: int) -> "ViewOrTiles":
        """Return the rule with at most ``value`` tiles, the thumbnail not counted."""
        least = min(value, self.shape.min_tiles)
        given = {"max_tiles": value} if least == self.shape.min_tiles else {"max_tiles": value, "min_tiles": least}
        settings = caps.with_kwarg(self.settings, tuple(given), given)
        return replace(self, settings=settings, shape=self.shape._replace(min_tiles=least, max_tiles=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the tiles, or of the view where there are none."""
        columns, rows = _choose_grid(width, height, self.shape) or (1, 1)
        if columns * rows > 1:
            return columns * rows * self.shape.tile_size**2
        return _measure(width, height, self.shape).embed_tokens * self.shape.unit**2


def build_lfm2(source: reading.Source) -> ImageRule:
    """Bind LFM2-VL's rule."""
    flat = {key: value for key, value in source.settings.mm_processor_kwargs.items() if key != "images_kwargs"}
    scoped = source.settings.mm_processor_kwargs.get("images_kwargs", {})
    reading.refuse_unknown(reading.flatten_images_kwargs(source.settings), _DEFAULTS.keys())
    shipped = {key: source.processor.get(key, default) for key, default in _DEFAULTS.items()}
    values = {**shipped, **flat}
    if _COUNTED_FROM_PIXELS in scoped:
        values[_COUNTED_FROM_PIXELS] = scoped[_COUNTED_FROM_PIXELS]
    reading.refuse_changed(
        {key: value for key, value in scoped.items() if key != _COUNTED_FROM_PIXELS},
        values,
        "give it without images_kwargs around it",
    )
    return ViewOrTiles(settings=source.settings, model_id=source.model_id, shape=_read_shape(source, values, shipped))


def _read_shape(source: reading.Source, values: Mapping[str, Any], shipped: Mapping[str, Any]) -> ViewShape:
    def read(key: str) -> int:
        return reading.first_int(source.model_id, (values, key))

    least, most = read("min_tiles"), read("max_tiles")
    splits = reading.boolean("do_image_splitting", values["do_image_splitting"])
    if splits and least > most:
        raise reading.Refused(
            "StartupFails",
            f"min_tiles is {least}, above max_tiles, {most}, and the server would not start; lower min_tiles too",
        )
    if most > 1:
        _refuse_switches(values)
    merge_size, patch_size, tile_size = read("downsample_factor"), read("encoder_patch_size"), read("tile_size")
    _refuse_other_model(source, values)
    unit = merge_size * patch_size
    if tile_size % unit:
        raise reading.Refused(
            "InvalidSetting",
            f"tile_size is {tile_size}, but must be a multiple of {unit} pixels, the square that becomes one token; "
            f"take {ceil_div(tile_size, unit) * unit}",
        )
    max_tokens, tile_tokens = read("max_image_tokens"), (tile_size // unit) ** 2
    longest_view = max(max_tokens, tile_tokens if splits else 0)
    if most > longest_view:
        words = f"max_tiles is {most}, but grids of more than {longest_view} tiles cannot be counted"
        raise reading.Refused("InvalidSetting", f"{words}; the checkpoint has {shipped['max_tiles']}")
    return ViewShape(
        unit=unit,
        merge_size=merge_size,
        min_tokens=read("min_image_tokens"),
        max_tokens=max_tokens,
        tolerance=reading.positive_number("max_pixels_tolerance", values["max_pixels_tolerance"]),
        tile_size=tile_size,
        min_tiles=least,
        max_tiles=most,
        longest_view=longest_view,
    )


def _refuse_switches(values: Mapping[str, Any]) -> None:
    """Refuse to switch off tiles or thumbnail: the engine counts both whatever the switch says."""
    for key in ("do_image_splitting", "use_thumbnail"):
        if not reading.boolean(key, values[key]):
            one_view = json.dumps({"max_tiles": 1, "min_tiles": 1})
            raise reading.Refused(
                "SettingMismatch",
                f"{key} is false: the pixels would follow it, but not the token count, and requests with large images "
                f"would fail; drop it, or keep images in one view with --mm-processor-kwargs '{one_view}'",
            )


def _refuse_other_model(source: reading.Source, values: Mapping[str, Any]) -> None:
    """Refuse a patch size or downsampling that is not the model's: its weights fit one value only."""
    for key, path in (("downsample_factor", "downsample_factor"), ("encoder_patch_size", "vision_config.patch_size")):
        model = reading.first_int(source.model_id, (source.config, path), default=_DEFAULTS[key])
        if values[key] != model:
            raise reading.Refused(
                "SettingMismatch",
                f"{key} is {values[key]}, but the model is built for {model} ({path}), and requests would fail; "
                "drop the override",
            )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: ViewShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    view = _count_view(width, height, shape)
    if view > shape.longest_view:
        return TokenRefusal(
            reason="StripTooLong",
            message=f"image size {width}x{height}: the view of so long a strip takes {view} tokens, and the "
            f"processor stacks views of at most {shape.longest_view} tokens; cut the strip, or raise max_image_tokens",
        )
    return _assemble(_choose_grid(width, height, shape), view, shape)


def _measure(width: int, height: int, shape: ViewShape) -> ImageTokens:
    return _assemble(_choose_grid(width, height, shape), _count_view(width, height, shape), shape)


def _assemble(grid: tuple[int, int] | None, view: int, shape: ViewShape) -> ImageTokens:
    """Return the count for tiles on ``grid``, None where the view of ``view`` tokens is all."""
    tiles = grid[0] * grid[1] if grid else 0
    if tiles > 1:
        embed, views, tags = tiles * _tile_tokens(shape) + view, tiles + 1, _TAGS + tiles + 1
    else:
        # A grid of one tile has no thumbnail: the tile is the view.
        embed, views, tags = _tile_tokens(shape) if tiles else view, 1, _TAGS
    return image_tokens(
        embed, embed + tags, embed + tags, embed * shape.merge_size**2, tiles=views, grid=grid or (1, 1)
    )


def _choose_grid(width: int, height: int, shape: ViewShape) -> tuple[int, int] | None:
    """Return (columns, rows) of tiles, None where the image is not cut."""
    if shape.max_tiles > 1 and _is_large(width, height, shape):
        return grid_aspects(shape.tile_size, shape.min_tiles, shape.max_tiles).choose(width, height)
    return None


def _is_large(width: int, height: int, shape: ViewShape) -> bool:
    """Return whether the image is cut; here a side rounds down to one patch, not to one token."""
    unit, patch = shape.unit, shape.unit // shape.merge_size
    area = (round(width / unit) * unit or patch) * (round(height / unit) * unit or patch)
    return area > shape.max_tokens * unit**2 * shape.tolerance


def _count_view(width: int, height: int, shape: ViewShape) -> int:
    """Return the tokens of the whole image resized to one view; in the engine's floating point."""
    unit = shape.unit
    columns, rows = round(width / unit) or 1, round(height / unit) or 1
    if columns * rows > shape.max_tokens:
        beta = math.sqrt(height * width / (shape.max_tokens * unit**2))
        return (int(width / beta / unit) or 1) * (int(height / beta / unit) or 1)
    if columns * rows < shape.min_tokens:
        beta = math.sqrt(shape.min_tokens * unit**2 / (height * width))
        return math.ceil(width * beta / unit) * math.ceil(height * beta / unit)
    return columns * rows


def _tile_tokens(shape: ViewShape) -> int:
    return (shape.tile_size // shape.unit) ** 2


@lru_cache(maxsize=256)
def _longest_strip(shape: ViewShape) -> tuple[int, int]:
    """Return the size of a strip whose view has exactly ``longest_view`` tokens in one row.

    A row has floor(sqrt(max_tokens x aspect)) tokens, so the aspect ratio lies between two steps. It is above
    ``max_tiles``, so that the strip, once large, is cut into one row of most tiles.
    """
    longest = shape.longest_view
    times = 1
    while True:
        height = shape.unit * times
        width = height * longest * (longest + 1) // shape.max_tokens + 1
        if shape.max_tiles == 1 or _is_large(width, height, shape):
            return width, height
        times += 1
