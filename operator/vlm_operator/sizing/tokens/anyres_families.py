"""The families that fit an image into the checkpoint's canvases, and where each keeps its values.

LLaVA-NeXT (Granite Vision 3 among them), LLaVA-OneVision, Bee, R-4B and Granite 4 Vision. The count follows
config.json, the pixels follow the processor's file, and no setting changes both, so that a setting or an override that
changes one is refused. The processors of Bee and R-4B come with the checkpoint; the engine's count does not ask them.
Source: the processing information of those models in the engine; the defaults of their configurations and image
processors in ``transformers``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.sizing.tokens import reading
from vlm_operator.sizing.tokens.anyres import Anyres, AnyresShape, measure
from vlm_operator.sizing.tokens.canvases import Grid, list_canvases
from vlm_operator.sizing.tokens.types import ImageRule

_TOWERS: Final = {"clip_vision_model": 1, "siglip_vision_model": 0}
"""Class tokens of each vision tower."""
_PIXEL_KEYS: Final = frozenset({"size", "crop_size", "do_resize", "do_center_crop", "do_pad"})
_MOST_CANVASES: Final = 1000
"""The engine tries all of them on each image, so more are of no use."""
_ONEVISION_TILES: Final = 9
"""The model scales down to as many tiles whatever the configuration says."""
_ONEVISION_RATIO: Final = "anyres_max_9"
"""The processor's default: how it names its limit on tiles."""
_ONEVISION_DUMMY: Final = (1153, 944)
"""The engine states this size instead of searching for the largest image."""

_NEXT_PINPOINTS: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
_ONEVISION_PINPOINTS: Final = tuple((rows * 384, columns * 384) for rows in range(1, 7) for columns in range(1, 7))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What the classes in ``transformers`` take where the files say nothing; None: the file has to say it.

    ``tile_size`` is the side that the image processor cuts, ``crops`` whether it crops the tiles to ``crop_size``.
    """

    tower: str | None = None
    strategy: str | None = None
    pinpoints: tuple[tuple[int, int], ...] | None = None
    tile_size: int | None = None
    crops: bool = False


_NEXT: Final = _Defaults(
    tower="clip_vision_model", strategy="default", pinpoints=_NEXT_PINPOINTS, tile_size=224, crops=True
)
_GRANITE4: Final = replace(_NEXT, tower=None)
_ONEVISION: Final = _Defaults(
    tower="siglip_vision_model", strategy="full", pinpoints=_ONEVISION_PINPOINTS, tile_size=384
)
_REMOTE: Final = _Defaults()


def build_llava_next(source: reading.Source) -> ImageRule:
    """Bind LLaVA-NeXT's rule."""
    return _bind_largest_canvas(source, _NEXT, _read_shape(source, _NEXT))


def build_granite4_vision(source: reading.Source) -> ImageRule:
    """Bind Granite 4 Vision's rule: LLaVA-NeXT's on tiles whose patches a window projector has reduced."""
    shape = _read_shape(source, _GRANITE4)
    side = _reduce(source, shape.tile_tokens)
    return _bind_largest_canvas(source, _GRANITE4, shape._replace(tile_tokens=side, overview_tokens=side**2))


def build_llava_onevision(source: reading.Source) -> ImageRule:
    """Bind LLaVA-OneVision's rule: LLaVA-NeXT's, with more than about nine tiles scaled down."""
    _check_ratio(source)
    shape = _read_shape(source, _ONEVISION)._replace(counted_tiles=_ONEVISION_TILES, model_tiles=_ONEVISION_TILES)
    ignored = ("hf_overrides.vision_aspect_ratio",) if "vision_aspect_ratio" in source.settings.hf_overrides else ()
    return Anyres(
        settings=source.settings,
        model_id=source.model_id,
        shape=shape,
        dummy_size=_ONEVISION_DUMMY,
        ignored_settings=ignored,
    )


def _check_ratio(source: reading.Source) -> None:
    """Refuse a ``vision_aspect_ratio`` of the processor that ends in no number: no image gets through it."""
    ratio = source.processor.get("vision_aspect_ratio", _ONEVISION_RATIO)
    if not str(ratio).strip(_ONEVISION_RATIO.rstrip("9")).isdigit():
        raise reading.Refused(
            "StartupFails",
            f"{source.model_id or 'the model'}: the processor's vision_aspect_ratio is {ratio!r}, and it reads the "
            f"number of tiles at its end, so that the server would not start; it must be like {_ONEVISION_RATIO}",
        )


