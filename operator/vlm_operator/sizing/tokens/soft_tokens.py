"""A budget of soft tokens that every image fills: Gemma 4 and its encoder-free, diffusion and embedding variants.

The image is scaled, up or down, so that its area is ``max_soft_tokens`` squares of ``unit`` pixels (patch size x
pooling kernel size), and each side is floored to whole squares; a side below one square becomes one, and the other
is cut to the budget. Tokens = columns x rows, between a begin and an end token. Source: Gemma4ImageProcessor of
``transformers`` and the Gemma 4 processing information of the engine.
"""

import math
from collections.abc import Mapping
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
_BUDGETS: Final = (70, 140, 280, 560, 1120)
"""The values of ``max_soft_tokens`` that processor and engine accept; any other stops the server."""
_DUMMY_SIDE: Final = 224
"""Side of the image that the engine profiles with; the processor names no size."""
# Defaults of the class Gemma4ImageProcessor and of Gemma4VisionConfig, for files that omit the key.
_PATCH_SIZE: Final = 16
_POOLING: Final = 3
_SHIPPED_BUDGET: Final = 280


class SoftTokenShape(NamedTuple):
    """What the count depends on; ``patches_per_token`` is 1 where no tower pools patches."""

    patch_size: int
    pooling: int
    budget: int
    patches_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTokens(ImageRule):
    """The rule bound to one model and its settings."""

    shape: SoftTokenShape
    hint_lowers_budget: ClassVar[bool] = False

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the whole budget, which a strip takes; the engine profiles with a small square."""
        budget = self.shape.budget
        columns, rows = _grid(_DUMMY_SIDE, _DUMMY_SIDE, self.shape)
        return MaximumTokens(
            true_tokens=budget,
            true_size=(2 * budget, 1),
            engine_tokens=budget,
            dummy_size=(_DUMMY_SIDE, _DUMMY_SIDE),
            dummy_tokens=columns * rows,
            dummy_patches=columns * rows * self.shape.patches_per_token,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid and the two tags."""
        return Part("grid", tokens.embed_tokens, 1), Part("begin and end", _TAGS, 1, embedded=False)

    @property
    def cap(self) -> Cap:
        """The budget, which has five legal values."""
        tighter = [budget for budget in _BUDGETS if budget < self.shape.budget]
        return Cap(name="max_soft_tokens", value=self.shape.budget, tighter=tighter)

    def with_cap(self, value: int) -> "SoftTokens":
        """Return the rule with ``max_soft_tokens`` at ``value``."""
        settings = caps.with_kwarg(self.settings, ("max_soft_tokens",), {"max_soft_tokens": value})
        return replace(self, settings=settings, shape=self.shape._replace(budget=value))

    def kept_pixels(self, width: int, height: int) -> int:
        """Return the area after the resize."""
        columns, rows = _grid(width, height, self.shape)
        return columns * rows * (self.shape.patch_size * self.shape.pooling) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSoftTokens(SoftTokens):
    """The same where the engine counts the two tags to its maximum."""

    def maximum(self) -> MaximumTokens:
        """Return the whole budget, and the engine's own figure."""
        return replace(SoftTokens.maximum(self), engine_tokens=self.shape.budget + _TAGS)


def build_gemma4(source: reading.Source) -> SoftTokens:
    """Bind Gemma 4's rule, which is also DiffusionGemma's."""
    return _build(source, "vision_config.default_output_length", has_tower=True)


def build_embedding_gemma2(source: reading.Source) -> ImageRule:
    """Bind EmbeddingGemma 2's rule: Gemma 4's, with a larger maximum."""
    rule = build_gemma4(source)
    return EmbeddingSoftTokens(settings=rule.settings, model_id=rule.model_id, shape=rule.shape)


def build_gemma4_unified(source: reading.Source) -> SoftTokens:
    """Bind the rule of the encoder-free Gemma 4, whose patches are pooled before they are embedded."""
    return _build(source, "vision_config.num_soft_tokens", has_tower=False)


