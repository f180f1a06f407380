"""The tensors that a checkpoint really has, held against the bytes that its shape's formula gives.

In: a shape and the tensors of its files. Out: ``Checked``, a shape that holds the larger of both, or why the two
cannot be the same model. Called by ``planning`` where a model's source lists tensors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal
from vlm_operator.sizing.shape.exclusions import PROJECTOR_WORDS, TOWER_WORDS
from vlm_operator.sizing.shape.weight import table
from vlm_operator.sizing.weights import weights_per_rank
from vlm_operator.units import GIB

TOLERANCE: Final = 0.005
"""Within this the formula is confirmed; beyond it the larger of the two is planned."""
REFUSED: Final = 0.25
"""Beyond this the tensors are not those of the shape."""

_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
_TEXT_LAYER: Final = re.compile(r"(?<!encoder\.)\blayers\.(\d+)\.")
_TOWER_LAYER: Final = re.compile(r"encoder\.layers\.(\d+)\.")
_OUTPUT: Final = re.compile(r"(?:^|\.)(?:lm_head|output)\.weight$")
_SCALES: Final = re.compile(r"scale|zero|g_idx")
_NOT_LOADED: Final = re.compile(
    r"(?:^|\.)(?:mtp|talker|token2wav|code2wav|time_series)\.|^expert\.|_moe_gen"
    r"|rotary_emb|position_ids$|num_batches_tracked$"
)
"""Layers that predict ahead, parts that speak, draw, drive or read series, and tables that the engine computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A shape held against the checkpoint's tensors; ``note`` says in words what came out."""

    shape: ModelShape
    note: str = ""


def check_tensors(shape: ModelShape, tensors: Sequence[StoredTensor]) -> Checked | ShapeRefusal:
    """Return the shape with the larger of formula and checkpoint, or why they do not belong together.

    What the checkpoint holds beyond the formula is not known by module, so every rank is given all of it.
    """
    stored = sum(_loaded_bytes(shape, tensor) for tensor in tensors)
    formula = weights_per_rank(shape, 1).parameter_bytes
    difference = stored / formula - 1
    figures = f"the checkpoint's tensors take {stored / GIB:.2f} GiB, its configuration gives {formula / GIB:.2f} GiB"
    if abs(difference) > REFUSED:
        why = "tensors are missing, or stored in a way that config.json does not tell"
        other = "config.json tells of fewer or smaller layers than there are"
        return ShapeRefusal(
            reason="CheckpointMismatch",
            message=f"{figures}, {difference:+.0%}: {why if difference < 0 else other}; "
            "give the configuration that belongs to the weights",
        )
    if abs(difference) <= TOLERANCE:
        note = f"weights of {stored / GIB:.2f} GiB are confirmed by the headers of the checkpoint's files"
        return Checked(shape=shape, note=note)
    if difference < 0:
        return Checked(shape=shape, note=f"{figures}: the larger is planned")
    surplus = table("other", "unexplained", (stored - formula) // shape.text.dtype_bytes)
    text = replace(shape.text, weights=(*shape.text.weights, surplus))
    note = f"{figures}: the larger is planned, the difference on every GPU"
    return Checked(shape=replace(shape, text=text), note=note)


def _loaded_bytes(shape: ModelShape, tensor: StoredTensor) -> int:
    """Return the bytes that the engine keeps of a tensor: plain floats in the served type, 0 for what it drops.

    It drops an output matrix that is tied to the embedding, and layers behind the last one that it runs.
    """
    name = tensor.name
    if _NOT_LOADED.search(name) or (shape.text.tied and _OUTPUT.search(name)):
        return 0
    if _is_behind(shape, name):
        return 0
    if tensor.dtype in _FLOATS and not _SCALES.search(name):
        elements = 1
        for side in tensor.shape:
            elements *= side
        return elements * shape.text.dtype_bytes
    return tensor.size_bytes


def _is_behind(shape: ModelShape, name: str) -> bool:
    """Return whether a tensor belongs to a layer behind the last that is run: LLaVA's tower, DeepSeek's decoder."""
    if any(word in name for word in (*TOWER_WORDS, *PROJECTOR_WORDS)):
        layer = _TOWER_LAYER.search(name)
        return layer is not None and int(layer[1]) >= shape.vision.layers
    layer = _TEXT_LAYER.search(name)
    return layer is not None and int(layer[1]) >= shape.text.layers
