"""Images shrunk to a longest edge and cut into a grid: Mistral 3, Pixtral (both checkpoint formats).

An image with a side above ``longest_edge`` is scaled down so that the longer side fits. Each side then
becomes ceil(side / unit) tokens, unit = patch size x merge size. Every row ends with a break token, the last
with an end token; both lie inside the placeholder but are no embeddings. Source: PixtralImageProcessor of
``transformers``, the image encoder of ``mistral_common``, and the Mistral3 and Pixtral processing information
of the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vlm_operator.sizing.tokens import caps
from vlm_operator.sizing.tokens.limits import check_size
from vlm_operator.sizing.tokens.types import ImageTokens, MaximumTokens, ServerSettings, TokenRefusal
from vlm_operator.units import ceil_div

Rounding = Literal["floor", "nearest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestEdge:
    """The rule bound to one model and its settings.

    ``rounding`` is how a scaled-down side becomes whole pixels: ``floor`` in ``transformers``, ``nearest`` in
    ``mistral_common``. ``adjustable`` is false where the engine takes the edge from the checkpoint alone.
    """

    settings: ServerSettings
    model_id: str
    patch_size: int
    merge_size: int
    longest_edge: int
    rounding: Rounding = "floor"
    adjustable: bool = True
    ignored_settings: tuple[str, ...] = ()

    @property
    def unit(self) -> int:
        """Side of the square of pixels that becomes one token."""
        return self.patch_size * self.merge_size

    @property
    def hint_lowers_budget(self) -> bool:
        """Yes: the engine's maximum is a processed dummy image."""
        return True

    @property
    def cap_name(self) -> str | None:
        """The longest edge, where it can be set."""
        return "size.longest_edge" if self.adjustable else None

    @property
    def cap_value(self) -> int | None:
        """The longest edge's value, where it can be set."""
        return self.longest_edge if self.adjustable else None

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        return _count(width, height, (self.unit, self.merge_size, self.longest_edge), self.rounding)

    def maximum(self) -> MaximumTokens:
        """Return the largest image: a square of the longest edge, which is also the engine's dummy."""
        side = ceil_div(self.longest_edge, self.unit)
        return MaximumTokens(
            true_tokens=side**2,
            engine_tokens=side**2,
            dummy_size=(self.longest_edge, self.longest_edge),
            dummy_tokens=side**2,
            dummy_patches=side**2 * self.merge_size**2,
        )

    def tightest_cap(self, sizes: Sequence[tuple[int, int]], min_pixels: int | None) -> ServerSettings | None:
        """Return the shortest ``size.longest_edge``, in whole tokens, that leaves each image enough."""
        if not self.adjustable:
            return None
        needs = [
            (size, area if min_pixels is None else min(area, min_pixels))
            for size in caps.countable(self.count_image, sizes)
            for area in [self._kept(size, self.longest_edge)]
        ]
        highest = self.longest_edge // self.unit
        if highest < 1 or not needs:
            return self.settings
        units = caps.smallest(
            1, highest + 1, lambda n: all(self._kept(size, n * self.unit) >= need for size, need in needs)
        )
        if units * self.unit >= self.longest_edge:
            return self.settings
        return caps.with_kwarg(self.settings, ("size",), {"size": {"longest_edge": units * self.unit}})

    def _kept(self, size: tuple[int, int], longest_edge: int) -> int:
        columns, rows = _grid(*size, self.unit, longest_edge, self.rounding)
        return columns * rows * self.unit**2


@lru_cache(maxsize=65536)
def _count(width: int, height: int, shape: tuple[int, int, int], rounding: Rounding) -> ImageTokens | TokenRefusal:
    refusal = check_size(width, height)
    if refusal is not None:
        return refusal
    unit, merge_size, longest_edge = shape
    columns, rows = _grid(width, height, unit, longest_edge, rounding)
    tokens = columns * rows
    return ImageTokens(
        embed_tokens=tokens,
        placeholder_length=tokens + rows,
        prompt_tokens=tokens + rows,
        vit_patches=tokens * merge_size**2,
        resized=(columns * unit, rows * unit),
    )


def _grid(width: int, height: int, unit: int, longest_edge: int, rounding: Rounding) -> tuple[int, int]:
    """Return (columns, rows) of tokens."""
    scale = max(width / longest_edge, height / longest_edge)
    if scale > 1:
        whole = round if rounding == "nearest" else int
        width, height = max(1, whole(width / scale)), max(1, whole(height / scale))
    return ceil_div(width, unit), ceil_div(height, unit)
