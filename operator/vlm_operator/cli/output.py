"""What every command shares on its way out: streams, colour, machine formats, problems.

stdout is data, stderr is talk. Colour only on a terminal, never under ``NO_COLOR``, never the only signal.
"""

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vlm_operator.errors import Problem

COLUMNS = 100

OutputFormat = Literal["human", "json", "yaml"]

_CODES = {"good": "32", "bad": "31", "strong": "1", "quiet": "2"}


@dataclass(frozen=True, slots=True)
class Style:
    """Paints words for a terminal, or leaves them alone."""

    enabled: bool = False

    def paint(self, kind: Literal["good", "bad", "strong", "quiet"], text: str) -> str:
        """Return ``text`` painted, or as it is."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.enabled else text


def stdout_style() -> Style:
    """Return the style for stdout: plain unless a person is looking and wants colour."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(enabled=wanted and sys.stdout.isatty())


def prepare_streams() -> None:
    """Let no character of an answer fail on a stream with a small alphabet."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def clean(text: object) -> str:
    """Return ``text`` with control characters made visible; what others wrote must not steer a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))


def say(text: str) -> None:
    """Print talk to stderr, control characters made visible."""
    sys.stderr.write("\n".join(clean(line) for line in text.split("\n")) + "\n")


def say_problems(problems: Sequence[Problem], *, source: str = "") -> None:
    """Print one line per problem in the order of the file, and how many there are where they belong to one."""
    problems = sorted(problems, key=lambda problem: problem.line or 0)
    places = [_place(problem, source) for problem in problems]
    width = max((len(place) for place in places), default=0)
    for place, problem in zip(places, problems, strict=True):
        where = f"{place:<{width}}  " if width else ""
        what = f"{problem.path}: {problem.message}" if problem.path else problem.message
        say(f"{where}{what}" if where.strip() else f"vlmctl: {what}" if not source else what)
    if source:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        say(f"{count} in {source}; nothing was applied.")


def _place(problem: Problem, source: str) -> str:
    if source and not problem.path and problem.message.startswith(source):
        return ""
    return f"{source}:{problem.line}" if source and problem.line else source


def write_data(document: Any, output: str) -> None:
    """Write ``document`` to stdout as JSON or YAML; what stdout's alphabet lacks is escaped, not replaced."""
    as_json = output == "json"
    text = json.dumps(document, indent=2, ensure_ascii=not _has_unicode()) if as_json else dump_yaml([document])
    sys.stdout.write(text.rstrip("\n") + "\n")


def write_text(text: str) -> None:
    """Write a text of another format to stdout as it is."""
    sys.stdout.write(text)


def _has_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def dump_yaml(documents: Sequence[Any]) -> str:
    """Return ``documents`` as one YAML text, separated by ``---`` where there are several."""
    import yaml  # noqa: PLC0415 - human output needs no YAML

    return yaml.safe_dump_all(
        documents, sort_keys=False, allow_unicode=_has_unicode(), width=COLUMNS, explicit_start=len(documents) > 1
    )


def write_lines(lines: Sequence[str]) -> None:
    """Write the lines of a screen to stdout."""
    sys.stdout.write("\n".join(line.rstrip() for line in lines) + "\n")
