"""The tile formula of planning sheets, to be shown beside an exact count; nothing is planned with it.

The sheets cut every image, at its own size, into square tiles and every tile into patches, each a token. No family
counts so: each resizes first, merges patches or limits tiles.
"""

from typing import Final, NamedTuple

from vlm_operator.units import ceil_div

TILE_SIZE: Final = 384
"""Pixels along a side of a tile."""
PATCH_SIZE: Final = 14
"""Pixels along a side of a patch."""


class TileEstimate(NamedTuple):
    """What the formula says of one image."""

    tiles: int
    tokens: int


def estimate_tiles(width: int, height: int) -> TileEstimate:
    """Return the estimate for an image of ``width`` x ``height`` pixels: tiles x whole patches' area of a tile."""
    tiles = ceil_div(width, TILE_SIZE) * ceil_div(height, TILE_SIZE)
    return TileEstimate(tiles, tiles * (TILE_SIZE**2 // PATCH_SIZE**2))
