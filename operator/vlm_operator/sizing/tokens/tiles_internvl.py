"""Tiles that config.json describes: InternVL in its remote-code format and the families whose processor is built alike.

The settings are named in config.json and may be given as processor settings as well, with one exception: where the
tokenizer of the text model has a video token, the engine hands them to InternVL's video processor too, which does not
know them. Source: the processing information of the engine's internvl, skyworkr1v, qianfan_ocr, eagle2_5_vl and
nemotron_vl models.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.tile_grids import Choice
from vlm_operator.sizing.tokens.tiles import Lever, Tiles, TileShape, tile_limits
from vlm_operator.sizing.tokens.types import ImageRule

TILE_KEYS: Final = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail"})
_TOKENIZERS_WITH_VIDEO: Final = frozenset({"qwen2", "qwen3", "qwen3_moe", "gpt_oss"})
"""Text models for which the engine knows a video token: it then builds InternVL's video processor too."""
_QWEN_VIDEO_TOKEN: Final = 151656
"""Id of the video token in Qwen's tokenizers from 2.5 on; a smaller vocabulary is that of Qwen2, which has none."""


def build_internvl(source: reading.Source) -> ImageRule:
    """Bind InternVL's rule; which flag works depends on the tokenizer of the text model."""
    lever: Lever = "hf_overrides" if _has_video_token(source.config) else "mm_processor_kwargs"
    refuse_kwargs(source, TILE_KEYS if lever == "mm_processor_kwargs" else frozenset())
    return _bind_tiles(source, lever, ("vision_config.image_size", "force_image_size"))


def build_image_only(source: reading.Source, *, forced_size: bool) -> ImageRule:
    """Bind the rule of a family like InternVL that takes no video.

    Args:
        source: The model.
        forced_size: Whether ``force_image_size`` comes before the tower's own image size.
    """
    refuse_kwargs(source, TILE_KEYS)
    sizes = ("vision_config.image_size", "force_image_size")
    return _bind_tiles(source, "mm_processor_kwargs", sizes[::-1] if forced_size else sizes)


def build_llama_nemotron(source: reading.Source) -> ImageRule:
    """Bind the rule of Llama-Nemotron-Nano-VL, whose image processor names its limit ``max_num_tiles``."""
    given, files = source.settings.mm_processor_kwargs, source.processor
    reading.refuse_unknown(given, {"max_num_tiles"})
    # Both defaults are those of the checkpoint's image processor class.
    most = reading.first_int(source.model_id, (given, "max_num_tiles"), (files, "max_num_tiles"), default=12)
    thumbnail = reading.boolean("use_thumbnail", files.get("use_thumbnail", True))
    tile_size = reading.first_int(source.model_id, (files, "image_size"), (source.config, "force_image_size"))
    shape = read_shape(
        source,
        tile_size,
        (1, most),
        thumbnail=thumbnail,
        choice="coverage",
        limit="max_num_tiles",
        patch_paths=("vision_config.patch_size", "patch_size"),
    )
    return Tiles(settings=source.settings, model_id=source.model_id, shape=shape, cap_name="max_num_tiles")


def build_llama_nemotron_embed(source: reading.Source) -> ImageRule:
    """Bind the rule of the Llama-Nemotron-VL embedding and reranking models."""
    given = source.settings.mm_processor_kwargs
    refuse_kwargs(source, TILE_KEYS)
    names = {
        "min_dynamic_patch": ("min_input_tiles", 1),
        "max_dynamic_patch": ("max_input_tiles", 1),
        "dynamic_image_size": ("dynamic_image_size", True),
    }
    # The fall-backs are the engine's own.
    values = {
        key: source.processor.get(in_processor, source.config.get(key, default))
        for key, (in_processor, default) in names.items()
    }
    values = {**values, "use_thumbnail": True, **given}
    tile_size = reading.first_int(source.model_id, (source.config, "force_image_size"))
    limits = read_limits(source, values)
    thumbnail = reading.boolean("use_thumbnail", values["use_thumbnail"])
    shape = read_shape(source, tile_size, limits, thumbnail=thumbnail, choice="coverage")
    return Tiles(settings=source.settings, model_id=source.model_id, shape=shape)


