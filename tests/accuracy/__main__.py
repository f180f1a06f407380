"""How near the predictions are to published figures: `python -m tests.accuracy` prints one table for each section."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.accuracy.fields import UnreadableFileError
from tests.accuracy.latency_serving import serving_rows
from tests.accuracy.latency_silicon import silicon_rows
from tests.accuracy.memory import memory_rows
from tests.accuracy.table import AccuracyRow, to_json, to_text

SECTIONS: Mapping[str, Callable[[argparse.Namespace], Sequence[AccuracyRow]]] = {
    "memory": lambda options: memory_rows(options.benchmarks),
    "serving": lambda options: serving_rows(options.benchmarks),
    "decoders": lambda options: silicon_rows(options.silicon, options.models),
}
"""Sections by name; each reads its published rows from the file of the options, or from ``data/`` without one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables and return the exit status: 2 where a file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("--benchmarks", type=Path, metavar="FILE", help="other published rows of the same format")
    parser.add_argument("--silicon", type=Path, metavar="FILE", help="other closed-loop runs of the same format")
    parser.add_argument("--models", type=Path, metavar="FILE", help="shapes of models that those runs name")
    parser.add_argument("--section", choices=tuple(SECTIONS), action="append", help="only this section")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    try:
        rows = [row for name in options.section or SECTIONS for row in SECTIONS[name](options)]
    except UnreadableFileError as unreadable:
        sys.stderr.write(f"{unreadable}\n")
        return 2
    sys.stdout.write((to_json if options.output == "json" else to_text)(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
