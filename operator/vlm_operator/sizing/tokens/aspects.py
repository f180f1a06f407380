"""The grid of tiles whose aspect is closest to the image's: InternVL's choice, which many families took over.

Of grids of one aspect, and of two aspects equally far from the image's, the engine takes the later one if the image has
at least half of its area. Source: ``find_closest_aspect_ratio`` in the InternVL processor of the engine.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

Grid = tuple[int, int]
"""(columns, rows) of tiles."""


@dataclass(frozen=True, slots=True, eq=False)
class Aspects:
    """Grids and what the choice among them needs; ``list_aspects`` makes one object of each list.

    Attributes:
        grids: The grids in the order in which the engine tries them.
        tile_area: Pixels of a tile.
        ratios: Their aspects, each once, ascending.
        around: For each gap between ratios, the grids of the two next to it with their aspect: no other grid is as
            close to an image in the gap.
    """

    grids: tuple[Grid, ...]
    tile_area: int
    ratios: tuple[float, ...]
    around: tuple[tuple[tuple[Grid, float], ...], ...]

    def choose(self, width: int, height: int) -> Grid:
        """Return the grid for an image of ``width`` x ``height`` pixels; aspects in the engine's floating point."""
        aspect = width / height
        best, nearest = (1, 1), float("inf")
        for grid, ratio in self.around[bisect_left(self.ratios, aspect)]:
            distance = aspect - ratio if aspect > ratio else ratio - aspect
            if distance < nearest:
                best, nearest = grid, distance
            elif distance == nearest and 2 * width * height > self.tile_area * grid[0] * grid[1]:
                best = grid
        return best


@lru_cache(maxsize=4096)
def list_aspects(grids: Sequence[Grid], tile_size: int) -> Aspects:
    """Return the aspects of ``grids``, which are in the engine's order, on tiles of ``tile_size`` pixels."""
    of_ratio: dict[float, list[int]] = {}
    for at, (columns, rows) in enumerate(grids):
        of_ratio.setdefault(columns / rows, []).append(at)
    ratios = sorted(of_ratio)
    gaps = [ratios[:1], *map(list, pairwise(ratios)), ratios[-1:]]
    return Aspects(
        grids=tuple(grids),
        tile_area=tile_size**2,
        ratios=tuple(ratios),
        around=tuple(
            tuple((grids[at], ratio) for at, ratio in sorted((at, ratio) for ratio in gap for at in of_ratio[ratio]))
            for gap in gaps
        ),
    )
