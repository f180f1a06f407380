"""Image files of a given size that hold a header and no pixels, turned by EXIF where asked."""

import struct
from pathlib import Path


def png(width: int, height: int, *, orientation: int = 1) -> bytes:
    chunks = [(b"IHDR", struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)), (b"eXIf", exif(orientation))]
    body = b"".join(struct.pack(">L", len(data)) + name + data + b"\0\0\0\0" for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg(width: int, height: int, *, orientation: int = 1) -> bytes:
    payload = b"Exif\0\0" + exif(orientation)
    app1 = b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\1\x22\0\2\x11\1\3\x11\1"
    return b"\xff\xd8" + app1 + frame + b"\xff\xda"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(16) + struct.pack("<ll", width, height) + bytes(10)


def webp(width: int, height: int, *, orientation: int = 1) -> bytes:
    payload = exif(orientation)
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = b"VP8X" + struct.pack("<L", 10) + b"\x08\0\0\0" + sides + b"EXIF" + struct.pack("<L", len(payload))
    return b"RIFF" + struct.pack("<L", len(chunks) + len(payload) + 4) + b"WEBP" + chunks + payload


def tiff(width: int, height: int, *, orientation: int = 1) -> bytes:
    entries = [(256, 4, width), (257, 4, height), (274, 3, orientation)]
    return b"II*\0\x08\0\0\0" + struct.pack("<H", 3) + b"".join(struct.pack("<HHLL", t, k, 1, v) for t, k, v in entries)


def exif(orientation: int) -> bytes:
    return b"MM\0*\0\0\0\x08" + struct.pack(">HHHLHH", 1, 0x0112, 3, 1, orientation, 0)


def photo_folder(root: Path) -> Path:
    """Five readable images, one of them turned and one below, two broken ones, and what is no image."""
    (root / "below").mkdir(parents=True)
    files = {
        "a.png": png(4032, 3024), "b.JPG": jpeg(640, 200, orientation=6), "c.webp": webp(800, 600),
        "d.gif": gif(100, 50), "below/e.bmp": bmp(1000, 700), "broken.jpg": b"no image", "empty.png": b"",
        "notes.txt": b"text", ".hidden.png": png(1, 1),
    }  # fmt: skip
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root
