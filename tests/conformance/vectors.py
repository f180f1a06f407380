"""Where the conformance rows come from: the folder given with ``--vectors``, else the repository's copy."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


def vectors_folder(config: Any) -> Path:
    """Return the folder that the rows are read from; ``config`` is pytest's configuration."""
    given = config.getoption("vectors", default=None)
    return Path(given) if given else DATA


def has_rows(folder: Path) -> bool:
    """Return whether ``folder`` holds any file of rows."""
    return any(folder.glob("*.jsonl")) or any(folder.glob("*.jsonl.gz"))


def check_count(config: Any, run: int, floor: int) -> None:
    """Fail where fewer than ``floor`` of the own rows were compared, skip where a given folder has none."""
    if config.getoption("vectors") is None:
        assert run >= floor
    elif not run:
        pytest.skip(f"{vectors_folder(config)} has no such rows")


def find_file(folder: Path, name: str) -> Path | None:
    """Return ``name`` or ``name.gz`` in ``folder``, None where it has neither."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def read_rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the JSON Lines file ``name``, none where ``folder`` lacks it."""
    path = find_file(folder, name)
    if path is None:
        return
    for line in _read_text(path).splitlines():
        if line.strip():
            yield json.loads(line)


def read_document(folder: Path, name: str) -> Any:
    """Return the JSON document ``name`` of ``folder``, else the repository's own copy."""
    path = find_file(folder, name) or find_file(DATA, name)
    if path is None:
        raise FileNotFoundError(f"neither {folder} nor {DATA} has {name}")
    return json.loads(_read_text(path))


def merge_documents(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object ``name`` of the repository, with the entries of ``folder``'s own laid on it."""
    merged: dict[str, Any] = {}
    for path in (find_file(DATA, name), find_file(folder, name)):
        if path is not None:
            merged.update(json.loads(_read_text(path)))
    return merged


def _read_text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
