"""Tiles along the longer side, as many as fit, and an overview: Phi-3-vision and Phi-3.5-vision.

The longer side is scaled, up or down, to the most tiles of 336 pixels for which the whole image takes at most
``num_crops``; the shorter side keeps the aspect and is padded to whole tiles, and padding counts. Tokens = 144 per tile
and for the overview, one at the end of each of their 12 rows of tokens, across all columns, and one that parts them:
(columns x rows + 1) x 144 + (rows + 1) x 12 + 1, all of them embedded. The tower always runs on ``num_crops`` tiles and
the overview: missing tiles are blank. Source: the processor that comes with the checkpoints, of which the engine asks
the count, and the engine's phi3v model.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
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

_TILE: Final = 336
_TILE_ROWS: Final = 12
"""Rows of tokens in a tile, and tokens in such a row."""
_TILE_TOKENS: Final = _TILE_ROWS**2
_TILE_PATCHES: Final = 576
_DUMMY: Final = (50, 8000)
_MOST_TILES: Final = 1000
"""The processor tries the tiles one by one on each image, so larger limits are of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdTransform(ImageRule):
    """The rule bound to one model and its settings; ``max_tiles`` does not count the overview."""

    max_tiles: int

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.max_tiles)

    def maximum(self) -> MaximumTokens:
        """Return the largest image, a column of as many tiles as are allowed: most tiles, and of those most rows.

        The engine's dummy is narrow enough to be one unless hundreds of tiles are allowed.
        """
        size = (_TILE, _TILE * self.max_tiles)
        dummy = _measure(*_DUMMY, self.max_tiles)
        return MaximumTokens(
            true_tokens=_measure(*size, self.max_tiles).embed_tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=_DUMMY,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the overview, the ends of their rows and the separator."""
        columns, rows = tokens.grid or (1, 1)
        return (
            Part("tile", columns * rows, _TILE_TOKENS),
            Part("overview", 1, _TILE_TOKENS),
            Part("row end", (rows + 1) * _TILE_ROWS, 1),
            Part("separator", 1, 1),
        )

    @property
    def cap(self) -> Cap:
        """The limit on tiles."""
        return Cap(name="num_crops", value=self.max_tiles, tighter=range(1, self.max_tiles))

    def with_cap(self, value: int) -> "HdTransform":
        """Return the rule with at most ``value`` tiles, the overview not counted."""
        settings = caps.with_kwarg(self.settings, ("num_crops",), {"num_crops": value})
        return replace(self, settings=settings, max_tiles=value)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the scaled image; enlarging it adds no detail."""
        scaled = _scale(width, height, self.max_tiles)
        return min(width * height, scaled.long * scaled.short)


def build_phi3v(source: reading.Source) -> ImageRule:
    """Bind the rule of Phi-3-vision and Phi-3.5-vision."""
    given, name = source.settings.mm_processor_kwargs, source.model_id
    reading.refuse_unknown(given, {"num_crops"})
    order = reading.find(source.config, "embd_layer.hd_transform_order")
    if order not in (None, "sub_glb"):
        raise reading.Refused(
            "StartupFails",
            f"{name or 'the model'}: embd_layer.hd_transform_order is {order!r}, but the engine implements sub_glb "
            "alone and would not start; take config.json from the checkpoint",
        )
    max_tiles = reading.first_int(name, (given, "num_crops"), (source.processor, "num_crops"))
    if max_tiles > _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"num_crops is {max_tiles}, but the tower runs on that many tiles for each image, and above {_MOST_TILES} "
            "that takes long; lower it",
        )
    return HdTransform(settings=source.settings, model_id=name, max_tiles=max_tiles)


class _Scaled(NamedTuple):
    """The scaled image: tiles along its longer side and the pixels of both sides."""

    tiles: int
    long: int
    short: int


@lru_cache(maxsize=65536)
def _count(width: int, height: int, max_tiles: int) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    scaled = _scale(width, height, max_tiles)
    if scaled.short < 1:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: scaled to {scaled.long} pixels along its longer side, nothing is "
            "left of the shorter one, and the processor fails; cut the image",
        )
    return _assemble(scaled, max_tiles, upright=width < height)


def _measure(width: int, height: int, max_tiles: int) -> ImageTokens:
    return _assemble(_scale(width, height, max_tiles), max_tiles, upright=width < height)


def _assemble(scaled: _Scaled, max_tiles: int, *, upright: bool) -> ImageTokens:
    along, across = scaled.tiles, ceil_div(scaled.short, _TILE)
    columns, rows = (across, along) if upright else (along, across)
    tokens = (columns * rows + 1) * _TILE_TOKENS + (rows + 1) * _TILE_ROWS + 1
    return image_tokens(
        tokens, tokens, tokens, (max_tiles + 1) * _TILE_PATCHES, tiles=columns * rows + 1, grid=(columns, rows)
    )


def _scale(width: int, height: int, max_tiles: int) -> _Scaled:
    aspect = max(width, height) / min(width, height)
    tiles = next(n - 1 for n in range(2, max_tiles + 2) if n * math.ceil(n / aspect) > max_tiles)
    return _Scaled(tiles, tiles * _TILE, int(tiles * _TILE / aspect))
