"""Square tiles on a grid chosen for the image, plus a view of the whole: InternVL and the families built like it.

A grid of ``min_tiles`` to ``max_tiles`` tiles is chosen (module ``tile_grids``). Tokens = (tiles + thumbnail) x tokens
per tile; an image of one tile has no thumbnail. A start and an end token stand around them and, in some families, one
tag with each view. In a model with cross-attention the tokens stay out of the prompt, where one token marks the image.
Source: the InternVL and Nemotron processors of the engine, the GOT-OCR2, Cohere2Vision, Llama 4 and Mllama processors
of ``transformers``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, Literal, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tile_grids import Choice, choose_grid, grids
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    image_tokens,
)

_TAGS: Final = 2
_MOST_TILES: Final = 1000
"""The engine lists all grids in cubic time, so larger limits are of no use."""

Lever = Literal["hf_overrides", "mm_processor_kwargs"]


class TileShape(NamedTuple):
    """What the count depends on; ``max_tiles`` does not count the thumbnail, ``tags_per_view`` stand in the prompt."""

    tile_size: int
    tokens_per_tile: int
    patches_per_tile: int
    min_tiles: int
    max_tiles: int
    thumbnail: bool
    choice: Choice = "closest"
    tags_per_view: int = 0


def largest_grid(shape: TileShape) -> tuple[int, int]:
    """Return the first grid of most tiles, which is the dummy's where the engine lists the grids as they are."""
    return _first_of_most(shape, shape.max_tiles)


def largest_listed_grid(shape: TileShape) -> tuple[int, int]:
    """Return the dummy's grid where the engine counts the thumbnail as a tile when it lists the grids.

    No longer grid is taken, but the list, and with it the first grid of most tiles, may have another order.
    """
    return _first_of_most(shape, shape.max_tiles + int(shape.thumbnail and shape.max_tiles > 1))


def _first_of_most(shape: TileShape, listed: int) -> tuple[int, int]:
    """Return the first grid of most tiles, of a list with up to ``listed``, that an image of its size is cut into."""
    if shape.choice == "single":
        return 1, 1
    return next(
        grid
        for grid in grids(shape.min_tiles, listed)
        if grid[0] * grid[1] == shape.max_tiles and _choose(*_fill(grid, shape), shape) == grid
    )


def column(shape: TileShape) -> tuple[int, int]:
    """Return the dummy's grid where the engine stacks all tiles."""
    return 1, shape.max_tiles


def first_grid(shape: TileShape) -> tuple[int, int]:
    """Return the dummy's grid where the engine believes that images are not cut: the first of all that it lists."""
    return grids(shape.min_tiles, shape.max_tiles)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(ImageRule):
    """The rule bound to one model and its settings.

    Attributes:
        lever: The flag through which the cap works.
        cap_name: The setting that limits the tiles.
        dummy_grid: The size of the engine's dummy image in tiles.
        dummy_shape: What the engine chooses the dummy image with, where some settings do not reach it.
    """

    shape: TileShape
    lever: Lever = "mm_processor_kwargs"
    cap_name: str = "max_dynamic_patch"
    dummy_grid: Callable[[TileShape], tuple[int, int]] = largest_listed_grid
    dummy_shape: TileShape | None = None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image, one that fills the largest grid, and the engine's dummy."""
        shape = self.shape
        dummy_grid = self.dummy_grid(self.dummy_shape or shape)
        true_size, dummy_size = (_fill(grid, shape) for grid in (largest_grid(shape), dummy_grid))
        dummy = _measure(*dummy_size, shape)
        return MaximumTokens(
            true_tokens=_measure(*true_size, shape).embed_tokens,
            true_size=true_size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the thumbnail and the tags."""
        columns, rows = tokens.grid or (1, 1)
        tiles, each = columns * rows, self.shape.tokens_per_tile
        views = tokens.tiles or tiles
        return (
            Part("tile", tiles, each),
            Part("thumbnail", views - tiles, each),
            Part("tag of a view", views, self.shape.tags_per_view, embedded=False),
            Part("start and end", _TAGS, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The limit on tiles. The grid follows the aspect ratio, so that more tiles need not keep more pixels."""
        most = self.shape.max_tiles
        tighter = range(0) if self.shape.choice == "single" else range(self.shape.min_tiles, most)
        return Cap(name=self.cap_name, value=most, tighter=tighter, monotone=False)

    def with_cap(self, value: int) -> "Tiles":
        """Return the rule with at most ``value`` tiles, the thumbnail not counted."""
        given = {self.cap_name: value}
        if self.lever == "mm_processor_kwargs":
            settings = caps.with_kwarg(self.settings, (self.cap_name,), given)
        else:
            settings = replace(self.settings, hf_overrides=reading.merge(self.settings.hf_overrides, given))
        dummy_shape = None if self.dummy_shape is None else self.dummy_shape._replace(max_tiles=value)
        shape = self.shape._replace(max_tiles=value)
        return replace(self, settings=settings, shape=shape, dummy_shape=dummy_shape)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the tiles, the thumbnail not counted."""
        shape = self.shape
        columns, rows = _choose(width, height, shape)
        return columns * rows * shape.tile_size**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTiles(Tiles):
    """Tiles whose maximum the engine works out by itself, so that a hint does not lower it."""

    hint_lowers_budget: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasTiles(Tiles):
    """Tiles of a canvas that the image is padded to, not stretched."""

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the image on its canvas; enlarging it adds no detail."""
        shape = self.shape
        columns, rows = _choose(width, height, shape)
        most_width, most_height = columns * shape.tile_size, rows * shape.tile_size
        if width <= most_width and height <= most_height:
            return width * height
        if most_width * height <= most_height * width:
            return most_width * max(1, height * most_width // width)
        return most_height * max(1, width * most_height // height)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttentionTiles(CanvasTiles):
    """Tiles that reach the text through cross-attention: in the prompt one token stands for the image."""

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        counted = _count(width, height, self.shape)
        if isinstance(counted, TokenRefusal):
            return counted
        return counted._replace(placeholder_length=1, prompt_tokens=1)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, which are embedded outside the prompt, and the token in the prompt."""
        return (
            Part("tile, outside the prompt", tokens.tiles or 1, self.shape.tokens_per_tile),
            Part("image", 1, 1, embedded=False),
        )


def tile_limits(model_id: str, least: int, most: int, name: str) -> tuple[int, int]:
    """Return the limits on tiles.

    Raises:
        Refused: They leave no grid or too many; ``name`` is the setting of the upper one.
    """
    if not least <= most <= _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"{model_id or 'the model'}: {name} is {most}, but must lie between the lower limit on tiles ({least}) and "
            f"{_MOST_TILES}, above which the engine lists grids for minutes; correct it",
        )
    return least, most


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: TileShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: TileShape) -> ImageTokens:
    columns, rows = _choose(width, height, shape)
    views = columns * rows
    if shape.thumbnail and views > 1:
        views += 1
    embed = views * shape.tokens_per_tile
    prompt = embed + _TAGS + views * shape.tags_per_view
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=prompt,
        prompt_tokens=prompt,
        vit_patches=views * shape.patches_per_tile,
        tiles=views,
        grid=(columns, rows),
    )


def _choose(width: int, height: int, shape: TileShape) -> tuple[int, int]:
    return choose_grid(shape.choice, width, height, shape.tile_size, shape.min_tiles, shape.max_tiles)


def _fill(grid: tuple[int, int], shape: TileShape) -> tuple[int, int]:
    """Return the size of an image as large as ``grid``."""
    return grid[0] * shape.tile_size, grid[1] * shape.tile_size
