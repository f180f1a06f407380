"""``spec.engine.extraArgs`` -> flags that a plan obeys and arguments that are passed on, or every problem with them.

The arguments are read as the engine's own parser reads them; then each flag goes the way of its rule in the
catalogue (``extra_args.yaml``). What is passed on is written anew, once per flag, so that nothing is rendered twice.
Called by ``planning``.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from vlm_operator.catalogue.load import find_engine, flag_rules
from vlm_operator.catalogue.types import EngineCard, EngineFlag
from vlm_operator.engine.command_line import MODEL, CommandLineRefusal, parse_command_line
from vlm_operator.engine.config import check_settings
from vlm_operator.errors import InputError, Problem
from vlm_operator.sizing.workload import AskedFlags

PATH: Final = "spec.engine.extraArgs"
_EXPANDED: Final = re.compile(r"\$[$(]")
_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")
_AUTO: Final = -1
_SECRETS: Final = frozenset({"api_key", "hf_token"})
"""Flags whose values are not repeated in messages."""
_KINDS: Final[Mapping[str, str]] = {
    "switch": "no value",
    "int": "a whole number",
    "int with suffix": "a whole number such as 8192, 32k or 32K",
    "int with suffix or auto": "a whole number such as 8192, 32k or 32K",
    "float": "a number",
    "str": "a text",
    "json": "JSON",
    "object": "a JSON object",
    "json or str": "a text or JSON",
}


def read_extra_args(arguments: Sequence[str], version: str) -> AskedFlags:
    """Return what ``arguments`` (entries of the list, as written) ask of a plan for this release of the engine.

    Raises:
        InputError: An entry cannot be used; carries a problem for each, with the index of its entry.
        CatalogueError: The release is not in the catalogue.
    """
    reader = _Reader(find_engine(version), arguments)
    problems = list(reader.find_strange())
    if not problems and arguments:
        values = parse_command_line(arguments, reader.engine)
        if isinstance(values, CommandLineRefusal):
            problems.append(reader.locate(values.message))
        else:
            problems += reader.find_broken(values)
            if not problems:
                return reader.obey(values)
    if problems:
        raise InputError(problems)
    return AskedFlags()


class _Reader:
    """The arguments with the flags that their entries name."""

    def __init__(self, engine: EngineCard, arguments: Sequence[str]) -> None:
        self.engine = engine
        self.arguments = arguments
        self.rules = flag_rules(engine.version)
        self.flags = {flag.dest: flag for flag in engine.flags}
        self.by_name = {name: flag for flag in engine.flags for name in (*flag.names, *flag.negative_names)}

    def find_strange(self) -> Iterator[Problem]:
        """Yield the entries that no parser is needed for: they name no flag, or are no single argument."""
        for index, argument in enumerate(self.arguments):
            message = self._strange(argument)
            if message:
                yield Problem(path=f"{PATH}[{index}]", message=message)

    def _strange(self, argument: str) -> str:
        if not _is_flag(argument):
            return ""
        flag, space, value = argument.partition(" ")
        if space and "=" not in flag and self._candidates(flag):
            return f"{argument} is one argument for the engine; write {flag}={value}, or two entries"
        if self._candidates(argument):
            return ""
        name = _name(argument)
        return f"{name} is no flag of vLLM {self.engine.version}; {_near_flag(name, self.by_name)}"

    def _candidates(self, argument: str) -> list[EngineFlag]:
        """Return the flags that an entry may mean: the engine's parser takes beginnings of names."""
        name = _name(argument)
        if name in self.by_name:
            return [self.by_name[name]]
        if re.match(r"-O", argument):
            return [self.by_name["--optimization-level"]]
        if not name.startswith("--"):
            return []
        found = {flag.dest: flag for known, flag in self.by_name.items() if known.startswith(name)}
        return list(found.values())

    def locate(self, message: str) -> Problem:
        """Return the parser's message with the entry that it is about, where it names one."""
        words = message.removeprefix("argument ")
        named = re.match(r"(?:ambiguous option: |unrecognized arguments: )?([^\s:=]+)", words)
        names = named[1].split("/") if named else []
        dests = {self.by_name[name].dest for name in names if name in self.by_name}
        for index, argument in enumerate(self.arguments):
            found = {flag.dest for flag in self._candidates(argument)} if _is_flag(argument) else set()
            if dests & found or _name(argument) in names:
                return Problem(path=f"{PATH}[{index}]", message=f"{words}; {self._next_step(words, dests)}")
        return Problem(path=PATH, message=f"{words}; {self._next_step(words, dests)}")

    def _next_step(self, words: str, dests: set[str]) -> str:
        if words.startswith("ambiguous"):
            return "write the whole name"
        kinds = {_KINDS[self.flags[dest].kind] for dest in dests}
        return f"it takes {kinds.pop()}" if kinds else "every entry is a flag, or the value of the flag before it"

    def find_broken(self, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield what the engine, or the rule of a flag, refuses about parsed ``values``."""
        if values[MODEL] is not None:
            message = f"{values[MODEL]} is taken for the model; set spec.model.id, or write the value behind its flag"
            yield Problem(path=self._path_of_entry(values[MODEL]), message=message)
        given = {dest: value for dest, value in values.items() if dest != MODEL}
        for dest, value in given.items():
            message = self._refusal(dest, value)
            if message:
                yield Problem(path=self._path(dest), message=message)
        for dest, message in check_settings(given, self.engine):
            yield Problem(path=self._path(dest), message=message)

    def _refusal(self, dest: str, value: Any) -> str:
        rule, flag = self.rules[dest], self.flags[dest]
        name = flag.names[0]
        shown = name if dest in _SECRETS else " ".join(_arguments(flag, value))
        if rule.verdict == "refused":
            same = value in rule.unless if rule.unless else value == flag.default
            return "" if same else f"{shown} is not taken: {rule.why}; {rule.instead}"
        if _EXPANDED.search(shown):
            return f"{name}: Kubernetes replaces $( and $$, so what the engine gets is not known; write the value"
        if dest == "max_model_len" and value == _AUTO:
            return f"{name} auto takes what happens to fit; leave it out: the plan sets what the largest request needs"
        if dest == "gpu_memory_utilization" and abs(value * 100 - round(value * 100)) > 1e-6:
            lower = int(value * 100) / 100
            return f"{shown}: shares are planned in whole per cent; write {lower:.2f} or {lower + 0.01:.2f}"
        return ""

    def obey(self, values: Mapping[str, Any]) -> AskedFlags:
        """Return the planned flags by name, and the passed ones as arguments."""
        planned = {dest: value for dest, value in values.items() if self._verdict(dest) == "planned"}
        share = planned.pop("gpu_memory_utilization", None)
        passed = (_arguments(self.flags[dest], values[dest]) for dest in values if self._verdict(dest) == "passed")
        return AskedFlags(
            **planned,
            utilization_percent=None if share is None else round(share * 100),
            passed=tuple(argument for arguments in passed for argument in arguments),
        )

    def _verdict(self, dest: str) -> str:
        return "" if dest == MODEL else self.rules[dest].verdict

    def _path(self, dest: str) -> str:
        """Return the path of the last entry that names the flag: it is the one that counts."""
        for index in reversed(range(len(self.arguments))):
            argument = self.arguments[index]
            if _is_flag(argument) and dest in {flag.dest for flag in self._candidates(argument)}:
                return f"{PATH}[{index}]"
        return PATH

    def _path_of_entry(self, text: str) -> str:
        return f"{PATH}[{self.arguments.index(text)}]" if text in self.arguments else PATH


def _is_flag(argument: str) -> bool:
    return argument.startswith("-") and argument != "-" and not _NUMBER.match(argument)


def _name(argument: str) -> str:
    """Return the flag of an entry as the engine's parser reads it: no value, no dotted part, dashes for underscores."""
    name = argument.partition("=")[0].partition(".")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _near_flag(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [other for other in known if other.startswith("--")], n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else "all flags: vllm serve --help=all"


def _arguments(flag: EngineFlag, value: Any) -> tuple[str, ...]:
    """Return the arguments that give ``value`` to ``flag``, in one form whatever the user wrote."""
    if flag.kind == "switch":
        return (flag.names[0] if value else flag.negative_names[0],)
    name = flag.names[0]
    if flag.nargs == "+":
        return (name, *map(_text, value))
    return tuple(f"{name}={_text(item)}" for item in (value if flag.repeatable else (value,)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
