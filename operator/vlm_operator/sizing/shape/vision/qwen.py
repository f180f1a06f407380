"""Towers of Qwen-VL, GLM-V and Kimi: native resolution, patches merged 2 x 2 (vLLM ``M/qwen2_vl.py`` and so on)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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


def read_qwen2_vl(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen2-VL: a plain MLP of ``mlp_ratio`` times the width, LayerNorms, a merger of two linears."""
    vision = vision_config(config)
    width = number(vision, "embed_dim", 1280)
    layer = Layer(hidden=width, intermediate=int(width * vision.get("mlp_ratio", 4)), norms=4 * width)
    return _qwen(vision, layer, text_hidden, merger_norm=2 * width)


def read_qwen2_5_vl(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen2.5-VL: a gated MLP and RMS norms; most layers attend within windows of ``window_size`` pixels."""
    vision = vision_config(config)
    width = number(vision, "hidden_size", 1280)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 3420), gated=True, norms=2 * width)
    found = _qwen(vision, layer, number(vision, "out_hidden_size", text_hidden), merger_norm=width)
    whole = vision.get("fullatt_block_indexes", (7, 15, 23, 31))
    side = number(vision, "window_size", 112) // found.patch_size
    return replace(found, window_layers=max(found.layers - len(whole), 0), window_patches=side**2)


def read_qwen3_vl(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen3-VL and Qwen3.5: learned positions, a biased patch embedding and one more merger per deepstack level."""
    vision = vision_config(config)
    width = number(vision, "hidden_size", 1152)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 4304), norms=4 * width)
    return _qwen(
        {"patch_size": 16, "depth": 27, **vision},
        layer,
        number(vision, "out_hidden_size", text_hidden),
        merger_norm=2 * width,
        positions=number(vision, "num_position_embeddings", 2304),
        levels=len(vision.get("deepstack_visual_indexes") or ()),
    )


def _qwen(
    vision: Mapping[str, Any], layer: Layer, out: int, *, merger_norm: int, positions: int = 0, levels: int = 0
) -> VisionShape:
    patch, merge = number(vision, "patch_size", 14), number(vision, "spatial_merge_size", 2)
    row = 3 * number(vision, "temporal_patch_size", 2) * patch**2
    merged, depth = merge**2 * layer.hidden, number(vision, "depth", 32)
    weights = (
        tower("patch_embed.proj", row, layer.hidden, bias=bool(positions)),
        tower_table(positions * layer.hidden),
        projector_table(merger_norm + levels * 2 * merged),
        *(weight for _ in range(1 + levels) for weight in mlp_projector(merged, merged, out, split=True)),
    )
    return shape(
        layer,
        depth,
        weights,
        heads=number(vision, "num_heads", 16),
        patch=patch,
        merge=merge,
        out=out * (1 + levels),
        patch_row=row,
    )


def read_llava_onevision2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """LLaVA-OneVision-2: Qwen2-VL's merger behind a ViT with a norm in front (``M/llava_onevision2.py``).

    Raises:
        KeyError: The file lacks a size of the tower.
    """
    vision = vision_config(config)
    width, patch = int(vision["hidden_size"]), int(vision["patch_size"])
    layer = Layer(hidden=width, intermediate=int(vision["intermediate_size"]), norms=4 * width)
    merge = int(vision["spatial_merge_size"])
    merged = merge**2 * width
    weights = (
        tower("patch_embedding", 3 * patch**2, width),
        tower_table(2 * width),
        *mlp_projector(merged, merged, text_hidden, split=True),
        projector_table(2 * width),
    )
    layers, heads = int(vision["num_hidden_layers"]), int(vision["num_attention_heads"])
    return shape(layer, layers, weights, heads=heads, patch=patch, merge=merge, out=text_hidden)


