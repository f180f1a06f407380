"""Aria: the tower of Idefics3 without its last norm, learned queries and a projector (vLLM 0.33.0 ``M/aria.py``)."""

from collections.abc import Mapping
from typing import Any

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import (
    Layer,
    linear,
    number,
    projector_table,
    shape,
    tower,
    tower_table,
    vision_config,
)


def read_aria(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Aria: a split tower, cross-attention on every rank and a split pair of linears."""
    vision = vision_config(config)
    width, patch = number(vision, "hidden_size", 1152), number(vision, "patch_size", 32)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 3072), norms=4 * width)
    side = number(vision, "image_size", 224) // patch
    queries = config.get("projector_patch_to_query_dict") or {"1225": 128, "4900": 256}
    attention = (
        *(
            found
            for name, columns in (("q_proj", width), ("k_proj", width), ("v_proj", width))
            for found in linear(f"cross_attn.{name}", width, columns, bias=False)
        ),
        *linear("cross_attn.multihead_attn.in_proj", width, 3 * width),
        *linear("cross_attn.multihead_attn.out_proj", width, width),
        *linear("cross_attn.linear", width, width),
    )
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(side**2 * width),
        *attention,
        projector_table((max(map(int, queries.values())) + 6) * width),
        *linear("feed_forward.linear_in", width, text_hidden, "columns", bias=False),
        *linear("feed_forward.linear_out", text_hidden, text_hidden, "rows", bias=False),
    )
    layers, heads = number(vision, "num_hidden_layers", 12), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden)
