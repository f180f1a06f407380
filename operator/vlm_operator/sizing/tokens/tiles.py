"""Square tiles on the grid closest in aspect, plus a thumbnail: InternVL (remote-code format).

Of all grids with ``min_tiles`` to ``max_tiles`` tiles the one closest to the image's aspect ratio is taken;
of equally close ones a larger grid wins only if the image has more than half its area. Tokens = (tiles +
thumbnail) x (tile size / patch size) squared x downsample ratio squared, with a start and an end token inside
the placeholder. Source: the InternVL processor and processing information of the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.reading import merge
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal

_TAGS: Final = 2

Lever = Literal["hf_overrides", "mm_processor_kwargs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """What the count depends on; ``max_tiles`` does not count the thumbnail."""

    tile_size: int
    tokens_per_tile: int
    patches_per_tile: int
    min_tiles: int
    max_tiles: int
    thumbnail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The rule bound to one model and its settings; ``lever`` is the flag through which the cap works."""

    settings: ServerSettings
    model_id: str
    shape: TileShape
    lever: Lever
    ignored_settings: tuple[str, ...] = ()

    @property
    def hint_lowers_budget(self) -> bool:
        """Yes: the engine's maximum is a processed dummy image."""
        return True

    @property
    def cap_name(self) -> str:
        """The limit on tiles."""
        return "max_dynamic_patch"

    @property
    def cap_value(self) -> int:
        """The limit on tiles, the thumbnail not counted."""
        return self.shape.max_tiles

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the first grid of most tiles, in the engine's order."""
        columns, rows = max(grids(self.shape.min_tiles, self.shape.max_tiles), key=lambda grid: grid[0] * grid[1])
        size = (columns * self.shape.tile_size, rows * self.shape.tile_size)
        tiles = columns * rows + int(self.shape.thumbnail and columns * rows > 1)
        return MaximumTokens(
            true_tokens=tiles * self.shape.tokens_per_tile,
            engine_tokens=tiles * self.shape.tokens_per_tile,
            dummy_size=size,
            dummy_tokens=tiles * self.shape.tokens_per_tile,
            dummy_patches=tiles * self.shape.patches_per_tile,
        )

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return the fewest tiles that leave each image ``min_pixels``; the thumbnail counts for nothing.

        Fewer tiles do not always mean fewer pixels (the grid follows the aspect ratio), so every limit is
        tried.
        """
        area = self.shape.tile_size**2
        needs = [
            (size, kept if min_pixels is None else min(kept, min_pixels))
            for size in caps.countable(self.count_image, sizes)
            for kept in [self._tiles(size, self.shape.max_tiles) * area]
        ]
        for limit in range(self.shape.min_tiles, self.shape.max_tiles) if needs else ():
            if all(self._tiles(size, limit) * area >= need for size, need in needs):
                return self._with_limit(limit)
        return self.settings

    def _tiles(self, size: tuple[int, int], limit: int) -> int:
        columns, rows = closest_grid(*size, self.shape.tile_size, grids(self.shape.min_tiles, limit))
        return columns * rows

    def _with_limit(self, limit: int) -> ServerSettings:
        given = {"max_dynamic_patch": limit}
        if self.lever == "mm_processor_kwargs":
            return caps.with_kwarg(self.settings, ("max_dynamic_patch",), given)
        return ServerSettings(
            mm_processor_kwargs=self.settings.mm_processor_kwargs,
            hf_overrides=merge(self.settings.hf_overrides, given),
            config_format=self.settings.config_format,
        )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: TileShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    columns, rows = closest_grid(width, height, shape.tile_size, grids(shape.min_tiles, shape.max_tiles))
    tiles = columns * rows
    if shape.thumbnail and tiles > 1:
        tiles += 1
    tokens = tiles * shape.tokens_per_tile
    return ImageTokens(
        embed_tokens=tokens,
        placeholder_length=tokens + _TAGS,
        prompt_tokens=tokens + _TAGS,
        vit_patches=tiles * shape.patches_per_tile,
        tiles=tiles,
    )


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
