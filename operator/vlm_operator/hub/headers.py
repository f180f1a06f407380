"""The header of a safetensors file: name, element type, shape and bytes of each tensor.

The format: 8 bytes with the header's length (little endian), then the header as JSON, then the data
(https://github.com/huggingface/safetensors#format). Pure; the bytes come from ``client`` or ``folder``.
"""

import json
from typing import Any, Final

from vlm_operator.catalogue.types import StoredTensor

LENGTH_BYTES: Final = 8
MOST_HEADER_BYTES: Final = 100_000_000
"""The format allows no longer header."""
_METADATA: Final = "__metadata__"


class HeaderError(ValueError):
    """What is wrong with a header, in words."""


def header_bytes(start: bytes) -> int:
    """Return how many bytes the header behind the first 8 bytes of a file has.

    Raises:
        HeaderError: The length is missing, or longer than the format allows.
    """
    if len(start) < LENGTH_BYTES:
        raise HeaderError(f"it has {len(start)} bytes, fewer than the {LENGTH_BYTES} of the header's length")
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if not 2 <= length <= MOST_HEADER_BYTES:
        raise HeaderError(f"its header would have {length:,} bytes; the format allows {MOST_HEADER_BYTES:,}")
    return length


def parse_header(start: bytes, end: int) -> tuple[StoredTensor, ...]:
    """Return the tensors that a file's header, which ends at ``end``, lists.

    Raises:
        HeaderError: ``start`` is shorter, or the header is not the JSON that the format asks for.
    """
    if len(start) < end:
        raise HeaderError(f"it ends within its header, after {len(start):,} of {end:,} bytes")
    try:
        entries = json.loads(start[LENGTH_BYTES:end])
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"its header is not JSON: {error}") from None
    if not isinstance(entries, dict):
        raise HeaderError("its header is no JSON object")
    return tuple(_tensor(name, entry) for name, entry in entries.items() if name != _METADATA)


def _tensor(name: str, entry: Any) -> StoredTensor:
    try:
        begin, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(side) for side in entry["shape"])
        dtype = str(entry["dtype"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise HeaderError(f"the entry of tensor {name!r} lacks dtype, shape or data_offsets") from None
    if not 0 <= begin <= end or min(shape, default=1) < 0:
        raise HeaderError(f"the entry of tensor {name!r} has offsets or sides below zero")
    return StoredTensor(name=name, dtype=dtype, shape=shape, size_bytes=end - begin)
