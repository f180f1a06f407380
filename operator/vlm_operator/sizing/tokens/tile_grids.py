"""Which grid of square tiles an image is cut into: the choices that the engine's processors make.

``closest``: the grid whose aspect is nearest to the image's. ``coverage``: the grid that best matches the aspect and
is not too small. ``fit``: the smallest canvas that the image fits into without shrinking, else the one that shrinks it
least. Source: the InternVL and Nemotron processors of the engine, the Cohere2Vision, Llama 4 and Mllama image
processors of ``transformers``.
"""

from array import array
from functools import lru_cache
from typing import Final, Literal

Choice = Literal["single", "closest", "coverage", "fit", "fit_float32", "largest_fit_float32"]
"""``single`` never cuts. Llama 4 compares scales in single precision, which makes more of them equal."""

_ENOUGH_COVER: Final = 0.6
"""A grid of this share of the image's area counts as large enough."""


def choose_grid(
    choice: Choice, width: int, height: int, tile_size: int, min_tiles: int, max_tiles: int
) -> tuple[int, int]:
    """Return (columns, rows) of the tiles of an image of ``width`` x ``height`` pixels."""
    if choice == "single":
        return (1, 1)
    candidates = grids(min_tiles, max_tiles)
    if choice == "closest":
        return closest_grid(width, height, tile_size, candidates)
    if choice == "coverage":
        return _best_covering_grid(width, height, _covers(tile_size, min_tiles, max_tiles))
    canvases = _canvases(tile_size, min_tiles, max_tiles)
    scales = [x if (x := across / width) < (y := down / height) else y for across, down in canvases]
    if choice != "fit":
        # Rounding a double quotient of such small integers to single precision is the single-precision quotient.
        scales = array("f", scales).tolist()
    enlarging = [scale for scale in scales if scale >= 1]
    pick = min if enlarging and choice != "largest_fit_float32" else max
    # The first of equal scales has the fewest tiles, hence the smallest canvas.
    return candidates[scales.index(pick(enlarging or scales))]


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


def closest_grid(width: int, height: int, tile_size: int, candidates: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the grid closest in aspect ratio; ties go to the later grid if the image has half its area."""
    aspect = width / height
    twice_area = 2 * width * height
    best, nearest = (1, 1), float("inf")
    for columns, rows in candidates:
        distance = abs(aspect - columns / rows)
        if distance < nearest:
            best, nearest = (columns, rows), distance
        elif distance == nearest and twice_area > tile_size * tile_size * columns * rows:
            best = (columns, rows)
    return best


@lru_cache(maxsize=256)
def _canvases(tile_size: int, min_tiles: int, max_tiles: int) -> tuple[tuple[int, int], ...]:
    """Return the (width, height) in pixels of each grid."""
    return tuple((columns * tile_size, rows * tile_size) for columns, rows in grids(min_tiles, max_tiles))


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
