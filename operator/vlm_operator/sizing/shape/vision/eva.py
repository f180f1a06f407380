"""GLM-4V: EVA-CLIP with a strided convolution and a gated projector (vLLM 0.33.0 ``M/glm4v.py``)."""

from collections.abc import Mapping
from typing import Any

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import (
    Layer,
    linear,
    projector_table,
    shape,
    tower,
    tower_table,
    vision_config,
)


def read_eva(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """GLM-4V: a split tower and gate, a first linear on every rank.

    Raises:
        KeyError: The file lacks a size of the tower.
    """
    vision, wide = vision_config(config), int(config["ffn_hidden_size"])
    width, patch = int(vision["hidden_size"]), int(vision["patch_size"])
    layer = Layer(hidden=width, intermediate=int(vision["intermediate_size"]), norms=4 * width)
    weights = (
        tower("patch_embedding.proj", 3 * patch**2, width, bias=True),
        tower_table((int(vision["num_positions"]) + 1) * width),
        tower("patch_merging.conv", 4 * width, text_hidden, bias=True),
        *linear("linear_proj", text_hidden, text_hidden, bias=False),
        *linear("gate_proj", text_hidden, wide, "columns", bias=False),
        *linear("dense_h_to_4h", text_hidden, wide, "columns", bias=False),
        *linear("dense_4h_to_h", wide, text_hidden, "rows", bias=False),
        projector_table(4 * text_hidden),
    )
    layers, heads = int(vision["num_hidden_layers"]), int(vision["num_heads"])
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden, merge=2)
