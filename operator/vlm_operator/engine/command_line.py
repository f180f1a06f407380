"""Reads a command line of ``vllm serve`` the way the engine's own parser does.

Python's ``argparse`` with the flags of the catalogue, after the rewriting that the engine does first: underscores in
names become dashes, ``-O3`` is the optimization level, dotted names make one JSON object, ``--model`` moves in front
(``utils/argparse_utils.py``). Called for what is rendered, and for arguments that users write themselves.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NoReturn

from vlm_operator.catalogue.types import EngineCard, EngineFlag

MODEL: Final = "model_tag"
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLineRefusal:
    """Why the engine's parser would turn a command line away, in its words or ours."""

    message: str


class _ParserError(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _ParserError(message)


def parse_command_line(arguments: Sequence[str], engine: EngineCard) -> Mapping[str, Any] | CommandLineRefusal:
    """Return the values of the flags that ``arguments`` (what follows ``vllm serve``) give, by their dest.

    The model is ``model_tag``, None where none is named. Flags at their default are left out.
    """
    parser = _build_parser(engine)
    try:
        values = vars(parser.parse_args(_rewrite(arguments)))
    except _ParserError as error:
        return CommandLineRefusal(message=str(error))
    given = {dest: value for dest, value in values.items() if value is not None and dest != MODEL}
    return {MODEL: values[MODEL], **given}


@cache
def _build_parser(engine: EngineCard) -> argparse.ArgumentParser:
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument(MODEL, nargs="?", default=None)
    for flag in engine.flags:
        _add_flag(parser, flag)
    return parser


def _add_flag(parser: argparse.ArgumentParser, flag: EngineFlag) -> None:
    if flag.kind == "switch":
        positive = [name for name in flag.names if name not in flag.negative_names]
        parser.add_argument(*positive, dest=flag.dest, action="store_const", const=True)
        if flag.negative_names:
            parser.add_argument(*flag.negative_names, dest=flag.dest, action="store_const", const=False)
        return
    parser.add_argument(
        *flag.names,
        dest=flag.dest,
        type=_converter(flag),
        nargs=flag.nargs,
        choices=((*flag.choices, None) if flag.accepts_none else flag.choices) if flag.choices else None,
        action="append" if flag.repeatable else "store",
    )


def _converter(flag: EngineFlag) -> Callable[[str], Any]:
    convert = _CONVERTERS[flag.kind]

    def read(text: str) -> Any:
        if flag.accepts_none and text in ("", "None"):
            return None
        return convert(text)

    # argparse puts this name into its message.
    read.__name__ = flag.kind
    return read


def _with_suffix(text: str) -> int:
    """Read 32k as 32,000 and 32K as 32,768; a fraction only before a decimal suffix."""
    match = _SUFFIXED.fullmatch(text)
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    try:
        return int(number) * _BINARY[suffix]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"decimals are not allowed with binary suffixes like {suffix}; {number}{suffix.lower()} would do"
        ) from None


def _with_suffix_or_auto(text: str) -> int:
    return -1 if text.lower() in ("auto", "-1") else _with_suffix(text)


def _object(text: str) -> Any:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is not a JSON object")
    return value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_CONVERTERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": int,
    "int with suffix": _with_suffix,
    "int with suffix or auto": _with_suffix_or_auto,
    "float": float,
    "str": str,
    "json": json.loads,
    "object": _object,
    "json or str": _json_or_text,
}


def _rewrite(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as the engine's parser rewrites them before it parses."""
    plain: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if not argument.startswith("-") or argument == "--":
            plain.append(argument)
        elif "." in name:
            if not equals and not waiting:
                raise _ParserError(f"argument {name}: expected one argument")
            _put(objects, name, value if equals else waiting.pop(0))
        elif re.fullmatch(r"-O\d+|-O=.*", argument):
            plain += ["--optimization-level", argument.removeprefix("-O").removeprefix("=")]
        elif argument == "-O":
            plain.append("--optimization-level")
        elif name.startswith("--"):
            plain.append(name.replace("_", "-") + equals + value)
        else:
            plain.append(argument)
    plain += [part for name, value in objects.items() for part in (name, json.dumps(value))]
    return _move_model(plain)


def _put(objects: dict[str, dict[str, Any]], dotted: str, text: str) -> None:
    """Put the value of ``--flag.key.key`` into the object of ``--flag``; ``key+`` appends to a list."""
    name, *path = dotted.split(".")
    if not name.strip("-0123456789"):
        raise _ParserError(f"{dotted} is taken for a flag with a dotted name, and there is none")
    target = objects.setdefault(name.replace("_", "-"), {})
    for key in path[:-1]:
        target = target.setdefault(key, {})
    last = path[-1]
    if last.endswith("+"):
        target.setdefault(last[:-1], []).extend(_dotted_value(part) for part in text.split(","))
    else:
        target[last] = _dotted_value(text)


def _dotted_value(text: str) -> Any:
    """Read a dotted value as JSON, else as a number with a suffix, else as text."""
    for read in (json.loads, _with_suffix):
        try:
            return read(text)
        except (ValueError, argparse.ArgumentTypeError):
            continue
    return text


def _move_model(arguments: list[str]) -> list[str]:
    """Return the arguments with the value of a deprecated ``--model`` in front, as the model."""
    for index, argument in enumerate(arguments):
        if argument.startswith("--model="):
            return [argument.partition("=")[2], *arguments[:index], *arguments[index + 1 :]]
        if argument == "--model" and index + 1 < len(arguments):
            return [arguments[index + 1], *arguments[:index], *arguments[index + 2 :]]
    return arguments
