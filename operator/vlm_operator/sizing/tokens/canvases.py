"""The canvas, among those that a checkpoint lists, that keeps most pixels of an image: LLaVA-NeXT, DeepSeek-VL2.

An image is scaled to fit into a canvas of whole tiles; it keeps the pixels of the scaled image, at most its own. Of
canvases that keep equally many the smallest wins, and of equally large ones the one that is listed first. Source:
``select_best_resolution`` of ``transformers`` and of the engine's deepseek_vl2 processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

Grid = tuple[int, int]
"""(columns, rows) of tiles."""


@dataclass(frozen=True, slots=True, eq=False)
class Canvases:
    """Canvases and what the choice among them needs; ``list_canvases`` makes one object of each list.

    Attributes:
        grids: The canvases in tiles, smallest first.
        sizes: Each of them with its (width, height) in pixels.
        largest: Sizes of those that no other exceeds on one side without falling short on the other: the largest
            scale of any image is found among them.
    """

    grids: tuple[Grid, ...]
    sizes: tuple[tuple[Grid, int, int], ...]
    largest: tuple[tuple[int, int], ...]

    def choose(self, width: int, height: int) -> Grid:
        """Return the canvas of an image of ``width`` x ``height`` pixels; scales in the engine's floating point."""
        scale = max([x if (x := across / width) < (y := down / height) else y for across, down in self.largest])
        # The larger the scale, the more is kept of both sides, so the smallest canvas that keeps this much wins.
        wide, high = (width, height) if scale >= 1 else (int(width * scale), int(height * scale))
        if most := wide * high:
            for grid, across, down in self.sizes:
                if across >= wide and down >= high:
                    scale = x if (x := across / width) < (y := down / height) else y
                    if scale >= 1 or int(width * scale) * int(height * scale) == most:
                        return grid
        # Nothing is left of a side on any canvas, so that all are equal.
        return self.grids[0]


@lru_cache(maxsize=1024)
def list_canvases(grids: Sequence[Grid], tile_size: int) -> Canvases:
    """Return the canvases of ``grids``, in the checkpoint's order, on tiles of ``tile_size`` pixels."""
    ordered = tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))
    sizes = tuple((grid, grid[0] * tile_size, grid[1] * tile_size) for grid in ordered)
    return Canvases(
        grids=ordered,
        sizes=sizes,
        largest=tuple(
            (across, down)
            for grid, across, down in sizes
            if not any(other != grid and other[0] >= grid[0] and other[1] >= grid[1] for other in ordered)
        ),
    )
