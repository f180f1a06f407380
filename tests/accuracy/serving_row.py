"""What a published serving row names: its model, its GPU, and the accuracy row that is made of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.accuracy.benchmarks import PublishedRow
from tests.accuracy.models import PublishedModel, find_published
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import find_gpu, find_model
from vlm_operator.errors import CatalogueError
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.shape import ShapeRefusal, read_shape

SECTION = "serving"
GPUS = {
    "A100": "a100-80gb-sxm",
    "H100": "h100-80gb-sxm",
    "A6000": "rtx-a6000",
    "L40S": "l40s",
    "L4": "l4",
    "H200": "h200-sxm",
    "B200": "b200-sxm",
}
"""What the rows call GPUs, as catalogue ids; an A100 or H100 without more is the SXM one with 80 GB."""
W4A16: Mapping[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
        }
    },
    "ignore": ["lm_head", "re:.*visual.*", "re:.*vision.*"],
}
"""How the publisher's checkpoints of that name are stored: groups of 128, towers and output plain."""


def model_of(row: PublishedRow) -> PublishedModel | None:
    """Return the model of a row in the format that the row states."""
    stated = str(row.get("dtype") or "").lower()
    if stated != "w4a16":
        return find_published(str(row["model"]) if stated in {"bf16", "bfloat16"} else f"{row['model']} {stated}")
    plain = find_published(str(row["model"]))
    try:
        card = find_model(str(row["model"]))
    except CatalogueError:
        return None
    shape = read_shape(card.architecture, {**card.config, "quantization_config": W4A16})
    return None if plain is None or isinstance(shape, ShapeRefusal) else replace(plain, shape=shape)


def gpu_of(row: PublishedRow) -> GpuKind | None:
    """Return the GPU of a row, None where the catalogue has none of that name."""
    name = str(row.get("gpu", ""))
    try:
        return kind_from_card(find_gpu(GPUS.get(name, name)))
    except CatalogueError:
        return None


def accuracy_row(
    row: PublishedRow,
    quantity: str,
    unit: str,
    *,
    published: float | None,
    predicted: float | None = None,
    interval: tuple[float, float] | None = None,
    why_not: str = "",
) -> AccuracyRow:
    """Return a row of this section; one that says why it does not count is shown only."""
    low, high = interval or (None, None)
    return AccuracyRow(
        id=row["id"],
        section=SECTION,
        quantity=quantity,
        unit=unit,
        source=str(row.get("source", "")),
        published=published,
        predicted=predicted,
        low=low,
        high=high,
        scored=not why_not,
        why_not=why_not,
        better="lower" if unit == "s" else "higher",
        labels={"model": str(row.get("model", "")), "gpu": str(row.get("gpu", "not stated"))},
    )
