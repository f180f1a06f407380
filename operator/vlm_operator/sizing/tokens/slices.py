"""An overview and slices on a grid near the image's aspect: MiniCPM-V 2.6, 4 and 4.5.

Wanted slices = ceil(area / scale resolution squared), at most ``max_slices``. Grids of one slice fewer, as
many and one more compete; the one whose log aspect is closest to the image's wins, the earlier of equals.
Tokens = (slices + 1) x ``tokens_per_slice``. Each slice has a start and an end token, the overview also the
image id of three tokens, and rows are parted by a newline. Source: MiniCPM-V image processors of
``transformers`` and the engine's processing information.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal
from vlm_operator.units import ceil_div

_TAGS: Final = 2
_IMAGE_ID: Final = 3
_ENGINE_SLICES: Final = 9
"""The engine's dummy image always has room for nine slices, whatever ``max_slice_nums`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceShape:
    """What the count depends on."""

    scale: int
    patch_size: int
    tokens_per_slice: int
    max_slices: int
    image_id: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The rule bound to one model and its settings."""

    settings: ServerSettings
    model_id: str
    shape: SliceShape
    ignored_settings: tuple[str, ...] = ()

    @property
    def hint_lowers_budget(self) -> bool:
        """No: the engine computes the maximum from its own dummy size."""
        return False

    @property
    def cap_name(self) -> str:
        """The limit on slices."""
        return "max_slice_nums"

    @property
    def cap_value(self) -> int:
        """The limit's value."""
        return self.shape.max_slices

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; above nine slices the engine's own maximum is too low."""
        size = (self.shape.scale, self.shape.scale * _ENGINE_SLICES)
        dummy = _measure(*size, self.shape)
        slices = self.shape.max_slices if self.shape.max_slices > 1 else 0
        return MaximumTokens(
            true_tokens=(slices + 1) * self.shape.tokens_per_slice,
            engine_tokens=dummy.embed_tokens,
            dummy_size=size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return the fewest slices that leave each image ``min_pixels``, at scale resolution per slice."""
        needs = [
            (size, kept if min_pixels is None else min(kept, min_pixels))
            for size in caps.countable(self.count_image, sizes)
            for kept in [self._kept(size, self.shape.max_slices)]
        ]
        # Beyond one slice more than the largest image asks for, the limit no longer binds.
        asked = max((ceil_div(w * h, self.shape.scale**2) + 2 for (w, h), _ in needs), default=0)
        for limit in range(1, min(self.shape.max_slices, asked)):
            if all(self._kept(size, limit) >= need for size, need in needs):
                return caps.with_kwarg(self.settings, ("max_slice_nums",), {"max_slice_nums": limit})
        return self.settings

    def _kept(self, size: tuple[int, int], limit: int) -> int:
        columns, rows = slice_grid(*size, self.shape.scale, limit)
        return max(1, columns * rows) * self.shape.scale**2


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: SliceShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: SliceShape) -> ImageTokens:
    columns, rows = slice_grid(width, height, shape.scale, shape.max_slices)
    slices = columns * rows
    embed = (slices + 1) * shape.tokens_per_slice
    prompt = embed + (slices + 1) * _TAGS + max(0, rows - 1) + (_IMAGE_ID if shape.image_id else 0)
    return ImageTokens(
        embed_tokens=embed,
        placeholder_length=prompt,
        prompt_tokens=prompt,
        vit_patches=_count_patches((width, height), (columns, rows), shape),
        tiles=slices + 1,
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
    columns, rows = grid
    if not columns:
        return _fit(size, shape, enlarge=True)
    cell = (_multiple(size[0], columns) / columns, _multiple(size[1], rows) / rows)
    return _fit(size, shape, enlarge=False) + columns * rows * _fit(cell, shape, enlarge=True)


def _fit(size: tuple[float, float], shape: SliceShape, *, enlarge: bool) -> int:
    width, height = size
    if enlarge or width * height > shape.scale**2:
        aspect = width / height
        height = int(shape.scale / math.sqrt(aspect))
        width = int(height * aspect)
    return max(1, round(width / shape.patch_size)) * max(1, round(height / shape.patch_size))


def _multiple(length: int, parts: int) -> int:
    return max(round(length / parts) * parts, parts)
