"""Reads what the user named on the command line; every way in which that can fail is an InputError."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    with _told(name):
        raw = sys.stdin.read().encode() if file == "-" else _read_bytes(file)
        text = raw.decode()
    if len(raw) > MAX_BYTES:
        raise _cannot(f"{name} is larger than {MAX_BYTES // 2**20} MiB; is it a YAML file?")
    return text


def read_lines(file: str) -> Iterator[str]:
    """Yield the lines of ``file``, of standard input where it is ``-``, as they come.

    Bytes that are not UTF-8 come as escapes, so that they spoil their own line only.

    Raises:
        InputError: It cannot be read.
    """
    with _told(display_name(file)):
        if file == "-":
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="backslashreplace")
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        with Path(file).open(encoding="utf-8", errors="backslashreplace") as stream:
            yield from (line.rstrip("\n") for line in stream)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn what can go wrong with a file into an InputError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except IsADirectoryError:
        raise _cannot(f"{name} is a directory; name one file") from None
    except FileNotFoundError:
        raise _cannot(f"{name}: there is no such file") from None
    except UnicodeError:
        raise _cannot(f"{name} is not UTF-8 text; is it the right file?") from None
    except OSError as error:
        raise _cannot(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise _cannot(f"{name} cannot be read: {error}") from None


def _read_bytes(file: str) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _cannot(message: str) -> InputError:
    return InputError([Problem(path="", message=message)])
