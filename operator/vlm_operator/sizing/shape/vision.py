"""Vision towers and projectors, counted part by part as the engine builds them (vLLM 0.33.0 model files)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vlm_operator.sizing.shape.types import VisionShape


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """What one transformer layer of a tower holds."""

    hidden: int
    intermediate: int
    gated: bool = False
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    norms: int
    extra: int = 0

    @property
    def attention(self) -> int:
        """Split by tensor parallelism: four square projections and the biases of the column-parallel ones."""
        return 4 * self.hidden**2 + (3 * self.hidden if self.qkv_bias else 0)

    @property
    def mlp(self) -> int:
        """Split by tensor parallelism: two matrices, three with a gate, and the column-parallel biases."""
        columns = 2 if self.gated else 1
        return (columns + 1) * self.hidden * self.intermediate + (columns * self.intermediate if self.mlp_bias else 0)

    @property
    def other(self) -> int:
        """On every rank: norms and the biases of the row-parallel projections."""
        return self.norms + self.extra + self.hidden * (self.out_bias + self.mlp_bias)


def read_qwen2_vl(vision: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen2-VL: a plain MLP of ``mlp_ratio`` times the width, LayerNorms, a 2x2 merger of two linears."""
    width = int(vision.get("embed_dim") or 1280)
    intermediate = int(width * vision.get("mlp_ratio", 4))
    return _qwen(
        vision,
        _Layer(hidden=width, intermediate=intermediate, norms=4 * width),
        text_hidden,
        merger_norm=2 * width,
    )