def read_glm4v(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """GLM-4.1V and later: a gated MLP of the output's width, a strided convolution, a gated merger."""
    vision = vision_config(config)
    width, out = number(vision, "hidden_size", 1536), number(vision, "out_hidden_size", text_hidden)
    layer = Layer(
        hidden=width,
        intermediate=out,
        gated=True,
        qkv_bias=bool(vision.get("attention_bias")),
        out_bias=False,
        mlp_bias=False,
        norms=2 * width,
    )
    side = number(vision, "image_size", 336) // number(vision, "patch_size", 14)
    return _glm(vision, layer, out, tables=side**2 * width + 2 * width)


def read_glm_ocr(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """GLM-OCR: biases everywhere, queries and keys normalised per head, no learned positions."""
    vision = vision_config(config)
    width, heads = number(vision, "hidden_size", 1024), number(vision, "num_heads", 16)
    biased = bool(vision.get("attention_bias", True))
    layer = Layer(
        hidden=width,
        intermediate=number(vision, "intermediate_size", 4096),
        gated=True,
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=biased,
        norms=2 * width + 2 * (width // heads),
    )
    return _glm(vision, layer, number(vision, "out_hidden_size", text_hidden), tables=width)


def _glm(vision: Mapping[str, Any], layer: Layer, out: int, *, tables: int) -> VisionShape:
    patch, merge = number(vision, "patch_size", 14), number(vision, "spatial_merge_size", 2)
    row = 3 * number(vision, "temporal_patch_size", 2) * patch**2
    wide = number(vision, "intermediate_size", 13696)
    weights = (
        tower("patch_embed.proj", row, layer.hidden, bias=True),
        tower("downsample", merge**2 * layer.hidden, out, bias=True),
        tower_table(tables),
        *linear("merger.proj", out, out, "columns", bias=False),
        *linear("merger.gate_proj", out, wide, "columns", bias=False),
        *linear("merger.up_proj", out, wide, "columns", bias=False),
        *linear("merger.down_proj", wide, out, "rows", bias=False),
        projector_table(2 * out),
    )
    depth, heads = number(vision, "depth", 24), number(vision, "num_heads", 12)
    return shape(layer, depth, weights, heads=heads, patch=patch, merge=merge, out=out, patch_row=row)


def read_moonvit(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Kimi-VL and Kimi-K2.5: MoonViT with a learned position grid and a projector that every rank holds."""
    vision = vision_config(config)
    named = {key.removeprefix("vt_"): value for key, value in vision.items()}
    width = number(named, "hidden_size", 1152)
    layer = Layer(hidden=width, intermediate=number(named, "intermediate_size", 4304), norms=4 * width)
    patch, merge = number(named, "patch_size", 14), int((named.get("merge_kernel_size") or (2, 2))[0])
    grid = number(named, "init_pos_emb_height", 64) * number(named, "init_pos_emb_width", 64)
    merged = merge**2 * width
    weights = (
        tower("patch_embed.proj", 3 * patch**2, width, bias=True),
        tower_table(grid * width + 2 * width),
        *mlp_projector(merged, merged, text_hidden, split=False),
        projector_table(2 * width),
    )
    layers, heads = number(named, "num_hidden_layers", 27), number(named, "num_attention_heads", 16)
    # Kimi-K2.5's tower passes its head count, so heads that do not divide keep it whole (fact sheet 6.2).
    odd = "replicate_tower" if "vt_num_attention_heads" in vision else "refuse"
    return shape(
        layer,
        layers,
        weights,
        heads=heads,
        patch=patch,
        merge=merge,
        out=text_hidden,
        odd_heads=odd,  # type: ignore[arg-type]
    )


def read_ernie(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """ERNIE-4.5-VL: Qwen2-VL's layers and a resampler over space and time, every linear split by columns."""
    vision = vision_config(config)
    width, patch = number(vision, "hidden_size", 1280), number(vision, "patch_size", 14)
    wide = number(vision, "intermediate_size", int(width * float(vision.get("mlp_ratio", 4))))
    layer = Layer(hidden=width, intermediate=wide, norms=4 * width)
    merge, frames = number(vision, "spatial_merge_size", 2), number(vision, "temporal_merge_size", 2)
    merged = merge**2 * width
    weights = (
        tower("patch_embed.proj", 3 * patch**2, width),
        tower_table(2 * width),
        *linear("resampler.spatial_linear1", merged, merged, "columns"),
        *linear("resampler.spatial_linear2", merged, merged, "columns"),
        *linear("resampler.temporal_linear1", frames * merged, merged, "columns"),
        *linear("resampler.temporal_linear2", merged, merged, "columns"),
        *linear("resampler.mlp", merged, text_hidden, "columns"),
        projector_table(4 * merged + text_hidden),
    )
    depth, heads = number(vision, "depth", 32), number(vision, "num_heads", 16)
    return shape(layer, depth, weights, heads=heads, patch=patch, merge=merge, out=text_hidden)


def read_dots(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """dots.ocr: a gated MLP, RMS norms, no biases, a norm after the patches and a merger of two linears."""
    vision = vision_config(config)
    width, patch = number(vision, "embed_dim", 1536), number(vision, "patch_size", 14)
    biased, merge = bool(vision.get("use_bias")), number(vision, "spatial_merge_size", 2)
    layer = Layer(
        hidden=width,
        intermediate=number(vision, "intermediate_size", 4224),
        gated=True,
        qkv_bias=biased,
        out_bias=biased,
        mlp_bias=biased,
        norms=2 * width,
    )
    merged, row = merge**2 * width, 3 * number(vision, "temporal_patch_size", 1) * patch**2
    weights = (
        tower("patch_embed.proj", row, width, bias=True),
        tower_table(2 * width),
        *mlp_projector(merged, merged, text_hidden, split=True),
        projector_table(2 * width),
    )
    layers, heads = number(vision, "num_hidden_layers", 42), number(vision, "num_attention_heads", 12)
    return shape(layer, layers, weights, heads=heads, patch=patch, merge=merge, out=text_hidden, patch_row=row)
