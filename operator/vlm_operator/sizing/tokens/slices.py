"""An overview and slices on a grid near the image's aspect: MiniCPM-V 2.0 to 4.5 and MiniCPM-o.

Wanted slices = ceil(area / scale resolution squared), at most ``max_slices``. Grids of one slice fewer, as
many and one more compete; the one whose log aspect is closest to the image's wins, the earlier of equals.
Tokens = (slices + 1) x ``tokens_per_slice``. Each view has a start and an end token and rows are parted by a newline.
From 2.6 on the overview has the image id of three tokens; before, all slices together have a start and an end token.
Source: MiniCPM-V's own image processors, the one of 4.6 in ``transformers`` (same grid) and the engine's processing
information.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

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

_TAGS: Final = 2
_IMAGE_ID: Final = 3
_ENGINE_SLICES: Final = 9
_MOST_SLICES: Final = 1000
"""The engine's dummy image has room for nine slices, whatever the processor's ``max_slice_nums`` says."""
_OLD_LAYOUT: Final = frozenset({"2.0", "2.5"})
_VERSIONS: Final = _OLD_LAYOUT | {"2.6", "4.0", "4.5"}
_OMNI_VERSIONS: Final = frozenset({"2.6", "4.5"})
"""Versions that the engine serves."""


class SliceShape(NamedTuple):
    """What the count depends on."""

    scale: int
    patch_size: int
    tokens_per_slice: int
    max_slices: int
    image_id: bool
    enclosed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices(ImageRule):
    """The rule bound to one model and its settings. The engine's maximum is that of a dummy size of its own."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: SliceShape
    dummy_size: tuple[int, int]

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; above nine slices the engine's own maximum is too low."""
        dummy = _measure(*self.dummy_size, self.shape)
        slices = self.shape.max_slices if self.shape.max_slices > 1 else 0
        return MaximumTokens(
            true_tokens=(slices + 1) * self.shape.tokens_per_slice,
            true_size=(self.shape.scale, self.shape.scale * max(1, slices)),
            engine_tokens=dummy.embed_tokens,
            dummy_size=self.dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the overview, the slices and their tags."""
        views, each = tokens.tiles or 1, self.shape.tokens_per_slice
        image_id = _IMAGE_ID if self.shape.image_id else 0
        enclosing = _TAGS if self.shape.enclosed and views > 1 else 0
        breaks = tokens.prompt_tokens - tokens.embed_tokens - views * _TAGS - image_id - enclosing
        return (
            Part("overview", 1, each),
            Part("slice", views - 1, each),
            Part("start and end of a view", views, _TAGS, embedded=False),
            Part("image id", image_id, 1, embedded=False),
            Part("start and end of the slices", enclosing, 1, embedded=False),
            Part("row breaks", breaks, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The limit on slices. The grid follows the aspect ratio, so that more slices need not keep more pixels."""
        most = self.shape.max_slices
        return Cap(name="max_slice_nums", value=most, tighter=range(1, most), monotone=False)

    def with_cap(self, value: int) -> "Slices":
        """Return the rule with at most ``value`` slices, the overview not counted."""
        settings = caps.with_kwarg(self.settings, ("max_slice_nums",), {"max_slice_nums": value})
        return replace(self, settings=settings, shape=self.shape._replace(max_slices=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the slices at scale resolution each, the overview only where it is all."""
        columns, rows = slice_grid(width, height, self.shape.scale, self.shape.max_slices)
        return max(1, columns * rows) * self.shape.scale**2


def build_minicpm(source: reading.Source, *, omni: bool = False) -> ImageRule:
    """Bind the rule of MiniCPM-V or MiniCPM-o; what no file states is the default of the checkpoint's own processor."""
    given = source.settings.mm_processor_kwargs
    reading.refuse_unknown(given, {"max_slice_nums"})
    config, processor, name = source.config, source.processor, source.model_id
    version = _read_version(source, _OMNI_VERSIONS if omni else _VERSIONS, unnamed="2.6" if omni else None)
    slicing = reading.boolean("slice_mode", processor.get("slice_mode", config.get("slice_mode", True)))
    max_slices = read_most_slices(
        name, (given, "max_slice_nums"), (processor, "max_slice_nums"), (config, "slice_config.max_slice_nums")
    )
    shape = SliceShape(
        scale=reading.first_int(
            name, (processor, "scale_resolution"), (config, "slice_config.scale_resolution"), default=448
        ),
        patch_size=reading.first_int(name, (processor, "patch_size"), (config, "patch_size"), default=14),
        tokens_per_slice=reading.first_int(name, (processor, "image_feature_size"), (config, "query_num")),
        max_slices=max_slices if slicing else 1,
        # The engine asks for the image id whatever use_image_id says; the old processors have none.
        image_id=version not in _OLD_LAYOUT,
        enclosed=version in _OLD_LAYOUT,
    )
    side = reading.first_int(name, (config, "image_size"), default=448)
    most = reading.first_int(name, (config, "max_slice_num"), default=_ENGINE_SLICES)
    return Slices(settings=source.settings, model_id=name, shape=shape, dummy_size=(side, side * most))


def read_most_slices(name: str, *places: tuple[Mapping[str, Any], str]) -> int:
    """Return the limit on slices at the first of ``places``, else the engine's.

    Raises:
        Refused: It is above what any image is cut into.
    """
    most = reading.first_int(name, *places, default=_ENGINE_SLICES)
    if most > _MOST_SLICES:
        raise reading.Refused(
            "InvalidSetting",
            f"max_slice_nums of {name or 'this MiniCPM'} is {most:,}, but must be at most {_MOST_SLICES:,}: larger "
            "grids take long to choose from, and no image that the engine decodes fills them; lower it",
        )
    return most


def _read_version(source: reading.Source, served: Collection[str], *, unnamed: str | None) -> str:
    """Return the version; the engine tells old configurations, which have none, by their sizes."""
    version = source.config.get("version", unnamed)
    if version is None:
        sizes = (source.config.get("hidden_size"), source.config.get("query_num"))
        return "2.0" if sizes == (2304, 64) else "2.5"
    if str(version) not in served:
        raise reading.Refused(
            "StartupFails",
            f"version of {source.model_id or 'this MiniCPM'} is {version!r}, and the engine only serves "
            f"{', '.join(sorted(served))}; choose a checkpoint of one of these",
        )
    return str(version)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: SliceShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: SliceShape) -> ImageTokens:
    columns, rows = slice_grid(width, height, shape.scale, shape.max_slices)
    slices = columns * rows
    embed = (slices + 1) * shape.tokens_per_slice
    prompt = embed + (slices + 1) * _TAGS + max(0, rows - 1) + (_IMAGE_ID if shape.image_id else 0)
    if shape.enclosed and slices:
        prompt += _TAGS
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=prompt,
        prompt_tokens=prompt,
        vit_patches=_count_patches((width, height), (columns, rows), shape),
        tiles=slices + 1,
        grid=(columns, rows) if slices else (1, 1),
    )


def slice_grid(width: int, height: int, scale: int, max_slices: int) -> tuple[int, int]:
    """Return (columns, rows) of slices, (0, 0) where the overview is all.

    The comparison is in floating point on purpose: log(3/2) and -log(2/3) differ in the last bit, which
    decides ties.
    """
    wanted = min(math.ceil(width * height / (scale * scale)), max_slices)
    if wanted <= 1:
        return 0, 0
    aspect = math.log(width / height)
    best, nearest = (1, 1), float("inf")
    for slices in (wanted - 1, wanted, wanted + 1):
        if slices == 1 or slices > max_slices:
            continue
        for columns, log_ratio in _divisions(slices):
            distance = abs(aspect - log_ratio)
            if distance < nearest:
                best, nearest = (columns, slices // columns), distance
    return best


@lru_cache(maxsize=1024)
def _divisions(slices: int) -> tuple[tuple[int, float], ...]:
    """Return (columns, log of columns / rows) of every grid of ``slices``."""
    return tuple((n, math.log(n / (slices // n))) for n in range(1, slices + 1) if slices % n == 0)


def _count_patches(size: tuple[int, int], grid: tuple[int, int], shape: SliceShape) -> int:
    """Return the patches of the overview and all slices."""
    overview, each = count_units(size, grid, shape.scale, shape.patch_size)
    return overview + grid[0] * grid[1] * each


def count_units(size: tuple[int, int], grid: tuple[int, int], scale: int, unit: int) -> tuple[int, int]:
    """Return how many squares of ``unit`` pixels the overview and each slice have, 0 where there are no slices."""
    columns, rows = grid
    if not columns:
        return _fit(size, scale, unit, enlarge=True), 0
    cell = (_multiple(size[0], columns) / columns, _multiple(size[1], rows) / rows)
    return _fit(size, scale, unit, enlarge=False), _fit(cell, scale, unit, enlarge=True)


def _fit(size: tuple[float, float], scale: int, unit: int, *, enlarge: bool) -> int:
    width, height = size
    if enlarge or width * height > scale**2:
        aspect = width / height
        height = int(scale / math.sqrt(aspect))
        width = int(height * aspect)
    return max(1, round(width / unit)) * max(1, round(height / unit))


def _multiple(length: int, parts: int) -> int:
    return max(round(length / parts) * parts, parts)
