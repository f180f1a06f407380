"""Pydantic's findings in the words of the contract: where, which value, which limit, what to write instead.

Called by ``validate``. A finding becomes one ``Problem`` per broken rule; lines come from the caller.
"""

import difflib
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from vlm_operator.api.base import BROKEN_RULES
from vlm_operator.api.descriptions import field_descriptions
from vlm_operator.errors import Problem

Location = Sequence[int | str]
_LONGEST_VALUE: Final = 60
_KINDS: Final = {
    "bool_type": "true or false; write one of them without quotes",
    "int_type": "a whole number; write digits without quotes",
    "int_from_float": "a whole number; round it",
    "string_type": "text; put quotes around it",
    "model_type": "an object; indent its fields below it",
    "model_attributes_type": "an object; indent its fields below it",
    "dict_type": "an object; indent its entries below it",
    "tuple_type": "a list; start each entry with a hyphen",
}

_WORDS: Final = {
    "missing": "is required; {description}",
    "greater_than_equal": "{value} is too small; write {ge} or more",
    "less_than_equal": "{value} is too large; write {le} or less",
    "literal_error": "{value} is not known; write {expected}",
    "string_pattern_mismatch": "{value} does not match {pattern}; {description}",
    "string_too_long": "has {length} characters; at most {max_length} are allowed",
    "string_too_short": "is empty; {description}",
    "too_long": "has {length} entries; at most {max_length} are allowed",
    "too_short": "has no entries; write at least {min_length}, or leave the field out",
}


def explain(details: ErrorDetails, model: type[BaseModel], root: str) -> list[Problem]:
    """Return the problems of one finding about ``model``, which lies at the path ``root``."""
    path = root + format_location(details["loc"])
    if details["type"] == BROKEN_RULES:
        rules: Iterable[tuple[str, str]] = details["ctx"]["rules"]
        return [Problem(path=f"{path}.{field}" if field else path, message=text) for field, text in rules]
    if details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]:
        return []  # the items themselves are wrong, and each has its own finding
    return [Problem(path=path, message=_message(details, model))]


def format_location(location: Location) -> str:
    """Return for example ``.workload.images.sizes[1].width``."""
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location if step != "[key]")
    return "".join(parts)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, or the list of known names where none is near."""
    names = list(known)
    lowered = {other.lower(): other for other in names}
    near = difflib.get_close_matches(name.lower().replace("_", ""), lowered, n=1, cutoff=0.6)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    return f"known here: {', '.join(names)}"


def unknown_field(name: str, model: type[BaseModel]) -> str:
    """Return the message about a field that ``model`` does not have."""
    known = [field.alias or key for key, field in model.model_fields.items()]
    return f"{name} is not a field; {nearest_name(name, known)}"


def _message(details: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, location = details["type"], details["input"], details["loc"]
    if kind == "extra_forbidden":
        return unknown_field(str(location[-1]), model_at(model, location[:-1]))
    if kind in _KINDS:
        return f"{_quote(value)} is not {_KINDS[kind]}"
    if kind in _WORDS:
        values = {
            "value": _quote(value),
            "length": len(value) if hasattr(value, "__len__") else 0,
            "description": _description(model, location),
        }
        return _WORDS[kind].format(**values, **details.get("ctx", {}))
    return details["msg"] if kind == "duplicate" else f"{_quote(value)}: {details['msg']}"


def model_at(model: type[BaseModel], location: Location) -> type[BaseModel]:
    """Return the model of the object at ``location`` below ``model``."""
    for step in location:
        if isinstance(step, str):
            field = _fields(model).get(step)
            nested = _nested_model(field.annotation) if field else None
            model = nested or model
    return model


def _description(model: type[BaseModel], location: Location) -> str:
    """Return the description of the nearest field on the way to ``location`` that has one."""
    names = [index for index, step in enumerate(location) if isinstance(step, str)]
    for index in reversed(names):
        words = field_descriptions(model_at(model, location[:index])).get(str(location[index]))
        if words:
            return words
    return "see kubectl explain"


def _fields(model: type[BaseModel]) -> Mapping[str, Any]:
    return {field.alias or key: field for key, field in model.model_fields.items()}


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an optional, annotated or tuple type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is dict:
        return None
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is not None:
        for argument in typing.get_args(annotation):
            found = _nested_model(argument)
            if found:
                return found
    return None


def _quote(value: Any) -> str:
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Mapping):
        return "an object"
    elif isinstance(value, list | tuple):
        return "a list"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
