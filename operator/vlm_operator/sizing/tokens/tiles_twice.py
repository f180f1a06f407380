"""Tiles of two grids of different scale, plus a thumbnail: H2OVL's multi-scale adaptive cropping.

The image is cut into the grid closest in aspect, of one to ``max_tiles`` tiles, and once more into the closest grid of
at least three tiles whose columns and rows do not divide those of the first. Each cut of more than one tile adds a
thumbnail, and one view of the second cut is left out again. The engine does so for an image that is alone in its
prompt; several images are cut once. Source: the engine's processor and processing information of h2ovl.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.aspects import Aspects, list_aspects
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.tile_grids import grid_aspects, grids
from vlm_operator.sizing.tokens.tiles import Tiles, TileShape
from vlm_operator.sizing.tokens.tiles_internvl import TILE_KEYS, read_limits, read_shape, refuse_kwargs
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens

_TAGS: Final = 2
_LEAST_IN_SECOND: Final = 3
_MOST_TILES: Final = 24
"""Above this the search for the largest image takes seconds; the checkpoints have six."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TilesTwice(Tiles):
    """The rule bound to one model and its settings; ``min_tiles`` of the shape decides the engine's dummy alone."""

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels, alone in its prompt."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image of all and the largest of those that the engine tries."""
        true_size = _largest(self.shape)
        dummy_size = _dummy(self.shape)
        dummy = _measure(*dummy_size, self.shape)
        return MaximumTokens(
            true_tokens=_measure(*true_size, self.shape).embed_tokens,
            true_size=true_size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the views of both cuts and the tags."""
        return (
            Part("tile or thumbnail", tokens.tiles or 1, self.shape.tokens_per_tile),
            Part("start and end", _TAGS, 1, embedded=False),
        )

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the larger of the two cuts."""
        cut = max(columns * rows for columns, rows in _cut_twice(width, height, self.shape))
        return cut * self.shape.tile_size**2


def build_h2ovl(source: reading.Source) -> ImageRule:
    """Bind H2OVL's rule: tiles of one grid, or of two where ``use_msac`` says so."""
    given = source.settings.mm_processor_kwargs
    refuse_kwargs(source, TILE_KEYS | {"use_msac"})
    values = {key: given.get(key, source.config.get(key)) for key in (*TILE_KEYS, "use_msac")}
    tile_size = reading.first_int(source.model_id, (source.config, "vision_config.image_size"))
    thumbnail = reading.boolean("use_thumbnail", values["use_thumbnail"])
    shape = read_shape(source, tile_size, read_limits(source, values), thumbnail=thumbnail)
    if not reading.boolean("use_msac", values["use_msac"]):
        return Tiles(settings=source.settings, model_id=source.model_id, shape=shape)
    if shape.max_tiles > _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"max_dynamic_patch is {shape.max_tiles}, but with use_msac at most {_MOST_TILES} can be counted; lower it",
        )
    return TilesTwice(settings=source.settings, model_id=source.model_id, shape=shape)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: TileShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: TileShape) -> ImageTokens:
    first, second = _cut_twice(width, height, shape)
    views = _views(first) + _views(second) - 1
    embed = views * shape.tokens_per_tile
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=embed + _TAGS,
        prompt_tokens=embed + _TAGS,
        vit_patches=views * shape.patches_per_tile,
        tiles=views,
        grid=first,
    )


def _cut_twice(width: int, height: int, shape: TileShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (columns, rows) of both cuts."""
    first = grid_aspects(shape.tile_size, 1, shape.max_tiles).choose(width, height)
    return first, _second_grids(first, shape.tile_size, shape.max_tiles).choose(width, height)


@lru_cache(maxsize=4096)
def _second_grids(first: tuple[int, int], tile_size: int, max_tiles: int) -> Aspects:
    left = tuple(
        (columns, rows)
        for columns, rows in grids(_LEAST_IN_SECOND, max_tiles)
        if first[0] % columns and first[1] % rows
    )
    return list_aspects(left, tile_size)


def _views(grid: tuple[int, int]) -> int:
    tiles = grid[0] * grid[1]
    return tiles + 1 if tiles > 1 else 1


@lru_cache(maxsize=64)
def _dummy(shape: TileShape) -> tuple[int, int]:
    """Return the size of the first image of most tokens among those that fill a grid, one tile more allowed."""
    most = shape.max_tiles + int(shape.thumbnail and shape.max_tiles > 1)
    sizes = [(columns * shape.tile_size, rows * shape.tile_size) for columns, rows in grids(shape.min_tiles, most)]
    return max(sizes, key=lambda size: _measure(size[0], size[1], shape).embed_tokens)


@lru_cache(maxsize=64)
def _largest(shape: TileShape) -> tuple[int, int]:
    """Return the size of an image of most tokens.

    Which grids are closest changes only where the aspect is the mean of two grids' aspects, and which of several grids
    of one aspect is taken only where the image's area passes half of theirs: one size of each kind is enough.
    """
    aspects = {Fraction(columns, rows) for columns, rows in grids(1, shape.max_tiles)}
    bounds = sorted(aspects | {(one + other) / 2 for one, other in combinations(aspects, 2)})
    between = [(one + other) / 2 for one, other in pairwise(bounds)]
    sizes = (size for aspect in (*bounds, *between) for size in _sizes(aspect, shape))
    return max(sizes, key=lambda size: _measure(size[0], size[1], shape).embed_tokens)


def _sizes(aspect: Fraction, shape: TileShape) -> list[tuple[int, int]]:
    """Return images of ``aspect`` whose area is just above half of each grid that they may be cut into, and a small."""
    columns, rows = grid_aspects(shape.tile_size, 1, shape.max_tiles).choose(aspect.numerator, aspect.denominator)
    same = [x * y for x, y in grids(1, shape.max_tiles) if x * rows == y * columns]
    unit = 2 * aspect.numerator * aspect.denominator
    scales = {1, *(math.isqrt(shape.tile_size**2 * cells // unit) + 1 for cells in (*same, shape.max_tiles))}
    sizes = [(aspect.numerator * scale, aspect.denominator * scale) for scale in scales]
    return [(width, height) for width, height in sizes if width * height <= MAX_DECODED_PIXELS]
