"""Tiles that preprocessor_config.json describes: processors of ``transformers`` that cut square tiles.

GOT-OCR2's processor serves InternVL in its -hf format, Intern-S1 and Aya Vision; Cohere2Vision, Llama 4 and Mllama have
their own. The settings are honoured as flat processor settings, by InternVL and Intern-S1 as scoped ones too. Source:
those processors and the engine's interns1, cohere2_vision and mllama4 models.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.tiles import (
    CanvasTiles,
    CrossAttentionTiles,
    Tiles,
    TileShape,
    column,
    first_grid,
    largest_listed_grid,
    tile_limits,
)
from vlm_operator.sizing.tokens.tiles_internvl import TILE_KEYS
from vlm_operator.sizing.tokens.types import ImageRule

_CROP_KEYS: Final = frozenset({"crop_to_patches", "min_patches", "max_patches"})
_CANVAS_KEYS: Final = frozenset({"max_patches", "resize_to_max_canvas"})


def build_internvl_hf(source: reading.Source) -> ImageRule:
    """Bind the rule of InternVL in its -hf format and of Intern-S1.

    Their processor cuts tiles unless a setting says otherwise, whatever the checkpoint says; the engine's dummy image
    follows the checkpoint.
    """
    given, outer = _read_scoped(source)
    in_file = source.processor.get("crop_to_patches")
    cuts = reading.boolean("crop_to_patches", given.get("crop_to_patches", True))
    dummy_cuts = reading.boolean("crop_to_patches", outer.get("crop_to_patches", in_file))
    tile_size = same_tile_size(source)
    patch_size = first_side(source, source.config, "vision_config.patch_size")
    # The default is that of the class InternVLProcessor.
    tokens = reading.first_int(
        source.model_id, (source.processor, "image_seq_length"), (source.config, "image_seq_length"), default=256
    )
    shape = _crop_shape(source, given, tile_size, tokens, patch_size)
    dummy_shape = _crop_shape(source, outer, tile_size, tokens, patch_size)
    return Tiles(
        settings=source.settings,
        model_id=source.model_id,
        shape=shape if cuts else shape._replace(choice="single"),
        cap_name="max_patches",
        dummy_grid=largest_listed_grid if dummy_cuts else first_grid,
        dummy_shape=dummy_shape,
        ignored_settings=_name_ignored(source, TILE_KEYS),
    )


def build_aya(source: reading.Source) -> ImageRule:
    """Bind Aya Vision's rule; its processor cuts tiles unless a setting says otherwise."""
    given = read_flat(source, _CROP_KEYS)
    cuts = reading.boolean("crop_to_patches", given.get("crop_to_patches", True))
    name, files = source.model_id, source.processor
    tile_size = same_tile_size(source)
    # The defaults are those of the class AyaVisionProcessor.
    unit = reading.first_int(name, (files, "patch_size"), default=28) * reading.first_int(
        name, (files, "downsample_factor"), default=1
    )
    tokens = reading.divide("patch_size", reading.first_int(name, (files, "img_size"), default=364), unit) ** 2
    patch_size = first_side(source, source.config, "vision_config.patch_size")
    shape = _crop_shape(source, given, tile_size, tokens, patch_size)._replace(tags_per_view=1)
    return Tiles(
        settings=source.settings,
        model_id=name,
        shape=shape if cuts else shape._replace(choice="single"),
        cap_name="max_patches",
        dummy_grid=column,
    )


