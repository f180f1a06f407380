"""Reads what the user named on the command line; every way in which that can fail is an InputError."""

import sys
from collections.abc import Sequence
from pathlib import Path

from vlm_operator.errors import InputError, Problem

MAX_BYTES = 16 * 2**20


class SourcedInputError(InputError):
    """An InputError that knows which file its problems are in."""

    def __init__(self, problems: Sequence[Problem], source: str) -> None:
        super().__init__(problems)
        self.source = source


def display_name(file: str) -> str:
    """Return how messages call the file."""
    return "standard input" if file == "-" else file


def read_text(file: str) -> str:
    """Return the text of ``file``, of standard input where it is ``-``.

    Raises:
        InputError: It cannot be read, is too large, or is not UTF-8 text.
    """
    name = display_name(file)
    try:
        raw = sys.stdin.read().encode() if file == "-" else _read_bytes(file)
    except IsADirectoryError:
        raise _cannot(f"{name} is a directory; name one file") from None
    except FileNotFoundError:
        raise _cannot(f"{name}: there is no such file") from None
    except UnicodeError:
        raise _cannot(f"{name} is not UTF-8 text; is it a YAML file?") from None
    except (OSError, ValueError) as error:
        raise _cannot(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise _cannot(f"{name} is larger than {MAX_BYTES // 2**20} MiB; is it a YAML file?")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _cannot(f"{name} is not UTF-8 text; is it a YAML file?") from None


def _read_bytes(file: str) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _cannot(message: str) -> InputError:
    return InputError([Problem(path="", message=message)])