def read_qwen2_5_vl(vision: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen2.5-VL: a gated MLP and RMS norms."""
    width = int(vision.get("hidden_size") or 1280)
    layer = _Layer(hidden=width, intermediate=int(vision.get("intermediate_size") or 3420), gated=True, norms=2 * width)
    return _qwen(vision, layer, int(vision.get("out_hidden_size") or text_hidden), merger_norm=width)


def read_qwen3_vl(vision: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen3-VL: learned positions, a biased patch embedding and one more merger per deepstack level."""
    width = int(vision.get("hidden_size") or 1152)
    layer = _Layer(hidden=width, intermediate=int(vision.get("intermediate_size") or 4304), norms=4 * width)
    return _qwen(
        {"patch_size": 16, "depth": 27, **vision},
        layer,
        int(vision.get("out_hidden_size") or text_hidden),
        merger_norm=2 * width,
        positions=int(vision.get("num_position_embeddings") or 2304),
        levels=len(vision.get("deepstack_visual_indexes") or ()),
    )


def _qwen(
    vision: Mapping[str, Any],
    layer: _Layer,
    out: int,
    *,
    merger_norm: int,
    positions: int = 0,
    levels: int = 0,
) -> VisionShape:
    patch = int(vision.get("patch_size") or 14)
    merge = int(vision.get("spatial_merge_size") or 2)
    row = 3 * int(vision.get("temporal_patch_size") or 2) * patch**2
    merged = merge**2 * layer.hidden
    depth = int(vision.get("depth") or 32)
    patch_bias = layer.hidden if positions else 0
    mergers = 1 + levels
    return VisionShape(
        layers=depth,
        hidden=layer.hidden,
        heads=int(vision.get("num_heads") or 16),
        intermediate=layer.intermediate,
        patch_size=patch,
        merge=merge,
        out_width=out * mergers,
        patch_row=row,
        gated=layer.gated,
        attention=depth * layer.attention,
        mlp=depth * layer.mlp,
        other=depth * layer.other + row * layer.hidden + patch_bias + positions * layer.hidden,
        projector_split=mergers * (merged**2 + merged + merged * out),
        projector_other=mergers * out + merger_norm + levels * 2 * merged,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projector:
    out_width: int
    split: int
    other: int
    buffer_bytes: int = 0


def _plain(vision: Mapping[str, Any], layer: _Layer, layers: int, other: int, projector: _Projector) -> VisionShape:
    patch = int(vision.get("patch_size") or 14)
    return VisionShape(
        layers=layers,
        hidden=layer.hidden,
        heads=int(vision.get("num_attention_heads") or 16),
        intermediate=layer.intermediate,
        patch_size=patch,
        merge=1,
        out_width=projector.out_width,
        patch_row=3 * patch**2,
        gated=layer.gated,
        replicates_odd_heads=vision.get("model_type") == "intern_vit_6b",
        attention=layers * layer.attention,
        mlp=layers * layer.mlp,
        other=layers * layer.other + 3 * patch**2 * layer.hidden + other,
        projector_split=projector.split,
        projector_other=projector.other,
        buffer_bytes=projector.buffer_bytes,
    )


def read_clip(vision: Mapping[str, Any], text_hidden: int, feature_layer: int) -> VisionShape:
    """LLaVA-1.5: CLIP up to the feature layer (fact sheet 12.12) and a projector of two linears."""
    width = int(vision.get("hidden_size") or 1024)
    total = int(vision.get("num_hidden_layers") or 24)
    layers = total + feature_layer + 1 if feature_layer < 0 else feature_layer
    side = int(vision.get("image_size") or 336) // int(vision.get("patch_size") or 14)
    layer = _Layer(hidden=width, intermediate=int(vision.get("intermediate_size") or 4096), norms=4 * width)
    post_norm = 2 * width if layers == total else 0
    projector = _Projector(
        out_width=text_hidden, split=width * text_hidden + text_hidden + text_hidden**2, other=text_hidden
    )
    return _plain(vision, layer, layers, width + (side**2 + 1) * width + 2 * width + post_norm, projector)


def _siglip(vision: Mapping[str, Any], projector: _Projector) -> VisionShape:
    width = int(vision.get("hidden_size") or 1152)
    layers = int(vision.get("num_hidden_layers") or 27)
    side = int(vision.get("image_size") or 896) // int(vision.get("patch_size") or 14)
    layer = _Layer(hidden=width, intermediate=int(vision.get("intermediate_size") or 4304), norms=4 * width)
    return _plain(vision, layer, layers, width + side**2 * width + 2 * width, projector)


def read_gemma3(vision: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Gemma-3: SigLIP, a norm and one linear, which every rank holds whole."""
    width = int(vision.get("hidden_size") or 1152)
    return _siglip(vision, _Projector(out_width=text_hidden, split=0, other=width * text_hidden + width))


def read_minicpm(vision: Mapping[str, Any], text_hidden: int, queries: int, version: str) -> VisionShape:
    """MiniCPM-V: SigLIP and a resampler with its position tables (70 x 70; 4.5 also 36,000 frames)."""
    width = int(vision.get("hidden_size") or 1152)
    rows = 70**2 + (36_000 if version == "4.5" else 0)
    resampler = width * text_hidden + queries * text_hidden + 5 * text_hidden**2 + 10 * text_hidden
    projector = _Projector(out_width=text_hidden, split=0, other=resampler, buffer_bytes=rows * text_hidden * 2)
    return _siglip(vision, projector)


def read_pixtral(vision: Mapping[str, Any], text_hidden: int, merge: int) -> VisionShape:
    """Mistral-Small-3: Pixtral (no biases, gated), a whole patch merger and two split linears."""
    width = int(vision.get("hidden_size") or 1024)
    layer = _Layer(
        hidden=width,
        intermediate=int(vision.get("intermediate_size") or 4096),
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norms=2 * width,
    )
    projector = _Projector(
        out_width=text_hidden,
        split=width * text_hidden + text_hidden**2,
        other=width + merge**2 * width**2,
    )
    return _plain(vision, layer, int(vision.get("num_hidden_layers") or 24), width, projector)


def read_internvl(vision: Mapping[str, Any], text_hidden: int, downsample: float) -> VisionShape:
    """InternVL: InternViT and a projector that every rank holds whole (pixel shuffle, norm, two linears)."""
    width = int(vision["hidden_size"])
    normed = bool(vision.get("qk_normalization", vision.get("use_qk_norm")))
    norm = width if vision.get("norm_type") == "rms_norm" else 2 * width
    side = int(vision.get("image_size") or 448) // int(vision.get("patch_size") or 14)
    layer = _Layer(
        hidden=width,
        intermediate=int(vision["intermediate_size"]),
        qkv_bias=bool(vision.get("qkv_bias", vision.get("attention_bias"))),
        norms=2 * norm,
        extra=2 * width + (2 * width if normed else 0),
    )
    merged = round(width / downsample**2)
    other = 2 * merged + merged * text_hidden + text_hidden + text_hidden**2 + text_hidden
    projector = _Projector(out_width=text_hidden, split=0, other=other)
    positions = (side**2 + 1) * width
    return _plain(
        {**vision, "model_type": "intern_vit_6b"},
        layer,
        int(vision["num_hidden_layers"]),
        width + width + positions,
        projector,
    )
