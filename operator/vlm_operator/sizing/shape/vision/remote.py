"""Towers whose configuration is remote code: Phi-4-multimodal, Keye, Nemotron, Molmo2, Ovis, Step-3 and MiniCPM.

Sources: vLLM ``M/phi4mm.py`` and ``M/vision_siglip_navit.py``, ``M/keye.py``, ``M/ovis.py``, ``M/aimv2.py``,
``M/ovis2_5.py``, ``M/siglip2navit.py``, ``M/minicpmo.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.shape.text.config import find_text_config
from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parakeet import read_parakeet
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
from vlm_operator.sizing.shape.vision.siglip import read_minicpm
from vlm_operator.sizing.shape.weight import Weight, table

PHI4_AUDIO: Final = 441_550_016
"""Parameters of Phi-4-multimodal's audio encoder and projector (transformers' class on the published sizes)."""

_PHI4_AUDIO_SIZES: Final[Mapping[str, int]] = {
    "attention_dim": 1024,
    "attention_heads": 16,
    "linear_units": 1536,
    "num_blocks": 24,
}
_KEYE_PACKED_POSITIONS: Final = 32_768
_RADIO_TOKENS: Final = 10
_VITS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "vit_small_patch16_224": (384, 12, 6, 1536),
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch16_224": (1280, 32, 16, 5120),
    "vit_so400m_patch16_224": (1152, 27, 16, 4304),
}
"""Width, layers, heads and MLP width of the ViTs that C-RADIO may be (``transformers_utils/configs/radio.py``)."""

_OVIS_INDICATORS: Final = 5
_OVIS2_5_INDICATORS: Final = 4


def read_phi4mm(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Phi-4-multimodal: SigLIP-SO400M at 448 pixels with its pooling head, all of it on every rank, and audio.

    Raises:
        ValueError: The audio encoder is another one than the published.
    """
    width, patch, side, wide = 1152, 14, 448 // 14, 4304
    layer = Layer(hidden=width, intermediate=wide, norms=4 * width, split_attention=False, split_mlp=False)
    audio = (config.get("audio_processor") or {}).get("config") or {}
    if any(audio.get(key, value) != value for key, value in _PHI4_AUDIO_SIZES.items()):
        message = "audio_processor, which differs from the published encoder"
        raise ValueError(message)
    head = width + 4 * width * (width + 1) + 2 * width * wide + wide + width + 2 * width
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(side**2 * width + 2 * width + head),
        *mlp_projector(width, text_hidden, text_hidden, split=False),
        projector_table(2 * width),
        table("audio", "audio_embed", PHI4_AUDIO),
    )
    return shape(layer, 27, weights, heads=16, patch=patch, out=text_hidden, merge=2)


def read_keye(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Keye-VL: SigLIP with a second position table for packed images, patches merged 2 x 2 by two split linears."""
    return _keye(config, text_hidden, norm=number(vision_config(config), "hidden_size", 1152))


def read_keye1_5(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Keye-VL 1.5: the same with its norm behind the merging of patches."""
    return _keye(config, text_hidden, norm=4 * number(vision_config(config), "hidden_size", 1152))


def _keye(config: Mapping[str, Any], text_hidden: int, *, norm: int) -> VisionShape:
    vision = vision_config(config)
    layer = _siglip_layer(vision)
    width, patch, merge = layer.hidden, number(vision, "patch_size", 14), number(vision, "spatial_merge_size", 2)
    side, merged = number(vision, "image_size", 384) // patch, merge**2 * layer.hidden
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table((side**2 + _KEYE_PACKED_POSITIONS) * width + 2 * width),
        *mlp_projector(merged, merged, text_hidden, split=True),
        projector_table(2 * norm),
    )
    layers, heads = number(vision, "num_hidden_layers", 27), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=merge)


def _siglip_layer(vision: Mapping[str, Any]) -> Layer:
    width = number(vision, "hidden_size", 1152)
    return Layer(hidden=width, intermediate=number(vision, "intermediate_size", 4304), norms=4 * width)


def read_hunyuan(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """HunyuanOCR: the engine runs it through its Transformers backend, which splits no linear of the tower."""
    vision = vision_config(config)
    layer = replace(_siglip_layer(vision), split_attention=False, split_mlp=False)
    width, patch, merge = layer.hidden, number(vision, "patch_size", 16), number(vision, "spatial_merge_size", 2)
    side, out = number(vision, "max_image_size", 2048) // patch, number(vision, "out_hidden_size", text_hidden)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table((side**2 + number(vision, "cat_extra_token", 1)) * width),
        *linear("merger.conv_in", merge**2 * width, 2 * width),
        *linear("merger.conv_out", 2 * width, 4 * width),
        *linear("merger.mlp", 4 * width, out),
        projector_table(width + out + 4 * width + 3 * out),
    )
    layers, heads = number(vision, "num_hidden_layers", 27), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=out, merge=merge)


