"""An overview and square windows cut from the image: Step3-VL and its successors.

A thin image with a short side below 32 pixels is padded to a square; sides above 3024 pixels are scaled down. Images
up to 727 pixels are cut, in windows as wide as the short side, only if longer than 3:2; larger ones in windows of
504 pixels, or of the short side where that is smaller and the image longer than 4:1. A rest of more than a fifth of
a window makes one more. Each window has 81 tokens, the overview 169, both with a start and an end token; window rows
are parted by a token. Source: the engine's own ``Step3VLProcessor``, which reads no processor file.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import reading
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

_OVERVIEW_SIZE: Final = 728
_OVERVIEW_TOKENS: Final = 169
_WINDOW_SIZE: Final = 504
_WINDOW_TOKENS: Final = 81
_TAGS: Final = 2
_LONGEST_SIDE: Final = 3024
_PADDED_BELOW: Final = 32
_IGNORED: Final = frozenset(
    {"enable_patch", "image_size", "patch_size", "num_image_feature_size", "num_patch_feature_size"}
)
"""Arguments of the processor that the engine does not hand over from the server's settings."""


class WindowShape(NamedTuple):
    """What the count depends on; ``patch_size`` is that of the tower."""

    patch_size: int
    windows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(ImageRule):
    """The rule bound to one model and its settings. The engine's maximum counts the tags of a square image as well."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: WindowShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: so thin that, scaled down, it is cut into windows of one pixel."""
        dummy = _measure(_LONGEST_SIDE, _LONGEST_SIDE, self.shape)
        size = (_LONGEST_SIDE * _PADDED_BELOW, _PADDED_BELOW)
        return MaximumTokens(
            true_tokens=_measure(*size, self.shape).embed_tokens,
            true_size=size,
            engine_tokens=dummy.placeholder_length,
            dummy_size=(_LONGEST_SIDE, _LONGEST_SIDE),
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the overview, the windows and their tags."""
        windows = tokens.tiles or 0
        rows = tokens.grid[1] if tokens.grid and windows else 1
        return (
            Part("overview", 1, _OVERVIEW_TOKENS),
            Part("window", windows, _WINDOW_TOKENS),
            Part("start and end of a view", 1 + windows, _TAGS, embedded=False),
            Part("row breaks", rows - 1, 1, embedded=False),
        )

    @property
    def cap(self) -> Cap:
        """The switch for windows, which the engine reads from the configuration; with it off, the overview is all."""
        on = self.shape.windows
        return Cap(name="vision_config.enable_patch", value=on, tighter=(False,) if on else ())

    def with_cap(self, value: int) -> "Windows":
        """Return the rule with windows (true) or without (false)."""
        given = {"vision_config": {"enable_patch": bool(value)}}
        settings = replace(self.settings, hf_overrides=reading.merge(self.settings.hf_overrides, given))
        return replace(self, settings=settings, shape=self.shape._replace(windows=bool(value)))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area of the windows at the tower's size, or that of the overview where it is more."""
        columns, rows = _cut(*_scale(width, height)) if self.shape.windows else (0, 0)
        return max(columns * rows * _WINDOW_SIZE**2, _OVERVIEW_SIZE**2)


def build_step3(source: reading.Source) -> ImageRule:
    """Bind Step3's rule; the engine fixes all figures but the tower's patch size and the switch for windows."""
    given, name = source.settings.mm_processor_kwargs, source.model_id
    reading.refuse_unknown(given, _IGNORED)
    patch_size = reading.first_int(name, (source.config, "vision_config.patch_size"))
    reading.divide("vision_config.patch_size", _WINDOW_SIZE, patch_size)
    enabled = reading.find(source.config, "vision_config.enable_patch")
    shape = WindowShape(
        patch_size=patch_size,
        windows=True if enabled is None else reading.boolean("vision_config.enable_patch", enabled),
    )
    ignored = tuple(f"mm_processor_kwargs.{key}" for key in given)
    return Windows(settings=source.settings, model_id=name, shape=shape, ignored_settings=ignored)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: WindowShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    if min(_scale(width, height)) < 1:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height}: scaled down to {_LONGEST_SIDE} pixels its short side vanishes; crop "
            "the image or cut it into several",
        )
    return _measure(width, height, shape)


def _measure(width: int, height: int, shape: WindowShape) -> ImageTokens:
    columns, rows = _cut(*_scale(width, height)) if shape.windows else (0, 0)
    windows = columns * rows
    embed = _OVERVIEW_TOKENS + windows * _WINDOW_TOKENS
    prompt = embed + (1 + windows) * _TAGS + max(0, rows - 1)
    overview, window = _OVERVIEW_SIZE // shape.patch_size, _WINDOW_SIZE // shape.patch_size
    return image_tokens(embed, prompt, prompt, overview**2 + windows * window**2, tiles=windows, grid=(columns, rows))


def _scale(width: int, height: int) -> tuple[int, int]:
    """Return (width, height) after padding and scaling down, 0 where a side vanishes."""
    long, short = max(width, height), min(width, height)
    if short < _PADDED_BELOW and long > 4 * short:
        width = height = long
    if long > _LONGEST_SIDE:
        scale = _LONGEST_SIDE / long
        width, height = int(width * scale), int(height * scale)
    return width, height


def _cut(width: int, height: int) -> tuple[int, int]:
    """Return (columns, rows) of windows, (0, 0) where the overview is all."""
    long, short = max(width, height), min(width, height)
    if long < _OVERVIEW_SIZE:
        window = short if 2 * long > 3 * short else 0
    else:
        window = min(short, _WINDOW_SIZE) if long > 4 * short else _WINDOW_SIZE
    if not window:
        return 0, 0
    return _along(width, window), _along(height, window)


def _along(side: int, window: int) -> int:
    """Return how many windows lie along a side; the rest is compared in the engine's floating point."""
    whole = side // window
    if not whole:
        return 1
    return whole + (side / window - whole > 0.2)