def build_bee(source: reading.Source) -> ImageRule:
    """Bind Bee's rule: the count scales down to the tiles that the configuration names, the model to nine."""
    shape = _read_shape(source, _REMOTE)
    shape = shape._replace(counted_tiles=_read_tile_limit(source), model_tiles=_ONEVISION_TILES)
    return _bind_largest_canvas(source, _REMOTE, shape)


def build_r4b(source: reading.Source) -> ImageRule:
    """Bind R-4B's rule: the count never scales down, the model does so to nine tiles."""
    shape = _read_shape(source, _REMOTE)._replace(model_tiles=_ONEVISION_TILES)
    return _bind_largest_canvas(source, _REMOTE, shape)


def _bind_largest_canvas(source: reading.Source, defaults: _Defaults, shape: AnyresShape) -> ImageRule:
    """Bind the rule of an engine whose dummy is the canvas of most tokens, the first of equals as listed."""
    sizes = [(width, height) for height, width in _require_pinpoints(source, defaults)]
    dummy_size = max(sizes, key=lambda size: measure(size[0], size[1], shape).embed_tokens)
    return Anyres(settings=source.settings, model_id=source.model_id, shape=shape, dummy_size=dummy_size)


def _read_shape(source: reading.Source, defaults: _Defaults) -> AnyresShape:
    _refuse_settings(source)
    name, config = source.model_id, source.config
    tile_size = reading.first_int(name, (config, "vision_config.image_size"))
    patch_size = reading.first_int(name, (config, "vision_config.patch_size"))
    _check_tower(source, defaults, tile_size, patch_size)
    _check_processor(source, defaults, tile_size)
    side = reading.divide("vision_config.patch_size", tile_size, patch_size)
    canvases = tuple(_to_tiles(pinpoint, tile_size) for pinpoint in _require_pinpoints(source, defaults))
    return AnyresShape(
        tile_size=tile_size,
        tile_tokens=side,
        overview_tokens=side**2,
        view_patches=side**2,
        canvases=list_canvases(canvases, tile_size),
    )


def _refuse_settings(source: reading.Source) -> None:
    given = reading.flatten_images_kwargs(source.settings)
    if "image_grid_pinpoints" in given:
        raise reading.Refused(
            "StartupFails",
            "mm_processor_kwargs.image_grid_pinpoints stops the server from starting (TypeError: unhashable type: "
            "'list'); drop it, the canvases are the checkpoint's",
        )
    reading.refuse_unknown(given, _PIXEL_KEYS)
    reading.refuse_changed(given, source.processor, "drop it")


def _check_tower(source: reading.Source, defaults: _Defaults, tile_size: int, patch_size: int) -> None:
    """Refuse a tower that the engine cannot load here or whose class token does not fit the feature selection."""
    kind = reading.find(source.config, "vision_config.model_type") or defaults.tower
    strategy = source.config.get("vision_feature_select_strategy") or defaults.strategy
    if kind not in _TOWERS:
        raise reading.Refused(
            "UnsupportedVisionTower",
            f"{source.model_id or 'the model'}: vision_config.model_type is {kind!r}, but images can be counted with "
            f"{' or '.join(_TOWERS)}; take config.json from the checkpoint",
        )
    if strategy != ("default" if _TOWERS[kind] else "full"):
        raise reading.Refused(
            "SettingMismatch",
            f"vision_feature_select_strategy is {strategy!r}, but {kind} has {_TOWERS[kind]} class tokens, and with it "
            "the features would not fill the tiles: requests would fail; take it from the checkpoint",
        )
    if _TOWERS[kind] and tile_size % patch_size:
        raise reading.Refused(
            "StartupFails",
            f"vision_config.image_size {tile_size} is no multiple of patch_size {patch_size}, which stops the server "
            "from starting (AssertionError); take both from the checkpoint",
        )


