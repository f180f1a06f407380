"""The long side at a fixed length, cut into square tiles, plus an overview: Idefics3 and SmolVLM.

Every image, a small one too, is resized so that its long side has ``longest_edge`` pixels (at most 4,096) and its short
side an even number, and then stretched to whole tiles. Tokens = (tiles + 1) x tokens per tile, those of one tile where
one is enough. Each view has two tags, the image one at its end, and each row of tiles a line break; the break after the
last row and the one before the overview are one token. Source: Idefics3 and SmolVLM processors of ``transformers`` and
the processing information of the engine.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.fixed import Fixed
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tiles_processor import read_flat
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    image_tokens,
)
from vlm_operator.units import ceil_div

_TAGS_PER_VIEW: Final = 2
_LONGEST: Final = 4096
_MOST_TAGGED: Final = 6
"""The tokenizers have a tag for each tile of up to six rows and columns."""


class EdgeTileShape(NamedTuple):
    """What the count depends on; an image that is not cut has one tile."""

    longest_edge: int
    tile_size: int
    tokens_per_tile: int
    patches_per_tile: int
    cuts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTiles(ImageRule):
    """The rule bound to one model and its settings."""

    shape: EdgeTileShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: any square, such as the engine's dummy of one tile."""
        side = self.shape.tile_size
        tiles = pixel_grid(side, side, self.shape.longest_edge, side) if self.shape.cuts else (1, 1)
        square = _measure(tiles, self.shape)
        return MaximumTokens(
            true_tokens=square.embed_tokens,
            true_size=(side, side),
            engine_tokens=square.embed_tokens,
            dummy_size=(side, side),
            dummy_tokens=square.embed_tokens,
            dummy_patches=square.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the overview, their tags and the breaks."""
        views, each = tokens.tiles or 1, self.shape.tokens_per_tile
        return (
            Part("tile", views - 1, each),
            Part("overview", 1, each),
            Part("tags of a view", views, _TAGS_PER_VIEW, embedded=False),
            Part("row breaks", tokens.grid[1] if tokens.grid and views > 1 else 0, 1, embedded=False),
            Part("end", 1, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The length of the long side, in whole tiles: at other lengths the engine miscounts some images."""
        shape = self.shape
        tighter = range(shape.tile_size, shape.longest_edge, shape.tile_size) if shape.cuts else range(0)
        return Cap(name="size.longest_edge", value=shape.longest_edge, tighter=tighter)

    def with_cap(self, value: int) -> "EdgeTiles":
        """Return the rule with ``value`` pixels on the long side."""
        settings = caps.with_kwarg(self.settings, ("size",), {"size": {"longest_edge": value}})
        return replace(self, settings=settings, shape=self.shape._replace(longest_edge=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the image as resized, at most that of the image itself: enlarging adds no detail."""
        if not self.shape.cuts:
            return min(width * height, self.shape.tile_size**2)
        resized_width, resized_height = _resize(width, height, self.shape.longest_edge)
        return min(width * height, resized_width * resized_height)


def build_idefics3(source: reading.Source) -> EdgeTiles:
    """Bind the rule of Idefics3 or SmolVLM; the defaults are those of their processor classes."""
    given = read_flat(source, {"size", "do_image_splitting"}, fixed=("max_image_size",))
    name, files, config = source.model_id, source.processor, source.config
    shipped_size = files.get("size", {"longest_edge": 1456})
    longest = reading.first_int(name, ({"size": given.get("size", shipped_size)}, "size.longest_edge"))
    tile_size = reading.first_int(name, (files, "max_image_size.longest_edge"), default=364)
    cuts = reading.boolean("do_image_splitting", given.get("do_image_splitting", files.get("do_image_splitting", True)))
    if cuts and ceil_div(min(longest, _LONGEST), tile_size) > _MOST_TAGGED:
        raise reading.Refused(
            "InvalidSetting",
            f"size.longest_edge is {longest}, which cuts more than {_MOST_TAGGED} tiles of {tile_size} pixels a side: "
            f"their tags are not in the vocabulary and cannot be counted; set at most {_MOST_TAGGED * tile_size}",
        )
    patch_size = reading.first_int(name, (config, "vision_config.patch_size"))
    patches = reading.divide("vision_config.patch_size", tile_size, patch_size) ** 2
    tokens = reading.first_int(name, (files, "image_seq_len"), default=169)
    features = patches // reading.first_int(name, (config, "scale_factor"), default=2) ** 2
    if features != tokens:
        raise reading.Refused(
            "SettingMismatch",
            f"{name or 'the model'}: the tower makes {features} features of a tile, but image_seq_len takes {tokens} "
            "tokens for it, and requests would fail; take the files from the checkpoint",
        )
    shape = EdgeTileShape(
        longest_edge=longest, tile_size=tile_size, tokens_per_tile=tokens, patches_per_tile=patches, cuts=cuts
    )
    return EdgeTiles(settings=source.settings, model_id=name, shape=shape)


def build_colmodernvbert(source: reading.Source) -> ImageRule:
    """Bind ColModernVBert's rule: Idefics3's processor, never cutting and with no settings, and no tags at all."""
    name, config = source.model_id, source.config
    roots = ("vision_config", "vlm_config.vision_config")
    image_size = reading.first_int(name, *((config, f"{root}.image_size") for root in roots))
    patch_size = reading.first_int(name, *((config, f"{root}.patch_size") for root in roots))
    factor = reading.first_int(name, (config, "pixel_shuffle_factor"), (config, "vlm_config.pixel_shuffle_factor"))
    tile_size = reading.first_int(name, (source.processor, "max_image_size.longest_edge"))
    if tile_size != image_size:
        raise reading.Refused(
            "SettingMismatch",
            f"vision_config.image_size is {image_size}, but the processor resizes to {tile_size}: requests would fail; "
            "take the files from the checkpoint",
        )
    patches = reading.divide("vision_config.patch_size", image_size, patch_size) ** 2
    tokens = reading.positive_int("tokens of an image", patches // factor**2)
    return Fixed(
        settings=source.settings,
        model_id=name,
        dummy_size=(image_size, image_size),
        tokens=ImageTokens(
            embed_tokens=tokens,
            placeholder_length=tokens,
            prompt_tokens=tokens,
            vit_patches=patches,
            resized=(image_size, image_size),
        ),
        ignored_settings=tuple(reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs.")),
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: EdgeTileShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or count_tiles(width, height, shape.longest_edge, shape)


def count_tiles(width: int, height: int, longest_edge: int, shape: EdgeTileShape) -> ImageTokens | TokenRefusal:
    """Count one decodable image with a long side of ``longest_edge`` pixels, whatever that of ``shape``."""
    if not shape.cuts:
        return _measure((1, 1), shape)
    resized = _resize(width, height, longest_edge)
    grid = _tile_grid(*resized, shape.tile_size)
    if grid != _stretched_grid(*resized, shape.tile_size):
        return TokenRefusal(
            reason="SettingMismatch",
            message=f"image size {width}x{height}: at size.longest_edge {longest_edge} the engine counts other "
            f"tiles than it cuts, and the request would fail; set a multiple of {shape.tile_size}",
        )
    return _measure(grid, shape)


def _measure(grid: tuple[int, int], shape: EdgeTileShape) -> ImageTokens:
    columns, rows = grid
    tiles = columns * rows
    views = tiles + 1 if tiles > 1 else 1
    embed = views * shape.tokens_per_tile
    prompt = embed + views * _TAGS_PER_VIEW + (rows if tiles > 1 else 0) + 1
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=prompt,
        prompt_tokens=prompt,
        vit_patches=views * shape.patches_per_tile,
        tiles=views,
        grid=grid,
    )


def pixel_grid(width: int, height: int, longest_edge: int, tile_size: int) -> tuple[int, int]:
    """Return (columns, rows) of tiles as an image with a long side of ``longest_edge`` pixels is cut."""
    return _stretched_grid(*_resize(width, height, longest_edge), tile_size)


def _tile_grid(width: int, height: int, tile_size: int) -> tuple[int, int]:
    """Return (columns, rows) of tiles as the prompt counts them for a resized image."""
    return -(-width // tile_size), -(-height // tile_size)


def _stretched_grid(width: int, height: int, tile_size: int) -> tuple[int, int]:
    """Return (columns, rows) of tiles as a resized image is cut: its short side follows the long one to whole tiles."""
    aspect = width / height
    if width >= height:
        columns = -(-width // tile_size)
        return columns, ceil_div(int(columns * tile_size / aspect), tile_size)
    rows = -(-height // tile_size)
    return ceil_div(int(rows * tile_size * aspect), tile_size), rows


def _resize(width: int, height: int, longest_edge: int) -> tuple[int, int]:
    """Return (width, height) with ``longest_edge`` pixels on the long side, at most 4,096."""
    width, height = _scale(width, height, longest_edge, even=True)
    return _scale(width, height, _LONGEST, even=False) if longest_edge > _LONGEST else (width, height)


def _scale(width: int, height: int, long: int, *, even: bool) -> tuple[int, int]:
    # The processors compute in floating point and cut off; so must this.
    aspect = width / height
    short = math.floor(long / aspect if width >= height else long * aspect)
    short = (short + short % 2 if even else short) or 1
    return (long, short) if width >= height else (short, long)
