"""Granite-4-Vision: SigLIP whose layers are read by small query transformers (Q-Formers), one for each place of use.

Source: vLLM 0.33.0 ``M/granite4_vision.py`` and ``M/blip2.py``; all of the projectors is on every rank.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.vision.parts import Layer, number, shape, tower, tower_table, vision_config
from vlm_operator.sizing.shape.weight import Weight, table

_OFFSETS: Final = 4
"""Projectors that read the last layer, one for each position of a 2 x 2 group."""

_WIDE: Final = 3072


def read_granite4(config: Mapping[str, Any], text_hidden: int) -> VisionShape:
    """Granite-4-Vision: every layer of SigLIP without its last norm, a newline and the projectors.

    Raises:
        KeyError: The file does not say which layers are read.
    """
    vision = vision_config(config)
    width, patch = number(vision, "hidden_size", 1152), number(vision, "patch_size", 16)
    layer = Layer(hidden=width, intermediate=number(vision, "intermediate_size", 4304), norms=4 * width)
    side = number(vision, "image_size", 384) // patch
    query, window = (int(number_) for number_ in str(config["downsample_rate"]).split("/"))
    readers = len(config["deepstack_layer_map"]) + _OFFSETS
    weights = (
        tower("patch_embedding", 3 * patch**2, width, bias=True),
        tower_table(side**2 * width),
        *_reader(width, query, window, text_hidden, tuple(range(readers))),
        table("projector", "image_newline", text_hidden),
    )
    layers, heads = number(vision, "num_hidden_layers", 27), number(vision, "num_attention_heads", 16)
    return shape(layer, layers, weights, heads=heads, patch=patch, out=text_hidden * readers)


def _reader(width: int, query: int, window: int, out: int, layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return one layer of self-attention, cross-attention and MLP, its queries and positions, and a linear."""

    def weight(name: str, rows: int, columns: int) -> Weight:
        return Weight(part="projector", name=name + ".{}", rows=rows, columns=columns, layers=layers, bias=True)

    names = [
        f"{kind}.{name}" for kind in ("attention", "crossattention") for name in ("query", "key", "value", "dense")
    ]
    norms = 5 * 2 * width
    return (
        *(weight(name, width, width) for name in names),
        weight("intermediate_query", width, _WIDE),
        weight("output_query", _WIDE, width),
        weight("out_linear", width, out),
        table("projector", "tables.{}", norms + (query**2 + window**2) * width, layers),
    )
