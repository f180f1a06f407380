"""``vlmctl``: reads arguments and hands them to one command module.

Command modules are imported only when their command runs, so that ``vlmctl --help`` starts at once and no
command pays for what it does not use. Every error of the product becomes one message on stderr and an exit
code; never a traceback.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from vlm_operator import __version__
from vlm_operator.cli import output
from vlm_operator.cli.arguments import FILE_HELP, INVENTORY_HELP, MODEL_DIR_HELP, positive
from vlm_operator.cli.changes import OVER_HELP, WHAT_IF_HELP, parse_change, parse_over
from vlm_operator.cli.memory_arguments import add_memory_arguments
from vlm_operator.cli.tokens_arguments import add_tokens_arguments
from vlm_operator.errors import ClusterError, HubError, InputError, VlmOperatorError

EXIT_FITS = 0
EXIT_NO_FIT = 1
EXIT_WRONG_INPUT = 2
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141

_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"  # noqa: SLF001 - it has no other name

_EPILOG = """\
exit status:
  0 it fits · 1 it does not fit, or an image is refused or broken · 2 wrong input · 3 no answer from cluster or hub

examples:
  vlmctl plan -f invoices.yaml
  vlmctl plan -f invoices.yaml --inventory cluster --output json
  vlmctl plan -f invoices.yaml --what-if max-pixels=501760 --gpu l4
  vlmctl sweep -f invoices.yaml --over max-pixels,gpu --output csv
  vlmctl report -f invoices.yaml -o report.html
  vlmctl render -f invoices.yaml | kubectl apply -f -
  vlmctl tokens --model Qwen/Qwen2.5-VL-7B-Instruct --image 4032x3024
  vlmctl tokens --model Qwen/Qwen2.5-VL-7B-Instruct --images scans/ --over-cap
  vlmctl memory --model Qwen/Qwen2.5-VL-7B-Instruct --gpu l4 --max-model-len 8192
