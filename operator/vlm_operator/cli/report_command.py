"""``vlmctl report``: the plans of a file as one page."""

import argparse
from pathlib import Path

from vlm_operator.cli import output
from vlm_operator.cli.inputs import display_name
from vlm_operator.cli.plan_command import Answer, plan_file
from vlm_operator.cli.sweep import Subject, choices_of, sweep, tried
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import ENGINE_VERSION, constraints_of, workload_of
from vlm_operator.report.figures import count
from vlm_operator.report.page import render_page
from vlm_operator.report.sheet import Sheet
from vlm_operator.sizing.plan import NoFit

_OVER = {"max-pixels": (), "gpu": ()}
"""What the page's frontier goes over."""


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page; 1 if an object does not fit, which the page says as well."""
    answers = plan_file(arguments.file, arguments.inventory, arguments.model_dir, simulate=arguments.simulate)
    page = render_page([_sheet(answer, arguments) for answer in answers])
    if arguments.output == "-":
        output.write_text(page)
    else:
        _write(arguments.output, page)
        size = f"{len(page.encode()) / 1024:.0f} KiB"
        output.say(f"{arguments.output}: {count(len(answers), 'plan')}, {size}; open it in a browser")
    return int(any(isinstance(answer.outcome, NoFit) for answer in answers))


def _sheet(answer: Answer, arguments: argparse.Namespace) -> Sheet:
    spec = answer.resource.spec
    subject = Subject(spec=spec, inventory=answer.inventory, card=answer.card, declared=answer.outcome)
    points = sweep(subject, _OVER)
    if arguments.simulate:
        points = tried(subject, points)
    return Sheet(
        choices=choices_of(answer.resource.name, subject, points),
        workload=workload_of(spec),
        constraints=constraints_of(spec),
        engine_version=spec.engine.version or ENGINE_VERSION,
        file=display_name(arguments.file) if arguments.file != "-" else "FILE",
        inventory=arguments.inventory,
    )


def _write(file: str, text: str) -> None:
    """Write ``text`` to ``file``.

    Raises:
        InputError: It cannot be written.
    """
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError([Problem(path="", message=f"{file} cannot be written: {reason}")]) from None
