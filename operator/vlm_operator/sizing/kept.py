"""Answers that are kept for what never changes and is told apart by identity: shapes and calibrations.

Their values are too large to be hashed for every candidate that is judged.
"""

from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

_T = TypeVar("_T")
_S = TypeVar("_S")
_H = TypeVar("_H", bound=Hashable)
_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_ANSWERS: Final = 4096
"""Of one function, all forgotten when there are more; a plan with every layout asks for some hundreds."""


def kept(function: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[_T, _P], _R]:
    """Return ``function``, pure in an immutable first argument, with its answers kept; the others are hashed."""
    # What was asked stands beside its answer: while it lives, nothing else has its identity.
    answers: dict[Hashable, tuple[_T, _R]] = {}

    def answer(first: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        key = (id(first), args, *kwargs.items()) if kwargs else (id(first), args)
        found = answers.get(key)
        if found is None:
            found = first, function(first, *args, **kwargs)
            _keep(answers, key, found)
        return found[1]

    return update_wrapper(answer, function)


def kept_for_two(function: Callable[[_T, _S, _H], _R]) -> Callable[[_T, _S, _H], _R]:
    """Return ``function``, pure in two immutable arguments, with its answers kept; the third is hashed."""
    answers: dict[Hashable, tuple[_T, _S, _R]] = {}

    def answer(first: _T, second: _S, third: _H, /) -> _R:
        key = id(first), id(second), third
        found = answers.get(key)
        if found is None:
            found = first, second, function(first, second, third)
            _keep(answers, key, found)
        return found[2]

    return update_wrapper(answer, function)


def _keep(answers: dict[Hashable, Any], key: Hashable, found: object) -> None:
    if len(answers) >= MOST_ANSWERS:
        answers.clear()
    answers[key] = found