def build_cohere2_vision(source: reading.Source) -> ImageRule:
    """Bind Cohere2Vision's rule; ``min_patches`` is read by no one."""
    given = read_flat(source, _CROP_KEYS)
    name, files, config = source.model_id, source.processor, source.config
    # The defaults here are those of the class Cohere2VisionImageProcessor.
    cuts = reading.boolean("crop_to_patches", given.get("crop_to_patches", files.get("crop_to_patches", True)))
    most = reading.first_int(name, (given, "max_patches"), (files, "max_patches"), default=12)
    tile_size = same_tile_size(source, default=512)
    tokens = reading.first_int(name, (files, "patch_size"), default=16) ** 2
    patch_size = first_side(source, config, "vision_config.patch_size")
    side = reading.divide("vision_config.patch_size", tile_size, patch_size)
    features = (side // reading.first_int(name, (config, "downsample_factor"))) ** 2
    if features != tokens:
        raise reading.Refused(
            "SettingMismatch",
            f"{name or 'the model'}: the tower makes {features} features of a tile, but the processor's patch_size "
            f"takes {tokens} tokens for it, and requests would fail; take the files from the checkpoint",
        )
    shape = TileShape(
        tile_size=tile_size,
        tokens_per_tile=tokens,
        patches_per_tile=side**2,
        min_tiles=1,
        max_tiles=tile_limits(name, 1, most, "max_patches")[1],
        thumbnail=True,
        choice="fit" if cuts else "single",
        tags_per_view=1,
    )
    return Tiles(settings=source.settings, model_id=name, shape=shape, cap_name="max_patches", dummy_grid=column)


def build_llama4(source: reading.Source) -> ImageRule:
    """Bind Llama 4's rule: the image is padded to a canvas, its tiles are parted by separators."""
    given = read_flat(source, _CANVAS_KEYS)
    name, files, config = source.model_id, source.processor, source.config
    # The defaults here are those of the class Llama4ImageProcessor.
    most = reading.first_int(name, (given, "max_patches"), (files, "max_patches"), default=16)
    largest = reading.boolean(
        "resize_to_max_canvas", given.get("resize_to_max_canvas", files.get("resize_to_max_canvas"))
    )
    tile_size = same_tile_size(source, default=336)
    patch_size = reading.first_int(name, (config, "vision_config.patch_size"))
    patches = reading.divide("vision_config.patch_size", tile_size, patch_size) ** 2
    ratio = reading.positive_number(
        "vision_config.pixel_shuffle_ratio", reading.find(config, "vision_config.pixel_shuffle_ratio")
    )
    tokens = patches // max(1, round(1 / ratio**2))
    shape = TileShape(
        tile_size=tile_size,
        tokens_per_tile=reading.positive_int("tokens of a tile", tokens),
        patches_per_tile=patches,
        min_tiles=1,
        max_tiles=tile_limits(name, 1, most, "max_patches")[1],
        thumbnail=True,
        choice="largest_fit_float32" if largest else "fit_float32",
        tags_per_view=1,
    )
    return CanvasTiles(settings=source.settings, model_id=name, shape=shape, cap_name="max_patches", dummy_grid=column)


def build_mllama(source: reading.Source) -> ImageRule:
    """Bind Mllama's rule; each tile keeps its class token."""
    given = source.settings.mm_processor_kwargs
    reading.refuse_unknown(given, {"max_image_tiles", "size"})
    name, files = source.model_id, source.processor
    most = reading.first_int(name, (given, "max_image_tiles"), (files, "max_image_tiles"))
    tile_size = reading.first_int(name, (given, "size.height"), (files, "size.height"))
    patch_size = reading.first_int(name, (source.config, "vision_config.patch_size"))
    patches = reading.divide("vision_config.patch_size", tile_size, patch_size) ** 2
    shape = TileShape(
        tile_size=tile_size,
        tokens_per_tile=patches + 1,
        patches_per_tile=patches,
        min_tiles=1,
        max_tiles=tile_limits(name, 1, most, "max_image_tiles")[1],
        thumbnail=False,
        choice="fit",
    )
    return CrossAttentionTiles(
        settings=source.settings, model_id=name, shape=shape, cap_name="max_image_tiles", dummy_grid=column
    )


def _read_scoped(source: reading.Source) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the settings of pixels and count, and those that reach the choice of the dummy image: only the flat ones.

    Raises:
        Refused: There is one of another name, or ``size`` differs from the checkpoint's.
    """
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {*_CROP_KEYS, *TILE_KEYS, "size"})
    reading.refuse_changed({key: given[key] for key in given if key == "size"}, source.processor, "drop it")
    scoped = source.settings.mm_processor_kwargs.get("images_kwargs", {})
    crop = {key: value for key, value in given.items() if key in _CROP_KEYS}
    return crop, {key: value for key, value in crop.items() if key not in scoped}


def read_flat(
    source: reading.Source,
    known: Collection[str],
    *,
    fixed: Collection[str] = ("size",),
    ignored: Collection[str] = frozenset(),
) -> Mapping[str, Any]:
    """Return the flat processor settings that are in ``known``.

    Args:
        source: The model.
        known: Settings that the engine honours outside ``images_kwargs``.
        fixed: Settings that reach the pixels alone and may only repeat the checkpoint's value.
        ignored: Settings that the engine disregards.

    Raises:
        Refused: There is one of another name; one that is fixed, or in ``images_kwargs``, differs from the checkpoint.
    """
    reading.refuse_unknown(reading.flatten_images_kwargs(source.settings), {*known, *fixed, *ignored})
    given = dict(source.settings.mm_processor_kwargs)
    reading.refuse_changed(given.pop("images_kwargs", {}), source.processor, "give it outside images_kwargs")
    reading.refuse_changed({key: given[key] for key in given if key in fixed}, source.processor, "drop it")
    return {key: value for key, value in given.items() if key in known}


def first_side(source: reading.Source, document: Mapping[str, Any], path: str, default: int | None = None) -> int:
    """Return the side at the dotted ``path``, which newer files state as [height, width]."""
    value = reading.find(document, path)
    if isinstance(value, list) and len(set(map(str, value))) == 1:
        return reading.positive_int(path, value[0])
    return reading.first_int(source.model_id, (document, path), default=default)


def same_tile_size(source: reading.Source, default: int | None = None) -> int:
    """Return the side of a tile in pixels.

    Raises:
        Refused: The processor's tile is not square or is not what the tower takes.
    """
    tower = first_side(source, source.config, "vision_config.image_size")
    height = reading.first_int(source.model_id, (source.processor, "size.height"), default=default)
    width = reading.first_int(source.model_id, (source.processor, "size.width"), default=default)
    if (height, width) != (tower, tower):
        raise reading.Refused(
            "SettingMismatch",
            f"vision_config.image_size is {tower}, but the processor cuts tiles of {width}x{height} pixels: requests "
            "would fail; take both from the checkpoint",
        )
    return tower


def _crop_shape(
    source: reading.Source, given: Mapping[str, Any], tile_size: int, tokens: int, patch_size: int
) -> TileShape:
    name, files = source.model_id, source.processor
    # The defaults are those of the class GotOcr2ImageProcessor.
    least = reading.first_int(name, (given, "min_patches"), (files, "min_patches"), default=1)
    most = reading.first_int(name, (given, "max_patches"), (files, "max_patches"), default=12)
    least, most = tile_limits(name, least, most, "max_patches")
    return TileShape(
        tile_size=tile_size,
        tokens_per_tile=tokens,
        patches_per_tile=reading.divide("vision_config.patch_size", tile_size, patch_size) ** 2,
        min_tiles=least,
        max_tiles=most,
        thumbnail=True,
    )


def _name_ignored(source: reading.Source, ignored: Collection[str]) -> tuple[str, ...]:
    return tuple(f"mm_processor_kwargs.{key}" for key in source.settings.mm_processor_kwargs if key in ignored)
