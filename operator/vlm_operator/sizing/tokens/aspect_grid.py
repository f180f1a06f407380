"""The grid of tokens whose aspect is nearest to the image's, within a number of tokens: Muse Glimmer and Muse Spark.

The ideal grid has a token for each square of ``unit`` pixels. One of more tokens than the limit is scaled to the limit,
its sides being real numbers; each side is then cut or raised to a whole number, and of these four grids the one that
distorts the image least is taken. Muse Spark also scales a grid of less than one token up to one. For an image so long
that even one row exceeds the limit Muse Spark takes a strip of the limit, while Muse Glimmer goes beyond the limit;
those are refused, since they exceed what the engine reserves.

Source: ``MuseGlimmerImageProcessor`` of ``transformers``, and Muse Spark's own processor in the engine.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from vlm_operator.sizing.tokens import caps, reading
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

_TAGS: Final = 2
_SPARK_DUMMY: Final = (448, 448)
_DEFAULT_TOKENS: Final = 4096
"""Both processors fall back on it."""


class AspectShape(NamedTuple):
    """What the count depends on: ``unit`` is the side in pixels of the square that becomes one token.

    ``strips`` tells whether images beyond the limit's aspect become a strip, and those below a token a whole one.
    """

    unit: int
    merge_size: int
    max_tokens: int
    strips: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectGrid(ImageRule):
    """The rule bound to one model and its settings. The engine reserves ``budget_tokens``, whatever its dummy takes."""

    hint_lowers_budget: ClassVar[bool] = False
    shape: AspectShape
    budget_tokens: int
    settable: bool

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: the squarest grid of as many tokens as the limit, which no resize changes."""
        unit, most = self.shape.unit, self.shape.max_tokens
        side = math.isqrt(self.budget_tokens) * unit
        dummy_size = _SPARK_DUMMY if self.shape.strips else (side, side)
        dummy = _measure(*dummy_size, self.shape)
        rows = squarest_rows(most)
        true_size = dummy_size if dummy.embed_tokens == most else (most // rows * unit, rows * unit)
        return MaximumTokens(
            true_tokens=most,
            true_size=true_size,
            engine_tokens=self.budget_tokens,
            dummy_size=dummy_size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the tags around it."""
        return Part("grid", tokens.embed_tokens, 1), Part("start and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap | None:
        """The limit of tokens, where a setting reaches it. A larger one may fit the aspect with fewer of them."""
        if not self.settable:
            return None
        most = self.shape.max_tokens
        return Cap(name="max_image_tokens", value=most, tighter=range(1, most), monotone=False)

    def with_cap(self, value: int) -> "AspectGrid":
        """Return the rule with ``max_image_tokens`` at ``value``, which the budget follows."""
        settings = caps.with_kwarg(self.settings, ("max_image_tokens",), {"max_image_tokens": value})
        return replace(self, settings=settings, shape=self.shape._replace(max_tokens=value), budget_tokens=value)

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = fit_aspect(width, height, self.shape)
        return columns * rows * self.shape.unit**2


def build_muse_glimmer(source: reading.Source) -> AspectGrid:
    """Bind Muse Glimmer; ``max_image_tokens`` works, and moves the budget unless it is scoped to ``images_kwargs``."""
    settings, name = source.settings, source.model_id
    given = reading.flatten_images_kwargs(settings)
    reading.refuse_unknown(given, {"max_image_tokens"})
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.merge_size")
    shipped = (source.processor, "max_image_tokens")
    return AspectGrid(
        settings=settings,
        model_id=name,
        shape=AspectShape(
            unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
            merge_size=merge_size,
            max_tokens=reading.first_int(name, (given, "max_image_tokens"), shipped, default=_DEFAULT_TOKENS),
            strips=False,
        ),
        budget_tokens=reading.first_int(
            name, (settings.mm_processor_kwargs, "max_image_tokens"), shipped, default=_DEFAULT_TOKENS
        ),
        settable=True,
    )


def build_muse_spark(source: reading.Source) -> AspectGrid:
    """Bind Muse Spark, whose processor disregards settings; its dummy is small and its budget is the limit."""
    name, config = source.model_id, source.config
    merge_size = reading.first_int(name, (config, "vision_config.merge_size"))
    most = reading.first_int(name, (source.processor, "max_image_tokens"), default=_DEFAULT_TOKENS)
    return AspectGrid(
        settings=source.settings,
        model_id=name,
        ignored_settings=tuple(reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs.")),
        shape=AspectShape(
            unit=reading.first_int(name, (config, "vision_config.patch_size")) * merge_size,
            merge_size=merge_size,
            max_tokens=most,
            strips=True,
        ),
        budget_tokens=most,
        settable=False,
    )


def squarest_rows(tokens: int) -> int:
    """Return the rows of the squarest grid of exactly ``tokens``, no more than its columns."""
    return next(rows for rows in range(math.isqrt(tokens), 0, -1) if tokens % rows == 0)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: AspectShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    columns, rows = fit_aspect(width, height, shape)
    if columns * rows > shape.max_tokens:
        return TokenRefusal(
            reason="AspectRatioTooExtreme",
            message=f"image size {width}x{height} becomes {columns * rows:,} tokens, more than the "
            f"{shape.max_tokens:,} of max_image_tokens that the engine reserves; crop the image or cut it into several",
        )
    return _tokens(columns, rows, shape)


def _measure(width: int, height: int, shape: AspectShape) -> ImageTokens:
    return _tokens(*fit_aspect(width, height, shape), shape)


def _tokens(columns: int, rows: int, shape: AspectShape) -> ImageTokens:
    return grid_tokens(columns, rows, shape.unit, shape.merge_size, inside=_TAGS)


def fit_aspect(width: int, height: int, shape: AspectShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens; in the engine's floating point."""
    unit, _, most, strips = shape
    high, wide = height / unit, width / unit
    ratio = wide / high
    if high * wide > most:
        high = (most / ratio) ** 0.5
        wide = high * ratio
    elif strips and high * wide < 1:
        high = (1 / ratio) ** 0.5
        wide = high * ratio
    best, least, aspect = (0, 0), math.inf, height / width
    # A set, as in the engine: its order decides between grids that distort alike, such as those of a square.
    low, left = math.floor(high), math.floor(wide)
    up, right = math.ceil(high), math.ceil(wide)
    for rows, columns in {(low, left), (low, right), (up, left), (up, right)}:
        if rows < 1 or columns < 1 or rows * columns > most:
            continue
        distortion = abs(rows / columns - aspect)
        if distortion < least:
            best, least = (columns, rows), distortion
    if best[0]:
        return best
    if strips:
        return (most, 1) if wide > high else (1, most)
    return max(1, round(wide)), max(1, round(high))
