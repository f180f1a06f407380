"""InternViT, Llama-4, Gemma-4 and DeepSeek towers (vLLM 0.33.0 ``M/*.py`` of the same names)."""

from collections.abc import Mapping
from dataclasses import replace
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

GEMMA4_AUDIO: Final = 308_756_768
"""Parameters of Gemma-4's audio tower as the class default builds it (E2B and E4B ship no other)."""

_CLIP_L: Final[Mapping[str, int]] = {"width": 1024, "layers": 24, "heads": 16, "image_size": 224, "patch_size": 14}
_INTERNVL_HF: Final[Mapping[str, int]] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
_SAM_WINDOW: Final = 14
_SAM_B: Final[Mapping[str, Any]] = {
    "width": 768,
    "layers": 12,
    "heads": 12,
    "global_attn_indexes": (2, 5, 8, 11),
    "downsample_channels": (512, 896),
}
_QWEN2_WIDTH: Final = 896
_OCR2_QUERIES: Final = (144, 256)
"""Learned queries of a tile of 768 and of a view of 1,024 pixels."""


def read_internvl(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """InternVL: InternViT up to ``select_layer`` and a projector on every rank (pixel shuffle, norm, two linears).

    Raises:
        KeyError: The file lacks a size of the tower.
    """
    vision = vision_config(config)
    width, selected = int(vision["hidden_size"]), number(config, "select_layer", -1)
    layers = int(vision["num_hidden_layers"]) + selected + 1 if selected < 0 else selected + 1
    normed = bool(vision.get("qk_normalization", vision.get("use_qk_norm")))
    norm = width if vision.get("norm_type") == "rms_norm" else 2 * width
    layer = Layer(
        hidden=width,
        intermediate=int(vision["intermediate_size"]),
        qkv_bias=bool(vision.get("qkv_bias", vision.get("attention_bias"))),
        norms=2 * norm + 2 * width + (2 * width if normed else 0),
    )
    patch = number(vision, "patch_size", 14)
    side = number(vision, "image_size", 448) // patch
    merged = round(width / float(config.get("downsample_ratio", 0.5)) ** 2)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(width + (side**2 + 1) * width),
        *mlp_projector(merged, text_hidden, text_hidden, split=False),
        projector_table(2 * merged),
    )
    return shape(
        layer,
        layers,
        weights,
        heads=number(vision, "num_attention_heads", 16),
        patch=patch,
        out=text_hidden,
        odd_heads="replicate_attention",
    )


