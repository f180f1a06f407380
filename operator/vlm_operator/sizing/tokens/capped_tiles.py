"""The long side as long as a limit on tiles allows: ColUltraVBert.

The processor is Idefics3's (``edge_tiles``), but each image is resized to the longest of the lengths ``longest_edge``,
one tile less, two tiles less, ... whose grid has at most ``max_image_tiles`` tiles, or to one tile where none has.
Source: the engine's processing information.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.edge_tiles import EdgeTiles, EdgeTileShape, build_idefics3, count_tiles, pixel_grid
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal

_DEFAULTS: Final = {"image_size": 224, "patch_size": 16}
"""Defaults of the tower's configuration class."""
_SHUFFLE: Final = 4
"""Default of the model's configuration class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedTiles(ImageRule):
    """The rule bound to one model; ``tiles`` counts without the limit. No setting is known to cap images.

    The engine takes its maximum from the largest of a few dummy images.
    """

    tiles: EdgeTiles
    max_tiles: int | None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.tiles.shape, self.max_tiles)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is the first such of those with the long side as their width.

        No grid is larger than those of the images that are whole tiles wide and high.
        """
        tile = self.tiles.shape.tile_size
        sides = range(tile, self.tiles.shape.longest_edge + 1, tile)
        dummy_size, dummy = self._largest((sides[-1], high) for high in sides)
        true_size, largest = self._largest((wide, high) for wide in sides for high in sides)
        return MaximumTokens(
            true_tokens=largest.embed_tokens,
            true_size=true_size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def _largest(self, sizes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ImageTokens]:
        """Return the first of ``sizes`` that takes the most tokens, and its count."""
        counts = ((size, self.count_image(*size)) for size in sizes)
        return max(
            ((size, tokens) for size, tokens in counts if isinstance(tokens, ImageTokens)),
            key=lambda counted: counted[1].embed_tokens,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the overview, their tags and the breaks."""
        return self.tiles.parts(tokens)


def build_colultravbert(source: reading.Source) -> ImageRule:
    """Bind ColUltraVBert's rule; what the configuration leaves out is the default of its classes."""
    reading.refuse_unknown(source.settings.mm_processor_kwargs, ())
    name, config = source.model_id, source.config
    image_size, patch_size = (
        reading.first_int(name, (config, f"vision_config.{key}"), default=default) for key, default in _DEFAULTS.items()
    )
    factor = reading.first_int(name, (config, "pixel_shuffle_factor"), default=_SHUFFLE)
    tokens = reading.divide("vision_config.patch_size", image_size, patch_size) ** 2 // factor**2
    tiles = build_idefics3(
        replace(
            source,
            config=reading.merge(config, {"scale_factor": factor, "vision_config": {"patch_size": patch_size}}),
            processor={**source.processor, "image_seq_len": reading.positive_int("tokens of a tile", tokens)},
        )
    )
    _check_tiles(name or "this ColUltraVBert", tiles.shape, image_size)
    most = source.processor.get("max_image_tiles")
    return CappedTiles(
        settings=source.settings,
        model_id=name,
        tiles=tiles,
        max_tiles=reading.positive_int("max_image_tiles", most) if most else None,
    )


def _check_tiles(name: str, shape: EdgeTileShape, image_size: int) -> None:
    if shape.tile_size != image_size:
        raise reading.Refused(
            "SettingMismatch",
            f"{name} cuts tiles of {shape.tile_size} pixels, but its tower is made for {image_size}: requests would "
            "fail; take the files from the checkpoint",
        )
    if shape.longest_edge % shape.tile_size:
        raise reading.Refused(
            "InvalidSetting",
            f"size.longest_edge of {name} is {shape.longest_edge}, and only multiples of its tiles of "
            f"{shape.tile_size} pixels are counted; take preprocessor_config.json from the checkpoint",
        )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: EdgeTileShape, max_tiles: int | None) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    edge = shape.longest_edge if max_tiles is None else _longest_edge(width, height, shape, max_tiles)
    return count_tiles(width, height, edge, shape)


def _longest_edge(width: int, height: int, shape: EdgeTileShape, max_tiles: int) -> int:
    """Return the long side that the engine gives an image of this size."""
    for edge in range(shape.longest_edge, shape.tile_size, -shape.tile_size):
        columns, rows = pixel_grid(width, height, edge, shape.tile_size)
        if columns * rows <= max_tiles:
            return edge
    return shape.tile_size
