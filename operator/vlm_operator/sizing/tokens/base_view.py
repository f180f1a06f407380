"""A padded base view and a grid of tiles, their token rows ended by a token: DeepSeek-VL2, DeepSeek-OCR, Unlimited-OCR.

DeepSeek-VL2 takes the candidate resolution that keeps most of the image's pixels, the one that wastes least among
equals, and always has tiles. The OCR models tile only an image with a side above the tile size, on the grid
closest in aspect. Tokens = base view + tiles as one picture + one separator; the second OCR model has no row ends.
All tokens are embedding slots. Counts are those of a request with one image: with more the engine cuts less.
Source: the engine's own processors ``deepseek_vl2``, ``deepseek_ocr`` and ``unlimited_ocr``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.aspects import Aspects
from vlm_operator.sizing.tokens.canvases import Canvases, list_canvases
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.tile_grids import grid_aspects
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    image_tokens,
)

_SEPARATOR: Final = 1
_OCR_BASE: Final = 1024
_OCR_PATCH: Final = 16
_OCR_DOWNSAMPLE: Final = 4
"""Fixed in the engine: neither the checkpoint's files nor a setting changes the OCR models' views."""
_OCR_LEAST_TILES: Final = 2
_OCR_IGNORED: Final = frozenset({"base_size", "image_size", "strategy", "patch_size", "downsample_ratio"})


class BaseViewShape(NamedTuple):
    """What the count depends on.

    ``grids`` chooses the tiles, None where images are not cut. ``always_cut`` tells whether small images have tiles
    too, which the base view is then one of.
    """

    base_size: int
    tile_size: int
    base_side: int
    tile_side: int
    row_end: int
    base_patches: int
    tile_patches: int
    grids: Canvases | Aspects | None
    always_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseView(ImageRule):
    """The rule bound to one model and its settings."""

    shape: BaseViewShape
    dummy_size: tuple[int, int]

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's dummy of the OCR models has fewer tokens than a long image."""
        shape = self.shape
        columns, rows = max(shape.grids.grids if shape.grids else ((1, 1),), key=lambda grid: _tile_tokens(grid, shape))
        size = (columns * shape.tile_size, rows * shape.tile_size)
        dummy = _measure(*self.dummy_size, shape)
        return MaximumTokens(
            true_tokens=_measure(*size, shape).embed_tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=self.dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the base view, the tiles, the ends of their rows and the separator."""
        shape = self.shape
        columns, rows = tokens.grid or (0, 0)
        cut = tokens.embed_tokens > _base_tokens(shape)
        tiles, token_rows = (columns * rows, rows * shape.tile_side) if cut else (0, 0)
        return (
            Part("base view", 1, shape.base_side**2),
            Part("tile", tiles, shape.tile_side**2),
            Part("row ends", (shape.base_side + token_rows) * shape.row_end, 1),
            Part("separator", _SEPARATOR, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDummyBaseView(BaseView):
    """The rule of the OCR models, whose dummy is of one size whatever hint the server gets."""

    hint_lowers_budget: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedBaseView(FixedDummyBaseView):
    """The rule where tiles can be switched off."""

    @property
    def cap(self) -> Cap:
        """The switch: with it off, the base view is all."""
        on = self.shape.grids is not None
        return Cap(name="crop_mode", value=on, tighter=(False,) if on else ())

    def with_cap(self, value: int) -> "SwitchedBaseView":
        """Return the rule with tiles (true) or without (false)."""
        settings = caps.with_kwarg(self.settings, ("crop_mode",), {"crop_mode": bool(value)})
        return replace(self, settings=settings, shape=self.shape._replace(grids=self.shape.grids if value else None))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the tiles, or that of the image inside the padded base view where it is more."""
        shape = self.shape
        columns, rows = _choose(width, height, shape) or (0, 0)
        inside = shape.base_size**2 * min(width, height) // max(width, height)
        return max(columns * rows * shape.tile_size**2, inside)


def build_deepseek_vl2(source: reading.Source) -> ImageRule:
    """Bind DeepSeek-VL2's rule; pixels and counts follow the processor's candidates, the dummy the configuration's."""
    given, name = source.settings.mm_processor_kwargs, source.model_id
    if "candidate_resolutions" in given:
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.candidate_resolutions stops the server of {name or 'this DeepSeek-VL2'} from "
            "starting (TypeError: unhashable type: 'list'); drop it",
        )
    reading.refuse_unknown(given, {"cropping"})
    candidates = _read_resolutions("candidate_resolutions", source.processor.get("candidate_resolutions"), name)
    profiled = _read_resolutions("candidate_resolutions", source.config.get("candidate_resolutions"), name)
    tile_size = candidates[0][0]
    patches = reading.divide("patch_size", tile_size, reading.first_int(name, (source.processor, "patch_size")))
    side = math.ceil(patches / reading.first_int(name, (source.processor, "downsample_ratio")))
    if any(edge % tile_size for size in candidates for edge in size):
        raise reading.Refused(
            "InvalidSetting",
            f"candidate_resolutions has an edge that is no multiple of {tile_size}, the first candidate's; correct it",
        )
    grids = tuple((width // tile_size, height // tile_size) for width, height in candidates)
    shape = BaseViewShape(
        base_size=tile_size,
        tile_size=tile_size,
        base_side=side,
        tile_side=side,
        row_end=1,
        base_patches=patches**2,
        tile_patches=patches**2,
        grids=list_canvases(grids, tile_size),
        always_cut=True,
    )
    # The engine reads the configuration's candidates as (height, width).
    sizes = [(second, first) for first, second in profiled]
    dummy_size = max(sizes, key=lambda size: _measure(size[0], size[1], shape).embed_tokens)
    ignored = _ignored(given, frozenset({"cropping"}))
    return BaseView(
        settings=source.settings, model_id=name, ignored_settings=ignored, shape=shape, dummy_size=dummy_size
    )


def build_deepseek_ocr(source: reading.Source, *, tile_size: int, row_end: int) -> ImageRule:
    """Bind the rule of DeepSeek-OCR (``tile_size`` 640, a row end) or DeepSeek-OCR-2 (768, none): 2 to 6 tiles."""
    given = source.settings.mm_processor_kwargs
    shipped = {"crop_mode": True, "max_crops": 6}
    reading.refuse_unknown(given, {*shipped, *_OCR_IGNORED})
    pixels = {key: value for key, value in {**source.processor, **given}.items() if key in shipped}
    reading.refuse_changed(pixels, shipped, "drop it")
    return FixedDummyBaseView(
        settings=source.settings,
        model_id=source.model_id,
        ignored_settings=_ignored(given, _OCR_IGNORED),
        shape=_ocr_shape(tile_size, row_end, grid_aspects(tile_size, _OCR_LEAST_TILES, shipped["max_crops"])),
        dummy_size=(2 * tile_size, 2 * tile_size),
    )


def build_unlimited_ocr(source: reading.Source) -> ImageRule:
    """Bind Unlimited-OCR's rule: DeepSeek-OCR's views with up to 32 tiles, which can be switched off."""
    given = source.settings.mm_processor_kwargs
    ignored = _OCR_IGNORED | {"max_crops"}
    reading.refuse_unknown(given, {"crop_mode", *ignored})
    cut = reading.boolean("mm_processor_kwargs.crop_mode", given.get("crop_mode", True))
    tile_size, most_tiles = 640, 32
    return SwitchedBaseView(
        settings=source.settings,
        model_id=source.model_id,
        ignored_settings=_ignored(given, ignored),
        shape=_ocr_shape(tile_size, 1, grid_aspects(tile_size, _OCR_LEAST_TILES, most_tiles) if cut else None),
        dummy_size=(tile_size, tile_size * most_tiles),
    )


def _ocr_shape(tile_size: int, row_end: int, grids: Aspects | None) -> BaseViewShape:
    base, tile = _OCR_BASE // _OCR_PATCH, tile_size // _OCR_PATCH
    return BaseViewShape(
        base_size=_OCR_BASE,
        tile_size=tile_size,
        base_side=base // _OCR_DOWNSAMPLE,
        tile_side=tile // _OCR_DOWNSAMPLE,
        row_end=row_end,
        base_patches=base**2,
        tile_patches=tile**2,
        grids=grids,
        always_cut=False,
    )


def _read_resolutions(name: str, value: Any, model_id: str) -> list[tuple[int, int]]:
    if value is None:
        raise reading.Refused(
            "MissingProcessorValue",
            f"{model_id or 'the model'}: its configuration lacks {name}, without which images cannot be counted; take "
            "config.json and processor_config.json from the checkpoint",
        )
    if not isinstance(value, Sequence) or not value or any(not _is_pair(size) for size in value):
        raise reading.Refused(
            "InvalidSetting", f"{name} is {value!r}, but must be a list of [width, height]; correct it"
        )
    return [(reading.positive_int(name, width), reading.positive_int(name, height)) for width, height in value]


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2


def _ignored(given: Any, names: frozenset[str]) -> tuple[str, ...]:
    return tuple(f"mm_processor_kwargs.{name}" for name in given if name in names)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: BaseViewShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: BaseViewShape) -> ImageTokens:
    base = _base_tokens(shape)
    grid = _choose(width, height, shape)
    if grid is None:
        return image_tokens(base, base, base, shape.base_patches, tiles=0, grid=(1, 1))
    tiles = grid[0] * grid[1]
    tokens = base + _tile_tokens(grid, shape)
    return image_tokens(
        tokens,
        tokens,
        tokens,
        shape.base_patches + tiles * shape.tile_patches,
        tiles=tiles + shape.always_cut,
        grid=grid,
    )


def _base_tokens(shape: BaseViewShape) -> int:
    return shape.base_side * (shape.base_side + shape.row_end) + _SEPARATOR


def _tile_tokens(grid: tuple[int, int], shape: BaseViewShape) -> int:
    columns, rows = grid
    return rows * shape.tile_side * (columns * shape.tile_side + shape.row_end)


def _choose(width: int, height: int, shape: BaseViewShape) -> tuple[int, int] | None:
    """Return (columns, rows) of the tiles, None where the base view is all."""
    if shape.grids is None or not (shape.always_cut or width > shape.tile_size or height > shape.tile_size):
        return None
    return shape.grids.choose(width, height)
