"""Qwen-Omni thinkers and EXAONE-4.5: Qwen-VL towers, beside them an encoder for audio.

Sources: vLLM 0.33.0 ``M/qwen2_5_omni_thinker.py``, ``M/qwen3_omni_moe_thinker.py``, ``M/exaone4_5.py``; transformers
5.20.2 ``Qwen2_5OmniAudioEncoder``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vlm_operator.sizing.shape.text.config import thinker
from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import number, vision_config
from vlm_operator.sizing.shape.vision.qwen import read_qwen2_5_vl, read_qwen3_vl
from vlm_operator.sizing.shape.weight import Split, Weight, table


def read_qwen2_5_omni(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen2.5-Omni: Qwen2.5-VL's tower and an audio encoder of transformers on every rank."""
    found, audio = read_qwen2_5_vl(config, text_hidden), thinker(config).get("audio_config") or {}
    width, wide = number(audio, "d_model", 1280), number(audio, "encoder_ffn_dim", 5120)
    out = number(audio, "output_dim", 3584)
    # Keys have no bias; two words mark where audio begins and ends.
    block = 4 * width**2 + 3 * width + 2 * width * wide + wide + width + 4 * width
    stem = 3 * width * (number(audio, "num_mel_bins", 128) + width) + 2 * width
    total = number(audio, "encoder_layers", 32) * block + stem + 2 * width + width * out + out + 2 * out
    return replace(found, weights=(*found.weights, table("audio", "audio_tower", total)))


def read_qwen3_omni(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Qwen3-Omni: Qwen3-VL's tower and an audio encoder whose layers are split."""
    vision, audio = vision_config(config), thinker(config).get("audio_config") or {}
    positions = (number(vision, "image_size", 768) // number(vision, "patch_size", 16)) ** 2
    found = read_qwen3_vl({"vision_config": {**vision, "num_position_embeddings": positions}}, text_hidden)
    return replace(found, weights=(*found.weights, *_split_audio(audio)))


def _split_audio(audio: Mapping[str, Any]) -> tuple[Weight, ...]:
    width, wide = number(audio, "d_model", 1280), number(audio, "encoder_ffn_dim", 5120)
    layers, heads = number(audio, "encoder_layers", 32), number(audio, "encoder_attention_heads", 20)
    channels, bins = number(audio, "downsample_hidden_size", 480), number(audio, "num_mel_bins", 128)
    out, every = number(audio, "output_dim", 3584), tuple(range(layers))
    for _ in range(3):
        bins = (bins + 1) // 2

    def weight(name: str, rows: int, columns: int, split: Split, *, bias: bool) -> Weight:
        return Weight(
            part="audio",
            name="layers.{}." + name,
            rows=rows,
            columns=columns,
            split=split,
            kv_heads=heads if split == "kv" else 0,
            layers=every,
            bias=bias,
        )

    convolutions = 9 * channels + channels + 2 * (9 * channels**2 + channels)
    return (
        weight("self_attn.qkv_proj", width, 3 * width, "kv", bias=True),
        weight("self_attn.out_proj", width, width, "rows", bias=False),
        weight("fc1", width, wide, "columns", bias=True),
        weight("fc2", wide, width, "rows", bias=False),
        table("audio", "layers.{}.norms", 6 * width, every),
        table("audio", "convolutions", convolutions + channels * bins * width + 2 * width),
        table("audio", "projections", width * (width + 1) + (width + 1) * out),
    )


def read_exaone4_5(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """EXAONE-4.5: Qwen2.5-VL's tower, several of whose queries share a key."""
    found, vision = read_qwen2_5_vl(config, text_hidden), vision_config(config)
    heads = number(vision, "num_heads", 32)
    keys = number(vision, "num_key_value_heads", heads)
    columns = found.hidden // heads * keys
    return replace(
        found,
        weights=tuple(
            replace(weight, columns=columns, split="kv", kv_heads=keys)
            if weight.name.endswith((".k_proj", ".v_proj"))
            else weight
            for weight in found.weights
        ),
    )
