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

from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal
from vlm_operator.units import ceil_div

_SCALES_ABOVE: Final = 1.1
"""What is left is scaled down if its sides are on average this many times those of the tiles allowed."""

Grid = tuple[int, int]
"""(columns, rows), of tiles or of tokens."""


class AnyresShape(NamedTuple):
    """What the count depends on.

    Attributes:
        tile_size: Side of a tile in pixels.
        tile_tokens: Tokens along a side of a tile.
        overview_tokens: Tokens of the overview.
        view_patches: Patches of a tile, and of the overview, through the tower.
        canvases: Tiles of each canvas, smallest canvas first.
        counted_tiles: Tiles that the engine's count scales down to; None: it does not scale.
        model_tiles: Tiles that the model scales down to; None: it does not scale.
    """

    tile_size: int
    tile_tokens: int
    overview_tokens: int
    view_patches: int
    canvases: tuple[Grid, ...]
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
    grid = _choose(width, height, shape)
    columns, rows = _scale_down(_cut_padding(width, height, grid, shape.tile_tokens), shape, shape.counted_tiles)
    tokens = shape.overview_tokens + rows * (columns + 1)
    views = grid[0] * grid[1] + 1
    return ImageTokens(tokens, tokens, tokens, views * shape.view_patches, tiles=views, grid=grid)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: AnyresShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _refuse_mismatch(width, height, shape) or measure(width, height, shape)


def _refuse_mismatch(width: int, height: int, shape: AnyresShape) -> TokenRefusal | None:
    """Return why the request would fail: the engine's count and the model scale down to different sizes."""
    if shape.counted_tiles == shape.model_tiles:
        return None
    left = _cut_padding(width, height, _choose(width, height, shape), shape.tile_tokens)
    counted, made = (_scale_down(left, shape, tiles) for tiles in (shape.counted_tiles, shape.model_tiles))
    if counted == made:
        return None
    return TokenRefusal(
        reason="PlaceholderMismatch",
        message=f"image size {width}x{height}: the engine counts {counted[0]}x{counted[1]} patches for its tiles, but "
        f"the model scales images of more than about {shape.model_tiles} tiles down, here to {made[0]}x{made[1]}, and "
        "the request would fail; scale the image down before it is sent",
    )


def _choose(width: int, height: int, shape: AnyresShape) -> Grid:
    """Return the tiles of the canvas that keeps most pixels of the image.

    Of equals the smallest canvas wins, and of equally large ones the one that the checkpoint lists first. The larger
    the scale, the more pixels are kept, so those that keep as many as the largest scale are all equals.
    """
    scales = [
        x if (x := across / width) < (y := down / height) else y
        for across, down in _to_pixels(shape.canvases, shape.tile_size)
    ]
    largest = max(scales)
    if largest >= 1:
        return next(grid for grid, scale in zip(shape.canvases, scales, strict=True) if scale >= 1)
    most = int(width * largest) * int(height * largest)
    return next(
        grid
        for grid, scale in zip(shape.canvases, scales, strict=True)
        if int(width * scale) * int(height * scale) == most
    )


@lru_cache(maxsize=256)
def _to_pixels(canvases: tuple[Grid, ...], tile_size: int) -> tuple[tuple[int, int], ...]:
    """Return the (width, height) in pixels of each canvas."""
    return tuple((columns * tile_size, rows * tile_size) for columns, rows in canvases)


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
    for columns, rows in shape.canvases:
        across, down = columns * tile, rows * tile
        yield across, down
        for patches in range(columns * tokens):
            yield max(1, ceil_div((patches + 1) * tile, tokens) - 1), down
        for patches in range(rows * tokens):
            yield across, max(1, ceil_div((patches + 1) * tile, tokens) - 1)
