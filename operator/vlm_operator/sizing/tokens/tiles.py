"""Square tiles on the grid closest in aspect, plus a thumbnail: InternVL (remote-code format).

Of all grids with ``min_tiles`` to ``max_tiles`` tiles the one closest to the image's aspect ratio is taken;
of equally close ones a larger grid wins only if the image has more than half its area. Tokens = (tiles +
thumbnail) x (tile size / patch size) squared x downsample ratio squared, with a start and an end token inside
the placeholder. Source: the InternVL processor and processing information of the engine.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import Cap, ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal

_TAGS: Final = 2
_TOKENIZERS_WITH_VIDEO: Final = frozenset({"qwen2", "qwen3", "qwen3_moe", "gpt_oss"})
"""Text models whose tokenizer has the video token: the engine then builds InternVL's video processor too."""
_TILE_KEYS: Final = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail"})
_MOST_TILES: Final = 1000
"""The engine lists all grids in cubic time, so larger limits are of no use."""

Lever = Literal["hf_overrides", "mm_processor_kwargs"]


class TileShape(NamedTuple):
    """What the count depends on; ``max_tiles`` does not count the thumbnail."""

    tile_size: int
    tokens_per_tile: int
    patches_per_tile: int
    min_tiles: int
    max_tiles: int
    thumbnail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(ImageRule):
    """The rule bound to one model and its settings; ``lever`` is the flag through which the cap works."""

    shape: TileShape
    lever: Lever

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
            true_size=size,
            engine_tokens=tiles * self.shape.tokens_per_tile,
            dummy_size=size,
            dummy_tokens=tiles * self.shape.tokens_per_tile,
            dummy_patches=tiles * self.shape.patches_per_tile,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the tiles, the thumbnail and the tags."""
        columns, rows = tokens.grid or (1, 1)
        tiles, each = columns * rows, self.shape.tokens_per_tile
        thumbnail = Part("thumbnail", (tokens.tiles or tiles) - tiles, each)
        return Part("tile", tiles, each), thumbnail, Part("start and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The limit on tiles. The grid follows the aspect ratio, so that fewer tiles may keep more pixels."""
        most = self.shape.max_tiles
        return Cap(name="max_dynamic_patch", value=most, tighter=range(self.shape.min_tiles, most), monotone=False)

    def with_cap(self, value: int) -> "Tiles":
        """Return the rule with at most ``value`` tiles, the thumbnail not counted."""
        given = {"max_dynamic_patch": value}
        if self.lever == "mm_processor_kwargs":
            settings = caps.with_kwarg(self.settings, ("max_dynamic_patch",), given)
        else:
            settings = replace(self.settings, hf_overrides=reading.merge(self.settings.hf_overrides, given))
        return replace(self, settings=settings, shape=self.shape._replace(max_tiles=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the tiles, the thumbnail not counted."""
        shape = self.shape
        columns, rows = closest_grid(width, height, shape.tile_size, grids(shape.min_tiles, shape.max_tiles))
        return columns * rows * shape.tile_size**2


def build_internvl(source: reading.Source) -> ImageRule:
    """Bind InternVL's rule; which flag works depends on the tokenizer of the text model."""
    given = source.settings.mm_processor_kwargs
    kind = reading.find(source.config, "llm_config.model_type") or reading.find(source.config, "text_config.model_type")
    lever: Lever = "hf_overrides" if kind in _TOKENIZERS_WITH_VIDEO else "mm_processor_kwargs"
    _refuse_internvl_kwargs(source, given, _TILE_KEYS if lever == "mm_processor_kwargs" else frozenset())
    values = {key: given.get(key, source.config.get(key)) for key in _TILE_KEYS}
    return Tiles(
        settings=source.settings, model_id=source.model_id, shape=_read_tile_shape(source, values), lever=lever
    )


def _read_tile_shape(source: reading.Source, values: Mapping[str, Any]) -> TileShape:
    config, name = source.config, source.model_id
    dynamic = reading.boolean("dynamic_image_size", values["dynamic_image_size"])
    least = reading.first_int(name, (values, "min_dynamic_patch"))
    most = reading.first_int(name, (values, "max_dynamic_patch"))
    if dynamic and not least <= most <= _MOST_TILES:
        raise reading.Refused(
            "InvalidSetting",
            f"max_dynamic_patch is {most}, but must lie between min_dynamic_patch ({least}) and {_MOST_TILES}, above "
            "which the engine lists grids for minutes; correct it",
        )
    tile_size = reading.first_int(name, (config, "force_image_size"), (config, "vision_config.image_size"))
    side = reading.divide(
        "vision_config.patch_size",
        tile_size,
        reading.first_int(source.model_id, (source.config, "vision_config.patch_size")),
    )
    ratio = reading.positive_number("downsample_ratio", config.get("downsample_ratio"))
    tokens = int(side**2 * ratio**2)
    if tokens < 1:
        raise reading.Refused(
            "InvalidSetting", f"downsample_ratio is {ratio}, which leaves no token of a tile; correct it"
        )
    return TileShape(
        tile_size=tile_size,
        tokens_per_tile=tokens,
        patches_per_tile=side**2,
        min_tiles=least if dynamic else 1,
        max_tiles=most if dynamic else 1,
        thumbnail=reading.boolean("use_thumbnail", values["use_thumbnail"]),
    )


def _refuse_internvl_kwargs(source: reading.Source, given: Mapping[str, Any], known: Collection[str]) -> None:
    for key, value in given.items():
        if key not in known:
            override = {key: value} if key in _TILE_KEYS else {"max_dynamic_patch": 4}
            raise reading.Refused(
                "StartupFails",
                f"mm_processor_kwargs.{key} = {value!r} stops the server of {source.model_id or 'this InternVL'} from "
                f"starting (TypeError); set it with --hf-overrides '{json.dumps(override)}' instead",
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
        grid=(columns, rows),
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
