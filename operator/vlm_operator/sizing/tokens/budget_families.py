"""Binds the families of ``budget_grid``: which values and settings each one reads, and what its start-up follows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.tokens import native_grid, reading
from vlm_operator.sizing.tokens.budget_grid import (
    BudgetGrid,
    BudgetShape,
    ComputedBudgetGrid,
    RootBudgetGrid,
    Small,
    SquareBudgetGrid,
    Start,
)
from vlm_operator.sizing.tokens.long_side import SHORT_SIDE, LongSide, LongSideShape
from vlm_operator.sizing.tokens.types import ImageRule

_PIXEL_KEYS: Final = frozenset({"min_pixels", "max_pixels"})
_MINIMAX_DEFAULTS: Final = {"patch_size": 14, "merge_size": 2, "max_pixels": 451584}
_MINIMAX_MIN_PIXELS: Final = 4 * 28 * 28
"""Fixed in the engine's MiniMax-M3 processor: neither the checkpoint's files nor a setting reaches it."""


def build_glm4v(source: reading.Source) -> BudgetGrid:
    """Bind GLM-4.1V, 4.5V, 4.6V and GLM-OCR.

    ``size`` is the setting that works. ``max_pixels`` leaves images alone but moves the start-up budget, and so does
    every scoped setting the other way round where the engine computes its maximum (``Glm46VProcessor``).
    ``min_pixels`` does nothing.
    """
    settings, processor, name = source.settings, source.processor, source.model_id
    given = reading.flatten_images_kwargs(settings)
    reading.refuse_unknown(given, {"size", *_PIXEL_KEYS})
    for key in _PIXEL_KEYS & set(settings.mm_processor_kwargs.get("images_kwargs", {})):
        raise reading.Refused(
            "StartupFails",
            f"mm_processor_kwargs.images_kwargs.{key} stops the server of {name or 'this model'} from starting "
            "(TypeError); give size with both edges instead",
        )
    size = native_grid.read_size(source, given, completes_size=False)
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    shape = BudgetShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=reading.first_int(name, (size, "shortest_edge"), (processor, "size.shortest_edge")),
        max_pixels=reading.first_int(name, (size, "longest_edge"), (processor, "size.longest_edge")),
        small="whole",
        frames=reading.same_in_both(source, "temporal_patch_size", "vision_config.temporal_patch_size"),
        holds_short=True,
    )
    limit = reading.first_int(
        name,
        (settings.mm_processor_kwargs, "max_pixels"),
        (settings.mm_processor_kwargs, "size.longest_edge"),
        (processor, "size.longest_edge"),
    )
    processor_class = str(processor.get("processor_class") or processor.get("image_processor_type") or "")
    rule = SquareBudgetGrid if processor_class.startswith("Glm4v") else ComputedBudgetGrid
    ignored = tuple(f"mm_processor_kwargs.{key}" for key in sorted(_PIXEL_KEYS & set(given)))
    return _bind(source, rule, shape, limit, lever="size", ignored=ignored)


def build_keye(source: reading.Source) -> BudgetGrid:
    """Bind Keye-VL and Keye-VL-1.5."""
    given = _read_flat(source, _PIXEL_KEYS)
    shape = _read_shape(source, given, small="height_then_width")
    return _bind(source, ComputedBudgetGrid, shape, shape.max_pixels)


def build_ernie(source: reading.Source) -> BudgetGrid:
    """Bind ERNIE-4.5-VL; ``size`` may lack an edge."""
    given = _read_flat(source, _PIXEL_KEYS | {"size"})
    native_grid.read_size(source, given, completes_size=True)
    shape = _read_shape(source, given, small="clamped", merge_size_in="spatial_conv_size")
    return _bind(source, ComputedBudgetGrid, shape, shape.max_pixels)


def build_paddleocr(source: reading.Source) -> BudgetGrid:
    """Bind PaddleOCR-VL."""
    if source.settings.mm_processor_kwargs.get("images_kwargs"):
        raise reading.Refused(
            "SettingMismatch",
            f"mm_processor_kwargs.images_kwargs of {source.model_id or 'PaddleOCR-VL'}: the engine would apply it to "
            "the pixels but not to the token count, and requests would fail; give its settings without images_kwargs",
        )
    given = _read_flat(source, _PIXEL_KEYS | {"size"})
    native_grid.read_size(source, given, completes_size=False)
    shape = _read_shape(source, given, small="height_then_width")
    return _bind(source, BudgetGrid, shape, _start_limit(source, given))


def build_hunyuan(source: reading.Source) -> BudgetGrid:
    """Bind HunYuan-VL and HunYuanOCR, which the engine runs through ``transformers``: scoped settings count as well.

    The start-up budget does not follow those.
    """
    given = _check_known(reading.flatten_images_kwargs(source.settings), _PIXEL_KEYS | {"size"})
    scoped = source.settings.mm_processor_kwargs.get("images_kwargs", {})
    flat = {key: value for key, value in given.items() if key not in scoped}
    native_grid.read_size(source, given, completes_size=False)
    extra = source.processor.get("cat_extra_token")
    shape = _read_shape(source, given, small="as_is")._replace(
        holds_short=True,
        row_end=1,
        # HunYuanVLProcessor adds the two unless its own file turns them off.
        ends=2 if extra is None or reading.boolean("cat_extra_token", bool(extra)) else 0,
    )
    return _bind(source, RootBudgetGrid, shape, _start_limit(source, flat))


def build_minimax_m3(source: reading.Source) -> ImageRule:
    """Bind MiniMax-M3, which counts by area, or by the long side where a file or a setting gives one.

    The defaults are those of the engine's processor. Scoped settings are refused: the budget does not follow them.
    """
    given = _read_flat(source, {"max_pixels", "max_long_side_pixel"})
    source = replace(source, processor={**_MINIMAX_DEFAULTS, **source.processor})
    long_side = {**source.processor, **given}.get("max_long_side_pixel")
    if long_side is None:
        shape = _read_shape(source, {"min_pixels": _MINIMAX_MIN_PIXELS, **given}, small="rounded_up")
        return _bind(source, ComputedBudgetGrid, shape._replace(tags_inside=True), shape.max_pixels)
    if reading.positive_int("max_long_side_pixel", long_side) < SHORT_SIDE:
        raise reading.Refused(
            "InvalidSetting",
            f"max_long_side_pixel is {long_side}, below the {SHORT_SIDE} pixels that short sides are enlarged to; "
            "raise it",
        )
    merge_size = reading.same_in_both(source, "merge_size", "vision_config.spatial_merge_size")
    unit = reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size
    return LongSide(
        settings=source.settings,
        model_id=source.model_id,
        ignored_settings=("mm_processor_kwargs.max_pixels",) if "max_pixels" in given else (),
        shape=LongSideShape(unit=unit, merge_size=merge_size, long_side=long_side),
    )


def _read_flat(source: reading.Source, known: frozenset[str] | set[str]) -> Mapping[str, Any]:
    """Return the processor settings; the scoped form counts as unknown."""
    return _check_known(source.settings.mm_processor_kwargs, known)


def _check_known(given: Mapping[str, Any], known: frozenset[str] | set[str]) -> Mapping[str, Any]:
    """Return ``given``.

    Raises:
        Refused: A setting is unknown, or ``size`` comes with one of the pixel limits that it states as well.
    """
    reading.refuse_unknown(given, known)
    if given.get("size") and _PIXEL_KEYS & {key for key, value in given.items() if value is not None}:
        raise reading.Refused(
            "InvalidSetting",
            "mm_processor_kwargs has both size and min_pixels or max_pixels, which state the same limits; give one",
        )
    return given


def _read_shape(
    source: reading.Source,
    given: Mapping[str, Any],
    *,
    small: Small,
    merge_size_in: str = "vision_config.spatial_merge_size",
) -> BudgetShape:
    """Return the shape with the limits of the settings, else of the checkpoint."""
    processor, name = source.processor, source.model_id
    merge_size = reading.same_in_both(source, "merge_size", merge_size_in)
    limits = [
        reading.first_int(
            name,
            (given, pixels),
            (given, f"size.{edge}"),
            (processor, pixels),
            (processor, f"size.{edge}"),
            (processor, f"size.{pixels}"),
        )
        for pixels, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    ]
    return BudgetShape(
        unit=reading.same_in_both(source, "patch_size", "vision_config.patch_size") * merge_size,
        merge_size=merge_size,
        min_pixels=limits[0],
        max_pixels=limits[1],
        small=small,
    )


def _start_limit(source: reading.Source, given: Mapping[str, Any]) -> int:
    """Return the limit of the processor as it is built, in which the file's ``max_pixels`` outdoes a set ``size``."""
    return reading.first_int(
        source.model_id,
        (given, "max_pixels"),
        (source.processor, "max_pixels"),
        (given, "size.longest_edge"),
        (source.processor, "size.longest_edge"),
    )