def _check_processor(source: reading.Source, defaults: _Defaults, tile_size: int) -> None:
    """Refuse a processor that cuts tiles of another size, or on other canvases, than the count assumes."""
    sides = {key: reading.find(source.processor, key) for key in ("size.shortest_edge", "size.height", "size.width")}
    if not any(sides.values()):
        sides = {"size": defaults.tile_size}
    cropped = {key: reading.find(source.processor, key) for key in ("crop_size.height", "crop_size.width")}
    if defaults.crops and not any(cropped.values()):
        cropped = {"crop_size": defaults.tile_size}
    for key, side in {**sides, **cropped}.items():
        if side not in (None, tile_size):
            raise reading.Refused(
                "SettingMismatch",
                f"the processor's {key} is {side}, but vision_config.image_size is {tile_size}: pixels and token "
                "count would disagree and requests would fail; take both files from the checkpoint",
            )
    cut = _read_pinpoints(source.processor, defaults)
    if cut is not None and cut != _require_pinpoints(source, defaults):
        raise reading.Refused(
            "SettingMismatch",
            "image_grid_pinpoints of the configuration and of the processor differ: pixels and token count would "
            "disagree and requests would fail; drop the override, or take both files from the checkpoint",
        )


def _require_pinpoints(source: reading.Source, defaults: _Defaults) -> tuple[tuple[int, int], ...]:
    """Return the (height, width) in pixels of each canvas of the count, as listed."""
    pinpoints = _read_pinpoints(source.config, defaults)
    if pinpoints is None:
        raise reading.Refused(
            "MissingProcessorValue",
            f"{source.model_id or 'the model'}: its configuration lacks image_grid_pinpoints, without which images "
            "cannot be counted; take config.json from the checkpoint",
        )
    return pinpoints


def _read_pinpoints(document: Mapping[str, Any], defaults: _Defaults) -> tuple[tuple[int, int], ...] | None:
    """Return the (height, width) in pixels of each canvas, as listed; None where nothing states them."""
    listed = document.get("image_grid_pinpoints")
    if listed is None:
        return defaults.pinpoints
    pairs = isinstance(listed, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in listed)
    if not pairs or not 1 <= len(listed) <= _MOST_CANVASES:
        raise reading.Refused(
            "InvalidSetting",
            f"image_grid_pinpoints must be a list of 1 to {_MOST_CANVASES} pairs of height and width in pixels; "
            "take it from the checkpoint",
        )
    name = "image_grid_pinpoints"
    return tuple((reading.positive_int(name, pair[0]), reading.positive_int(name, pair[1])) for pair in listed)


def _to_tiles(pinpoint: tuple[int, int], tile_size: int) -> Grid:
    height, width = pinpoint
    if height % tile_size or width % tile_size:
        raise reading.Refused(
            "SettingMismatch",
            f"image_grid_pinpoints has [{height}, {width}], which is not made of whole tiles of {tile_size} pixels "
            "(vision_config.image_size): requests would fail; take both from the checkpoint",
        )
    return width // tile_size, height // tile_size


def _read_tile_limit(source: reading.Source) -> int:
    value = source.config.get("vision_aspect_ratio", "anyres_max_9")
    digits = value.replace("anyres_max_", "") if isinstance(value, str) else ""
    if not digits.isdecimal():
        raise reading.Refused(
            "StartupFails",
            f"vision_aspect_ratio is {value!r}, but the engine reads a number of tiles from it, as in anyres_max_9, "
            "and would not start; take it from the checkpoint",
        )
    return reading.positive_int("vision_aspect_ratio", int(digits))


def _reduce(source: reading.Source, patches: int) -> int:
    """Return the tokens along a tile of ``patches`` patches, which the projector reads in windows."""
    value = source.config.get("downsample_rate")
    query, _, window = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not (query.isdecimal() and window.isdecimal() and int(query) and int(window)):
        raise reading.Refused(
            "InvalidSetting",
            f"downsample_rate is {value!r}, but must be the sides of the projector's windows in tokens and in patches, "
            "such as '4/8'; take it from the checkpoint",
        )
    if patches % int(window):
        raise reading.Refused(
            "StartupFails",
            f"downsample_rate is {value!r}, but a tile of {patches} patches a side is not made of whole windows of "
            f"{window}, which stops the server from starting; take both from the checkpoint",
        )
    return patches // int(window) * int(query)
