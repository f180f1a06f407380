"""Answers many token requests at once: JSON Lines in, JSON Lines out, one answer a line and in order.

A request has ``model``, ``width`` and ``height`` and may have ``mm_processor_kwargs`` and ``other_server_args``
(``hf_overrides``, ``limit_mm_per_prompt``, ``config_format``). A line that cannot be answered gets ``error`` with a
reason and a message; it never stops the lines after it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from vlm_operator.catalogue.types import ModelCard
from vlm_operator.errors import VlmOperatorError
from vlm_operator.sizing.tokens import ImageRule, ImageTokens, ServerSettings, TokenRefusal, bind_rule

_FIELDS: Final = frozenset({"model", "width", "height", "mm_processor_kwargs", "other_server_args"})
_SERVER_ARGS: Final = frozenset({"hf_overrides", "limit_mm_per_prompt", "config_format"})
_MOST_BOUND: Final = 4096
"""Rules kept at a time; a file with more different settings than that binds some again."""

FindModel = Callable[[str], ModelCard]
_Bound = dict[str, ImageRule | TokenRefusal]


class _BadRequestError(Exception):
    """What is wrong with one line, in words."""


def answer_requests(lines: Iterable[str], find_model: FindModel) -> Iterator[str]:
    """Yield one JSON object for each of ``lines``.

    Args:
        lines: Requests, one JSON object a line.
        find_model: Returns the card of a model id and raises an error of the product where there is none.
    """
    bound: _Bound = {}
    for line in lines:
        yield json.dumps(_answer(line, find_model, bound))


def _answer(line: str, find_model: FindModel, bound: _Bound) -> dict[str, Any]:
    try:
        request = _parse(line)
        size = (_read_side(request, "width"), _read_side(request, "height"))
        rule = _find_rule(request, find_model, bound)
    except _BadRequestError as error:
        return _error(TokenRefusal(reason="BadRequest", message=str(error)))
    except RecursionError:
        return _error(TokenRefusal(reason="BadRequest", message="settings nested too deeply; flatten them"))
    if isinstance(rule, TokenRefusal):
        return _error(rule)
    count = rule.count_image(*size)
    if isinstance(count, TokenRefusal):
        return _error(count)
    return _document(rule, count)


def _parse(line: str) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadRequestError(f"not JSON: {error}; write one object a line") from None
    if not isinstance(request, dict):
        raise _BadRequestError(f"a {type(request).__name__}, but a request is an object with model, width and height")
    for key in request:
        if key not in _FIELDS:
            raise _BadRequestError(f"{key} is not a field of a request; the fields are {', '.join(sorted(_FIELDS))}")
    return request


def _read_side(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _BadRequestError(f"{name} is {value!r}, but must be a whole number of pixels")
    return value


def _find_rule(request: Mapping[str, Any], find_model: FindModel, bound: _Bound) -> ImageRule | TokenRefusal:
    kwargs, other = request.get("mm_processor_kwargs"), request.get("other_server_args")
    key = json.dumps([request.get("model"), kwargs, other]) if kwargs or other else str(request.get("model"))
    rule = bound.get(key)
    if rule is None:
        if len(bound) >= _MOST_BOUND:
            bound.clear()
        rule = bound[key] = _bind(request, find_model)
    return rule


def _bind(request: Mapping[str, Any], find_model: FindModel) -> ImageRule | TokenRefusal:
    model_id = request.get("model")
    if not isinstance(model_id, str) or not model_id:
        raise _BadRequestError(f"model is {model_id!r}, but must be the id of a model")
    other = _read_object(request, "other_server_args")
    for key in other:
        if key not in _SERVER_ARGS:
            known = ", ".join(sorted(_SERVER_ARGS))
            raise _BadRequestError(f"other_server_args.{key} is not known to change image tokens; known are {known}")
    config_format = other.get("config_format", "auto")
    if config_format not in ("auto", "mistral"):
        raise _BadRequestError(f"config_format is {config_format!r}, but must be auto or mistral")
    if _read_object(other, "limit_mm_per_prompt").get("image") == 0:
        return TokenRefusal(
            reason="ImagesSwitchedOff",
            message=f"{model_id}: limit_mm_per_prompt.image is 0, so the server takes no image; raise it to 1 or more",
        )
    settings = ServerSettings(
        mm_processor_kwargs=_read_object(request, "mm_processor_kwargs"),
        hf_overrides=_read_object(other, "hf_overrides"),
        config_format=config_format,
    )
    try:
        card = find_model(model_id)
    except VlmOperatorError as error:
        return TokenRefusal(reason="UnknownModel", message=str(error))
    return bind_rule(card.architecture, card.config, card.processor, settings, card.id)


def _read_object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _BadRequestError(f"{name} is {value!r}, but must be an object")
    return value


def _document(rule: ImageRule, count: ImageTokens) -> dict[str, Any]:
    document: dict[str, Any] = {
        "embed_tokens": count.embed_tokens,
        "placeholder_length": count.placeholder_length,
        "prompt_tokens": count.prompt_tokens,
        "vit_patches": count.vit_patches,
        "resized": count.resized,
    }
    if count.tiles is not None:
        document["tiles"] = count.tiles
    if rule.ignored_settings:
        document["ignored_settings"] = rule.ignored_settings
    return document


def _error(refusal: TokenRefusal) -> dict[str, Any]:
    return {"error": {"reason": refusal.reason, "message": refusal.message}}