def _bind(
    source: reading.Source,
    rule: type[BudgetGrid],
    shape: BudgetShape,
    start_limit: int,
    *,
    lever: str = "max_pixels",
    ignored: tuple[str, ...] = (),
) -> BudgetGrid:
    """Return the rule.

    Raises:
        Refused: The smallest image does not fit the limits, or the limits cannot be met at all.
    """
    square = shape.unit**2 * shape.frames
    for limit in (shape.max_pixels, start_limit):
        if limit < max(square, shape.min_pixels if shape.small == "clamped" else 0):
            raise reading.Refused(
                "StartupFails",
                f"{source.model_id or 'this model'}: a limit of {limit:,} pixels is below one token of {square:,} or "
                f"the lower limit of {shape.min_pixels:,}, and the server would not start; raise it",
            )
    dummy_size = rule.dummy_size(shape._replace(max_pixels=start_limit))
    if not min(dummy_size):
        raise reading.Refused(
            "StartupFails",
            f"{source.model_id or 'this model'}: between limits of {shape.min_pixels:,} and {start_limit:,} pixels "
            f"there is no square of whole tokens for the image that the engine starts up with; raise the upper one",
        )
    return rule(
        settings=source.settings,
        model_id=source.model_id,
        ignored_settings=ignored,
        shape=shape,
        start=Start(start_limit, dummy_size),
        lever="size" if lever == "size" else "max_pixels",
    )
