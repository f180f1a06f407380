"""Parakeet, the encoder for sound of Nemotron's Omni models, and its projector: all of it on every rank.

Sources: vLLM 0.33.0 ``M/parakeet.py``, which takes away the biases of attention and MLPs; transformers 5.20.2
``ParakeetEncoder``.
"""

from collections.abc import Mapping
from math import log2
from typing import Any

from vlm_operator.sizing.shape.vision.parts import number
from vlm_operator.sizing.shape.weight import Weight, table


def read_parakeet(sound: Mapping[str, Any], text_hidden: int) -> tuple[Weight, ...]:
    """Return encoder and projector of a ``sound_config``.

    Raises:
        KeyError: The file lacks the projector's width.
    """
    width, wide = number(sound, "hidden_size", 1024), number(sound, "intermediate_size", 4096)
    biased, kernel = bool(sound.get("convolution_bias", True)), number(sound, "conv_kernel_size", 9)
    convolution = 3 * width**2 + kernel * width + 2 * width + 4 * width * biased
    attention = 5 * width**2 + 2 * width
    block = 4 * width * wide + convolution + attention + 10 * width
    inner = int(sound["projection_hidden_size"])
    projector = width + width * inner + inner * text_hidden
    if sound.get("projection_bias"):
        projector += inner + text_hidden
    total = number(sound, "num_hidden_layers", 24) * block + _subsampling(sound, width) + projector
    return (table("audio", "sound_encoder", total),)


def _subsampling(sound: Mapping[str, Any], width: int) -> int:
    channels, kernel = number(sound, "subsampling_conv_channels", 256), number(sound, "subsampling_conv_kernel_size", 3)
    stride = number(sound, "subsampling_conv_stride", 2)
    steps = int(log2(number(sound, "subsampling_factor", 8)))
    left: int = number(sound, "num_mel_bins", 80) // stride**steps
    first = channels * (kernel**2 + 1)
    others = (steps - 1) * (channels * (kernel**2 + 1) + channels**2 + channels)
    return first + others + channels * left * width + width
