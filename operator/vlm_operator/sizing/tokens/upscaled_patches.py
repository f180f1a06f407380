"""Patches of one size over the enlarged image, each a token: Inkling.

The long side is multiplied by ``rescale_image_frac``, as far as ``rescale_image_max_upscaled_long_edge``; an image that
is already longer keeps its size, so there is no upper limit of tokens. Sides are rounded half up. Rows are the patches
that cover the height; columns are the whole patches of the width and one more, even where none is left over. Source:
``InklingImageProcessor`` of ``transformers`` and the engine's processor, which enlarges twofold by default.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens
from vlm_operator.units import ceil_div

_MARKER: Final = 1
_FACTOR: Final = 2.0
_LONG_EDGE: Final = 2048
_PATCH: Final = 40
"""Defaults of the engine and of the image processor."""


class PatchesShape(NamedTuple):
    """What the count depends on: the side of a patch, the factor, and the long side that enlarging stops at."""

    patch_size: int
    factor: float
    long_edge: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpscaledPatches(ImageRule):
    """The rule bound to one model and its settings; the engine draws a square of four patches."""

    shape: PatchesShape
    dummy: tuple[int, int]

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: of all strips of as many pixels as are decoded, one that wastes most of a patch."""
        patch_size = self.shape.patch_size
        widths = (MAX_DECODED_PIXELS, 1, patch_size)
        strips = [(width, MAX_DECODED_PIXELS // width) for width in widths]
        true_tokens, true_size = max((_measure(*strip, self.shape).embed_tokens, strip) for strip in strips)
        dummy = _measure(*self.dummy, self.shape)
        return MaximumTokens(
            true_tokens=true_tokens,
            true_size=true_size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=self.dummy,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the marker before it."""
        return Part("grid", tokens.embed_tokens, 1), Part("marker", _MARKER, 1, embedded=False)


def build_inkling(source: reading.Source) -> UpscaledPatches:
    """Bind Inkling; its two settings count in their flat form alone."""
    name, given = source.model_id, source.settings.mm_processor_kwargs
    if (
        source.config.get("vision_config") is not None
        and reading.find(source.config, "vision_config.decoder_dmodel") is None
    ):
        raise reading.Refused(
            "TakesNoImages",
            f"{name or 'this model'}: vision_config has no decoder_dmodel, so the engine takes no images",
        )
    reading.refuse_unknown(given, {"rescale_image_frac", "rescale_image_max_upscaled_long_edge"})
    values = {**source.processor, **given}
    size = values.get("size") or {"height": _PATCH, "width": _PATCH}
    patch_size = reading.first_int(name, ({"size": size}, "size.height"))
    if reading.find({"size": size}, "size.width") != patch_size:
        raise reading.Refused("InvalidSetting", f"size of {name or 'this model'} is {size!r}, but must be a square")
    stated = reading.first_int(name, (source.config, "vision_config.patch_size"), default=patch_size)
    if stated != patch_size:
        raise reading.Refused(
            "SettingMismatch",
            f"vision_config.patch_size is {stated}, but the processor's size is {patch_size}; make them equal",
        )
    edge = values.get("rescale_image_max_upscaled_long_edge", _LONG_EDGE)
    shape = PatchesShape(
        patch_size=patch_size,
        factor=reading.positive_number("rescale_image_frac", values.get("rescale_image_frac") or _FACTOR),
        long_edge=None if edge is None else reading.positive_int("rescale_image_max_upscaled_long_edge", edge),
    )
    if shape.factor > _FACTOR and shape.long_edge is None:
        raise reading.Refused(
            "InvalidSetting",
            f"rescale_image_frac is {shape.factor} without a limit of the long edge; give "
            "rescale_image_max_upscaled_long_edge",
        )
    return UpscaledPatches(settings=source.settings, model_id=name, shape=shape, dummy=(4 * patch_size, 4 * patch_size))


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PatchesShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: PatchesShape) -> ImageTokens:
    patch_size, factor, edge = shape
    long = max(width, height)
    target = long * factor
    if edge is not None:
        target = min(target, max(edge, long))
    ratio = target / long
    if ratio != 1.0:
        width, height = max(1, math.floor(width * ratio + 0.5)), max(1, math.floor(height * ratio + 0.5))
    columns, rows = width // patch_size + 1, ceil_div(height, patch_size)
    tokens = columns * rows
    return image_tokens(tokens, tokens + _MARKER, tokens + _MARKER, tokens, (width, height), None, (columns, rows))
