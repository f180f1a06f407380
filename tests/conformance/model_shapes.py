"""Shapes of the checkpoints that the conformance rows name, from ``data/model_configs.json.gz``."""

from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.vectors import find_file, read_document
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal, read_shape


@cache
def model_configs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return architecture, config and parameters by model; a ``models.json`` in ``folder`` adds to them."""
    found: dict[str, dict[str, Any]] = dict(read_document(folder, "model_configs.json"))
    if find_file(folder, "models.json"):
        for card in read_document(folder, "models.json"):
            found[card["id"]] = card
    return found


@cache
def shape_of(folder: Path, model: str) -> ModelShape | None:
    """Return the shape of ``model``, None where it cannot be sized (yet) or its config is not here."""
    card = model_configs(folder).get(model)
    if card is None:
        return None
    shape = read_shape(card["architecture"], card["config"])
    return None if isinstance(shape, ShapeRefusal) else shape
