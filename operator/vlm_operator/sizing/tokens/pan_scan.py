"""A fixed view and, if switched on, crops along the longer side: Gemma 3.

Tokens = (crops + 1) x ``image_seq_length``. Crops = round(long / short), but at least 2, at most
``max_crops`` and no more than the long side holds crops of ``min_crop_size``; none where the aspect ratio is
below ``min_ratio`` or a crop would be smaller than ``min_crop_size``. Each view is wrapped in a begin and an
end token and two blank lines, and crops are announced by a sentence. Source: Gemma3ImageProcessor of
``transformers`` and the Gemma 3 processing information of the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal
from vlm_operator.units import ceil_div

_WRAPPING: Final = 4
"""Begin and end token and a blank line on both sides of each view."""
_SENTENCE: Final = 16
"""Words of the sentence that announces the crops, with the blanks but for those between crops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanScanShape:
    """What the count depends on."""

    tokens_per_view: int
    patches_per_view: int
    enabled: bool
    max_crops: int
    min_crop_size: int
    min_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PanScan:
    """The rule bound to one model and its settings."""

    settings: ServerSettings
    model_id: str
    image_size: int
    shape: PanScanShape
    ignored_settings: tuple[str, ...] = ()

    @property
    def hint_lowers_budget(self) -> bool:
        """Yes: the engine's maximum is a processed dummy image."""
        return True

    @property
    def cap_name(self) -> None:
        """Return None: the crops are a switch for more detail, not a cap that keeps pixels."""
        return

    @property
    def cap_value(self) -> None:
        """Return None: there is no lever."""
        return

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the dummy is one view wide and as many high as there may be crops."""
        size = (self.image_size, self.image_size * self.shape.max_crops)
        # The engine makes this image itself, so what it refuses to decode does not matter here.
        dummy = _measure(*size, self.shape)
        views = 1 + (self.shape.max_crops if self.shape.enabled else 0)
        return MaximumTokens(
            true_tokens=max(dummy.embed_tokens, views * self.shape.tokens_per_view),
            engine_tokens=dummy.embed_tokens,
            dummy_size=size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return None: without crops every image takes the same, and with crops the user asked for them."""
        del sizes, min_pixels
        return None


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PanScanShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: PanScanShape) -> ImageTokens:
    crops = _count_crops(max(width, height), min(width, height), shape) if shape.enabled else 0
    views = crops + 1
    embed = views * shape.tokens_per_view
    length = embed + views * _WRAPPING + (_SENTENCE + crops if crops else 0)
    return ImageTokens(
        embed_tokens=embed,
        placeholder_length=length,
        prompt_tokens=length,
        vit_patches=views * shape.patches_per_view,
        tiles=views,
    )


def _count_crops(long: int, short: int, shape: PanScanShape) -> int:
    if long / short < shape.min_ratio:
        return 0
    crops = min(long // shape.min_crop_size, int(long / short + 0.5))
    crops = min(shape.max_crops, max(2, crops))
    if min(ceil_div(long, crops), short) < shape.min_crop_size:
        return 0
    return crops
