"""Native-resolution grids that accept long images: Ovis2.5 and Ovis2.6.

An image whose short side is below one unit (patch size x hidden stride) is enlarged to it first; otherwise its
aspect ratio is clamped to 200. Then both sides are rounded to units, above ``max_pixels`` scaled down with floor,
below ``min_pixels`` scaled up with ceil. One token per unit square, with a start and an end token; all of them
are embedding slots. Source: the engine's own ``Ovis2_5Processor``.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.native_grid import MAX_ASPECT, most_tokens_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens

_TAGS: Final = 2
_MIN_PIXELS: Final = 448 * 448
_DUMMY_SIDE: Final = 1792
_MAX_PIXELS: Final = _DUMMY_SIDE * _DUMMY_SIDE
"""Fixed in the engine: neither the checkpoint's files nor a setting reaches them."""


_LARGEST_UNIT: Final = 256
"""Above it an image that is scaled up could have more tokens than one at the pixel limit."""


class ClampedGridShape(NamedTuple):
    """What the count depends on; ``unit`` is the side in pixels of the square that becomes one token."""

    unit: int
    hidden_stride: int
    temporal_patch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedGrid(ImageRule):
    """The rule bound to one model and its settings. No setting caps images."""

    shape: ClampedGridShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the squarest grid of as many tokens as the pixel limit holds."""
        size = most_tokens_size(_MAX_PIXELS, self.shape.unit)
        dummy = _measure(_DUMMY_SIDE, _DUMMY_SIDE, self.shape)
        return MaximumTokens(
            true_tokens=_measure(*size, self.shape).embed_tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=(_DUMMY_SIDE, _DUMMY_SIDE),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and its start and end."""
        return Part("grid", tokens.embed_tokens - _TAGS, 1), Part("start and end", _TAGS, 1)


def build_ovis2_5(source: reading.Source) -> ImageRule:
    """Bind the rule of Ovis2.5 and Ovis2.6; the patch figures are the configuration's."""
    given, config, name = source.settings.mm_processor_kwargs, source.config, source.model_id
    if "images_kwargs" in given:
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.images_kwargs stops the server of {name or 'this Ovis'} from starting (TypeError); "
            "drop it",
        )
    reading.refuse_unknown(given, {"min_pixels", "max_pixels"})
    stride = reading.first_int(name, (config, "vit_config.hidden_stride"))
    unit = reading.first_int(name, (config, "vit_config.patch_size")) * stride
    if unit > _LARGEST_UNIT:
        raise reading.Refused(
            "InvalidSetting",
            f"vit_config.patch_size x hidden_stride is {unit} pixels, but the pixel limits that the engine fixes are "
            f"made for at most {_LARGEST_UNIT}; correct it",
        )
    shape = ClampedGridShape(
        unit=unit,
        hidden_stride=stride,
        temporal_patch_size=reading.first_int(name, (config, "vit_config.temporal_patch_size")),
    )
    return ClampedGrid(
        settings=source.settings,
        model_id=name,
        shape=shape,
        ignored_settings=tuple(f"mm_processor_kwargs.{key}" for key in given),
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: ClampedGridShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    answer = _measure(width, height, shape)
    if answer.vit_patches:
        return answer
    long, short = max(width, height), min(width, height)
    return TokenRefusal(
        reason="AspectRatioTooExtreme",
        message=f"image size {width}x{height} has an aspect ratio of {long / short:,.0f}, and scaled to "
        f"{_MAX_PIXELS:,} pixels its short side vanishes from about {_MAX_PIXELS // shape.unit**2:,} on; crop the "
        "image or cut it into several",
    )


def _measure(width: int, height: int, shape: ClampedGridShape) -> ImageTokens:
    wide, high = resize(width, height, shape.unit)
    columns, rows = wide // shape.unit, high // shape.unit
    patches = columns * rows * shape.hidden_stride**2
    tokens = patches // shape.hidden_stride**2 // shape.temporal_patch_size + _TAGS
    return image_tokens(tokens, tokens, tokens, patches, resized=(wide, high), grid=(columns, rows))


def resize(width: int, height: int, unit: int) -> tuple[int, int]:
    """Return (width, height) after the resize, 0 where a side vanishes; in the engine's floating point."""
    if min(width, height) < unit:
        if height < width:
            width, height = round(unit / height * width), unit
        else:
            width, height = unit, round(unit / width * height)
    elif max(width, height) > MAX_ASPECT * min(width, height):
        width, height = min(width, MAX_ASPECT * height), min(height, MAX_ASPECT * width)
    wide, high = round(width / unit) * unit, round(height / unit) * unit
    if wide * high > _MAX_PIXELS:
        scale = math.sqrt(width * height / _MAX_PIXELS)
        return math.floor(width / scale / unit) * unit, math.floor(height / scale / unit) * unit
    if wide * high < _MIN_PIXELS:
        scale = math.sqrt(_MIN_PIXELS / (width * height))
        return math.ceil(width * scale / unit) * unit, math.ceil(height * scale / unit) * unit
    return wide, high
