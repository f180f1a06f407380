"""Documents -> resources. The only way from what a user wrote, or the API server holds, to a spec.

``parse_resource`` takes one document; ``load_resources`` takes the text of a YAML file. Both raise
``InputError`` with every problem found. Called by ``cli`` and ``controller``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from vlm_operator.api import names
from vlm_operator.api.documents import Document, read_documents
from vlm_operator.api.explain import explain, nearest_name
from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.errors import InputError, Problem

_TOP_LEVEL: Final = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A VLMDeployment: its identity and its spec. ``namespace`` and ``uid`` are empty where not written."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: VLMDeploymentSpec


def parse_resource(document: Mapping[str, Any], lines: Mapping[str, int] | None = None) -> Resource:
    """Return the resource in ``document``; ``lines`` maps paths such as ``spec.model.id`` to line numbers.

    Raises:
        InputError: It is not a valid VLMDeployment; carries every problem.
    """
    problems = [*_check_header(document), *_check_metadata(document.get("metadata"))]
    spec = _parse_spec(document.get("spec"), problems)
    if problems or spec is None:
        raise InputError([_with_line(problem, lines or {}) for problem in problems])
    metadata = document["metadata"]
    return Resource(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "",
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        labels=dict(metadata.get("labels") or {}),
        spec=spec,
    )


def load_resources(text: str, source: str) -> list[Resource]:
    """Return every resource in the YAML ``text``; ``source`` is how messages call it.

    Raises:
        InputError: The text is no YAML, holds no object or one that is not valid; carries every problem.
    """
    resources: list[Resource] = []
    problems: list[Problem] = []
    for document in read_documents(text, source):
        try:
            resources.append(_load(document, source))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return resources


def _load(document: Document, source: str) -> Resource:
    if not isinstance(document.value, Mapping):
        message = f"{source} holds {document.kind} where a {names.KIND} is expected; start with apiVersion and kind"
        raise InputError([Problem(path="", message=message, line=document.line)])
    if document.problems:
        raise InputError(document.problems)
    return parse_resource(document.value, document.lines)


def _check_header(document: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for key, expected in (("apiVersion", names.API_VERSION), ("kind", names.KIND)):
        found = document.get(key)
        if found is None:
            problems.append(Problem(path=key, message=f"is required; write {key}: {expected}"))
        elif found != expected:
            problems.append(Problem(path=key, message=f'"{found}" is not known; write {key}: {expected}'))
    problems += [
        Problem(path=str(key), message=f"{key} is not a field; {nearest_name(str(key), _TOP_LEVEL)}")
        for key in document
        if key not in _TOP_LEVEL
    ]
    return problems


def _check_metadata(metadata: Any) -> list[Problem]:
    if not isinstance(metadata, Mapping):
        return [Problem(path="metadata", message="must be an object with a name")]
    problems = []
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        problems.append(Problem(path="metadata.name", message="is required, as text; name the deployment"))
    elif len(name) > names.MAX_NAME_LENGTH or not re.fullmatch(names.NAME_PATTERN, name):
        problems.append(Problem(path="metadata.name", message=f'"{name}": {names.NAME_MESSAGE}'))
    if not isinstance(metadata.get("namespace") or "", str):
        problems.append(Problem(path="metadata.namespace", message="is not text; put quotes around it"))
    labels = metadata.get("labels") or {}
    if not isinstance(labels, Mapping) or not all(isinstance(value, str) for value in labels.values()):
        problems.append(Problem(path="metadata.labels", message="must be an object with text values"))
    return problems


def _parse_spec(spec: Any, problems: list[Problem]) -> VLMDeploymentSpec | None:
    """Return the spec, or None with what is wrong added to ``problems``."""
    if not isinstance(spec, Mapping):
        problems.append(Problem(path="spec", message="must be an object with model and workload"))
        return None
    empty = list(_find_empty(spec, "spec"))
    problems += [Problem(path=path, message="has no value; write one, or leave the field out") for path in empty]
    try:
        text = json.dumps(spec, default=_as_json)
        return VLMDeploymentSpec.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            found = explain(details, VLMDeploymentSpec, "spec")
            problems += [problem for problem in found if problem.path not in empty]
        return None


def _as_json(value: Any) -> Any:
    """Return what JSON holds for a mapping that is no dict, and the text of anything else, such as bytes."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _find_empty(value: Any, path: str) -> Iterator[str]:
    """Yield the paths without a value: the API server refuses null, as nothing here is nullable."""
    if value is None:
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find_empty(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_empty(item, f"{path}[{index}]")


def _with_line(problem: Problem, lines: Mapping[str, int]) -> Problem:
    """Return ``problem`` with the line of its path, or of the nearest object around it."""
    path = problem.path
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return Problem(path=problem.path, message=problem.message, line=lines.get(path, problem.line))
