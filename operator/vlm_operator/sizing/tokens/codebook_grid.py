"""A grid of codes, one for each unit square, and one more at the end of each row: Emu3.

The resize is Qwen's (``native_grid``), with a unit of 8 pixels. A vision tokenizer turns each unit square into a code
of its book, which the model embeds, the codes for the row ends included. The placeholder also holds what the processor
writes around them: a start, the grid's height and width in digits with a sign between, the mark before the codes, and
two ends. The tokenizer takes each digit for a token: it has none for several.

The engine runs the model through ``transformers``. Source: ``Emu3Processor``, ``Emu3ImageProcessor`` and the tokenizer
that its conversion script writes, and the engine's processing information for models of ``transformers``.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.budget_grid import BudgetShape, RootBudgetGrid, Start
from vlm_operator.sizing.tokens.types import ImageRule, ImageTokens, MaximumTokens, Part, TokenRefusal, image_tokens

_UNIT: Final = 8
"""Side of a code in pixels, which the processor fixes; its resize reads ``spatial_factor``."""
_MARKS: Final = 5
"""Start, sign between height and width, mark before the codes, end of the frame, end."""
_MIN_PIXELS: Final = 512 * 512
_MAX_PIXELS: Final = 1024 * 1024
"""Defaults of Emu3ImageProcessor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodebookGrid(ImageRule):
    """The rule bound to one model; ``codes`` counts the codes alone. No setting is known to cap images."""

    hint_lowers_budget: ClassVar[bool] = False
    codes: RootBudgetGrid

    def count_image(self, width: int, height: int) -> ImageTokens | TokenRefusal:
        """Count one image of ``width`` x ``height`` pixels."""
        counted = self.codes.count_image(width, height)
        if isinstance(counted, TokenRefusal):
            return counted
        codes, _, _, squares, resized, _, grid = counted
        total = codes + _MARKS + _digits(counted)
        return image_tokens(codes, total, total, squares, resized, None, grid)

    def maximum(self) -> MaximumTokens:
        """Return the largest image; the engine's own is a square at the limit."""
        return self.codes.maximum()

    def parts(self, tokens: ImageTokens) -> tuple[Part, ...]:
        """Return the grid, its row ends and what is written around them."""
        columns, rows = tokens.grid or (0, 0)
        return (
            Part("grid", columns * rows, 1),
            Part("row ends", rows, 1),
            Part("height and width", _digits(tokens), 1, embedded=False),
            Part("marks", _MARKS, 1, embedded=False),
        )


def _digits(tokens: ImageTokens) -> int:
    columns, rows = tokens.grid or (0, 0)
    return len(str(columns)) + len(str(rows))


def build_emu3(source: reading.Source) -> ImageRule:
    """Bind Emu3's rule; no setting is known to reach pixels and count alike."""
    reading.refuse_unknown(source.settings.mm_processor_kwargs, ())
    name, files = source.model_id, source.processor
    factor = reading.first_int(name, (files, "spatial_factor"), default=_UNIT)
    if factor != _UNIT:
        raise reading.Refused(
            "SettingMismatch",
            f"spatial_factor of {name or 'this Emu3'} is {factor}, but its processor counts squares of {_UNIT} pixels: "
            "images would be cut off at the edge; take preprocessor_config.json from the checkpoint",
        )
    shape = BudgetShape(
        unit=_UNIT,
        merge_size=1,
        min_pixels=reading.first_int(name, (files, "min_pixels"), default=_MIN_PIXELS),
        max_pixels=reading.first_int(name, (files, "max_pixels"), default=_MAX_PIXELS),
        small="as_is",
        holds_short=True,
        row_end=1,
        tags=0,
    )
    codes = RootBudgetGrid(
        settings=source.settings,
        model_id=name,
        shape=shape,
        start=Start(shape.max_pixels, RootBudgetGrid.dummy_size(shape)),
    )
    return CodebookGrid(settings=source.settings, model_id=name, codes=codes)