def read_internvl_hf(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """InternVL in its transformers form (``M/interns1_vit.py``): every rank holds attention, only MLPs are split."""
    found = read_qianfan(config, text_hidden)
    weights = tuple(replace(weight, split="whole") if ".attn." in weight.name else weight for weight in found.weights)
    return replace(found, weights=weights, split_heads=0)


def read_qianfan(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qianfan-OCR: InternVL, whose tower is described as in transformers' InternVL."""
    vision = dict(vision_config(config))
    for key in ("image_size", "patch_size"):
        side = vision.get(key)
        if isinstance(side, list):
            vision[key] = side[0]
    return read_internvl({**config, "vision_config": {**_INTERNVL_HF, **vision}}, text_hidden)


def read_llama4(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Llama-4: a split patch embedding, a pixel-shuffle adapter and one linear that data mode still splits."""
    vision = vision_config(config)
    width, patch = number(vision, "hidden_size", 768), number(vision, "patch_size", 14)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 5632), norms=4 * width)
    side = number(vision, "image_size", 448) // patch
    shuffled = round(width / float(vision.get("pixel_shuffle_ratio", 0.5)) ** 2)
    inner, last = number(vision, "projector_input_dim", 4096), number(vision, "projector_output_dim", 4096)
    out = number(vision, "vision_output_dim", last)
    projector = linear("linear_1", out, text_hidden, "columns", bias=False)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, "columns"),
        tower("vision_adapter.fc1", shuffled, inner, "columns"),
        tower("vision_adapter.fc2", inner, last, "rows"),
        tower_table(width + (side**2 + 1) * width + 4 * width),
        *(replace(weight, split_in_data_mode=True) for weight in projector),
    )
    layers, heads = number(vision, "num_hidden_layers", 34), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=2)


def read_gemma4(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Gemma-4: a tower that every rank holds whole whatever the mode, and the audio tower where there is one.

    Raises:
        ValueError: The audio tower is another one than the class default.
    """
    vision = vision_config(config)
    width, heads = number(vision, "hidden_size", 768), number(vision, "num_attention_heads", 12)
    head_dim, patch = number(vision, "head_dim", 64), number(vision, "patch_size", 16)
    layer = Layer(
        hidden=width,
        intermediate=number(vision, "intermediate_size", 3072),
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norms=4 * width + 2 * head_dim,
        split_attention=False,
        split_mlp=False,
    )
    weights: list[Weight] = [
        tower("patch_embedder", 3 * patch**2, width),
        tower_table(2 * number(vision, "position_embedding_size", 10240) * width),
        *linear("embedding_projection", width, text_hidden, bias=False),
    ]
    audio = config.get("audio_config")
    if audio:
        if set(audio) - {"model_type", "dtype"}:
            message = "audio_config, which differs from its class default"
            raise ValueError(message)
        weights.append(table("audio", "audio_tower", GEMMA4_AUDIO))
    layers, pool = number(vision, "num_hidden_layers", 16), number(vision, "pooling_kernel_size", 3)
    return shape(layer, layers, tuple(weights), heads=heads, patch=patch, out=text_hidden, merge=pool)


def read_gemma4_unified(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Gemma-4 without towers: pixels become tokens by one split linear, sound by another (``M/gemma4_unified.py``)."""
    vision, audio = vision_config(config), config.get("audio_config")
    width, patch = number(vision, "mm_embed_dim", 3840), number(vision, "patch_size", 16)
    pool = number(vision, "pooling_kernel_size", 3)
    row = 3 * (number(vision, "model_patch_size", patch * pool)) ** 2
    heard = number(audio or {}, "audio_embed_dim", 640)
    weights = (
        Weight(part="vision_tower", name="patch_dense", rows=row, columns=width, split="columns", bias=True),
        tower_table(2 * row + 4 * width + 2 * number(vision, "mm_posemb_size", 1120) * width),
        *linear("embedding_projection", number(vision, "output_proj_dims", 3840), text_hidden, bias=False),
        *((table("audio", "embed_audio", heard * text_hidden),) if audio is not None else ()),
    )
    return VisionShape(
        layers=0,
        hidden=width,
        heads=1,
        intermediate=width,
        patch_size=patch * pool,
        merge=1,
        out_width=text_hidden,
        patch_row=row,
        gated=False,
        split_heads=0,
        weights=weights,
    )


def read_deepseek_vl2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """DeepSeek-VL2: SigLIP-SO400M with its pooling head; only the MLPs are split; two linears on every rank."""
    vision = vision_config(config)
    width, layers = number(vision, "width", 1152), number(vision, "layers", 27)
    patch, side = number(vision, "patch_size", 14), number(vision, "image_size", 384)
    wide = int(width * float(vision.get("mlp_ratio", 4)))
    layer = Layer(hidden=width, intermediate=wide, norms=4 * width, split_attention=False)
    out = number(config.get("projector_config") or {}, "n_embed", text_hidden)
    # The pooling head is one more layer with a query of its own and one norm.
    weights = (
        tower("patch_embed.proj", 3 * patch**2, width, bias=True),
        tower_table((side // patch) ** 2 * width + 2 * width),
        tower("attn_pool.q", width, width, bias=True),
        tower("attn_pool.kv", width, 2 * width, bias=True),
        tower("attn_pool.proj", width, width, bias=True),
        tower("attn_pool.mlp.fc1", width, wide, "columns", bias=True),
        tower("attn_pool.mlp.fc2", wide, width, "rows"),
        tower_table(4 * width),
        *mlp_projector(4 * width, out, out, split=False),
        projector_table(2 * out),
    )
    return shape(layer, layers, weights, heads=number(vision, "heads", 16), patch=patch, out=out, merge=2)


def read_deepseek_ocr(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """DeepSeek-OCR: SAM-B on every rank and a split CLIP-L; one linear on every rank.

    Raises:
        ValueError: The file names another pair of towers.
    """
    vision, projector = vision_config(config), config.get("projector_config") or {}
    named = vision.get("width")
    widths: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    if set(widths) != {"clip-l-14-224", "sam_vit_b"}:
        message = f"vision_config.width, which names {', '.join(widths) or 'no towers'} instead of CLIP-L and SAM-B"
        raise ValueError(message)
    clip = {**_CLIP_L, **widths["clip-l-14-224"]}
    width, patch = int(clip["width"]), int(clip["patch_size"])
    layer = Layer(hidden=width, intermediate=4 * width, norms=4 * width)
    side, out = int(clip["image_size"]) // patch, number(projector, "n_embed", text_hidden)
    weights = (
        tower("vision_model.patch_embedding", 3 * patch**2, width),
        tower_table(width + (side**2 + 1) * width + 2 * width),
        tower_table(_sam(widths["sam_vit_b"], number(vision, "image_size", 1024))),
        *linear("projector.layers", number(projector, "input_dim", 2048), out),
        projector_table(2 * out),
    )
    return shape(layer, int(clip["layers"]), weights, heads=int(clip["heads"]), patch=patch, out=out)


def read_deepseek_ocr2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """DeepSeek-OCR-2: SAM-B and a Qwen2 decoder of fixed sizes (``M/deepencoder2.py``), all of it on every rank."""
    projector = config.get("projector_config") or {}
    layer = Layer(
        hidden=_QWEN2_WIDTH,
        intermediate=4864,
        norms=2 * _QWEN2_WIDTH,
        key_width=128,
        key_heads=2,
        gated=True,
        out_bias=False,
        mlp_bias=False,
        split_attention=False,
        split_mlp=False,
    )
    out = number(projector, "n_embed", text_hidden)
    weights = (
        tower_table(_sam(_SAM_B, 1024)),
        tower_table((sum(_OCR2_QUERIES) + 1) * _QWEN2_WIDTH),
        *linear("projector.layers", number(projector, "input_dim", _QWEN2_WIDTH), out),
        projector_table(out),
    )
    return shape(layer, 24, weights, heads=14, patch=16, out=out, merge=4)


def _sam(sam: Mapping[str, Any], image: int) -> int:
    """Return the parameters of SAM's image encoder with its neck and the two strided convolutions behind it."""
    width, layers, heads = int(sam["width"]), int(sam["layers"]), int(sam["heads"])
    side, neck = image // 16, 256
    whole = len(sam["global_attn_indexes"])
    block = 12 * width**2 + 13 * width
    relative = 2 * (width // heads) * (whole * (2 * side - 1) + (layers - whole) * (2 * _SAM_WINDOW - 1))
    stem = 3 * 16**2 * width + width + side**2 * width
    convolutions, previous = 0, neck
    for channels in sam["downsample_channels"]:
        convolutions += 9 * previous * int(channels)
        previous = int(channels)
    return layers * block + relative + stem + width * neck + 9 * neck**2 + 4 * neck + convolutions
