"""What published rows and files state, read strictly: a number may be written as text, and nothing is guessed.

A field that is missing, null or empty is not stated. One that cannot be read makes its row unscored, with the reason; a
file that cannot be read ends the comparison.
"""

import math
from collections.abc import Mapping
from typing import Any

NOT_STATED = frozenset({"", "-", "n/a", "na", "nan", "none", "null"})
"""Texts by which tables say that they have no figure."""

Fields = Mapping[str, Any]


class UnreadableFileError(Exception):
    """A file of rows that cannot be read: the message names the file, the row and the field."""


class UnclearRowError(Exception):
    """A row that cannot be compared: the message says why."""


def number(fields: Fields, *names: str) -> float | None:
    """Return the first of ``names`` that is stated, as a number; None where none is.

    Raises:
        UnclearRowError: It is stated and no number.
    """
    for name in names:
        value = fields.get(name)
        if not _is_stated(value):
            continue
        found = _number(value)
        if found is None or not math.isfinite(found):
            raise UnclearRowError(f"{name} is {_shown(value)}, which is no number")
        return found
    return None


def positive(fields: Fields, *names: str) -> float | None:
    """Return ``number``, which has to be above zero."""
    for name in names:
        found = number(fields, name)
        if found is None:
            continue
        if found <= 0:
            raise UnclearRowError(f"{name} is {found:g}, which is not above zero")
        return found
    return None


def count(fields: Fields, *names: str) -> int | None:
    """Return ``positive``, which has to be whole."""
    for name in names:
        found = positive(fields, name)
        if found is None:
            continue
        if found != int(found):
            raise UnclearRowError(f"{name} is {found:g}, which is not whole")
        return int(found)
    return None


def words(fields: Fields, *names: str) -> str:
    """Return the texts of ``names``, one after the other; empty where none is stated."""
    return " ".join(str(fields[name]) for name in names if _is_stated(fields.get(name)))


def part(fields: Fields, name: str) -> Fields:
    """Return the fields under ``name``; none where it is not stated."""
    value = fields.get(name)
    if not _is_stated(value):
        return {}
    if not isinstance(value, Mapping):
        raise UnclearRowError(f"{name} is {_shown(value)}, which has no fields")
    return value


def _is_stated(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in NOT_STATED
    return value is not None and value == value  # noqa: PLR0124 - nan is not itself


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