"""


def run() -> NoReturn:
    """Be the process ``vlmctl``, which ends with its answer.

    No command leaves reference cycles that are worth looking for: Python's search for them, while modules load and once
    more at the end, would take a seventh of the time of a short answer.
    """
    gc.disable()
    try:
        sys.exit(main())
    finally:
        gc.freeze()


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``vlmctl`` and return its exit status."""
    output.prepare_streams()
    try:
        arguments = build_parser().parse_args(argv)
        command = importlib.import_module(f"vlm_operator.cli.{arguments.module}")
        status: int = getattr(command, arguments.function)(arguments)
        sys.stdout.flush()
    except InputError as error:
        output.say_problems(error.problems, source=getattr(error, "source", ""))
        return EXIT_WRONG_INPUT
    except (ClusterError, HubError) as error:
        output.say(f"vlmctl: the cluster: {error}" if isinstance(error, ClusterError) else f"vlmctl: {error}")
        return EXIT_NO_ANSWER
    except VlmOperatorError as error:
        output.say(f"vlmctl: {error}")
        return EXIT_WRONG_INPUT
    except OSError as error:
        return _unwritten(error)
    except KeyboardInterrupt:
        output.say("vlmctl: interrupted")
        return EXIT_INTERRUPTED
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and where help is."""

    def error(self, message: str) -> NoReturn:
        output.say(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(EXIT_WRONG_INPUT)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="vlmctl",
        description="Sizes vision-language models for vLLM: which GPUs, how many, with which flags, and why.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vlmctl {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_plan_and_render(commands)
    _add_choices(commands)
    _add_tokens(commands)
    _add_memory(commands)
    _add_explain(commands)
    _add_crd_and_catalogue(commands)
    return parser


def _add_plan_and_render(commands: _Commands) -> None:
    plan = _command(commands, "plan", "say what would run, on which GPU, and why", "plan_command", "run_plan")
    render = _command(commands, "render", "print the manifests of the plan as YAML", "plan_command", "run_render")
    for parser in (plan, render):
        _add_file(parser)
    plan.add_argument(
        "--what-if", action="append", default=[], type=parse_change, metavar="KEY=VALUE,...", help=WHAT_IF_HELP
    )
    plan.add_argument("--gpu", metavar="GPU", help="the same as --what-if gpu=GPU, joined to each --what-if")
    plan.add_argument("--tp", type=positive, metavar="N", help="the same as --what-if tp=N, joined to each --what-if")
    _add_simulation(plan)
    _add_output(plan)
    render.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")


def _add_choices(commands: _Commands) -> None:
    """Add the commands that show what else could be chosen, and put it on a page."""
    compare = _command(
        commands, "compare", "show what two files ask for, and what comes out, side by side", "compare_command",
        "run_compare",
    )  # fmt: skip
    for side in ("left", "right"):
        compare.add_argument(side, metavar="FILE", help=FILE_HELP)
    _add_source(compare)
    _add_simulation(compare)
    _add_output(compare)
    sweep = _command(
        commands, "sweep", "show which GPUs and caps on images are worth their price",
        "sweep_command", "run_sweep",
    )  # fmt: skip
    _add_file(sweep)
    sweep.add_argument(
        "--over", type=parse_over, default=parse_over("max-pixels,gpu"), metavar="KEY[=VALUE,...],...", help=OVER_HELP
    )
    _add_simulation(sweep)
    sweep.add_argument(
        "-o", "--output", choices=("human", "csv", "json", "yaml", "svg"), default="human", help="default: human"
    )
    report = _command(
        commands, "report", "write the plan as one page to show to others", "report_command", "run_report"
    )
    _add_file(report)
    _add_simulation(report)
    report.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the page to write, such as report.html; '-' is stdout"
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help=FILE_HELP)
    _add_source(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inventory", default="catalogue", metavar="SOURCE", help=INVENTORY_HELP)
    parser.add_argument("--model-dir", metavar="DIR", help=MODEL_DIR_HELP)


def _add_simulation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-simulation", dest="simulate", action="store_false", help="closed formulas alone decide: quick, less sure"
    )


def _add_tokens(commands: _Commands) -> None:
    tokens = _command(
        commands, "tokens", "count the tokens of an image by the engine's rules", "tokens_command", "run_tokens"
    )
    add_tokens_arguments(tokens)
    _add_output(tokens)


def _add_memory(commands: _Commands) -> None:
    memory = _command(
        commands, "memory", "say where one GPU's memory goes under given flags", "memory_command", "run_memory"
    )
    add_memory_arguments(memory)
    _add_output(memory)


def _add_explain(commands: _Commands) -> None:
    explain = _command(
        commands,
        "explain",
        "say in words how an object on the cluster is doing",
        "explain_command",
        "run_explain",
    )
    explain.add_argument("name", help="name of a VLMDeployment")
    explain.add_argument("-n", "--namespace", default="default", help="default: default")
    _add_output(explain)


def _add_crd_and_catalogue(commands: _Commands) -> None:
    crd = _command(commands, "crd", "print the CustomResourceDefinition", "catalogue_command", "run_crd")
    crd.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: yaml")
    catalogue = _command(
        commands, "catalogue", "list known models or GPUs and how sure the figures are", "catalogue_command",
        "run_catalogue",
    )  # fmt: skip
    catalogue.add_argument("what", choices=("models", "gpus"))
    _add_output(catalogue)


def _command(
    commands: _Commands,
    name: str,
    summary: str,
    module: str,
    function: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.set_defaults(module=module, function=function)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("human", "json", "yaml"), default="human", help="default: human")


def _unwritten(error: OSError) -> int:
    """Say why the answer did not get out; a reader that has gone is no news."""
    _drop_stdout()
    if isinstance(error, BrokenPipeError):
        return EXIT_CLOSED_PIPE
    output.say(f"vlmctl: the answer cannot be written: {error.strerror or error}")
    return EXIT_WRONG_INPUT


def _drop_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit stays silent after the reader has gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


if __name__ == "__main__":
    run()
