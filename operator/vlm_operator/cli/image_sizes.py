"""The sizes of many images: from a folder of files, whose headers are read, or from a list.

No pixel is decoded. What cannot be read is named in the answer and stops nothing.
"""

import argparse
import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vlm_operator.cli.arguments import pixel_size
from vlm_operator.cli.exif import is_turned
from vlm_operator.cli.inputs import read_lines
from vlm_operator.errors import InputError, Problem

_SUFFIXES: Final = frozenset(
    {".apng", ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
)
_NOT_READ: Final = frozenset({".avif", ".heic", ".heif", ".jp2", ".jxl", ".svg"})
"""Images by their name, of formats whose headers are not read."""
_SIGNATURES: Final = (
    b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"RIFF",
)  # fmt: skip
_SEPARATORS: Final = re.compile(r"[,;\s]+")
_MOST_SIDE: Final = 10**9
_MOST_IMAGES: Final = 10**12
_WEIGHT_NAMES: Final = ("count", "weight", "images")

Size = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSizes:
    """How often each (width, height) occurs.

    Attributes:
        counts: Images of each size.
        unreadable: Files or lines that gave no size, each with the reason.
        skipped: Files of the folder that are no images by their name, pipes and devices among them.
    """

    counts: Mapping[Size, int]
    unreadable: tuple[str, ...] = ()
    skipped: int = 0


class _UnreadableError(Exception):
    """Why a file or a line gives no size, in words."""


def read_folder(folder: str) -> ImageSizes:
    """Return the sizes of the image files in ``folder`` and below, as the engine sees them: EXIF rotation applied.

    Hidden files and folders are left out.

    Raises:
        InputError: ``folder`` is no folder, or there is no image in it.
    """
    root = Path(folder)
    if not root.is_dir():
        what = "is a file; a single size goes with --image WxH" if root.exists() else "there is no such folder"
        raise InputError([Problem(path="", message=f"--images {folder}: {what}")])
    counts: Counter[Size] = Counter()
    unreadable: list[str] = []
    skipped = 0
    for path in _walk(root, unreadable):
        if path.suffix.lower() not in _SUFFIXES | _NOT_READ or _is_special(path):
            skipped += 1
            continue
        try:
            counts[_read_header(path)] += 1
        except _UnreadableError as error:
            unreadable.append(f"{_show(path.relative_to(root))}: {error}")
    if not counts and not unreadable:
        raise InputError([Problem(path="", message=f"--images {folder}: no image in it ({skipped} other files)")])
    return ImageSizes(counts=counts, unreadable=tuple(unreadable), skipped=skipped)


def read_list(file: str) -> ImageSizes:
    """Return the sizes in the lines of ``file``, of standard input where it is ``-``.

    A line is ``4032x3024``, ``4032,3024`` or ``{"width": 4032, "height": 3024}``, with a number of images behind
    (``count`` in JSON) or without. A first line of names tells the columns. Empty lines and ``#`` are passed over.

    Raises:
        InputError: ``file`` cannot be read or has no size in it.
    """
    counts: Counter[Size] = Counter()
    unreadable: list[str] = []
    columns: _Columns | None = None
    for number, line in enumerate(read_lines(file), start=1):
        text = line.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            continue
        try:
            if columns is None and not counts and _is_header(text):
                columns = _read_header_line(text)
                continue
            size, images = _read_line(text, columns)
            counts[size] += images
        except _UnreadableError as error:
            unreadable.append(f"line {number}: {error}")
    if not counts and not unreadable:
        raise InputError([Problem(path="", message=f"--sizes {file}: no size in it; write lines such as 4032x3024")])
    return ImageSizes(counts=counts, unreadable=tuple(unreadable))


def listed(sizes: Iterable[Size]) -> ImageSizes:
    """Return the sizes of the command line."""
    return ImageSizes(counts=Counter(sizes))


def _walk(root: Path, unreadable: list[str]) -> Iterator[Path]:
    """Yield the files below ``root`` in order; a folder that is not opened is named in ``unreadable``."""

    def note(error: OSError) -> None:
        unreadable.append(f"{_show(error.filename)}: {error.strerror or error}")

    for folder, folders, files in os.walk(root, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = (Path(folder, name) for name in folders if Path(folder, name).is_symlink())
        unreadable += (f"{_show(link.relative_to(root))}: a link to a folder is not followed" for link in links)
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(folder, name)


def _show(path: str | Path) -> str:
    """Return a path that can be printed: bytes that are not UTF-8 are written as numbers."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_special(path: Path) -> bool:
    """Return whether the path is a pipe, a socket or a device, which may never answer."""
    return path.exists() and not path.is_file()


def _read_header(path: Path) -> Size:
    import imagesize  # noqa: PLC0415 - only folders of files need it

    suffix = path.suffix.lower()
    if suffix in _NOT_READ:
        raise _UnreadableError(f"{suffix[1:].upper()} is not read; convert it, or give its size with --sizes")
    try:
        with path.open("rb") as stream:
            head = stream.read(12)
            if not head.startswith(_SIGNATURES) or (head.startswith(b"RIFF") and head[8:] != b"WEBP"):
                raise _UnreadableError("not a PNG, JPEG, WebP, GIF, BMP or TIFF file" if head else "an empty file")
            width, height = imagesize.get(stream)
            if is_turned(stream, head):
                width, height = height, width
    except OSError as error:
        raise _UnreadableError(f"cannot be read: {error.strerror or error}") from None
    if min(width, height) < 1:
        raise _UnreadableError("its header is damaged or cut off")
    return width, height


def _is_header(text: str) -> bool:
    return not text.startswith("{") and _as_size(_SEPARATORS.split(text)[0]) is None and text[0].isalpha()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns of a table: their names, and what parts them, None for blanks."""

    names: Sequence[str]
    separator: str | None

    def split(self, text: str) -> Mapping[str, str]:
        """Return the cells of a line by column; a cell in quotes may contain the separator."""
        return dict(zip(self.names, _split_cells(text, self.separator), strict=False))


def _split_cells(text: str, separator: str | None) -> list[str]:
    if separator is None:
        return text.split()
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator))]
    except csv.Error as error:
        raise _UnreadableError(f"no line of a table: {error}") from None


