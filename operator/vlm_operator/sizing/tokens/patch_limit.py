"""Native resolution up to a number of patches: Kimi-VL, Kimi-K2.5 and Kimi-K3.

An image of more patches than the limit is scaled by the root of limit over patches, where patches are whole patches
of each side; K2.5 and K3 also scale a side down to ``side_limit`` patches, Kimi-VL refuses a longer one. Then the
sides are padded to whole tokens (``unit`` pixels), so the tokens can exceed limit / merge size squared. Source: the
Kimi-VL processing information of the engine, the NaViT resize in its Kimi-K3 processing information, and the
checkpoints' image processors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
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

_TAGS: Final = 4
"""Begin, the word "image", content, end."""

_SIDE_LIMIT: Final = 512
"""Kimi-VL's image processor refuses sides of as many patches, for which it has no positions."""

_KIMI_VL_DUMMY: Final = (1024, 1024)
_K25_DUMMY: Final = (3000, 3000)


class PatchLimitShape(NamedTuple):
    """What the count depends on.

    ``merge_size`` patches a side make a token. ``fits_side`` tells whether a side above ``side_limit`` patches is
    scaled down to it; else an image with a side of that many is refused. ``names_size`` tells whether the prompt
    names the size of the image, inside the placeholder.
    """

    patch_size: int
    merge_size: int
    patch_limit: int
    side_limit: int
    fits_side: bool
    names_size: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchLimit(ImageRule):
    """The rule bound to one model and its settings; ``dummy`` is None where the engine draws the largest image."""

    shape: PatchLimitShape
    dummy: tuple[int, int] | None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is its dummy."""
        size = _largest(self.shape)
        dummy_size = self.dummy or size
        dummy = _measure(*dummy_size, self.shape)
        return MaximumTokens(
            true_tokens=_measure(*size, self.shape).embed_tokens,
            true_size=size,
            engine_tokens=dummy.embed_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        around = tokens.prompt_tokens - tokens.embed_tokens
        label = "start, size and end" if self.shape.names_size else "start and end"
        return Part("grid", tokens.embed_tokens, 1), Part(label, around, 1, embedded=False)

    @property
    def cap(self) -> Cap | None:
        """Kimi-VL's patch limit, in whole tokens; the later families disregard settings."""
        if self.shape.fits_side:
            return None
        token = self.shape.merge_size**2
        return Cap(
            name="in_token_limit", value=self.shape.patch_limit, tighter=range(token, self.shape.patch_limit, token)
        )

    def with_cap(self, value: int) -> "PatchLimit":
        """Return the rule with ``in_token_limit`` at ``value``."""
        settings = caps.with_kwarg(self.settings, ("in_token_limit",), {"in_token_limit": value})
        return replace(self, settings=settings, shape=self.shape._replace(patch_limit=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize, padding not counted."""
        wide, high = fit_patches(width, height, self.shape)
        return wide * high


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchLimitOfChunks(PatchLimit):
    """The same where images are chunks of vision like pieces of videos, and no hint reaches the dummy."""

    hint_lowers_budget: ClassVar[bool] = False


def build_kimi_vl(source: reading.Source) -> PatchLimit:
    """Bind Kimi-VL, where ``in_token_limit`` is read from the settings first."""
    given = source.settings.mm_processor_kwargs
    reading.refuse_unknown(given, {"in_token_limit"})
    patch_size = reading.same_in_both(source, "patch_size", "vision_config.patch_size")
    shape = PatchLimitShape(
        patch_size=patch_size,
        merge_size=_read_merge_size(source, source.processor),
        patch_limit=reading.first_int(source.model_id, (given, "in_token_limit"), (source.processor, "in_token_limit")),
        side_limit=_SIDE_LIMIT,
        fits_side=False,
    )
    dummy = _count(*_KIMI_VL_DUMMY, shape)
    if isinstance(dummy, TokenRefusal):
        raise reading.Refused("StartupFails", f"{source.model_id or 'Kimi-VL'}: {dummy.message}")
    return PatchLimit(settings=source.settings, model_id=source.model_id, shape=shape, dummy=_KIMI_VL_DUMMY)


def build_kimi_k25(source: reading.Source) -> PatchLimit:
    """Bind Kimi-K2.5 and K2.6; settings do not reach their image processor."""
    rule = _build_later(source, dummy=_K25_DUMMY, names_size=False)
    return PatchLimitOfChunks(
        settings=rule.settings,
        model_id=rule.model_id,
        shape=rule.shape,
        dummy=rule.dummy,
        ignored_settings=rule.ignored_settings,
    )


def build_kimi_k3(source: reading.Source) -> PatchLimit:
    """Bind Kimi-K3, whose prompt names the size of the image and whose dummy is the largest image."""
    return _build_later(source, dummy=None, names_size=True)


def _build_later(source: reading.Source, *, dummy: tuple[int, int] | None, names_size: bool) -> PatchLimit:
    given, name = source.settings.mm_processor_kwargs, source.model_id
    reading.refuse_unknown(given, {"in_patch_limit", "media_proc_cfg"})
    values = source.processor.get("media_proc_cfg")
    if not isinstance(values, Mapping):
        values = {}
    if values.get("fixed_output_tokens") is not None:
        raise reading.Refused(
            "InvalidSetting",
            f"{name or 'this Kimi'}: media_proc_cfg.fixed_output_tokens is {values['fixed_output_tokens']!r}, and a "
            "fixed number of tokens would not match the pixels; set it to null",
        )
    shape = PatchLimitShape(
        patch_size=reading.first_int(name, (values, "patch_size")),
        merge_size=_read_merge_size(source, values),
        patch_limit=reading.first_int(name, (values, "in_patch_limit")),
        side_limit=reading.first_int(name, (values, "patch_limit_on_one_side")),
        fits_side=True,
        names_size=names_size,
    )
    return PatchLimit(
        settings=source.settings,
        model_id=name,
        ignored_settings=tuple(reading.dotted(given, "mm_processor_kwargs.")),
        shape=shape,
        dummy=dummy,
    )


def _read_merge_size(source: reading.Source, values: Mapping[str, Any]) -> int:
    """Return the patches a side of a token; the files state them once, or for each side alike."""
    stated = values.get("merge_kernel_size")
    sides = stated if isinstance(stated, list | tuple) else [stated, stated]
    if len(sides) != 2 or sides[0] != sides[1]:
        raise reading.Refused(
            "InvalidSetting",
            f"merge_kernel_size of {source.model_id or 'this Kimi'} is {stated!r}, but must be one number or two that "
            "are equal; correct it",
        )
    return reading.first_int(source.model_id, ({"merge_kernel_size": sides[0]}, "merge_kernel_size"))


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PatchLimitShape) -> ImageTokens | TokenRefusal:
    if width < 1 or height < 1 or width * height > MAX_DECODED_PIXELS:
        refusal = check_size(width, height)
        if refusal is not None:
            return refusal
    answer = _measure(width, height, shape)
    columns, rows = answer.grid or (0, 0)
    longest = (max(rows, columns)) * shape.merge_size
    if longest > shape.side_limit or (longest == shape.side_limit and not shape.fits_side):
        return TokenRefusal(
            reason="ImageTooLong",
            message=f"image size {width}x{height} is {longest:,} patches long after the resize, and the image "
            f"processor accepts fewer than {shape.side_limit:,}; crop or shrink it to "
            f"{shape.side_limit * shape.patch_size:,} pixels a side",
        )
    if not answer.embed_tokens:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: scaled to {shape.patch_limit:,} patches its short side vanishes; "
            "crop the image or cut it into several",
        )
    return answer


def _measure(width: int, height: int, shape: PatchLimitShape) -> ImageTokens:
    unit = shape.patch_size * shape.merge_size
    wide, high = fit_patches(width, height, shape)
    columns, rows = -(-wide // unit), -(-high // unit)
    if shape.names_size:
        inside = _TAGS + _size_tokens(width, height)
        return grid_tokens(columns, rows, unit, shape.merge_size, inside=inside)
    return grid_tokens(columns, rows, unit, shape.merge_size, around=_TAGS)


def _size_tokens(width: int, height: int) -> int:
    """Return the tokens of " WxH": the space, the x, and digits in groups of up to three, as K3's tokenizer cuts."""
    return 2 + ceil_div(len(str(width)), 3) + ceil_div(len(str(height)), 3)


def fit_patches(width: int, height: int, shape: PatchLimitShape) -> tuple[int, int]:
    """Return (width, height) in pixels after the resize, before padding; in the engine's floating point."""
    patch_size, _, patch_limit, side_limit, fits_side, _ = shape
    across, down = width // patch_size, height // patch_size
    if not fits_side:
        if across * down <= patch_limit:
            return width, height
        scale = math.sqrt(patch_limit / (across * down))
        return int(width * scale), int(height * scale)
    side, longest = side_limit * patch_size, max(height, width)
    scale = min(1.0, math.sqrt(patch_limit / ((across or 1) * (down or 1))), side / longest)
    wide, high = int(width * scale) or 1, int(height * scale) or 1
    return min(side, wide), min(side, high)


@lru_cache(maxsize=1024)
def _largest(shape: PatchLimitShape) -> tuple[int, int]:
    """Return (width, height) of the image with the most tokens.

    The scale depends on whole patches alone, so of all images with as many the largest takes the most tokens; the
    engine searches K3's dummy in the same way and order. Longer sides than the limit are scaled down to it, or
    refused.
    """
    patch_size, merge_size, _, side_limit, fits_side, _ = shape
    unit = patch_size * merge_size
    longest = side_limit * patch_size - (0 if fits_side else unit)
    best, size = 0, (1, 1)
    for across in range(side_limit + 1):
        width = min((across + 1) * patch_size - 1, longest)
        for down in range(across, side_limit + 1):
            height = min((down + 1) * patch_size - 1, longest)
            wide, high = fit_patches(width, height, shape)
            tokens = -(-wide // unit) * -(-high // unit)
            if tokens > best:
                best, size = tokens, (width, height)
    return size
