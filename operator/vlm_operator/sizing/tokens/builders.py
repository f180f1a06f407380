"""Binds rules: reads what a rule needs from files and settings, and refuses what cannot be counted."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.fixed import Fixed, fixed_tokens
from vlm_operator.sizing.tokens.limits import MAX_DECODED_PIXELS
from vlm_operator.sizing.tokens.longest_edge import LongestEdge
from vlm_operator.sizing.tokens.native_grid import NativeGrid
from vlm_operator.sizing.tokens.pan_scan import PanScan, PanScanShape
from vlm_operator.sizing.tokens.reading import Refused
from vlm_operator.sizing.tokens.slices import Slices, SliceShape
from vlm_operator.sizing.tokens.tiles import Lever, Tiles, TileShape
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings

_VIDEO_KEYS: Final = frozenset({"fps", "num_frames", "min_frames", "max_frames", "videos_kwargs"})
"""Settings of videos; images do not see them."""
_TOKENIZERS_WITH_VIDEO: Final = frozenset({"qwen2", "qwen3", "qwen3_moe", "gpt_oss"})
"""Text models whose tokenizer has the video token: the engine then builds InternVL's video processor too."""

_TILE_KEYS: Final = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail"})
_MOST_TILES: Final = 1000
"""The engine lists all grids in cubic time, so larger limits are of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One model as its files and the server's flags describe it; ``config`` has the overrides laid on it."""

    model_id: str
    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    settings: ServerSettings


def build_native_grid(source: Source, *, completes_size: bool) -> ImageRule:
    """Bind Qwen's rule; ``completes_size``: may ``size`` lack an edge (Qwen3-VL takes it from the file)."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"min_pixels", "max_pixels", "size"} | _VIDEO_KEYS)
    size = _read_size(source, given, completes_size=completes_size)
    override = {key: given[key] for key in ("min_pixels", "max_pixels") if given.get(key) is not None}
    name, processor = source.model_id, source.processor
    min_pixels = reading.first_int(
        name,
        (override, "min_pixels"),
        (size, "shortest_edge"),
        (processor, "min_pixels"),
        (processor, "size.shortest_edge"),
    )
    if min_pixels > MAX_DECODED_PIXELS:
        raise Refused(
            "InvalidSetting",
            f"min_pixels is {min_pixels:,}, above the {MAX_DECODED_PIXELS:,} pixels of the largest image; lower it",
        )
    return NativeGrid(
        settings=source.settings,
        model_id=name,
        patch_size=_same_in_both(source, "patch_size", "vision_config.patch_size"),
        merge_size=_same_in_both(source, "merge_size", "vision_config.spatial_merge_size"),
        min_pixels=min_pixels,
        max_pixels=reading.first_int(
            name, (override, "max_pixels"), (size, "longest_edge"), (processor, "max_pixels"),
            (processor, "size.longest_edge"),
        ),
    )  # fmt: skip


def _read_size(source: Source, given: Mapping[str, Any], *, completes_size: bool) -> Mapping[str, Any]:
    size = given.get("size") or {}
    if not isinstance(size, Mapping):
        raise Refused("InvalidSetting", f"mm_processor_kwargs.size is {size!r}, but must be an object with both edges")
    edges = {"shortest_edge", "longest_edge"}
    reading.refuse_unknown({f"size.{key}": value for key, value in size.items()}, {f"size.{e}" for e in edges})
    missing = edges - set(size)
    if size and missing and not completes_size:
        raise Refused(
            "StartupFails",
            f"mm_processor_kwargs.size of {source.model_id or 'this model'} lacks {missing.pop()}: the "
            f"server would not "
            "start; give both edges, or max_pixels instead",
        )
    return size


def _same_in_both(source: Source, in_processor: str, in_config: str) -> int:
    """Return a figure that both the pixels (processor) and the count (configuration) use."""
    value = reading.first_int(source.model_id, (source.processor, in_processor), (source.config, in_config))
    other = reading.first_int(source.model_id, (source.config, in_config), default=value)
    if other != value:
        raise Refused(
            "SettingMismatch",
            f"{in_config} is {other}, but the processor's {in_processor} is {value}: pixels and token count "
            f"would "
            "disagree and requests would fail; drop the override",
        )
    return value


def build_llava(source: Source) -> ImageRule:
    """Bind LLaVA's rule: one count for a CLIP tower, Pixtral's grid for a Pixtral tower."""
    kind = reading.find(source.config, "vision_config.model_type")
    if kind == "pixtral":
        return _build_llava_pixtral(source)
    if kind != "clip_vision_model":
        raise Refused(
            "UnsupportedVisionTower",
            f"{source.model_id or 'the model'}: LLaVA with a vision tower of type {kind!r} cannot be "
            f"counted yet; "
            "clip_vision_model and pixtral can",
        )
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_changed(given, source.processor, "this family takes the same tokens for every image; drop it")
    image_size = _side(source, "vision_config.image_size")
    patch_size = reading.first_int(source.model_id, (source.config, "vision_config.patch_size"))
    crop = reading.find(source.processor, "crop_size.height") or reading.find(source.processor, "crop_size")
    if crop is not None and crop != image_size:
        raise Refused(
            "SettingMismatch",
            f"vision_config.image_size is {image_size}, but the processor crops to {crop}: pixels and token "
            f"count "
            "would disagree and requests would fail; drop the override",
        )
    strategy = source.config.get("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise Refused(
            "InvalidSetting",
            f"vision_feature_select_strategy is {strategy!r}; the engine knows default and full",
        )
    reading.divide("vision_config.patch_size", image_size, patch_size)
    tokens = fixed_tokens(image_size, patch_size, int(strategy == "full"))
    return Fixed(settings=source.settings, model_id=source.model_id, image_size=image_size, tokens=tokens)


def _side(source: Source, path: str) -> int:
    return reading.first_int(source.model_id, (source.config, path))


def _build_llava_pixtral(source: Source) -> ImageRule:
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size"})
    name = source.model_id
    edge = reading.first_int(name, (given, "size.longest_edge"), (source.processor, "size.longest_edge"))
    image_size = _side(source, "vision_config.image_size")
    if edge != image_size:
        raise Refused(
            "SettingMismatch",
            f"size.longest_edge is {edge}, but vision_config.image_size is {image_size}: the engine would "
            f"apply the "
            "edge to the pixels and the image size to the count, and requests would fail; set both, the "
            "latter with "
            f'--hf-overrides \'{{"vision_config": {{"image_size": {edge}}}}}\'',
        )
    return LongestEdge(
        settings=source.settings,
        model_id=name,
        patch_size=_side(source, "vision_config.patch_size"),
        merge_size=1,
        longest_edge=edge,
        adjustable=False,
    )


def build_mistral3(source: Source) -> ImageRule:
    """Bind Mistral 3's rule for the Hugging Face format."""
    given = reading.flatten_images_kwargs(source.settings)
    reading.refuse_unknown(given, {"size"})
    if "size" in given:
        if not isinstance(given["size"], Mapping):
            raise Refused("InvalidSetting", f"mm_processor_kwargs.size is {given['size']!r}, but must be an object")
        reading.refuse_unknown({f"size.{key}": value for key, value in given["size"].items()}, {"size.longest_edge"})
    name = source.model_id
    return LongestEdge(
        settings=source.settings,
        model_id=name,
        patch_size=_side(source, "vision_config.patch_size"),
        merge_size=reading.first_int(
            name, (source.config, "spatial_merge_size"), (source.processor, "spatial_merge_size")
        ),
        longest_edge=reading.first_int(name, (given, "size.longest_edge"), (source.processor, "size.longest_edge")),
    )