def _build(source: reading.Source, budget_path: str, *, has_tower: bool) -> SoftTokens:
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"max_soft_tokens", "patch_size", "pooling_kernel_size"})
    pooling = _agreed(source, given, "pooling_kernel_size", _POOLING)
    shape = SoftTokenShape(
        patch_size=_agreed(source, given, "patch_size", _PATCH_SIZE),
        pooling=pooling,
        budget=_read_budget(source, given, budget_path),
        patches_per_token=pooling**2 if has_tower else 1,
    )
    return SoftTokens(settings=source.settings, model_id=source.model_id, shape=shape)


def _read_budget(source: reading.Source, given: Mapping[str, Any], path: str) -> int:
    """Return the budget that pixels and count share: the setting, else the value of the files."""
    pixels = reading.first_int(
        source.model_id,
        (given, "max_soft_tokens"),
        (source.processor, "max_soft_tokens"),
        default=_SHIPPED_BUDGET,
    )
    if pixels not in _BUDGETS:
        raise reading.Refused(
            "StartupFails",
            f"max_soft_tokens is {pixels}, and the server would not start: it must be one of "
            f"{', '.join(map(str, _BUDGETS))}; choose one of them",
        )
    # The engine counts with the setting, the scoped one before the flat one, and else with config.json.
    counted = reading.first_int(source.model_id, (given, "max_soft_tokens"), (source.config, path))
    if counted != pixels:
        raise reading.Refused(
            "SettingMismatch",
            f"max_soft_tokens is {pixels} for the pixels, but the engine counts with {counted} ({path}), and "
            "requests would fail; "
            f"set it once with --mm-processor-kwargs '{{\"max_soft_tokens\": {pixels}}}'",
        )
    return pixels


def _agreed(source: reading.Source, given: Mapping[str, Any], key: str, default: int) -> int:
    """Return a figure that the pixels take from the processor and the count from config.json."""
    path = f"vision_config.{key}"
    pixels = reading.first_int(source.model_id, (given, key), (source.processor, key), default=default)
    counted = reading.first_int(source.model_id, (source.config, path), default=default)
    if pixels != counted:
        raise reading.Refused(
            "SettingMismatch",
            f"{key} is {pixels} for the pixels, but {path} is {counted}: pixels and token count would disagree and "
            "requests would fail; drop the override",
        )
    return pixels


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: SoftTokenShape) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    columns, rows = _grid(width, height, shape)
    tokens = columns * rows
    counted = _count_placeholders(width, height, shape)
    if counted != tokens:
        return TokenRefusal(
            reason="PlaceholderMismatch",
            message=f"image size {width}x{height}: the engine puts {counted} placeholders where the processor makes "
            f"{tokens} tokens (they round differently at this aspect ratio), and the request would fail; crop or pad "
            "the image by a pixel",
        )
    unit = shape.patch_size * shape.pooling
    return image_tokens(
        tokens,
        tokens + _TAGS,
        tokens + _TAGS,
        tokens * shape.patches_per_token,
        resized=(columns * unit, rows * unit),
        grid=(columns, rows),
    )


def _grid(width: int, height: int, shape: SoftTokenShape) -> tuple[int, int]:
    """Return (columns, rows) of tokens, as the processor makes them."""
    patch_size, pooling, budget, _ = shape
    factor = math.sqrt(budget * pooling**2 * patch_size**2 / (height * width))
    unit = pooling * patch_size
    columns, rows = int(factor * width / unit), int(factor * height / unit)
    if rows == 0:
        return min(width // height, budget), 1
    if columns == 0:
        return 1, min(height // width, budget)
    return columns, rows


def _count_placeholders(width: int, height: int, shape: SoftTokenShape) -> int:
    """Return how many placeholders the engine puts; it scales patches, not pixels, and so rounds differently."""
    patch_size, pooling, budget, _ = shape
    scale = math.sqrt(budget * pooling**2 / ((height / patch_size) * (width / patch_size)))
    unit = patch_size * pooling
    placeholders = (int(height * scale / unit) or 1) * (int(width * scale / unit) or 1)
    return min(budget, placeholders)
