"""Which grid of square tiles an image is cut into: the choices that the engine's processors make.

``closest``: the grid whose aspect is nearest to the image's (module ``aspects``). ``coverage``: the grid that best
matches the aspect and is not too small. ``fit``: the smallest canvas that the image fits into without shrinking, else
the one that shrinks it least. Source: the InternVL and Nemotron processors of the engine, the Cohere2Vision, Llama 4
and Mllama image processors of ``transformers``.
"""

from array import array
from functools import lru_cache
from typing import Final, Literal

from vlm_operator.sizing.tokens.aspects import Aspects, list_aspects

Choice = Literal["single", "closest", "coverage", "fit", "fit_float32", "largest_fit_float32"]
"""``single`` never cuts. Llama 4 compares scales in single precision, which makes more of them equal."""

_ENOUGH_COVER: Final = 0.6
"""A grid of this share of the image's area counts as large enough."""


def choose_grid(
    choice: Choice, width: int, height: int, tile_size: int, min_tiles: int, max_tiles: int
) -> tuple[int, int]:
    """Return (columns, rows) of the tiles of an image of ``width`` x ``height`` pixels; ``fit`` is from one tile on."""
    if choice == "closest":
        return grid_aspects(tile_size, min_tiles, max_tiles).choose(width, height)
    if choice == "single":
        return (1, 1)
    if choice == "coverage":
        return _best_covering_grid(width, height, _covers(tile_size, min_tiles, max_tiles))
    single = choice != "fit"
    return tightest_grid(width, height, tile_size, max_tiles, single=single, largest=choice == "largest_fit_float32")


def tightest_grid(
    width: float, height: float, tile_size: int, max_tiles: int, *, single: bool, largest: bool = False
) -> tuple[int, int]:
    """Return (columns, rows) of up to ``max_tiles`` tiles that shrink the image least, of those the fewest tiles.

    Args:
        width: Pixels.
        height: Pixels.
        tile_size: Pixels along a side of a tile.
        max_tiles: The most tiles.
        single: Whether scales are compared in single precision, where some tie that differ in double.
        largest: Whether the image is enlarged as far as it goes; else grids that do not shrink it are equal.
    """
    scales = [
        x if (x := columns * tile_size / width) < (y := rows * tile_size / height) else y
        for columns, rows in _fullest(max_tiles)
    ]
    if single:
        # Rounding a double quotient of such small integers to single precision is the single-precision quotient.
        scales = array("f", scales).tolist()
    scale = max(scales)
    if scale > 1 and not largest:
        scale = 1.0
    return _fewest(width, tile_size, scale, single=single), _fewest(height, tile_size, scale, single=single)


@lru_cache(maxsize=256)
def _fullest(max_tiles: int) -> tuple[tuple[int, int], ...]:
    """Return the grids to which neither a row nor a column can be added; one of them has the largest scale."""
    found = ((columns, max_tiles // columns) for columns in range(1, max_tiles + 1))
    return tuple((columns, rows) for columns, rows in found if max_tiles // rows == columns)


def _fewest(side: float, tile_size: int, scale: float, *, single: bool) -> int:
    """Return the fewest tiles along ``side`` that keep ``scale``."""
    tiles = int(scale * side / tile_size)
    kept = tiles * tile_size / side
    if single:
        (kept,) = array("f", [kept])
    return tiles if kept >= scale else tiles + 1


@lru_cache(maxsize=256)
def grids(min_tiles: int, max_tiles: int) -> tuple[tuple[int, int], ...]:
    """Return all (columns, rows) with ``min_tiles`` to ``max_tiles`` tiles, fewest tiles first.

    The engine sorts a set, so grids of equally many tiles come in the order in which a set of small integer
    pairs iterates, and that order decides the dummy image: collect them in a set that grows the same way.
    """
    found: set[tuple[int, int]] = set()
    for side in range(min_tiles, max_tiles + 1):
        for columns in range(1, side + 1):
            # Grids that fit a shorter side are already in the set, but for the first side.
            lowest = 1 if side in (columns, min_tiles) else side
            for rows in range(lowest, min(side, max_tiles // columns) + 1):
                if columns * rows >= min_tiles:
                    found.add((columns, rows))
    return tuple(sorted(found, key=lambda grid: grid[0] * grid[1]))


@lru_cache(maxsize=256)
def grid_aspects(tile_size: int, min_tiles: int, max_tiles: int) -> Aspects:
    """Return ``grids`` with what the choice of the closest needs."""
    return list_aspects(grids(min_tiles, max_tiles), tile_size)


@lru_cache(maxsize=256)
def _covers(tile_size: int, min_tiles: int, max_tiles: int) -> tuple[tuple[tuple[int, int], float, int], ...]:
    """Return each grid with its aspect and its area in pixels."""
    return tuple(
        ((columns, rows), columns / rows, columns * rows * tile_size * tile_size)
        for columns, rows in grids(min_tiles, max_tiles)
    )


def _best_covering_grid(
    width: int, height: int, covers: tuple[tuple[tuple[int, int], float, int], ...]
) -> tuple[int, int]:
    """Return the grid with the largest product of aspect match and covered area, the first of equals."""
    aspect, area = width / height, width * height
    best, highest = (1, 1), 0.0
    for grid, ratio, pixels in covers:
        cover = x if (x := pixels / area) < _ENOUGH_COVER else _ENOUGH_COVER
        score = cover * (x if (x := ratio / aspect) < (y := aspect / ratio) else y)
        if score > highest:
            best, highest = grid, score
    return best
