"""One number of tokens whatever the crops: Moondream3.

The image is squeezed into one crop, and besides cut into crops that overlap. The features of these are put together
again, pooled to the grid of one crop and joined with those of the first, so that the image decides about the tower's
work alone. Tokens = patches of a crop + 1 for the start of the sequence, which the engine embeds with them.

The window of a crop is what it adds to its neighbours. An image gets enough windows to cover it, and more if
``_MOST_CROPS`` allow it; where even that many do not cover it, both sides get fewer in proportion, at least one.
All figures are fixed in the engine. Source: its ``Moondream3Processor`` and processing information.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.fixed import Fixed
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, Part, TokenRefusal, image_tokens
from vlm_operator.units import ceil_div

_CROP: Final = 378
_PATCH_SIZE: Final = 14
_MARGIN_PATCHES: Final = 4
_MOST_CROPS: Final = 12
_GRID: Final = _CROP // _PATCH_SIZE
_MARGINS: Final = 2 * _MARGIN_PATCHES * _PATCH_SIZE
"""Both margins of a crop, in pixels."""
_WINDOW: Final = _CROP - _MARGINS
_TOWER: Final = {
    "crop_size": _CROP,
    "enc_patch_size": _PATCH_SIZE,
    "overlap_margin": _MARGIN_PATCHES,
    "enc_n_layers": _GRID,
}
"""What the configuration must say of the tower to go with the processor; the features are pooled to as many rows as
the tower has layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledCrops(Fixed):
    """The rule bound to one model; ``tokens`` is the count of the engine's dummy."""

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height)

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the pooled grid and the start of the sequence."""
        return Part("image", tokens.embed_tokens - 1, 1), Part("start of the sequence", 1, 1)


def build_moondream3(source: reading.Source) -> ImageRule:
    """Bind Moondream3's rule; its configuration describes the tower as ``config.vision``."""
    reading.refuse_unknown(source.settings.mm_processor_kwargs, ())
    for key, made_for in _TOWER.items():
        value = reading.first_int(source.model_id, (source.config, f"config.vision.{key}"), default=made_for)
        if value != made_for:
            raise reading.Refused(
                "SettingMismatch",
                f"config.vision.{key} of {source.model_id or 'this Moondream3'} is {value}, but the engine's processor "
                f"and its {_GRID**2 + 1} tokens of an image go with {made_for}: requests would fail; drop the override",
            )
    return PooledCrops(
        settings=source.settings, model_id=source.model_id, tokens=_measure(_CROP, _CROP), dummy_size=(_CROP, _CROP)
    )


@lru_cache(maxsize=65536)
def _count(width: int, height: int) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height)


def _measure(width: int, height: int) -> ImageTokens:
    rows, columns = choose_tiling(height - _MARGINS, width - _MARGINS)
    crops, total = rows * columns + 1, _GRID**2 + 1
    return image_tokens(
        embed_tokens=total,
        placeholder_length=total,
        prompt_tokens=total,
        vit_patches=crops * _GRID**2,
        tiles=crops,
        grid=(columns, rows),
    )


def choose_tiling(height: int, width: int) -> tuple[int, int]:
    """Return (rows, columns) of windows for an image of this size without its margins, in the engine's floats."""
    if height <= _WINDOW or width <= _WINDOW:
        return 1, 1
    least_rows, least_columns = ceil_div(height, _WINDOW), ceil_div(width, _WINDOW)
    if least_rows * least_columns > _MOST_CROPS:
        scale = math.sqrt(_MOST_CROPS / (least_rows * least_columns))
        return max(1, math.floor(least_rows * scale)), max(1, math.floor(least_columns * scale))
    rows = max(math.floor(math.sqrt(_MOST_CROPS * height / width)), least_rows)
    columns = max(math.floor(math.sqrt(_MOST_CROPS * width / height)), least_columns)
    if rows * columns > _MOST_CROPS:
        if columns > rows:
            columns = _MOST_CROPS // rows
        else:
            rows = _MOST_CROPS // columns
    return max(1, rows), max(1, columns)