def _read_header_line(text: str) -> _Columns:
    separator = next((sign for sign in ",;\t" if sign in text), None)
    names = [name.strip("\"'").lower() for name in _split_cells(text, separator)]
    if not {"width", "height"} <= set(names):
        raise _UnreadableError("neither a size nor the names of columns, width and height among them")
    return _Columns(names=names, separator=separator)


def _read_line(text: str, columns: _Columns | None) -> tuple[Size, int]:
    if text.startswith("{"):
        return _read_fields(_parse_object(text))
    if columns is not None:
        return _read_fields(columns.split(text))
    cells = _SEPARATORS.split(text)
    size = _as_size(cells[0])
    if size is not None:
        return size, _whole("count", *cells[1:2] or [1], most=_MOST_IMAGES)
    if len(cells) < 2:
        raise _UnreadableError(f"{text[:60]!r} is not a size; write 4032x3024, or width and height")
    return _read_fields(dict(zip(("width", "height", "count"), cells, strict=False)))


def _parse_object(text: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"not JSON: {error}; write one object a line") from None
    if not isinstance(fields, dict):
        raise _UnreadableError("not a JSON object with width and height")
    return fields


def _read_fields(fields: Mapping[str, Any]) -> tuple[Size, int]:
    images = next((fields[name] for name in _WEIGHT_NAMES if name in fields), 1)
    sides = (_whole(name, fields.get(name), most=_MOST_SIDE) for name in ("width", "height"))
    return (next(sides), next(sides)), _whole("count", images, most=_MOST_IMAGES)


def _as_size(text: str) -> Size | None:
    if text.isdecimal():
        return None
    try:
        return pixel_size(text)
    except argparse.ArgumentTypeError:
        return None


def _whole(name: str, value: Any, *, most: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,13}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _UnreadableError(f"{name} is {value!r}, but must be a whole number from 1 to {most:,}")
    return value
