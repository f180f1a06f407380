"""The published rows: those of ``data/``, or a file of the same format that the caller names."""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.accuracy.fields import UnreadableFileError

DATA = Path(__file__).parent / "data"

PublishedRow = Mapping[str, Any]
"""One published row: its fields as the source states them."""


def load_published(kind: str, benchmarks: Path | None = None) -> Sequence[PublishedRow]:
    """Return the rows of one kind, such as ``memory_logs``; none where a given file has no such kind.

    A row without an ``id`` gets its number for one.

    Raises:
        UnreadableFileError: There is no such file, or it is not of the format.
    """
    path = benchmarks or DATA / f"{kind}.json"
    document = read_json(path)
    if benchmarks is not None:
        if not isinstance(document, Mapping):
            raise UnreadableFileError(f"{path}: {_kind_of(document)} where an object of lists belongs, such as {kind}")
        document = document.get(kind)
    if document is None:
        return ()
    if not isinstance(document, list):
        raise UnreadableFileError(f"{path}: {kind} is {_kind_of(document)}, not a list of rows")
    return tuple(_row(path, kind, place, row) for place, row in enumerate(document, 1))


def read_text(path: Path) -> str:
    """Return a text file, unpacked where its name ends in ``.gz``."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path}: byte {error.start} is no UTF-8 text") from error


def read_json(path: Path) -> object:
    """Return the document in a JSON file."""
    text = read_text(path)
    try:
        document: object = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        what = "the file is empty" if not text.strip() else f"no JSON: {error}"
        raise UnreadableFileError(f"{path}: {what}") from error
    return document


def _row(path: Path, kind: str, place: int, row: object) -> PublishedRow:
    if not isinstance(row, Mapping):
        raise UnreadableFileError(f"{path}: {kind}, row {place} is {_kind_of(row)}, not an object of fields")
    return {**row, "id": str(row.get("id") or f"{kind}, row {place}"), "source": str(row.get("source") or "")}


def _kind_of(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "a truth value"}
    return names.get(type(value), "a number")