def _has_video_token(config: Mapping[str, Any]) -> bool:
    text = config.get("llm_config") or config.get("text_config")
    text = text if isinstance(text, Mapping) else {}
    kind, vocabulary = text.get("model_type"), text.get("vocab_size")
    if kind == "qwen2" and isinstance(vocabulary, int) and vocabulary <= _QWEN_VIDEO_TOKEN:
        return False
    return kind in _TOKENIZERS_WITH_VIDEO


def _bind_tiles(source: reading.Source, lever: Lever, sizes: tuple[str, str]) -> ImageRule:
    given = source.settings.mm_processor_kwargs
    values = {key: given.get(key, source.config.get(key)) for key in TILE_KEYS}
    tile_size = reading.first_int(source.model_id, *((source.config, path) for path in sizes))
    thumbnail = reading.boolean("use_thumbnail", values["use_thumbnail"])
    shape = read_shape(source, tile_size, read_limits(source, values), thumbnail=thumbnail)
    return Tiles(settings=source.settings, model_id=source.model_id, shape=shape, lever=lever)


def read_limits(source: reading.Source, values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and the most tiles of ``values``, one each where images are not cut."""
    if not reading.boolean("dynamic_image_size", values["dynamic_image_size"]):
        return 1, 1
    least = reading.first_int(source.model_id, (values, "min_dynamic_patch"))
    return least, reading.first_int(source.model_id, (values, "max_dynamic_patch"))


def read_shape(
    source: reading.Source,
    tile_size: int,
    limits: tuple[int, int],
    *,
    thumbnail: bool,
    choice: Choice = "closest",
    limit: str = "max_dynamic_patch",
    patch_paths: tuple[str, ...] = ("vision_config.patch_size",),
) -> TileShape:
    """Return the shape of tiles.

    Args:
        source: The model.
        tile_size: Pixels a side.
        limits: The least and the most tiles.
        thumbnail: Whether a cut image has a view of the whole.
        choice: Which grid is taken.
        limit: Name of the upper limit.
        patch_paths: Where config.json states the patch size, the first place that does.

    Raises:
        Refused: A figure is missing or impossible.
    """
    least, most = tile_limits(source.model_id, *limits, limit)
    patch_size = reading.first_int(source.model_id, *((source.config, path) for path in patch_paths))
    side = reading.divide(patch_paths[0], tile_size, patch_size)
    return TileShape(
        tile_size=tile_size,
        tokens_per_tile=_tokens_per_tile(source, side),
        patches_per_tile=side**2,
        min_tiles=least,
        max_tiles=most,
        thumbnail=thumbnail,
        choice=choice,
    )


def _tokens_per_tile(source: reading.Source, side: int) -> int:
    ratio = reading.positive_number("downsample_ratio", source.config.get("downsample_ratio"))
    tokens = int(side**2 * ratio**2)
    if tokens < 1:
        raise reading.Refused("InvalidSetting", f"downsample_ratio is {ratio}: no token of a tile is left; correct it")
    return tokens


def refuse_kwargs(source: reading.Source, known: Collection[str]) -> None:
    """Refuse processor settings that the engine's processor class does not take, or not without breaking requests.

    Raises:
        Refused: There is one that is not in ``known``.
    """
    for key, value in source.settings.mm_processor_kwargs.items():
        if key == "image_size":
            raise reading.Refused(
                "SettingMismatch",
                f"mm_processor_kwargs.image_size = {value!r} would cut tiles of another size than the tower of "
                f"{source.model_id or 'this model'} takes, and requests would fail; drop it",
            )
        if key not in known:
            override = json.dumps({key: value} if key in TILE_KEYS else {"max_dynamic_patch": 4})
            way_out = f"it takes {', '.join(sorted(known))}" if known else f"use --hf-overrides '{override}' instead"
            raise reading.Refused(
                "StartupFails",
                f"mm_processor_kwargs.{key} = {value!r} stops the server of {source.model_id or 'this model'} from "
                f"starting (TypeError); {way_out}",
            )
