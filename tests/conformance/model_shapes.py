"""Shapes of the checkpoints that the conformance rows name, from ``data/model_configs.json.gz``."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.vectors import find_file, read_document
from vlm_operator.sizing.shape import ARCHITECTURES, ModelShape, ShapeRefusal, read_shape

WRITTEN_OUT: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False},
            }
        },
        "ignore": [
            "re:.*lm_head",
            "re:.*self_attn.*",
            "re:.*router",
            "re:.*vision_model.*",
            "re:.*multi_modal_projector.*",
            "re:.*shared_expert.*",
            "re:.*feed_forward.gate_proj",
            "re:.*feed_forward.up_proj",
            "re:.*feed_forward.down_proj",
        ],
    }
}
"""Quantisation that a card describes in words; the rows were run with it written out like this."""

CORRECTED = {"stepfun-ai/step3": ("vision_config.intermediate_size=15360",)}
"""A card with a class default where only another value gives its published parameters, to the last one."""


@cache
def model_configs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return architecture, config and parameters by model; a ``models.json`` in ``folder`` adds to them."""
    found: dict[str, dict[str, Any]] = dict(read_document(folder, "model_configs.json"))
    if find_file(folder, "models.json"):
        for card in read_document(folder, "models.json"):
            found[card["id"]] = card
    for model, scheme in WRITTEN_OUT.items():
        if model in found:
            config = {**found[model]["config"], "quantization_config": scheme}
            found[model] = {**found[model], "config": config}
    for model, changes in CORRECTED.items():
        if model in found:
            found[model] = {**found[model], "config": change_config(found[model]["config"], changes)}
    return found


@cache
def shape_of(folder: Path, model: str) -> ModelShape | None:
    """Return the shape of ``model``, None where it cannot be sized or its config is not here."""
    found = read_card(folder, model)
    return None if found is None or isinstance(found, ShapeRefusal) else found


def read_card(folder: Path, model: str) -> ModelShape | ShapeRefusal | None:
    """Return the shape of ``model`` or its refusal; None where its config is not here."""
    card = model_configs(folder).get(model)
    return None if card is None else read_shape(architecture_of(card), card["config"])


def architecture_of(card: dict[str, Any]) -> str:
    """Return the card's architecture; a card that names several forms means the one that is known."""
    words = re.findall(r"\w+", card["architecture"])
    return next((word for word in words if word in ARCHITECTURES), str(card["architecture"]))


def change_config(config: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return ``config`` with the changes of a row that are written as ``a.b=number``."""
    changed = dict(config)
    for change in changes:
        found = re.match(r"([\w.]+)=(\d+)", change)
        if found is None:
            continue
        *path, last = found.group(1).split(".")
        inner = changed
        for name in path:
            inner[name] = dict(inner[name])
            inner = inner[name]
        inner[last] = int(found.group(2))
    return changed
