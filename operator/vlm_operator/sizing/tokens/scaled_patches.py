"""A grid of patches at the largest scale that keeps within a number of patches: Isaac and Phi-4 with SigLIP 2.

The scale is found by halving an interval; at each step both sides are rounded up to whole units. An image within the
limits keeps its size, up to that rounding: Phi-4 does not let it add patches, so that the grid never has more than the
whole patches of the image; Isaac raises the sides. An image below the least number is enlarged: Phi-4 to at most, Isaac
to at least that number, a hundredfold at most. Isaac merges ``merge_size`` squared patches into a token.

Source: the image processor of Isaac in the engine; the SigLIP 2 image processor of ``transformers`` and the use that
the checkpoint's processor makes of it for Phi-4, whose counts the engine takes over as they are.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.aspect_grid import squarest_rows
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import (
    Cap,
    ImageRule,
    ImageTokens,
    MaximumTokens,
    Part,
    TokenRefusal,
    grid_tokens,
)
from vlm_operator.units import ceil_div

_STEP: Final = 1e-5
"""Where halving ends; the scale starts at a tenth of it."""
_SHARED_HALVINGS: Final = 13
"""Halvings that are looked up: they take a hundred thousand bytes, and half of the time."""

_ISAAC_PIXELS: Final = 60_000_000
"""Isaac's processor turns larger images away."""

_ISAAC_PATCH: Final = 16
_ISAAC_MERGE: Final = 2
_ISAAC_MOST: Final = 6144
_ISAAC_LEAST: Final = 256
"""Defaults of Isaac's processor, which reads no file."""

_PHI4_MOST: Final = 3600
_PHI4_LEAST: Final = 256
"""What Phi-4's processor falls back on."""


class PatchShape(NamedTuple):
    """What the count depends on; limits are in patches, ``unit`` is a token's side in pixels."""

    unit: int
    merge_size: int
    min_patches: int
    max_patches: int
    reaches_least: bool
    """Whether enlarging ends at or above the least number (Isaac), not at or below it (Phi-4, a patch a token)."""
    max_pixels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPatches(ImageRule):
    """The rule bound to one model and its settings; the engine reserves ``budget_tokens`` and draws ``dummy``."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: PatchShape
    budget_tokens: int
    dummy: tuple[int, int]
    settable: bool

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the squarest grid of as many tokens as the limit, which no resize changes."""
        most = self.shape.max_patches // self.shape.merge_size**2
        rows = squarest_rows(most)
        dummy = _tokens(*_fit(*self.dummy, self.shape), self.shape)
        grid = (most // rows * self.shape.unit, rows * self.shape.unit)
        return MaximumTokens(
            true_tokens=most,
            true_size=self.dummy if dummy.embed_tokens == most else grid,
            engine_tokens=self.budget_tokens,
            dummy_size=self.dummy,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid, around which nothing stands."""
        return (Part("grid", tokens.embed_tokens, 1),)

    @property
    def cap(self) -> Cap | None:
        """The largest number of patches in whole tokens, as far down as enlarged images stay below it."""
        if not self.settable:
            return None
        token, most = self.shape.merge_size**2, self.shape.max_patches
        lowest = ceil_div(_least_limit(self.shape), token) * token
        return Cap(name="max_num_patches", value=most, tighter=range(lowest, most, token))

    def with_cap(self, value: int) -> "ScaledPatches":
        """Return the rule with ``max_num_patches`` at ``value``, which the budget does not follow."""
        settings = caps.with_kwarg(self.settings, ("max_num_patches",), {"max_num_patches": value})
        return replace(self, settings=settings, shape=self.shape._replace(max_patches=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = _fit(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_isaac(source: reading.Source) -> ScaledPatches:
    """Bind Isaac, whose processor starts from defaults of its own, while the budget follows config.json."""
    name, config = source.model_id, source.config
    shape = _read_isaac(source)
    budget = reading.first_int(name, (config, "vision_max_num_patches"), default=256)
    floor = config.get("vision_min_num_patches")
    drawn = shape._replace(max_patches=budget, min_patches=1 if floor is None else floor, max_pixels=None)
    columns, rows = _fit(9_999_999, 9_999_999, drawn)
    return ScaledPatches(
        settings=source.settings,
        model_id=name,
        shape=shape,
        budget_tokens=budget // _ISAAC_MERGE**2,
        dummy=(columns * shape.unit, rows * shape.unit),
        settable=True,
    )


def _read_isaac(source: reading.Source) -> PatchShape:
    """Return what Isaac's processor works with."""
    name, given = source.model_id, reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"min_num_patches", "max_num_patches"})
    for key, built_in in (("video_patch_size", _ISAAC_PATCH), ("pixel_shuffle_scale", _ISAAC_MERGE)):
        stated = reading.first_int(name, (source.config, key))
        if stated != built_in:
            raise reading.Refused(
                "SettingMismatch",
                f"{key} in config.json of {name or 'this model'} is {stated}, but the engine's processor works with "
                f"{built_in}, and requests would fail; use a checkpoint with {built_in}",
            )
    shape = PatchShape(
        unit=_ISAAC_PATCH * _ISAAC_MERGE,
        merge_size=_ISAAC_MERGE,
        min_patches=reading.first_int(name, (given, "min_num_patches"), default=_ISAAC_LEAST),
        max_patches=reading.first_int(name, (given, "max_num_patches"), default=_ISAAC_MOST),
        reaches_least=True,
        max_pixels=_ISAAC_PIXELS,
    )
    least = _least_limit(shape)
    if shape.max_patches < least:
        raise reading.Refused(
            "InvalidSetting",
            f"max_num_patches is {shape.max_patches:,}, but with min_num_patches {shape.min_patches:,} enlarged "
            f"images of {name or 'this model'} can take up to {least:,}; raise it, or lower min_num_patches",
        )
    return shape


