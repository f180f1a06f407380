"""Moondream-3: a ViT on crops of 378 pixels and two linears over whole and crops, all split (``M/moondream3.py``)."""

from collections.abc import Mapping
from typing import Any

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import Layer, mlp_projector, number, shape, tower, tower_table


def read_moondream3(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Moondream-3: its file describes the tower as ``config.vision``, mostly by leaving it out."""
    vision = (config.get("config") or {}).get("vision") or {}
    width, patch = number(vision, "enc_dim", 1152), number(vision, "enc_patch_size", 14)
    layer = Layer(hidden=width, intermediate=number(vision, "enc_ff_dim", 4304), norms=4 * width)
    side = number(vision, "crop_size", 378) // patch
    weights = (
        tower("patch_emb", 3 * patch**2, width, bias=True),
        tower_table((side**2 + 2) * width),
        *mlp_projector(2 * width, number(vision, "proj_inner_dim", 8192), text_hidden, split=True),
    )
    layers, heads = number(vision, "enc_n_layers", 27), number(vision, "enc_n_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden)
