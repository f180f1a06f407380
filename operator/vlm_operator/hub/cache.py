"""Models that were read from a hub, on disk by commit.

A commit never changes, so an entry never expires. Its name has the hub's address and a digest of the token in it:
what one token may read is not shown to another. An entry that cannot be read or written counts as absent.
"""

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.types import ModelFiles

_FORMAT: Final = 1
"""Raised when what an entry holds changes."""
_MOST_ENTRIES: Final = 256
"""The oldest beyond these are removed: the operator's folder is small."""


def load_files(settings: HubSettings, model_id: str, commit: str) -> ModelFiles | None:
    """Return what was read of a commit, None where nothing was."""
    path = _path(settings, model_id, commit)
    if path is None:
        return None
    try:
        entry = json.loads(gzip.decompress(path.read_bytes()))
        return _decode(entry)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def store_files(settings: HubSettings, model_id: str, files: ModelFiles) -> None:
    """Keep what was read of a commit; a full or read-only disk keeps nothing."""
    path = _path(settings, model_id, files.revision)
    if path is None:
        return
    entry = {
        "documents": files.documents,
        "tensors": [list(tensor) for tensor in files.tensors],
        "origin": files.origin,
        "revision": files.revision,
    }
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Written beside and moved into place, so that no reader sees half an entry.
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(gzip.compress(json.dumps(entry).encode(), compresslevel=5))
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        _prune(path.parent.parent)


def _path(settings: HubSettings, model_id: str, commit: str) -> Path | None:
    if settings.cache_folder is None:
        return None
    whose = hashlib.sha256(f"{settings.endpoint}\n{settings.token}".encode()).hexdigest()[:16]
    return settings.cache_folder / model_id.replace("/", "--") / f"{commit}-{whose}.v{_FORMAT}.json.gz"


def _prune(folder: Path) -> None:
    entries = sorted(folder.glob("*/*.json.gz"), key=lambda entry: entry.stat().st_mtime)
    for entry in entries[:-_MOST_ENTRIES]:
        entry.unlink(missing_ok=True)


def _decode(entry: dict[str, Any]) -> ModelFiles:
    return ModelFiles(
        documents=entry["documents"],
        tensors=tuple(
            StoredTensor(name=name, dtype=dtype, shape=tuple(shape), size_bytes=size)
            for name, dtype, shape, size in entry["tensors"]
        ),
        origin=entry["origin"],
        revision=entry["revision"],
    )
