"""An overview and the fewest tiles that cover the image: Ovis and Ovis2.

A grid cuts the image as it is into equal cells. A cell longer than a tile is shrunk into it; what the cells then
have of the image's area is the grid's cover. Of the grids that cover more than ``threshold`` those with fewest tiles
compete and the best cover wins; if none does, the best cover wins, fewest tiles among equals. The overview is left
out where one tile is all. Tokens = views x tokens of a tile + start, prefix, end and one separator between tiles,
all of them embedding slots. Source: the engine's own ``OvisProcessor``.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
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

_INDICATORS: Final = 3
_MOST_TILES: Final = 100
"""The engine tries all grids on each image, so larger limits are of no use."""
_DUMMY_TILES: Final = 9
"""Sides of the engine's dummy, in tiles times hidden stride, whatever the limit on tiles."""


class CoveringShape(NamedTuple):
    """What the count depends on; ``max_tiles`` does not count the overview."""

    tile_size: int
    tokens_per_tile: int
    patches_per_tile: int
    max_tiles: int
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering(ImageRule):
    """The rule bound to one model and its settings; ``hidden_stride`` only sizes the engine's dummy."""

    shape: CoveringShape
    hidden_stride: int

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: a column of squares so large that no smaller grid covers enough of it."""
        shape = self.shape
        square = shape.tile_size * math.ceil(math.sqrt(1 / min(shape.threshold, 1)))
        views = shape.max_tiles + (shape.max_tiles > 1)
        side = shape.tile_size * self.hidden_stride * _DUMMY_TILES
        dummy = _measure(side, side, shape)
        return MaximumTokens(
            true_tokens=views * shape.tokens_per_tile + _INDICATORS + shape.max_tiles - 1,
            true_size=(square, square * shape.max_tiles),
            engine_tokens=dummy.embed_tokens,
            dummy_size=(side, side),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the overview, the tiles and what marks and parts them."""
        columns, rows = tokens.grid or (1, 1)
        tiles, each = columns * rows, self.shape.tokens_per_tile
        return (
            Part("overview", (tokens.tiles or tiles) - tiles, each),
            Part("tile", tiles, each),
            Part("start, prefix and end", _INDICATORS, 1),
            Part("separators", tiles - 1, 1),
        )

    @property
    def cap(self) -> Cap:
        """The limit on tiles; more of them never cover less."""
        most = self.shape.max_tiles
        return Cap(name="max_partition", value=most, tighter=range(1, most))

    def with_cap(self, value: int) -> "Covering":
        """Return the rule with at most ``value`` tiles, the overview not counted."""
        settings = caps.with_kwarg(self.settings, ("max_partition",), {"max_partition": value})
        return replace(self, settings=settings, shape=self.shape._replace(max_tiles=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area that the tiles have of the image."""
        columns, rows = _choose(width, height, self.shape)
        return int(_covered(width, height, columns, rows, self.shape.tile_size))


def build_ovis(source: reading.Source) -> ImageRule:
    """Bind Ovis' rule; the settings' defaults are those of the engine's processor."""
    given, name = source.settings.mm_processor_kwargs, source.model_id
    reading.refuse_unknown(given, {"max_partition", "covering_threshold"})
    tile_size = _read_tile_size(source)
    patches, stride = _read_tower(source, tile_size)
    threshold = given.get("covering_threshold", 0.9)
    shape = CoveringShape(
        tile_size=tile_size,
        tokens_per_tile=(patches // stride) ** 2,
        patches_per_tile=patches**2,
        max_tiles=_read_most_tiles(source),
        threshold=reading.positive_number("mm_processor_kwargs.covering_threshold", threshold),
    )
    return Covering(settings=source.settings, model_id=name, shape=shape, hidden_stride=stride)


def _read_most_tiles(source: reading.Source) -> int:
    most = reading.first_int(source.model_id, (source.settings.mm_processor_kwargs, "max_partition"), default=9)
    if most > _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"max_partition is {most}, but the engine tries all grids on each image, and above {_MOST_TILES} "
            "tiles that takes long; lower it",
        )
    return most


def _read_tower(source: reading.Source, tile_size: int) -> tuple[int, int]:
    """Return the tower's patches along a tile, and how many of them along a side become one token."""
    name = source.model_id
    image_size, patch_size, stride = (
        reading.first_int(
            name, (source.config, f"visual_tokenizer_config.{path}"), (source.config, f"vision_config.{key}")
        )
        for path, key in (
            ("backbone_config.image_size", "image_size"),
            ("backbone_config.patch_size", "patch_size"),
            ("hidden_stride", "hidden_stride"),
        )
    )
    patches = ceil_div(image_size, patch_size)
    if patches % stride:
        raise reading.Refused(
            "StartupFails",
            f"hidden_stride is {stride}, but {patches} patches along a tile are no multiple of it: the server of "
            f"{name or 'this Ovis'} would not start; correct it",
        )
    if tile_size != image_size:
        raise reading.Refused(
            "SettingMismatch",
            f"image_size is {image_size}, but the processor's tiles are {tile_size} pixels: pixels and token count "
            "would disagree and requests would fail; drop the override",
        )
    return patches, stride


def _read_tile_size(source: reading.Source) -> int:
    processor, name = source.processor, source.model_id
    if reading.find(processor, "size.shortest_edge") is not None:
        return reading.first_int(name, (processor, "size.shortest_edge"))
    width, height = (reading.first_int(name, (processor, f"size.{side}")) for side in ("width", "height"))
    if width != height:
        raise reading.Refused(
            "StartupFails",
            f"the processor's size of {name or 'this Ovis'} is {width}x{height}, but tiles have to be square; correct "
            "it",
        )
    return width


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: CoveringShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    long, short = max(width, height), min(width, height)
    if int(short / long * shape.tile_size) < 1:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height} has an aspect ratio of {long / short:,.0f}, and from "
            f"{shape.tile_size + 1} on its short side vanishes in a tile of {shape.tile_size} pixels; crop the image "
            "or cut it into several",
        )
    return _measure(width, height, shape)


