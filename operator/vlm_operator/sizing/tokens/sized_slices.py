"""An overview and slices whose tokens depend on their shape: MiniCPM-V 4.6 and 4.7.

Slices lie on the grid of ``slices``. Overview and slices keep their aspect at the area of ``scale`` squared, with both
sides rounded to units of four patches, at least one: a thin image has more units than a square one. Tokens of a view
= units, times 4 in downsample mode "4x". Tags, image id and row breaks are those of MiniCPM-V 2.6. Source:
``MiniCPMV4_6ImageProcessor`` of ``transformers``, which 4.7 uses as well, and the engine's processing information.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.slices import count_units, read_most_slices, slice_grid
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
_PATCHES_ALONG_UNIT: Final = 4
_ENGINE_SLICES: Final = 9
_LARGEST_SCALE: Final = math.isqrt(MAX_DECODED_PIXELS)
_MODES: Final = {"16x": 1, "4x": 4}
_WITHOUT_EFFECT: Final = ("use_image_id", "slice_mode")
_KEYS: Final = frozenset({"max_slice_nums", "downsample_mode", "scale_resolution", *_WITHOUT_EFFECT})


class SizedSliceShape(NamedTuple):
    """What the count depends on; ``unit`` is the side in pixels of the square that becomes ``tokens_per_unit``."""

    scale: int
    unit: int
    tokens_per_unit: int
    max_slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSlices(ImageRule):
    """The rule bound to one model and its settings.

    ``dummy_slices`` is the room for slices in the engine's dummy, None where it follows ``max_slices``.
    ``budget_shape`` is what the engine works out its maximum with, where scoped settings do not reach that.
    """

    hint_lowers_budget: ClassVar[bool] = False
    shape: SizedSliceShape
    dummy_side: int
    dummy_slices: int | None
    budget_shape: SizedSliceShape | None = None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: one pixel wide, as its views are widened to a unit."""
        dummy_size = (self.dummy_side, self.dummy_side * (self.dummy_slices or self.shape.max_slices))
        dummy = _measure(*dummy_size, self.shape)
        size = (1, MAX_DECODED_PIXELS)
        return MaximumTokens(
            true_tokens=_measure(*size, self.shape).embed_tokens,
            true_size=size,
            engine_tokens=_measure(*dummy_size, self.budget_shape or self.shape).embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return all views together, as their shares depend on the image, and their tags."""
        views = tokens.tiles or 1
        rows = tokens.grid[1] if tokens.grid else 1
        return (
            Part("overview and slices", 1, tokens.embed_tokens),
            Part("start and end of a view", views, _TAGS, embedded=False),
            Part("image id", _IMAGE_ID, 1, embedded=False),
            Part("row breaks", rows - 1, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The limit on slices. The grid follows the aspect ratio, so that more slices need not keep more pixels."""
        most = self.shape.max_slices
        return Cap(name="max_slice_nums", value=most, tighter=range(1, most), monotone=False)

    def with_cap(self, value: int) -> "SizedSlices":
        """Return the rule with at most ``value`` slices, the overview not counted."""
        settings = caps.with_kwarg(self.settings, ("max_slice_nums",), {"max_slice_nums": value})
        budget_shape = None if self.budget_shape is None else self.budget_shape._replace(max_slices=value)
        return replace(self, settings=settings, shape=self.shape._replace(max_slices=value), budget_shape=budget_shape)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the slices at scale resolution each, the overview only where it is all."""
        columns, rows = slice_grid(width, height, self.shape.scale, self.shape.max_slices)
        return max(1, columns * rows) * self.shape.scale**2


def build_minicpm_4_6(source: reading.Source, *, dummy_follows: bool) -> ImageRule:
    """Bind the rule of MiniCPM-V 4.6, or of 4.7, whose dummy and prompt (``dummy_follows``) follow the setting.

    What no file states is the default of ``MiniCPMV4_6ImageProcessor``.
    """
    flat, config, name = source.settings.mm_processor_kwargs, source.config, source.model_id
    # What 4.7's dummy makes of scoped settings is not known.
    given = flat if dummy_follows else reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, _KEYS)
    if not reading.boolean("slice_mode", given.get("slice_mode", source.processor.get("slice_mode", True))):
        raise reading.Refused(
            "SettingMismatch",
            f"slice_mode is false for {name or 'this MiniCPM-V'}, but the engine counts slices all the same, and "
            "requests would fail; set max_slice_nums to 1 instead",
        )
    shape, configured = _read_shape(source, given), _read_configured_slices(source)
    if dummy_follows and "max_slice_nums" not in given and configured != shape.max_slices:
        raise reading.Refused(
            "SettingMismatch",
            f"max_slice_nums is {configured} in config.json, by which the engine counts {name or 'this MiniCPM-V'}, "
            f"but {shape.max_slices} in the processor's file, by which it cuts, and requests would fail; set it with "
            f"--mm-processor-kwargs '{{\"max_slice_nums\": {shape.max_slices}}}'",
        )
    scoped = flat.get("images_kwargs", {})
    return SizedSlices(
        settings=source.settings,
        model_id=name,
        shape=shape,
        ignored_settings=tuple(f"mm_processor_kwargs.{key}" for key in _WITHOUT_EFFECT if key in given),
        dummy_side=reading.first_int(name, (config, "image_size"), default=448),
        dummy_slices=None if dummy_follows else configured,
        budget_shape=_read_shape(source, {key: given[key] for key in given if key not in scoped}) if scoped else None,
    )


def _read_shape(source: reading.Source, given: Mapping[str, Any]) -> SizedSliceShape:
    name, processor = source.model_id, source.processor
    scale = reading.first_int(name, (given, "scale_resolution"), (processor, "scale_resolution"), default=448)
    if scale > _LARGEST_SCALE:
        raise reading.Refused(
            "InvalidSetting",
            f"scale_resolution of {name or 'this MiniCPM-V'} is {scale:,} pixels a side, more than the "
            f"{_LARGEST_SCALE:,} of the largest image that the engine decodes; lower it",
        )
    return SizedSliceShape(
        scale=scale,
        unit=reading.first_int(name, (processor, "patch_size"), default=14) * _PATCHES_ALONG_UNIT,
        tokens_per_unit=_read_mode(given.get("downsample_mode") or processor.get("downsample_mode") or "16x"),
        max_slices=read_most_slices(name, (given, "max_slice_nums"), (processor, "max_slice_nums")),
    )


def _read_configured_slices(source: reading.Source) -> int:
    """Return the limit on slices as the engine reads it from the configuration: not from inside ``slice_config``."""
    if source.config.get("slice_config") is not None:
        return _ENGINE_SLICES
    return reading.first_int(source.model_id, (source.config, "max_slice_nums"), default=_ENGINE_SLICES)


def _read_mode(mode: Any) -> int:
    tokens = _MODES.get(mode) if isinstance(mode, str) else None
    if tokens is None:
        raise reading.Refused(
            "InvalidSetting", f"downsample_mode is {mode!r}, but must be one of {', '.join(_MODES)}; correct it"
        )
    return tokens


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: SizedSliceShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: SizedSliceShape) -> ImageTokens:
    columns, rows = grid = slice_grid(width, height, shape.scale, shape.max_slices)
    slices = columns * rows
    overview, each = count_units((width, height), grid, shape.scale, shape.unit)
    units = overview + slices * each
    embed = units * shape.tokens_per_unit
    prompt = embed + (slices + 1) * _TAGS + _IMAGE_ID + max(0, rows - 1)
    return image_tokens(
        embed,
        prompt,
        prompt,
        units * _PATCHES_ALONG_UNIT**2,
        tiles=slices + 1,
        grid=grid if slices else (1, 1),
    )