def build_phi4_siglip(source: reading.Source) -> ScaledPatches:
    """Bind Phi-4 with a SigLIP 2 tower, which takes no settings: its processor and the budget read one file each."""
    for key in source.settings.mm_processor_kwargs:
        raise reading.Refused(
            "SettingMismatch",
            f"mm_processor_kwargs.{key}: the processor of {source.model_id or 'this model'} and the start-up budget "
            "do not both follow it; drop it",
        )
    for key in ("max_num_patches", "min_num_patches"):
        if key in source.settings.hf_overrides:
            raise reading.Refused(
                "SettingMismatch",
                f"hf_overrides.{key} would move the start-up budget of {source.model_id or 'this model'} but not its "
                "images; drop it",
            )
    patch_size = _read_agreed(source, "patch_size", source.config.get("vision_config"), _infer_patch_size(source))
    most = _read_agreed(source, "max_num_patches", source.config, _PHI4_MOST)
    side = math.isqrt(most) * patch_size
    return ScaledPatches(
        settings=source.settings,
        model_id=source.model_id,
        shape=PatchShape(
            unit=patch_size,
            merge_size=1,
            min_patches=_read_agreed(source, "min_num_patches", source.config, _PHI4_LEAST),
            max_patches=most,
            reaches_least=False,
        ),
        budget_tokens=most,
        dummy=(side, side),
        settable=False,
    )


def _infer_patch_size(source: reading.Source) -> int:
    return 14 if "patch14" in str(source.config.get("mm_vision_tower", "")).lower() else 16


def _read_agreed(source: reading.Source, key: str, config: Mapping[str, Any] | None, default: int) -> int:
    """Return a figure that config.json states, and the processor file, if there is one, alike."""
    value = reading.first_int(source.model_id, (config or {}, key), default=default)
    other = reading.first_int(source.model_id, (source.processor, key), default=value)
    if other != value:
        raise reading.Refused(
            "SettingMismatch",
            f"{key} is {value} in config.json of {source.model_id or 'this model'} and {other} in its processor file; "
            "make them equal",
        )
    return value