def build_mistral_format(source: Source) -> ImageRule:
    """Bind the rule of ``--config-format mistral``, where processor settings are disregarded.

    The values stand in params.json (``vision_encoder``) or in the twin config.json (``vision_config``).
    """
    config, name = source.config, source.model_id
    encoder, tower = (config, "vision_encoder.{}"), (config, "vision_config.{}")

    def read(*fields: str, default: int | None = None) -> int:
        places = [(document, path.format(field)) for field in fields for document, path in (encoder, tower)]
        return reading.first_int(name, *places, (config, fields[-1]), default=default)

    return LongestEdge(
        settings=source.settings,
        model_id=name,
        patch_size=read("patch_size"),
        merge_size=read("spatial_merge_size", default=1),
        longest_edge=read("max_image_size", "image_size"),
        rounding="nearest",
        adjustable=False,
        ignored_settings=tuple(reading.dotted(source.settings.mm_processor_kwargs, "mm_processor_kwargs.")),
    )


def build_gemma3(source: Source) -> ImageRule:
    """Bind Gemma 3's rule."""
    given = reading.flatten_images_kwargs(source.settings)
    known = {
        "do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    }  # fmt: skip
    reading.refuse_unknown(given, known)
    values = {**source.processor, **given}
    name = source.model_id
    image_size = _side(source, "vision_config.image_size")
    ratio = values.get("pan_and_scan_min_ratio_to_activate")
    patches = reading.divide("vision_config.patch_size", image_size, _side(source, "vision_config.patch_size")) ** 2
    shape = PanScanShape(
        tokens_per_view=reading.first_int(
            name, (source.processor, "image_seq_length"), (source.config, "mm_tokens_per_image")
        ),
        patches_per_view=patches,
        enabled=reading.boolean("do_pan_and_scan", values.get("do_pan_and_scan")),
        max_crops=reading.first_int(name, (values, "pan_and_scan_max_num_crops")),
        min_crop_size=reading.first_int(name, (values, "pan_and_scan_min_crop_size")),
        min_ratio=reading.positive_number("pan_and_scan_min_ratio_to_activate", ratio),
    )
    return PanScan(settings=source.settings, model_id=name, image_size=image_size, shape=shape)


def build_internvl(source: Source) -> ImageRule:
    """Bind InternVL's rule; which flag works depends on the tokenizer of the text model."""
    given = source.settings.mm_processor_kwargs
    kind = reading.find(source.config, "llm_config.model_type") or reading.find(source.config, "text_config.model_type")
    lever: Lever = "hf_overrides" if kind in _TOKENIZERS_WITH_VIDEO else "mm_processor_kwargs"
    _refuse_internvl_kwargs(source, given, _TILE_KEYS if lever == "mm_processor_kwargs" else frozenset())
    values = {key: given.get(key, source.config.get(key)) for key in _TILE_KEYS}
    return Tiles(
        settings=source.settings, model_id=source.model_id, shape=_read_tile_shape(source, values), lever=lever
    )


def _read_tile_shape(source: Source, values: Mapping[str, Any]) -> TileShape:
    config, name = source.config, source.model_id
    dynamic = reading.boolean("dynamic_image_size", values["dynamic_image_size"])
    least = reading.first_int(name, (values, "min_dynamic_patch"))
    most = reading.first_int(name, (values, "max_dynamic_patch"))
    if dynamic and not least <= most <= _MOST_TILES:
        raise Refused(
            "InvalidSetting",
            f"max_dynamic_patch is {most}, but must lie between min_dynamic_patch ({least}) and {_MOST_TILES}, above "
            "which the engine lists grids for minutes; correct it",
        )
    tile_size = reading.first_int(name, (config, "force_image_size"), (config, "vision_config.image_size"))
    side = reading.divide("vision_config.patch_size", tile_size, _side(source, "vision_config.patch_size"))
    ratio = reading.positive_number("downsample_ratio", config.get("downsample_ratio"))
    tokens = int(side**2 * ratio**2)
    if tokens < 1:
        raise Refused("InvalidSetting", f"downsample_ratio is {ratio}, which leaves no token of a tile; correct it")
    return TileShape(
        tile_size=tile_size,
        tokens_per_tile=tokens,
        patches_per_tile=side**2,
        min_tiles=least if dynamic else 1,
        max_tiles=most if dynamic else 1,
        thumbnail=reading.boolean("use_thumbnail", values["use_thumbnail"]),
    )


def _refuse_internvl_kwargs(source: Source, given: Mapping[str, Any], known: Collection[str]) -> None:
    for key, value in given.items():
        if key not in known:
            override = {key: value} if key in _TILE_KEYS else {"max_dynamic_patch": 4}
            raise Refused(
                "StartupFails",
                f"mm_processor_kwargs.{key} = {value!r} stops the server of {source.model_id or 'this InternVL'} from "
                f"starting (TypeError); set it with --hf-overrides '{json.dumps(override)}' instead",
            )


def build_minicpm(source: Source) -> ImageRule:
    """Bind MiniCPM-V's rule; what no file states is the default of the checkpoint's own processor."""
    given = source.settings.mm_processor_kwargs
    reading.refuse_unknown(given, {"max_slice_nums"})
    config, processor, name = source.config, source.processor, source.model_id
    slicing = reading.boolean("slice_mode", processor.get("slice_mode", config.get("slice_mode", True)))
    max_slices = reading.first_int(
        name,
        (given, "max_slice_nums"),
        (processor, "max_slice_nums"),
        (config, "slice_config.max_slice_nums"),
        default=9,
    )
    shape = SliceShape(
        scale=reading.first_int(
            name, (processor, "scale_resolution"), (config, "slice_config.scale_resolution"), default=448
        ),
        patch_size=reading.first_int(name, (processor, "patch_size"), (config, "patch_size"), default=14),
        tokens_per_slice=reading.first_int(name, (processor, "image_feature_size"), (config, "query_num")),
        max_slices=max_slices if slicing else 1,
        image_id=reading.boolean("use_image_id", processor.get("use_image_id", config.get("use_image_id", True))),
    )
    return Slices(settings=source.settings, model_id=name, shape=shape)
