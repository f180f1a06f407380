"""Answers that are kept for what never changes and is told apart by identity: shapes and calibrations.

Their values are too large to be hashed for every candidate that is judged.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, update_wrapper
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

_T = TypeVar("_T")
_S = TypeVar("_S")
_H = TypeVar("_H", bound=Hashable)
_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_ANSWERS: Final = 2048
"""Of one function; the catalogue's shapes with every layout of a plan take about half of them."""


class _Same:
    """Holds a value so that it stays alive, and equals what holds the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def kept(function: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[_T, _P], _R]:
    """Return ``function``, pure in an immutable first argument, with its answers kept; the others are hashed."""

    def ask(same: _Same, *args: Any, **kwargs: Any) -> _R:
        return function(same.value, *args, **kwargs)

    remembered: Callable[..., _R] = lru_cache(maxsize=MOST_ANSWERS)(ask)

    def answer(first: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return remembered(_Same(first), *args, **kwargs)

    return update_wrapper(answer, function)


def kept_for_two(function: Callable[[_T, _S, _H], _R]) -> Callable[[_T, _S, _H], _R]:
    """Return ``function``, pure in two immutable arguments, with its answers kept; the third is hashed."""

    def ask(first: _Same, second: _Same, third: _H) -> _R:
        return function(first.value, second.value, third)

    remembered: Callable[..., _R] = lru_cache(maxsize=MOST_ANSWERS)(ask)

    def answer(first: _T, second: _S, third: _H, /) -> _R:
        return remembered(_Same(first), _Same(second), third)

    return update_wrapper(answer, function)
