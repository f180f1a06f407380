"""Perception Encoder of Step3-VL and later: a ViT with scaled residuals and two strided convolutions.

Source: vLLM 0.33.0 ``M/step_vl.py``.
"""

from collections.abc import Mapping
from typing import Any

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import Layer, linear, number, shape, tower, tower_table, vision_config


def read_step_vl(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Step3-VL: the encoder and a linear split by columns.

    Raises:
        KeyError: The file lacks a size of the tower.
    """
    vision = vision_config(config)
    width, patch = int(vision["width"]), int(vision["patch_size"])
    scaled = 2 * width if vision.get("ls_init_value") is not None else 0
    wide = int(width * float(vision.get("mlp_ratio") or 8960 / 1536))
    layer = Layer(hidden=width, intermediate=wide, norms=4 * width + scaled)
    side = int(vision["image_size"]) // patch
    marked = bool(vision.get("use_cls_token"))
    ends = 2 * width * (bool(vision.get("use_ln_pre", True)) + bool(vision.get("use_ln_post", True)))
    tables = width * marked + ((side**2 + marked) * width if vision.get("use_abs_posemb", True) else 0)
    weights = (
        tower("patch_embedding", 3 * patch**2, width),
        tower_table(tables + ends),
        tower("vit_downsampler1", 9 * width, 2 * width, bias=True),
        tower("vit_downsampler2", 18 * width, 4 * width, bias=True),
        *linear("vit_large_projector", 4 * width, text_hidden, "columns", bias=bool(config.get("projector_bias"))),
    )
    return shape(
        layer, int(vision["layers"]), weights, heads=number(vision, "heads", 16), patch=patch, out=text_hidden, merge=4
    )
