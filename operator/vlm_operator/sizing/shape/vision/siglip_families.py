"""SigLIP towers under Eagle-2.5, R-4B, Bee, Phi-4-vision, Isaac and BAGEL.

Sources: vLLM 0.33.0 ``M/eagle2_5_vl.py``, ``M/rvl.py``, ``M/bee.py``, ``M/phi4siglip.py``, ``M/lfm2_siglip2.py``,
``M/isaac.py``, ``M/bagel.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import (
    Layer,
    mlp_projector,
    number,
    projector_table,
    shape,
    tower,
    tower_table,
    vision_config,
)
from vlm_operator.sizing.shape.vision.siglip import read_llava_onevision
from vlm_operator.sizing.shape.weight import Weight

_SIGLIP: Final[Mapping[str, int]] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "num_patches": 256,
}
"""Defaults of transformers' SiglipVisionConfig, and the positions of Siglip2VisionConfig."""

_BAGEL_WRONG_LAYERS: Final = 27
"""BAGEL's file says 27 layers and its checkpoint has 26, which the engine corrects."""


def read_eagle2_5(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Eagle-2.5: SigLIP up to ``select_layer`` with its last norm there, pixel shuffle, two linears on every rank."""
    vision, selected = vision_config(config), number(config, "select_layer", -1)
    sizes = {**_SIGLIP, **vision}
    merged = round(int(sizes["hidden_size"]) / float(config.get("downsample_ratio", 0.5)) ** 2)
    projector = (*mlp_projector(merged, text_hidden, text_hidden, split=False), projector_table(2 * merged))
    total = int(sizes["num_hidden_layers"])
    layers = total + selected + 1 if selected < 0 else selected + 1
    side = int(sizes["image_size"]) // int(sizes["patch_size"])
    return _siglip(sizes, layers, side**2, projector, text_hidden, last_norm=layers == total, merge=2)


def read_r4b(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """R-4B: LLaVA-OneVision with a norm before its linears."""
    found = read_llava_onevision(config, text_hidden)
    return replace(found, weights=(*found.weights, projector_table(2 * found.hidden)))


def read_bee(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Bee: the same with four times the language model's width between its linears."""
    found = read_r4b(config, text_hidden)
    kept = tuple(weight for weight in found.weights if weight.part != "projector")
    wide = mlp_projector(found.hidden, 4 * text_hidden, text_hidden, split=False)
    return replace(found, weights=(*kept, *wide, projector_table(text_hidden + 2 * found.hidden)))


def read_phi4_siglip(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Phi-4-vision: SigLIP-2 up to its last layer but one, without its last norm; two split linears."""
    sizes = {**_SIGLIP, **vision_config(config)}
    rows = number(config, "mm_hidden_size", int(sizes["hidden_size"]))
    projector = mlp_projector(rows, text_hidden, text_hidden, split=True)
    layers, positions = int(sizes["num_hidden_layers"]) - 1, int(sizes["num_patches"])
    return _siglip(sizes, layers, positions, projector, text_hidden, last_norm=False)


def read_isaac(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Isaac: SigLIP-2, pixel shuffle and two linears without biases that data mode still splits."""
    sizes = {**_SIGLIP, **vision_config(config)}
    scale = number(sizes, "pixel_shuffle_scale_factor", 1)
    rows = int(sizes["hidden_size"]) * scale**2
    linears = mlp_projector(rows, 4 * rows, text_hidden, split=True, bias=False)
    projector = tuple(replace(weight, split_in_data_mode=True) for weight in linears)
    layers, positions = int(sizes["num_hidden_layers"]), int(sizes["num_patches"])
    return _siglip(sizes, layers, positions, projector, text_hidden, merge=scale)


def read_bagel(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """BAGEL: SigLIP, two split linears and a float32 table of positions for the language model.

    Raises:
        ValueError: The file says that the model understands no images.
    """
    if not config.get("visual_und", True):
        message = "visual_und: false (a model that understands no images)"
        raise ValueError(message)
    sizes = {**_SIGLIP, **(config.get("vit_config") or {})}
    layers, side = int(sizes["num_hidden_layers"]), number(config, "vit_max_num_patch_per_side", 70)
    layers -= layers == _BAGEL_WRONG_LAYERS
    projector = mlp_projector(int(sizes["hidden_size"]), text_hidden, text_hidden, split=True)
    positions = (int(sizes["image_size"]) // int(sizes["patch_size"])) ** 2
    found = _siglip(sizes, layers, positions, projector, text_hidden)
    return replace(found, buffer_bytes=4 * side**2 * text_hidden)


def _siglip(
    sizes: Mapping[str, Any],
    layers: int,
    positions: int,
    projector: tuple[Weight, ...],
    out: int,
    *,
    last_norm: bool = True,
    merge: int = 1,
) -> VisionShape:
    width, patch = int(sizes["hidden_size"]), int(sizes["patch_size"])
    layer = Layer(hidden=width, intermediate=int(sizes["intermediate_size"]), norms=4 * width)
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(positions * width + (2 * width if last_norm else 0)),
        *projector,
    )
    heads = int(sizes["num_attention_heads"])
    return shape(layer, layers, weights, heads=heads, patch=patch, out=out, merge=merge)
