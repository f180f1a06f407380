"""The EXIF orientation of PNG and WebP files, which the engine applies as it does that of JPEG and TIFF.

Only chunk headers and the EXIF chunk are read. Formats: PNG (chunk ``eXIf``), WebP container (RIFF chunk ``EXIF``),
TIFF 6.0 for what is inside.
"""

import struct
from typing import BinaryIO, Final

_ORIENTATION: Final = 0x0112
_TURNED: Final = frozenset({5, 6, 7, 8})
_MOST_BYTES: Final = 2**20
"""No camera writes more; a longer chunk is damaged."""


def is_turned(stream: BinaryIO, head: bytes) -> bool:
    """Return whether a PNG or WebP file that begins with ``head`` is shown with its sides swapped."""
    if head.startswith(b"\x89PNG"):
        payload = _find_chunk(stream, start=8, name=b"eXIf", png=True)
    elif head.startswith(b"RIFF"):
        payload = _find_chunk(stream, start=12, name=b"EXIF", png=False)
    else:
        return False
    return _read_orientation(payload.removeprefix(b"Exif\0\0")) in _TURNED


def _find_chunk(stream: BinaryIO, *, start: int, name: bytes, png: bool) -> bytes:
    """Return the content of the chunk ``name``, nothing where the file has none.

    PNG has length, name, content and a checksum; RIFF has name, length and content padded to an even length.
    """
    at = start
    while True:
        stream.seek(at)
        header = stream.read(8)
        if len(header) < 8:
            return b""
        kind, length = (header[4:], header[:4]) if png else (header[:4], header[4:])
        size = int.from_bytes(length, "big" if png else "little")
        if kind == b"IEND":
            return b""
        if kind == name:
            return stream.read(min(size, _MOST_BYTES))
        at += 8 + size + (4 if png else size % 2)


def _read_orientation(payload: bytes) -> int:
    """Return the orientation tag of the first directory, 0 where there is none."""
    order = {b"II": "<", b"MM": ">"}.get(payload[:2])
    if order is None or len(payload) < 8:
        return 0
    (at,) = struct.unpack_from(f"{order}L", payload, 4)
    if at + 2 > len(payload):
        return 0
    (entries,) = struct.unpack_from(f"{order}H", payload, at)
    for entry in range(at + 2, min(at + 2 + 12 * entries, len(payload) - 11), 12):
        tag, _, _, value = struct.unpack_from(f"{order}HHLH", payload, entry)
        if tag == _ORIENTATION:
            return int(value)
    return 0