def read_step3(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Step-3: a ViT with biases and two strided convolutions with a linear behind it, which every rank holds."""
    vision = vision_config(config)
    width, patch = number(vision, "hidden_size", 1792), number(vision, "patch_size", 14)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 3072), norms=4 * width)
    side, middle = number(vision, "image_size", 728) // patch, number(vision, "output_hidden_size", 4096)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table((side**2 + 2) * width),
        *linear("vit_downsampler", 4 * width, middle),
        *linear("vit_downsampler2", 9 * middle, 2 * middle),
        *linear("vit_large_projector", 2 * middle, text_hidden, bias=bool(config.get("projector_bias"))),
    )
    layers, heads = number(vision, "num_hidden_layers", 63), number(vision, "num_attention_heads", 16)
    merge = 2 * number(config, "understand_projector_stride", 2)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=merge)


def read_molmo2(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Molmo2: SigLIP up to the deepest selected layer, attention pooling and a gated projector, all split."""
    vision, adapter = config.get("vit_config") or {}, config.get("adapter_config") or {}
    layer, patch = _siglip_layer(vision), number(vision, "image_patch_size", 14)
    total = number(vision, "num_hidden_layers", 27)
    picked = [total + index if index < 0 else index for index in adapter.get("vit_layers") or (-3, -9)]
    rows, width = len(picked) * layer.hidden, number(adapter, "hidden_size", 1152)
    wide = number(adapter, "intermediate_size", 18944)
    weights = (
        tower("patch_embedding", 3 * patch**2, layer.hidden, bias=True),
        tower_table(number(vision, "image_num_pos", 729) * layer.hidden),
        *(found for name in ("wq", "wk", "wv") for found in linear(f"pooling.{name}", rows, width, "columns")),
        *linear("pooling.wo", width, width, "rows"),
        *linear("image_projector.w1", width, wide, "columns", bias=False),
        *linear("image_projector.w3", width, wide, "columns", bias=False),
        *linear("image_projector.w2", wide, text_hidden, "rows", bias=False),
    )
    heads = number(vision, "num_attention_heads", 16)
    return shape(layer, max(picked) + 1, weights, heads=heads, patch=patch, out=text_hidden, merge=2)


def read_llama_nemotron(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Llama-Nemotron-VL: C-RADIO by the checkpoint's own code and InternVL's projector, all of it on every rank."""
    merged = _radio_row(config)
    projector = (*mlp_projector(merged, text_hidden, text_hidden, split=False), projector_table(2 * merged))
    return _radio(config, projector, text_hidden, remote=True)


def read_nemotron_nano(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Nemotron-Nano-VL v2 and Omni: C-RADIO, an RMS norm, two linears without biases on every rank, perhaps sound.

    A checkpoint with layers that predict ahead has one more norm behind the tower.
    """
    merged, wide = _radio_row(config), int(config["projector_hidden_size"])
    ahead = int(find_text_config(config).get("num_nextn_predict_layers") or 0)
    norm = number(config, "vit_hidden_size", 1280) * 2 if ahead else 0
    projector = (*mlp_projector(merged, wide, text_hidden, split=False, bias=False), projector_table(merged + norm))
    found, sound = _radio(config, projector, text_hidden), config.get("sound_config")
    return replace(found, weights=(*found.weights, *read_parakeet(sound, text_hidden))) if sound else found


def _radio_row(config: Mapping[str, Any]) -> int:
    width = number(vision_config(config), "hidden_size", number(config, "vit_hidden_size", 1280))
    return round(width / float(config.get("downsample_ratio", 0.5)) ** 2)


def _radio(config: Mapping[str, Any], projector: tuple[Weight, ...], out: int, *, remote: bool = False) -> VisionShape:
    """Build C-RADIO: a ViT with positions for its largest image and ten extra tokens.

    The file names the ViT; frames that are taken together have an embedding of patches of their own. The engine's own
    class has InternViT's layers with scaled residuals; ``remote`` code is on every rank and scales none.

    Raises:
        ValueError: It names an unknown ViT.
    """
    vision = vision_config(config)
    arguments = vision.get("args") or {}
    name = arguments.get("model", "vit_huge_patch16_224")
    if name not in _VITS:
        message = f"vision_config.args.model {name}, which is no known tower"
        raise ValueError(message)
    width, layers, heads, wide = _VITS[name]
    patch, frames = number(config, "patch_size", 16), number(vision, "video_temporal_patch_size", 1)
    layer = Layer(
        hidden=width,
        intermediate=wide,
        norms=(4 if remote else 6) * width,
        split_attention=not remote,
        split_mlp=not remote,
    )
    side = number(arguments, "cpe_max_size", number(vision, "max_img_size", 2048)) // patch
    weights = (
        tower("patch_generator.embedder", 3 * patch**2, width),
        *((tower("patch_generator.video_embedder", 3 * frames * patch**2, width),) if frames > 1 else ()),
        tower_table((side**2 + _RADIO_TOKENS) * width),
        *projector,
    )
    return shape(layer, layers, weights, heads=heads, patch=patch, out=out, merge=2, odd_heads="replicate_attention")


def read_ovis2_5(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Ovis2.5: SigLIP-2 for native resolution and a visual vocabulary.

    Raises:
        ValueError: The tower is another one.
    """
    vision = config.get("vit_config") or {}
    if vision.get("model_type", "siglip2_navit") != "siglip2_navit":
        message = f"vit_config.model_type {vision['model_type']}, which is no known tower"
        raise ValueError(message)
    layer, patch = _siglip_layer(vision), number(vision, "patch_size", 16)
    width = layer.hidden
    side = number(vision, "image_size", 512) // patch
    rows = 3 * number(vision, "temporal_patch_size", 1) * patch**2
    stride, vocab = number(vision, "hidden_stride", 2), number(config, "visual_vocab_size", 65536)
    weights = (
        tower("patch_embedding", rows, width, bias=True),
        tower_table((side**2 * width if vision.get("preserve_original_pe", True) else 0) + 2 * width),
        *_visual_vocabulary(stride**2 * width, vocab, _OVIS2_5_INDICATORS, text_hidden),
    )
    layers, heads = number(vision, "num_hidden_layers", 27), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=stride, patch_row=rows)


def read_ovis(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Ovis2: AIMv2 without its last norm and a visual vocabulary.

    Raises:
        ValueError: The tower is another one.
    """
    tokenizer = config.get("visual_tokenizer_config") or vision_config(config)
    vision = tokenizer.get("backbone_config") or tokenizer
    if vision.get("model_type") not in {"aimv2", "ovis2_vision"}:
        message = f"the visual tokenizer's model_type {vision.get('model_type')}, which is no known tower"
        raise ValueError(message)
    width, patch = int(vision["hidden_size"]), number(vision, "patch_size", 14)
    biased = bool(vision.get("qkv_bias"))
    layer = Layer(
        hidden=width,
        intermediate=int(vision["intermediate_size"]),
        gated=True,
        qkv_bias=biased,
        out_bias=bool(vision.get("use_bias")),
        mlp_bias=bool(vision.get("use_bias")),
        norms=2 * width,
    )
    side, stride = number(vision, "image_size", 448) // patch, number(tokenizer, "hidden_stride", 2)
    vocab = number(tokenizer, "vocab_size", 65536)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(side**2 * width + width),
        *_visual_vocabulary(stride**2 * width, vocab, _OVIS_INDICATORS, text_hidden),
    )
    layers, heads = int(vision["num_hidden_layers"]), int(vision["num_attention_heads"])
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=stride)


def _visual_vocabulary(rows: int, vocab: int, indicators: int, out: int) -> tuple[Weight, ...]:
    """Return the head over visual words, its norm and their embedding, which every rank holds."""
    words = vocab - indicators
    return (*linear("head", rows, words, bias=False), projector_table(2 * words + vocab * out))


def read_minicpm4_6(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """MiniCPM-V 4.6: SigLIP, a merger by windows of 2 x 2 between its layers and another one behind it."""
    vision = vision_config(config)
    layer = Layer(
        hidden=number(vision, "hidden_size", 768),
        intermediate=number(vision, "intermediate_size", 3072),
        norms=4 * number(vision, "hidden_size", 768),
    )
    width, patch = layer.hidden, number(vision, "patch_size", 16)
    side, merged = number(vision, "image_size", 224) // patch, 4 * layer.hidden
    window = [
        replace(weight, name=weight.name.replace("blocks", "vit_merger"))
        for weight in replace(layer, norms=2 * width).weights(1)
        if ".attn." in weight.name
    ]
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table((side**2 + 2) * width),
        *window,
        tower("vit_merger.linear_1", merged, 4 * layer.intermediate, bias=True),
        tower("vit_merger.linear_2", 4 * layer.intermediate, width, bias=True),
        tower_table(3 * width + 2 * merged),
        *mlp_projector(merged, merged, text_hidden, split=False),
        projector_table(2 * merged),
    )
    layers = number(vision, "num_hidden_layers", 12) - bool(config.get("drop_vision_last_layer"))
    heads = number(vision, "num_attention_heads", 12)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=4)


def read_minicpmo(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """MiniCPM-o 2.6: MiniCPM-V's tower, Whisper's encoder and a projector on every rank; no speech output."""
    found, audio = read_minicpm(config, text_hidden), config.get("audio_config") or {}
    width, wide = number(audio, "d_model", 1024), number(audio, "encoder_ffn_dim", 4096)
    block = 4 * width**2 + 3 * width + 2 * width * wide + wide + width + 4 * width
    stem = 3 * width * (number(audio, "num_mel_bins", 80) + width) + 2 * width
    positions = number(audio, "max_source_positions", 1500) * width + 2 * width
    projector = width * text_hidden + text_hidden + text_hidden**2 + text_hidden
    total = number(audio, "encoder_layers", 24) * block + stem + positions + projector
    return replace(found, weights=(*found.weights, table("audio", "apm", total)))
