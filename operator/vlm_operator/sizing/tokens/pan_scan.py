"""A fixed view and, if switched on, crops along the longer side: Gemma 3.

Tokens = (crops + 1) x ``image_seq_length``. Crops = round(long / short), but at least 2, at most
``max_crops`` and no more than the long side holds crops of ``min_crop_size``; none where the aspect ratio is
below ``min_ratio`` or a crop would be smaller than ``min_crop_size``. Each view is wrapped in a begin and an
end token and two blank lines, and crops are announced by a sentence. Source: Gemma3ImageProcessor of
``transformers`` and the Gemma 3 processing information of the engine.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS, check_size
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens
from vlm_operator.units import ceil_div

_WRAPPING: Final = 4
"""Begin and end token and a blank line on both sides of each view."""
_SENTENCE: Final = 16
"""Words of the sentence that announces the crops, with the blanks but for those between crops."""
# Defaults of Gemma3ProcessorKwargs, which stand in for null: the published checkpoints have null for all of them.
_MAX_CROPS: Final = 4
_MIN_CROP_SIZE: Final = 256
_MIN_RATIO: Final = 1.2


class PanScanShape(NamedTuple):
    """What the count depends on."""

    tokens_per_view: int
    patches_per_view: int
    enabled: bool
    max_crops: int
    min_crop_size: int
    min_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PanScan(ImageRule):
    """The rule bound to one model. It has no cap: crops are a switch for more detail, off as shipped."""

    image_size: int
    shape: PanScanShape

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, self.shape)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the dummy is one view wide and as many high as there may be crops."""
        size = (self.image_size, self.image_size * self.shape.max_crops)
        # The engine makes this image itself, so what it refuses to decode does not matter here.
        dummy = _measure(*size, self.shape)
        largest = _largest_size(self.shape)
        return MaximumTokens(
            true_tokens=_measure(*largest, self.shape).embed_tokens,
            true_size=largest,
            engine_tokens=dummy.embed_tokens,
            dummy_size=size,
            dummy_tokens=dummy.embed_tokens,
            dummy_patches=dummy.vit_patches,
        )

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the views, what wraps them and the sentence that announces crops."""
        views = tokens.tiles or 1
        wrapping = Part("tags and blank lines of a view", views, _WRAPPING, embedded=False)
        sentence = tokens.prompt_tokens - tokens.embed_tokens - views * _WRAPPING
        return Part("view", views, self.shape.tokens_per_view), wrapping, Part("sentence", sentence, 1, embedded=False)


def build_gemma3(source: reading.Source) -> ImageRule:
    """Bind Gemma 3's rule."""
    given = reading.flatten_images_kwargs(source.settings)
    known = {
        "do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    }  # fmt: skip
    reading.refuse_unknown(given, {*known, "size"})
    reading.refuse_changed({key: given[key] for key in given if key == "size"}, source.processor, "drop it")
    values = {**source.processor, **given}
    name = source.model_id
    image_size = reading.first_int(source.model_id, (source.config, "vision_config.image_size"))
    ratio = values.get("pan_and_scan_min_ratio_to_activate")
    ratio = _MIN_RATIO if ratio is None else ratio
    patches = (
        reading.divide(
            "vision_config.patch_size",
            image_size,
            reading.first_int(source.model_id, (source.config, "vision_config.patch_size")),
        )
        ** 2
    )
    shape = PanScanShape(
        tokens_per_view=reading.first_int(
            name, (source.processor, "image_seq_length"), (source.config, "mm_tokens_per_image")
        ),
        patches_per_view=patches,
        enabled=reading.boolean("do_pan_and_scan", values.get("do_pan_and_scan")),
        max_crops=reading.first_int(name, (values, "pan_and_scan_max_num_crops"), default=_MAX_CROPS),
        min_crop_size=reading.first_int(name, (values, "pan_and_scan_min_crop_size"), default=_MIN_CROP_SIZE),
        min_ratio=reading.positive_number("pan_and_scan_min_ratio_to_activate", ratio),
    )
    return PanScan(settings=source.settings, model_id=name, image_size=image_size, shape=shape)


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: PanScanShape) -> ImageTokens | TokenRefusal:
    return check_size(width, height) or _measure(width, height, shape)


def _measure(width: int, height: int, shape: PanScanShape) -> ImageTokens:
    crops = _count_crops(max(width, height), min(width, height), shape) if shape.enabled else 0
    views = crops + 1
    embed = views * shape.tokens_per_view
    length = embed + views * _WRAPPING + (_SENTENCE + crops if crops else 0)
    return image_tokens(
        embed_tokens=embed,
        placeholder_length=length,
        prompt_tokens=length,
        vit_patches=views * shape.patches_per_view,
        tiles=views,
    )


@lru_cache(maxsize=256)
def _largest_size(shape: PanScanShape) -> tuple[int, int]:
    """Return the smallest decodable (width, height) with the most crops, one pixel where none has any.

    A crop is at least ``min_crop_size`` on both sides, so the strip is that high and as long as the crops or
    ``min_ratio`` demand.
    """
    if shape.enabled:
        short = shape.min_crop_size
        shortest = math.ceil(shape.min_ratio * short) + 1
        for crops in range(min(shape.max_crops, MAX_DECODED_PIXELS // short**2), 0, -1):
            long = max(crops * short, shortest)
            if check_size(long, short) is None and _count_crops(long, short, shape):
                return long, short
    return 1, 1


def _count_crops(long: int, short: int, shape: PanScanShape) -> int:
    if long / short < shape.min_ratio:
        return 0
    crops = min(long // shape.min_crop_size, int(long / short + 0.5))
    crops = min(shape.max_crops, max(2, crops))
    if min(ceil_div(long, crops), short) < shape.min_crop_size:
        return 0
    return crops
