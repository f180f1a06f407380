"""Tiles with their padding left out, and an overview: Phi-4-multimodal.

An image is covered with tiles of 448 pixels; if that takes more than ``dynamic_hd``, the grid of that many tiles whose
aspect is closest is filled instead. The image keeps its aspect, so that a grid is padded along one side, and tokens
are left out that stand for padding alone. Two by two patches make a token, each row of tokens ends in one more, and one
parts tiles and overview. Tokens = rows x (columns + 1) + 16 x (16 + 1) + 1, all of them embedded.
Source: the engine's phi4mm model, which states these figures, and the image processor that comes with the checkpoint.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.aspects import Aspects, list_aspects
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

_TOWER: Final = "siglip-so400m-patch14-448"
_TILE: Final = 448
_PATCH: Final = 14
_PATCHES_PER_TOKEN: Final = 2
"""Patches along a side of a token."""
_OVERVIEW_SIDE: Final = _TILE // _PATCH // _PATCHES_PER_TOKEN
_SHORTEST_SIDE: Final = 10
"""The processor refuses an image that is thinner than that on its grid."""
_MOST_TILES: Final = 500
"""The engine tries all grids on each image, so larger limits are of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicHd(ImageRule):
    """The rule bound to one model and its settings; ``max_tiles`` does not count the overview."""

    max_tiles: int

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.max_tiles)

    def maximum(self) -> MaximumTokens:
        """Return the largest image, a column of as many tiles as are allowed: most tiles, and of those most rows.

        It is the engine's dummy as well.
        """
        size = (_TILE, _TILE * self.max_tiles)
        largest = _measure(*size, self.max_tiles)
        return MaximumTokens(
            true_tokens=largest.embed_tokens,
            true_size=size,
            engine_tokens=largest.embed_tokens,
            dummy_size=size,
            dummy_tokens=largest.embed_tokens,
            dummy_patches=largest.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the overview, the separator and the tiles."""
        overview = _OVERVIEW_SIDE * (_OVERVIEW_SIDE + 1)
        return (
            Part("overview, row ends included", 1, overview),
            Part("separator", 1, 1),
            Part("tiles without padding, row ends included", 1, tokens.embed_tokens - overview - 1),
        )

    @property
    def cap(self) -> Cap:
        """The limit on tiles. The grid follows the aspect ratio, so that more tiles need not keep more pixels."""
        return Cap(name="dynamic_hd", value=self.max_tiles, tighter=range(1, self.max_tiles), monotone=False)

    def with_cap(self, value: int) -> "DynamicHd":
        """Return the rule with at most ``value`` tiles, the overview not counted."""
        settings = caps.with_kwarg(self.settings, ("dynamic_hd",), {"dynamic_hd": value})
        return replace(self, settings=settings, max_tiles=value)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the image on its grid; enlarging it adds no detail."""
        fitted = _fit(width, height, self.max_tiles)
        return min(width * height, fitted.width * fitted.height)


def build_phi4mm(source: reading.Source) -> ImageRule:
    """Bind Phi-4-multimodal's rule."""
    given, name = source.settings.mm_processor_kwargs, source.model_id
    reading.refuse_unknown(given, {"dynamic_hd"})
    tower = source.config.get("img_processor")
    if tower not in (None, _TOWER):
        raise reading.Refused(
            "StartupFails",
            f"{name or 'the model'}: img_processor is {tower!r}, but the engine knows {_TOWER} alone and would not "
            "start; take config.json from the checkpoint",
        )
    max_tiles = reading.first_int(name, (given, "dynamic_hd"), (source.processor, "dynamic_hd"))
    if max_tiles > _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"dynamic_hd is {max_tiles}, but the engine tries all grids on each image, and above {_MOST_TILES} tiles "
            "that takes long; lower it",
        )
    return DynamicHd(settings=source.settings, model_id=name, max_tiles=max_tiles)


class _Fitted(NamedTuple):
    """An image on its grid: tiles along each side, and the pixels that the image fills of them."""

    columns: int
    rows: int
    width: int
    height: int


@lru_cache(maxsize=65536)
def _count(width: int, height: int, max_tiles: int) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    fitted = _fit(width, height, max_tiles)
    if min(fitted.width, fitted.height) < _SHORTEST_SIDE:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height} becomes {fitted.width}x{fitted.height} on its tiles, and the "
            f"processor takes no side below {_SHORTEST_SIDE} pixels; crop the image, or allow more tiles than "
            f"dynamic_hd = {max_tiles}",
        )
    return _assemble(fitted)


def _measure(width: int, height: int, max_tiles: int) -> ImageTokens:
    return _assemble(_fit(width, height, max_tiles))


def _assemble(fitted: _Fitted) -> ImageTokens:
    across = _to_tokens(fitted.columns * _TILE, fitted.width)
    down = _to_tokens(fitted.rows * _TILE, fitted.height)
    tokens = down * (across + 1) + _OVERVIEW_SIDE * (_OVERVIEW_SIDE + 1) + 1
    views = fitted.columns * fitted.rows + 1
    return image_tokens(
        tokens, tokens, tokens, views * (_TILE // _PATCH) ** 2, tiles=views, grid=(fitted.columns, fitted.rows)
    )


def _to_tokens(side: int, filled: int) -> int:
    """Return the tokens along a side of ``side`` pixels, whole patches of padding left out."""
    return ceil_div(side // _PATCH - (side - filled) // _PATCH, _PATCHES_PER_TOKEN)


def _fit(width: int, height: int, max_tiles: int) -> _Fitted:
    columns, rows = ceil_div(width, _TILE), ceil_div(height, _TILE)
    if columns * rows > max_tiles:
        columns, rows = _grids(max_tiles).choose(width, height)
    across, down = columns * _TILE, rows * _TILE
    if across / width < down / height:
        return _Fitted(columns, rows, across, int(height * (across / width)))
    return _Fitted(columns, rows, int(width * (down / height)), down)


@lru_cache(maxsize=512)
def _grids(max_tiles: int) -> Aspects:
    """Return all (columns, rows) of up to ``max_tiles`` tiles, fewest tiles first.

    The engine sorts a set, so that grids of equally many tiles come in the order in which a set iterates that was
    filled in this order; between two grids equally far from an image's aspect it decides.
    """
    found = {(columns, rows) for columns in range(1, max_tiles + 1) for rows in range(1, max_tiles // columns + 1)}
    return list_aspects(tuple(sorted(found, key=lambda grid: grid[0] * grid[1])), _TILE)
