"""Gemma-3n's towers: a MobileNet of convolutions for images and a conformer for audio, whole on every rank.

Sources: vLLM 0.33.0 ``M/gemma3n_mm.py``; the towers are transformers 5.20.2 ``Gemma3nAudioEncoder`` and timm 1.0.31
``mobilenetv5_300m_enc``, built without storage and counted.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import linear, number, projector_table, vision_config
from vlm_operator.sizing.shape.weight import Part, Weight, table

MOBILENET: Final = 294_126_912
"""Parameters of ``mobilenetv5_300m_enc``."""

AUDIO: Final = 681_348_640
"""Parameters of the audio encoder as the class default builds it (E2B and E4B ship no other)."""

_PASSES: Final = 5.787
"""Products of an image of 768 pixels (435,741,474,816) over its 256 positions and the parameters: convolutions visit
finer positions than those that become tokens."""

_WIDEST: Final = 110_592
"""Elements of the widest feature map (768 channels at 192 x 192) for each of the 256 positions."""

_AUDIO_SIZES: Final[Mapping[str, Any]] = {
    "hidden_size": 1536,
    "input_feat_size": 128,
    "conf_num_hidden_layers": 12,
    "conf_num_attention_heads": 8,
    "conf_conv_kernel_size": 5,
    "conf_attention_context_left": 13,
    "conf_attention_context_right": 0,
    "sscp_conv_channel_size": [128, 32],
    "sscp_conv_kernel_size": [[3, 3], [3, 3]],
    "sscp_conv_stride_size": [[2, 2], [2, 2]],
}


def read_gemma3n(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Gemma-3n: both towers on every rank; their embedders split words by columns and the projection by rows.

    Raises:
        ValueError: A tower is another one than the published.
    """
    vision, audio = vision_config(config), config.get("audio_config") or {}
    name = vision.get("architecture", "mobilenetv5_300m_enc")
    if name != "mobilenetv5_300m_enc":
        message = f"vision_config.architecture {name}, which is no known tower"
        raise ValueError(message)
    if any(audio.get(key, value) != value for key, value in _AUDIO_SIZES.items()):
        message = "audio_config, which differs from its class default"
        raise ValueError(message)
    width, heard = number(vision, "hidden_size", 2048), number(audio, "hidden_size", 1536)
    weights = (
        *_mobilenet(width),
        _words("projector", "embed_vision", number(vision, "vocab_size", 128), width),
        *linear("embed_vision.embedding_projection", width, text_hidden, "rows", bias=False),
        projector_table(2 * width),
        table("audio", "audio_tower", AUDIO),
        _words("audio", "embed_audio", number(audio, "vocab_size", 128), heard),
        Weight(part="audio", name="embed_audio.projection", rows=heard, columns=text_hidden, split="rows"),
        table("audio", "embed_audio.norms", 2 * heard),
    )
    return VisionShape(
        layers=1,
        hidden=width,
        heads=1,
        intermediate=_WIDEST,
        patch_size=48,
        merge=1,
        out_width=text_hidden,
        patch_row=3 * 48**2,
        gated=False,
        split_heads=0,
        passes=_PASSES,
        weights=weights,
    )


def _mobilenet(width: int) -> tuple[Weight, ...]:
    """Return the convolutions as one matrix, whose products are counted, and what is left of it as a table."""
    columns, rest = divmod(MOBILENET, width)
    return (
        Weight(part="vision_tower", name="timm_model.convolutions", rows=width, columns=columns, linear=False),
        table("vision_tower", "timm_model.norms", rest),
    )


def _words(part: Part, name: str, vocab: int, width: int) -> Weight:
    padded = -(-vocab // 64) * 64
    return Weight(part=part, name=name + ".embedding", rows=width, columns=padded, split="columns", linear=False)
