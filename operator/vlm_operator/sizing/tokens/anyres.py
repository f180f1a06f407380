"""Tiles on the canvas that wastes least, and an overview: LLaVA-NeXT and the families built like it.

An image is fitted into one of the checkpoint's canvases (``image_grid_pinpoints``), each some tiles wide and high; what
is padding there is cut off again after the tower, to a patch, and each row of patches left ends in one more token. Some
families scale down what is left if it is larger than so many tiles. Tokens = overview + rows x (columns + 1), all of
them embedded. Source: the engine's llava_next, llava_onevision, bee, rvl and granite4_vision models and
``select_best_resolution`` of ``transformers``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens.canvases import Canvases, Grid
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens
from vlm_operator.units import ceil_div

_SCALES_ABOVE: Final = 1.1
"""What is left is scaled down if its sides are on average this many times those of the tiles allowed."""


class AnyresShape(NamedTuple):
    """What the count depends on.

    Attributes:
        tile_size: Side of a tile in pixels.
        tile_tokens: Tokens along a side of a tile.
        overview_tokens: Tokens of the overview.
        view_patches: Patches of a tile, and of the overview, through the tower.
        canvases: The canvases in tiles.
        counted_tiles: Tiles that the engine's count scales down to; None: it does not scale.
        model_tiles: Tiles that the model scales down to; None: it does not scale.
    """

    tile_size: int
    tile_tokens: int
    overview_tokens: int
    view_patches: int
    canvases: Canvases
    counted_tiles: int | None = None
    model_tiles: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anyres(ImageRule):
    """The rule bound to one model. It has no cap: no setting changes the canvases of both pixels and count.

    Attributes:
        dummy_size: (width, height) of the image that the engine profiles with.
    """

    shape: AnyresShape
    dummy_size: tuple[int, int]

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image of all canvases, and the engine's dummy, which it counts and does not encode."""
        size, tokens = _largest(self.shape)
        dummy = measure(*self.dummy_size, self.shape)
        return MaximumTokens(
            true_tokens=tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=self.dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the overview and the tiles."""
        overview = self.shape.overview_tokens
        return (
            Part("overview", 1, overview),
            Part("tiles without padding, row ends included", 1, tokens.embed_tokens - overview),
        )


def measure(width: int, height: int, shape: AnyresShape) -> ImageTokens:
    """Return what the engine counts for an image of ``width`` x ``height`` pixels."""
    grid = shape.canvases.choose(width, height)
    left = _cut_padding(width, height, grid, shape.tile_tokens)
    return _assemble(grid, _scale_down(left, shape, shape.counted_tiles), shape)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: AnyresShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    grid = shape.canvases.choose(width, height)
    left = _cut_padding(width, height, grid, shape.tile_tokens)
    counted = _scale_down(left, shape, shape.counted_tiles)
    if shape.counted_tiles != shape.model_tiles:
        made = _scale_down(left, shape, shape.model_tiles)
        if counted != made:
            return _refuse_mismatch((width, height), counted, made, shape)
    return _assemble(grid, counted, shape)


def _assemble(grid: Grid, left: Grid, shape: AnyresShape) -> ImageTokens:
    """Return the count for tiles on ``grid`` of which ``left`` (columns, rows) of tokens are left."""
    columns, rows = left
    tokens = shape.overview_tokens + rows * (columns + 1)
    views = grid[0] * grid[1] + 1
    return image_tokens(tokens, tokens, tokens, views * shape.view_patches, tiles=views, grid=grid)


def _refuse_mismatch(size: tuple[int, int], counted: Grid, made: Grid, shape: AnyresShape) -> TokenRefusal:
    """Return why the request would fail: the engine's count and the model scale down to different sizes."""
    return TokenRefusal(
        reason="PlaceholderMismatch",
        message=f"image size {size[0]}x{size[1]}: the engine counts {counted[0]}x{counted[1]} patches for its tiles, "
        f"but the model scales images of more than about {shape.model_tiles} tiles down, here to {made[0]}x{made[1]}, "
        "and the request would fail; scale the image down before it is sent",
    )


def _cut_padding(width: int, height: int, grid: Grid, tile_tokens: int) -> Grid:
    """Return the patches of a canvas less the whole patches of padding on either side."""
    columns, rows = grid[0] * tile_tokens, grid[1] * tile_tokens
    if width / height > columns / rows:
        filled = int(round(height * (columns / width), 7))
        return columns, rows - (rows - filled) // 2 * 2
    filled = int(round(width * (rows / height), 7))
    return columns - (columns - filled) // 2 * 2, rows


def _scale_down(left: Grid, shape: AnyresShape, tiles: int | None) -> Grid:
    """Return the patches ``left`` after cutting, scaled down to ``tiles`` tiles if there are many more."""
    if tiles is None:
        return left
    ratio = math.sqrt(left[0] * left[1] / (tiles * shape.tile_tokens**2))
    return (int(left[0] // ratio), int(left[1] // ratio)) if ratio > _SCALES_ABOVE else left


@lru_cache(maxsize=256)
def _largest(shape: AnyresShape) -> tuple[tuple[int, int], int]:
    """Return the size of an accepted image that takes the most tokens, and those tokens.

    Only images that fill a side of a canvas are tried: enlarging an image until it fills its canvas changes neither
    the canvas nor the patches cut off. Along the other side, images that leave equally many patches count alike.
    """
    counts = {size: _count(*size, shape) for size in _filling_sizes(shape)}
    taken = {size: count.embed_tokens for size, count in counts.items() if isinstance(count, ImageTokens)}
    size = max(taken, key=lambda size: taken[size])
    return size, taken[size]


def _filling_sizes(shape: AnyresShape) -> Iterator[tuple[int, int]]:
    """Yield the longest images that fill one side of a canvas and leave 0, 1, 2, ... patches along the other."""
    tile, tokens = shape.tile_size, shape.tile_tokens
    for columns, rows in shape.canvases.grids:
        across, down = columns * tile, rows * tile
        yield across, down
        for patches in range(columns * tokens):
            yield max(1, ceil_div((patches + 1) * tile, tokens) - 1), down
        for patches in range(rows * tokens):
            yield across, max(1, ceil_div((patches + 1) * tile, tokens) - 1)
