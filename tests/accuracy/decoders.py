"""The language models that closed-loop runs name: shapes of ``data/silicon_models.json``, else of other published rows.

A run names a checkpoint and a number format. What the format's usual exports keep plain is plain here.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.accuracy.benchmarks import DATA, read_json
from tests.accuracy.fields import UnclearRowError, UnreadableFileError, count
from tests.accuracy.models import INT8, PublishedModel, find_published, shape_without_images
from tests.accuracy.serving_row import W4A16
from vlm_operator.sizing.shape.quantisation import read_quantisation
from vlm_operator.sizing.shape.text.read import read_text
from vlm_operator.sizing.shape.types import ShapeRefusal

FP8: Mapping[str, Any] = {"quant_method": "fp8"}
NVFP4: Mapping[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "group_size": 16,
    "exclude_modules": ["lm_head"],
}
STORED: Mapping[str, Mapping[str, Any] | None] = {"": None, "fp8": FP8, "fp4": NVFP4, "int8": INT8, "int4": W4A16}
"""How a checkpoint of each format is stored; the empty name is plain BF16."""
SPELLINGS: Mapping[str, str] = {
    **dict.fromkeys(("bf16", "bfloat16", "fp16", "float16", "half"), ""),
    **dict.fromkeys(("nvfp4",), "fp4"),
    **dict.fromkeys(("w8a8", "int8_w8a8"), "int8"),
    **dict.fromkeys(("w4a16", "int4_wo"), "int4"),
}
WORDS = {"": "", "fp8": "fp8", "fp4": "nvfp4", "int8": "w8a8"}
"""What ``find_published`` calls a format."""
SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)
"""Fields that the shape of a model needs."""
CONTEXT = 131072
"""Positions of the models in the table."""

Shapes = Mapping[str, Mapping[str, Any]]
"""Configurations of language models by the last part of their id."""


def format_of_run(stated: str, model: str) -> str:
    """Return the number format of a row: as stated, else as the checkpoint's name ends."""
    name = stated.strip().lower()
    if not name:
        found = re.search(r"-(fp8|nvfp4|fp4)\b", model.lower())
        name = found[1] if found else ""
    name = SPELLINGS.get(name, name)
    if name not in STORED:
        raise UnclearRowError(f"the number format {stated} is not modelled")
    return name


@cache
def load_shapes(path: Path | None = None) -> Shapes:
    """Return the shapes in ``path``, or those of ``data/``.

    Raises:
        UnreadableFileError: The file is not of the format.
    """
    source = path or DATA / "silicon_models.json"
    document = read_json(source)
    models = document.get("models") if isinstance(document, Mapping) else None
    if not isinstance(models, list):
        raise UnreadableFileError(f"{source}: an object with a list named models belongs here")
    return dict(_shape(source, place, model) for place, model in enumerate(models, 1))


def _shape(source: Path, place: int, model: object) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(model, Mapping) or not isinstance(model.get("id"), str):
        raise UnreadableFileError(f"{source}: models, row {place} has no id")
    name = model["id"]
    try:
        sizes = {field: count(model, field) for field in SIZES}
    except UnclearRowError as unclear:
        raise UnreadableFileError(f"{source}: models, row {place} ({name}): {unclear}") from unclear
    missing = [field for field, size in sizes.items() if size is None]
    if missing:
        raise UnreadableFileError(f"{source}: models, row {place} ({name}) lacks {', '.join(missing)}")
    kind = "qwen3" if "qwen3" in name.lower() else "llama"
    return _plain(name), {"model_type": kind, "tie_word_embeddings": False, "max_position_embeddings": CONTEXT, **sizes}


def find_decoder(model: str, number_format: str, shapes: Shapes) -> PublishedModel | None:
    """Return the model of a row in a format of ``STORED``, None where its shape is not known."""
    config = shapes.get(_plain(model))
    if config is not None:
        return _decoder(_plain(model), tuple(config.items()), number_format)
    word = WORDS.get(number_format)
    return None if word is None else find_published(f"{model} {word}")


@cache
def _decoder(name: str, config: tuple[tuple[str, Any], ...], number_format: str) -> PublishedModel:
    stored = STORED[number_format]
    quantisation = read_quantisation({"quantization_config": stored}) if stored else None
    if isinstance(quantisation, ShapeRefusal):
        raise UnclearRowError(quantisation.message)
    text = read_text(dict(config), 2, quantisation)
    return PublishedModel(shape=shape_without_images(name, text, quantisation), context=CONTEXT)


def _plain(model: str) -> str:
    """Return what checkpoints of one model have in common: no owner, no format, no training stage."""
    name = model.lower().rsplit("/", 1)[-1]
    name = re.sub(r"^meta-", "", name)
    return re.sub(r"(-instruct|-fp8|-dynamic|-nvfp4|-fp4|-bf16)+$", "", name)
