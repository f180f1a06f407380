"""CLIP, SigLIP and Pixtral towers under LLaVA, Gemma-3, PaliGemma, Idefics3, Cohere, LFM2, MiniCPM, Mistral."""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import (
    Layer,
    linear,
    mlp_projector,
    number,
    projector_table,
    shape,
    tower,
    tower_table,
    vision_config,
)
from vlm_operator.sizing.shape.weight import Weight, table

_CLIP: Final[Mapping[str, int]] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
_SIGLIP: Final[Mapping[str, int]] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 896,
    "patch_size": 14,
}
_MINICPM_FRAMES: Final[Mapping[str, int]] = {"4.5": 36_000}
_MINICPM_GRID: Final = 70


def read_llava(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """LLaVA-1.5 and Pixtral in its transformers form: two linears, split."""
    if vision_config(config).get("model_type") == "pixtral":
        projector = mlp_projector(_width(config, 1024), text_hidden, text_hidden, split=True)
        return _pixtral(config, projector, text_hidden, merge=1)
    rows = _feature_width(config)
    return _feature_tower(config, mlp_projector(rows, text_hidden, text_hidden, split=True), text_hidden)


def read_llava_next(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """LLaVA-1.6: the same with a learned newline."""
    projector = mlp_projector(_feature_width(config), text_hidden, text_hidden, split=True)
    return _feature_tower(config, (*projector, projector_table(text_hidden)), text_hidden)


def read_llava_onevision(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """LLaVA-OneVision: a learned newline and linears that every rank holds."""
    projector = mlp_projector(_feature_width(config), text_hidden, text_hidden, split=False)
    return _feature_tower(config, (*projector, projector_table(text_hidden)), text_hidden)


def _width(config: Mapping[str, Any], default: int) -> int:
    return number(vision_config(config), "hidden_size", default)


def _is_clip(config: Mapping[str, Any]) -> bool:
    return str(vision_config(config).get("model_type", "clip_vision_model")) == "clip_vision_model"


def _feature_width(config: Mapping[str, Any]) -> int:
    selected = config.get("vision_feature_layer", -2)
    return _width(config, 1024 if _is_clip(config) else 1152) * (len(selected) if isinstance(selected, list) else 1)


def _feature_tower(config: Mapping[str, Any], projector: tuple[Weight, ...], out: int) -> VisionShape:
    """Build the tower up to the deepest selected layer, without its last norm (fact sheet 12.12)."""
    vision, selected = vision_config(config), config.get("vision_feature_layer", -2)
    defaults = _CLIP if _is_clip(config) else {**_SIGLIP, "image_size": 384}
    total = number(vision, "num_hidden_layers", defaults["num_hidden_layers"])
    picked = selected if isinstance(selected, list) else [selected]
    layers = max(total + index + 1 if index < 0 else index for index in picked)
    build = _clip if _is_clip(config) else _siglip
    return build({**defaults, **vision, "num_hidden_layers": layers}, projector, out, last_norm=False)


def _clip(
    vision: Mapping[str, Any], projector: tuple[Weight, ...], out: int, *, last_norm: bool = False
) -> VisionShape:
    width, patch = int(vision["hidden_size"]), int(vision["patch_size"])
    layer = Layer(hidden=width, intermediate=int(vision["intermediate_size"]), norms=4 * width)
    side = int(vision["image_size"]) // patch
    tables = width + (side**2 + 1) * width + 2 * width * (2 if last_norm else 1)
    weights = (tower("patch_embedding", 3 * patch**2, width), tower_table(tables), *projector)
    layers, heads = int(vision["num_hidden_layers"]), int(vision["num_attention_heads"])
    return shape(layer, layers, weights, heads=heads, patch=patch, out=out)


def _siglip(
    vision: Mapping[str, Any],
    projector: tuple[Weight, ...],
    out: int,
    *,
    last_norm: bool = True,
    merge: int = 1,
    buffer_bytes: int = 0,
) -> VisionShape:
    sizes = {**_SIGLIP, **vision}
    width, patch = int(sizes["hidden_size"]), int(sizes["patch_size"])
    layer = Layer(hidden=width, intermediate=int(sizes["intermediate_size"]), norms=4 * width)
    positions = int(sizes.get("num_patches") or (int(sizes["image_size"]) // patch) ** 2)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(positions * width + (2 * width if last_norm else 0)),
        *projector,
    )
    return shape(
        layer,
        int(sizes["num_hidden_layers"]),
        weights,
        heads=int(sizes["num_attention_heads"]),
        patch=patch,
        out=out,
        merge=merge,
        buffer_bytes=buffer_bytes,
    )


def read_gemma3(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Gemma-3: SigLIP, a norm and one linear, which every rank holds."""
    width = _width(config, 1152)
    projector = (*linear("input_projection", width, text_hidden, bias=False), projector_table(width))
    return _siglip(vision_config(config), projector, text_hidden)


def read_paligemma(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """PaliGemma: SigLIP and one linear, which every rank holds."""
    out = number(config, "projection_dim", text_hidden)
    projector = linear("linear", _width(config, 1152), out)
    return _siglip({"image_size": 224, **vision_config(config)}, projector, out)


def read_idefics3(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Idefics3 and SmolVLM: pixel shuffle by ``scale_factor`` and one linear, which every rank holds."""
    vision, scale = vision_config(config), number(config, "scale_factor", 2)
    projector = linear("proj", _width(config, 1152) * scale**2, text_hidden, bias=False)
    return _siglip({"image_size": 224, **vision}, projector, text_hidden, merge=scale)


def read_cohere2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Command-A-Vision: pixel shuffle, then a gated pair of linears, split."""
    factor, wide = number(config, "downsample_factor", 2), number(config, "alignment_intermediate_size", 36864)
    projector = (
        *linear("linear_1", _width(config, 1152) * factor**2, wide, "columns"),
        *linear("linear_2", wide // 2, text_hidden, "rows"),
    )
    return _siglip({"image_size": 512, "patch_size": 16, **vision_config(config)}, projector, text_hidden, merge=factor)


def read_lfm2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """LFM2-VL: SigLIP-2 with a position table of ``num_patches``, pixel unshuffle, two linears on every rank."""
    factor, wide = number(config, "downsample_factor", 2), number(config, "projector_hidden_size", 2560)
    rows = _width(config, 768) * factor**2
    biased = bool(config.get("projector_bias", True))
    norm = 2 * rows if config.get("projector_use_layernorm", True) else 0
    projector = (*mlp_projector(rows, wide, text_hidden, split=False, bias=biased), projector_table(norm))
    vision = {"num_patches": 256, "patch_size": 16, **vision_config(config)}
    return _siglip(vision, projector, text_hidden, merge=factor)


def read_paddleocr(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """PaddleOCR-VL: SigLIP, a norm, patches merged 2 x 2 and two linears on every rank."""
    vision, width = vision_config(config), _width(config, 1152)
    merge = number(vision, "spatial_merge_size", 2)
    merged = merge**2 * width
    projector = (*mlp_projector(merged, merged, text_hidden, split=False), projector_table(2 * width))
    return _siglip({"image_size": 384, **vision}, projector, text_hidden, merge=merge)


def read_minicpm(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """MiniCPM-V: SigLIP and a resampler with its position tables (70 x 70; 4.5 also 36,000 frames)."""
    vision = vision_config(config)
    width, queries = _width(config, 1152), number(config, "query_num", 64)
    layers = number(vision, "num_hidden_layers", 27) - bool(config.get("drop_vision_last_layer"))
    rows = _MINICPM_GRID**2 + _MINICPM_FRAMES.get(str(config.get("version")), 0)
    projector = (
        *linear("resampler.kv_proj", width, text_hidden, bias=False),
        projector_table(queries * text_hidden + 5 * text_hidden**2 + 10 * text_hidden),
    )
    return _siglip({**vision, "num_hidden_layers": layers}, projector, text_hidden, buffer_bytes=rows * text_hidden * 2)


def read_mistral3(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Mistral-Small-3 and LightOnOCR: Pixtral, a whole patch merger and two split linears."""
    width, merge = _width(config, 1024), number(config, "spatial_merge_size", 2)
    projector = (
        *linear("patch_merger.merging_layer", merge**2 * width, width, bias=False),
        projector_table(width),
        *mlp_projector(width, text_hidden, text_hidden, split=True, bias=bool(config.get("multimodal_projector_bias"))),
    )
    return _pixtral(config, projector, text_hidden, merge)


def read_pixtral(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Pixtral in Mistral's own format (``M/pixtral.py``): patches merged if the file says so, linears on every rank."""
    vision, width = vision_config(config), _width(config, 1024)
    merges = vision.get("mm_projector_id") == "patch_merge"
    merge = number(vision, "spatial_merge_size", 1) if merges else 1
    norm = width if vision.get("add_pre_mm_projector_layer_norm") else 0
    biased = bool(vision.get("adapter_bias", True))
    projector = (
        *(linear("patch_merger.merging_layer", merge**2 * width, width, bias=False) if merges else ()),
        *mlp_projector(width, text_hidden, text_hidden, split=False, bias=biased),
        projector_table(norm),
    )
    return _pixtral(config, projector, text_hidden, merge)


def _pixtral(config: Mapping[str, Any], projector: tuple[Weight, ...], out: int, merge: int) -> VisionShape:
    vision, width = vision_config(config), _width(config, 1024)
    patch = number(vision, "patch_size", 16)
    layer = Layer(
        hidden=width,
        intermediate=number(vision, "intermediate_size", 4096),
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norms=2 * width,
    )
    weights = (tower("patch_conv", 3 * patch**2, width), tower_table(width), *projector)
    layers, heads = number(vision, "num_hidden_layers", 24), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=out, merge=merge)


def read_phi3v(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Phi-3-vision: CLIP-L/14 at 336 pixels up to its last layer but one, two linears on every rank."""
    rows = 4 * number(config.get("img_processor") or {}, "image_dim_out", 1024)
    projector = (*mlp_projector(rows, text_hidden, text_hidden, split=False), projector_table(2 * rows))
    return _clip({**_CLIP, "num_hidden_layers": 23}, projector, text_hidden)


def read_molmo(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Molmo: CLIP-L/14 at 336 pixels, two layers' features, attention pooling and a gated projector, split."""
    width, wide = _CLIP["hidden_size"], int(config["intermediate_size"]) // 2
    pooled = tuple(
        weight
        for name in ("wq", "wk", "wv")
        for weight in linear(f"image_pooling_2d.{name}", 2 * width, width, "columns")
    )
    projector = (
        *pooled,
        *linear("image_pooling_2d.wo", width, width, "rows"),
        *linear("image_projector.w1", width, wide, "columns", bias=False),
        *linear("image_projector.w3", width, wide, "columns", bias=False),
        *linear("image_projector.w2", wide, text_hidden, "rows", bias=False),
        table("projector", "pad_embed", 4 * width),
    )
    return _clip({**_CLIP, "num_hidden_layers": 23}, projector, text_hidden)
