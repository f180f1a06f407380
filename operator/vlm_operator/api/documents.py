"""YAML text -> plain documents with the line of every path. Duplicate keys and endless aliases are problems.

Called by ``validate``. Timestamps stay text, as they do in kubectl.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from vlm_operator.errors import InputError, Problem

MAX_NODES: Final = 50_000
"""Values in one file, aliases expanded; the largest valid resource has a few thousand."""
MAX_DEPTH: Final = 50
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file. ``kind`` is its YAML kind in words; ``lines`` maps paths to line numbers."""

    value: Any
    line: int
    kind: str
    lines: Mapping[str, int]
    problems: tuple[Problem, ...]


class _Loader(yaml.SafeLoader):
    """A safe loader that leaves timestamps alone."""


_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] != _TIMESTAMP]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, source: str) -> list[Document]:
    """Return the documents of ``text`` without the empty ones; there is at least one.

    Raises:
        InputError: It is not YAML, it is empty, or it is too large.
    """
    loader = None
    try:
        loader = _Loader(text)
        documents = []
        while loader.check_node():
            node = loader.get_node()
            if node is not None and node.tag != "tag:yaml.org,2002:null":
                documents.append(_read(loader, node))
    except yaml.YAMLError as error:
        raise _refuse(*_yaml_words(error, source)) from None
    except RecursionError:
        raise _refuse(f"{source} is nested too deeply to be a resource", None) from None
    finally:
        if loader is not None:
            loader.dispose()
    if not documents:
        raise _refuse(f"{source} is empty; write a resource into it", None)
    return documents


def _refuse(message: str, line: int | None) -> InputError:
    return InputError([Problem(path="", message=message, line=line)])


def _yaml_words(error: yaml.YAMLError, source: str) -> tuple[str, int | None]:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return f"{source} is not YAML: {error.problem or error.context}", mark.line + 1 if mark else None
    return f"{source} is not YAML: {str(error).splitlines()[0]}", None


def _read(loader: _Loader, node: yaml.Node) -> Document:
    walk = _Walk(loader=loader)
    value = walk.read(node, "", 0)
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "plain text"
    else:
        kind = "an object"
    return Document(value=value, line=line, kind=kind, lines=walk.lines, problems=tuple(walk.problems))


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Builds plain values from nodes and remembers lines and problems on the way."""

    loader: _Loader
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def read(self, node: yaml.Node, path: str, depth: int) -> Any:
        """Return the value of ``node``, which lies at ``path``."""
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise _refuse("the file holds too many or too deeply nested values", node.start_mark.line + 1)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)]
        return self._read_scalar(node)

    def _read_scalar(self, node: yaml.Node) -> Any:
        try:
            return self.loader.construct_object(node)
        except ValueError as error:
            mark = node.start_mark
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=mark) from None

    def _read_mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        self.loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        own_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key, str):
                self.problems.append(Problem(path=path, message="a field's name must be text", line=line))
                continue
            child = f"{path}.{key}" if path else key
            if key in result:
                message = f"{key} appears twice, first in line {own_lines[key]}; keep one"
                self.problems.append(Problem(path=child, message=message, line=line))
                continue
            own_lines[key] = line
            self.lines[child] = line
            result[key] = self.read(value_node, child, depth + 1)
        return result