def _measure(width: int, height: int, shape: CoveringShape) -> ImageTokens:
    columns, rows = _choose(width, height, shape)
    tiles = columns * rows
    views = tiles + (tiles > 1)
    tokens = views * shape.tokens_per_tile + _INDICATORS + tiles - 1
    return image_tokens(tokens, tokens, tokens, views * shape.patches_per_tile, tiles=views, grid=(columns, rows))


def _choose(width: int, height: int, shape: CoveringShape) -> tuple[int, int]:
    """Return (columns, rows). No grid covers more than its tiles' area, so most need not be tried."""
    area, tile_area = width * height, shape.tile_size**2
    groups = grids_by_count(shape.max_tiles)
    enough = 1
    while enough <= len(groups) and enough * tile_area / area <= shape.threshold:
        enough += 1
    most, best = 0.0, (1, 1)
    for group in groups[enough - 1 :]:
        cover, grid = _best_cover(width, height, group, shape.tile_size, most)
        if cover > shape.threshold:
            return grid
        if cover > most:
            most, best = cover, grid
    for count in range(enough - 1, 0, -1):
        if count * tile_area / area < most:
            break
        cover, grid = _best_cover(width, height, groups[count - 1], shape.tile_size, most)
        if cover >= most:
            most, best = cover, grid
    return best


def _best_cover(
    width: int, height: int, group: tuple[tuple[int, int], ...], tile_size: int, at_least: float
) -> tuple[float, tuple[int, int]]:
    """Return the best cover and its grid, the first of equals; -1 where each is below ``at_least``.

    In a tile a cell has at most the share of its area that its short side is of its long one.
    """
    area = width * height
    tiles_area = group[0][0] * group[0][1] * tile_size * tile_size
    most, best = -1.0, group[0]
    floor = at_least * area * (1 - 1e-9)
    for columns, rows in group:
        wide, high = width // columns, height // rows
        if floor and wide and high:
            widest, highest = width - (columns - 1) * wide, height - (rows - 1) * high
            if tiles_area * widest < floor * high or tiles_area * highest < floor * wide:
                continue
        covered = _covered(width, height, columns, rows, tile_size)
        if covered > most:
            most, best = covered, (columns, rows)
            floor = max(floor, covered * (1 - 1e-9))
    return most / area, best


@lru_cache(maxsize=128)
def grids_by_count(max_tiles: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return all (columns, rows) of up to ``max_tiles`` tiles, fewest tiles first, then fewest rows first."""
    return tuple(
        tuple((count // rows, rows) for rows in range(1, count + 1) if count % rows == 0)
        for count in range(1, max_tiles + 1)
    )


def _covered(width: int, height: int, columns: int, rows: int, tile_size: int) -> float:
    """Return the image area that the cells have; the last column and row take what does not divide."""
    wide, high = width // columns, height // rows
    last_wide, last_high = width - (columns - 1) * wide, height - (rows - 1) * high
    if last_wide == wide and last_high == high:
        return columns * rows * _inside(wide, high, tile_size)
    cells = [_inside(last_wide, last_high, tile_size)]
    if columns > 1:
        cells += [_inside(wide, last_high, tile_size)] * (columns - 1)
    if rows > 1:
        cells += [_inside(last_wide, high, tile_size)] * (rows - 1)
        if columns > 1:
            cells += [_inside(wide, high, tile_size)] * ((columns - 1) * (rows - 1))
    # The engine's Python (3.12) adds floating-point numbers with compensation: the exact sum, rounded.
    return math.fsum(cells)


def _inside(width: int, height: int, tile_size: int) -> float:
    long, short = (width, height) if width >= height else (height, width)
    if long <= tile_size:
        return float(long * short)
    # The engine's order of operations, in floating point.
    return tile_size * (short / long * tile_size)
