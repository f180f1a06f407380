"""Bytes, seconds and Kubernetes quantities: the one place where units are converted.

Inside the product memory is bytes and time is seconds; conversion happens at the borders.
"""

from decimal import Decimal, InvalidOperation
from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

_SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip


def ceil_div(dividend: int, divisor: int) -> int:
    """Return ``dividend / divisor`` rounded up."""
    return -(-dividend // divisor)


def parse_quantity(text: str | int) -> Decimal:
    """Return the value of a Kubernetes quantity such as ``16Gi`` or ``500m``.

    Raises:
        ValueError: ``text`` is not a quantity.
    """
    raw = str(text).strip()
    number = raw.rstrip("numkKMGTPi")
    try:
        return Decimal(number) * _SUFFIXES[raw[len(number) :]]
    except (InvalidOperation, KeyError):
        raise ValueError(f"{raw!r} is not a quantity; write for example 16Gi or 4") from None


def format_mebibytes(size_bytes: int) -> str:
    """Return ``size_bytes`` as a Kubernetes quantity in whole MiB, rounded up."""
    return f"{ceil_div(size_bytes, MIB)}Mi"


def format_gib(size_bytes: int) -> str:
    """Return ``size_bytes`` for people, such as ``15.6 GiB``."""
    return f"{size_bytes / GIB:.1f} GiB"