def _least_limit(shape: PatchShape) -> int:
    """Return the largest number of patches that enlarging can end at: one more row and column than too few."""
    if not shape.reaches_least:
        return shape.min_patches
    return 2 * (ceil_div(shape.min_patches, shape.merge_size**2) + 1) * shape.merge_size**2


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PatchShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    if shape.max_pixels is not None and width * height > shape.max_pixels:
        return TokenRefusal(
            reason="ImageTooLarge",
            message=f"image size {width}x{height} is {width * height:,} pixels, and the processor accepts at most "
            f"{shape.max_pixels:,}; scale the image down",
        )
    columns, rows = _fit(width, height, shape)
    if columns * rows * shape.merge_size**2 > shape.max_patches:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: even the smallest scale leaves more than {shape.max_patches:,} "
            "patches; crop the image or cut it into several",
        )
    return _tokens(columns, rows, shape)


def _tokens(columns: int, rows: int, shape: PatchShape) -> ImageTokens:
    return grid_tokens(columns, rows, shape.unit, shape.merge_size)


def _fit(width: int, height: int, shape: PatchShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens."""
    unit, merge_size = shape.unit, shape.merge_size
    if not shape.reaches_least:
        patches = max(width // unit * (height // unit), 1)
        limit = max(min(patches, shape.max_patches), min(shape.min_patches, shape.max_patches))
        return _search(width, height, unit, limit, (_STEP / 10, 100.0), high_end=False)
    columns, rows = ceil_div(width, unit), ceil_div(height, unit)
    patches = columns * rows * merge_size**2
    if patches < shape.min_patches:
        # Ending at or above N tokens is ending above N - 1.
        limit = ceil_div(shape.min_patches, merge_size**2) - 1
        return _search(width, height, unit, limit, (1.0, 100.0), high_end=True)
    if patches <= shape.max_patches:
        return columns, rows
    return _search(width, height, unit, shape.max_patches // merge_size**2, (_STEP / 10, 1.0), high_end=False)


def _search(
    width: int, height: int, unit: int, limit: int, scales: tuple[float, float], *, high_end: bool
) -> tuple[int, int]:
    """Return (columns, rows) at the scale where the grid has no more than ``limit`` units, in floating point.

    ``high_end`` takes the upper end of the last interval, where the grid has more or the interval ends.
    """
    ceil = math.ceil
    low, high = scales
    largest = _largest_scale(width / unit, height / unit, limit)
    # Only a hair around the largest scale does rounding decide.
    sure, too_large = largest * (1 - 1e-12), largest * (1 + 1e-12)
    halves = _halve(low, high)
    at = bisect_left(halves, sure)
    if 0 < at < len(halves) and halves[at] > too_large:
        low, high = halves[at - 1], halves[at]
    while high - low >= _STEP:
        scale = (low + high) / 2
        if scale < sure:
            low = scale
        elif scale > too_large or ceil(scale * width / unit) * ceil(scale * height / unit) > limit:
            high = scale
        else:
            low = scale
    scale = high if high_end else low
    return ceil(scale * width / unit) or 1, ceil(scale * height / unit) or 1


@lru_cache(maxsize=16)
def _halve(low: float, high: float) -> tuple[float, ...]:
    """Return where the first halvings of an interval can end, ascending: they are the same for every image."""
    found = [low, high]
    for _ in range(_SHARED_HALVINGS):
        middles = [(low + high) / 2 for low, high in pairwise(found)]
        found = sorted([*found, *middles])
    return tuple(found)


def _largest_scale(across: float, down: float, limit: int) -> float:
    """Return the largest scale at which a grid of ``across`` x ``down`` units, sides rounded up, keeps ``limit``.

    With n units along the short side and limit // n along the long one, one side or the other stops the scale. That is
    best where the two meet, which is at a whole n or just above.
    """
    short, long = (across, down) if across < down else (down, across)
    meet = int(math.sqrt(limit * short / long))
    units = meet or 1
    one = x if (x := units / short) < (y := limit // units / long) else y
    other = x if (x := (meet + 1) / short) < (y := limit // (meet + 1) / long) else y
    return max(other, one)
