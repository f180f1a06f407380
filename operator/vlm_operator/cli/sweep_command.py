"""``vlmctl sweep``: every combination of GPUs, pixels and tensor parallel sizes, and the frontier over them."""

import argparse
from collections.abc import Sequence
from typing import Any

from vlm_operator.cli import output
from vlm_operator.cli.plan_command import Answer, one_or_list, plan_file
from vlm_operator.cli.sweep import Subject, SweepPoint, choices_of, sweep, tried
from vlm_operator.cli.sweep_rows import sweep_rows, to_csv
from vlm_operator.cli.sweep_screen import sweep_screen
from vlm_operator.errors import InputError, Problem
from vlm_operator.report.choices import Choices
from vlm_operator.sizing.plan import Plan


def run_sweep(arguments: argparse.Namespace) -> int:
    """Print the points of each object; 1 if nothing fits for one of them."""
    answers = plan_file(arguments.file, arguments.inventory, arguments.model_dir, simulate=arguments.simulate)
    swept = [_sweep(answer, arguments) for answer in answers]
    if arguments.output == "human":
        style = output.stdout_style()
        screens = [sweep_screen(choices, points, style) for choices, points in swept]
        output.write_lines([line for screen in screens for line in (*screen, "", "")][:-2])
    elif arguments.output == "svg":
        output.write_text(_drawn([choices for choices, _ in swept]))
    else:
        _write_rows(answers, swept, arguments)
    return int(not all(any(isinstance(point.outcome, Plan) for point in points) for _, points in swept))


def _sweep(answer: Answer, arguments: argparse.Namespace) -> tuple[Choices, tuple[SweepPoint, ...]]:
    subject = Subject(
        spec=answer.resource.spec, inventory=answer.inventory, card=answer.card, declared=answer.outcome
    )  # fmt: skip
    points = sweep(subject, arguments.over)
    if arguments.simulate:
        points = tried(subject, points)
    return choices_of(answer.resource.name, subject, points), points


def _write_rows(
    answers: Sequence[Answer], swept: Sequence[tuple[Choices, tuple[SweepPoint, ...]]], arguments: argparse.Namespace
) -> None:
    rows = [sweep_rows(choices.name, points, choices.frontier) for choices, points in swept]
    if arguments.output == "csv":
        output.write_text(to_csv([row for each in rows for row in each]))
        return
    documents: list[dict[str, Any]] = [
        {"name": answer.resource.name, "over": list(arguments.over), "points": each}
        for answer, each in zip(answers, rows, strict=True)
    ]
    output.write_data(one_or_list(documents), arguments.output)


def _drawn(choices: Sequence[Choices]) -> str:
    """Return the frontier as a picture of its own.

    Raises:
        InputError: The file holds several objects, which one picture does not show, or nothing with a price fits.
    """
    from vlm_operator.report.page import render_picture  # noqa: PLC0415 - templates are only for pictures

    if len(choices) > 1:
        raise InputError([Problem(path="", message="an SVG shows one object; give a file with one, or --output csv")])
    picture = render_picture(choices[0])
    if picture is None:
        message = "nothing with a known price fits, so there is nothing to draw; see vlmctl plan, or --output csv"
        raise InputError([Problem(path="", message=message)])
    return picture
