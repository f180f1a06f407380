"""A folder with a model's files, as the hub would hold them -> ``ModelFiles``. Called by ``cli``.

Weights need not be there; where they are, the header of each file is read, never its data.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlm_operator.api import names
from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.hub.client import MOST_CONFIG_BYTES
from vlm_operator.hub.headers import LENGTH_BYTES, HeaderError, header_bytes, parse_header
from vlm_operator.hub.types import CONFIG_FILES, ModelFiles, SourceRefusal


def read_folder(folder: Path) -> ModelFiles | SourceRefusal:
    """Return the files of the model in ``folder``, or what is wrong with them."""
    if not folder.is_dir():
        return _refuse(f"{folder}: there is no such folder; name one with the model's config.json")
    documents: dict[str, Mapping[str, Any]] = {}
    try:
        for name in CONFIG_FILES:
            path = folder / name
            if path.is_file():
                documents[name] = _read_document(path)
        tensors = [tensor for path in sorted(folder.glob("*.safetensors")) for tensor in _read_header(path)]
    except HeaderError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or folder} cannot be read: {error.strerror or error}")
    return ModelFiles(documents=documents, tensors=tuple(tensors), origin=str(folder))


def _read_document(path: Path) -> Mapping[str, Any]:
    if path.stat().st_size > MOST_CONFIG_BYTES:
        raise HeaderError(f"{path} has more than {MOST_CONFIG_BYTES:,} bytes, which no such file needs")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise HeaderError(f"{path} holds no JSON object")
    return document


def _read_header(path: Path) -> tuple[StoredTensor, ...]:
    try:
        with path.open("rb") as stream:
            start = stream.read(LENGTH_BYTES)
            end = LENGTH_BYTES + header_bytes(start)
            return parse_header(start + stream.read(end - LENGTH_BYTES), end)
    except HeaderError as error:
        raise HeaderError(f"{path} is no safetensors file: {error}") from None


def _refuse(message: str) -> SourceRefusal:
    return SourceRefusal(reason=names.REASON_MODEL_FILES_INVALID, message=message)
