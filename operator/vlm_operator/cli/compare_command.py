"""``vlmctl compare``: two files side by side, what they ask and what comes out."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from vlm_operator.cli import output
from vlm_operator.cli.comparison import Column, comparison_screen, differences
from vlm_operator.cli.output import COLUMNS, Style
from vlm_operator.cli.plan_command import Answer, one_or_list, outcome_document, plan_file
from vlm_operator.cli.text import fold, section
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import constraints_of
from vlm_operator.sizing.plan import NoFit


def run_compare(arguments: argparse.Namespace) -> int:
    """Print each object of one file beside its like of the other; 1 if any of them does not fit."""
    files = (arguments.left, arguments.right)
    if files == ("-", "-"):
        raise InputError([Problem(path="", message="standard input can be read once only; name a file for one side")])
    left, right = (
        plan_file(file, arguments.inventory, arguments.model_dir, simulate=arguments.simulate) for file in files
    )
    pairs = _pairs(left, right, files)
    if arguments.output == "human":
        style = output.stdout_style()
        screens = [_screen(pair, files, style) for pair in pairs]
        output.write_lines([line for screen in screens for line in (*screen, "", "")][:-2])
    else:
        output.write_data(one_or_list([_document(pair) for pair in pairs]), arguments.output)
    return int(any(isinstance(answer.outcome, NoFit) for pair in pairs for answer in pair))


def _pairs(left: Sequence[Answer], right: Sequence[Answer], files: tuple[str, str]) -> list[tuple[Answer, Answer]]:
    """Return the objects that belong together: the only ones of both files, else those of one name.

    Raises:
        InputError: An object of one file has none of its name in the other.
    """
    if len(left) == len(right) == 1:
        return [(left[0], right[0])]
    names = [{answer.resource.name for answer in answers} for answers in (left, right)]
    problems = [
        Problem(
            path="", message=f"{name} is in {files[at]} only; compare files with the same names, or one object each"
        )
        for at in (0, 1)
        for name in sorted(names[at] - names[1 - at])
    ]
    if problems:
        raise InputError(problems)
    others = {answer.resource.name: answer for answer in right}
    return [(answer, others[answer.resource.name]) for answer in left]


def _screen(pair: tuple[Answer, Answer], files: tuple[str, str], style: Style) -> list[str]:
    names = [answer.resource.name for answer in pair]
    title = names[0] if names[0] == names[1] else " · ".join(names)
    short = tuple(file.rsplit("/", 1)[-1] for file in files)
    titles = short if short[0] != short[1] else ("left", "right")
    columns = [
        Column(
            title=called,
            outcome=answer.outcome,
            targets=constraints_of(answer.resource.spec).latency_targets,
        )
        for called, answer in zip(titles, pair, strict=True)
    ]
    asked = [f"{d['path']}: {_value(d['left'])} → {_value(d['right'])}" for d in _asked(pair)]
    lines = [*(style.paint("strong", row) for row in fold(title, COLUMNS)), ""]
    return [*lines, *([*section("asked", asked), ""] if asked else []), *comparison_screen(columns, style)]


def _asked(pair: tuple[Answer, Answer]) -> list[dict[str, Any]]:
    left, right = (answer.resource.spec.model_dump(mode="json", by_alias=True, exclude_unset=True) for answer in pair)
    return differences(left, right)


def _value(value: Any) -> str:
    """Return a value of the spec as YAML writes it in one line."""
    return "absent" if value is None else json.dumps(value, ensure_ascii=False).replace('"', "")


def _document(pair: tuple[Answer, Answer]) -> dict[str, Any]:
    left, right = (outcome_document(answer.outcome) for answer in pair)
    return {
        "left": {"name": pair[0].resource.name, **left},
        "right": {"name": pair[1].resource.name, **right},
        "asked": _asked(pair),
        "differences": differences(left, right),
    }
