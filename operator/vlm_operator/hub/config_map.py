"""A ConfigMap with a model's files -> ``ModelFiles``, for clusters without a way to a hub. Pure.

Its keys are the files' names. ``tensors.json`` may hold what the headers of the weights say, which makes the weights
exact: ``{"NAME": {"dtype": "BF16", "shape": [4096, 4096]}}`` as in the header of a safetensors file, whose
``data_offsets`` may stay. Called by ``controller`` and ``cli`` with what the API server shows.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.hub.types import CONFIG_FILES, ModelFiles, SourceRefusal

TENSORS: Final = "tensors.json"
_DTYPE_BITS: Final[Mapping[str, int]] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip
"""Bits of an element by its name in the format."""


def read_config_map(document: Mapping[str, Any]) -> ModelFiles | SourceRefusal:
    """Return the files in a ConfigMap as the API server shows it, or what is wrong with one of them."""
    name = f"ConfigMap {document['metadata']['name']}"
    data = document.get("data") or {}
    documents: dict[str, Mapping[str, Any]] = {}
    for key in (*CONFIG_FILES, TENSORS):
        if key not in data:
            continue
        try:
            value = json.loads(data[key])
        except (ValueError, RecursionError) as error:
            return _refuse(f"{name}: {key} is not JSON: {error}; put the file's own text there")
        if not isinstance(value, dict):
            return _refuse(f"{name}: {key} holds no JSON object; put the file's own text there")
        documents[key] = value
    try:
        tensors = tuple(_tensor(*entry) for entry in documents.pop(TENSORS, {}).items() if entry[0] != "__metadata__")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return _refuse(f"{name}: an entry of {TENSORS} lacks or garbles {error}; each has a dtype and a shape")
    return ModelFiles(documents=documents, tensors=tensors, origin=name)


def _tensor(name: str, entry: Mapping[str, Any]) -> StoredTensor:
    dtype, shape = str(entry["dtype"]), tuple(int(side) for side in entry["shape"])
    if min(shape, default=1) < 0:
        raise ValueError(f"{name}, which has a side below zero")
    elements = 1
    for side in shape:
        elements *= side
    return StoredTensor(name=name, dtype=dtype, shape=shape, size_bytes=elements * _DTYPE_BITS[dtype] // 8)


def _refuse(message: str) -> SourceRefusal:
    return SourceRefusal(reason=names.REASON_MODEL_FILES_INVALID, message=message)
