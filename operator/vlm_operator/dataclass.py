"""``dataclass`` as the standard library has it, for frozen classes with slots, built in a third of the time.

Before Python 3.13 the standard library compiles every method of every class by itself; for the hundred and more classes
of a plan that was a seventh of all the time of ``vlmctl plan``. Here fields and slots are still the standard library's
own, what plans call often is compiled at once, and the rest is shared. ``replace``, ``fields``, ``asdict`` and type
checkers know no difference. Not for ``order``, ``InitVar`` or ``field(init=False)``.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["dataclass"]

_Class = TypeVar("_Class", bound=type)
_Field = dataclasses.Field[Any]

_INIT: Final = """\
def __init__({parameters}):
    {lines}
"""
_COMPARISON: Final = """\
def __eq__(self, other):
    return ({0}) == ({1}) if other.__class__ is self.__class__ else NotImplemented
def __hash__(self):
    return hash(({0}))
"""


def _dataclass(*, frozen: bool, slots: bool, kw_only: bool = False, eq: bool = True) -> Callable[[_Class], _Class]:
    if not (frozen and slots):
        raise TypeError("only for frozen classes with slots; for others take the standard library's dataclass")
    return partial(_build, kw_only=kw_only, eq=eq)


def _build(cls: Any, *, kw_only: bool, eq: bool) -> Any:
    """Return ``cls`` with slots and the methods of a frozen dataclass that it does not define itself."""
    own = {name for name, value in vars(cls).items() if value is not None}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    fields = dataclasses.fields(made)
    shown = [field.name for field in fields if field.repr]
    methods = {**_compiled(made, fields, kw_only=kw_only, eq=eq), **_SHARED, "__repr__": _repr_of(shown)}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _compiled(made: Any, fields: Sequence[_Field], *, kw_only: bool, eq: bool) -> dict[str, Callable[..., Any]]:
    """Return the methods that a plan calls a thousand times; ``__init__`` fills slots that refuse to be set."""
    names: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters, lines = ["self", "*"] if kw_only and fields else ["self"], ["pass"]
    for field in fields:
        name, value = field.name, field.name
        names[f"__set_{name}"] = getattr(made, name).__set__
        if field.default_factory is not dataclasses.MISSING:
            names[f"__make_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"__make_{name}() if {name} is MISSING else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"__default_{name}"] = field.default
            parameters.append(f"{name}=__default_{name}")
        else:
            parameters.append(name)
        lines.append(f"__set_{name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    source = _INIT.format(parameters=", ".join(parameters), lines="; ".join(lines))
    if eq:
        compared = [field.name for field in fields if field.compare]
        source += _COMPARISON.format(*("".join(f"{of}.{name}, " for name in compared) for of in ("self", "other")))
    methods: dict[str, Callable[..., Any]] = {}
    exec(source, names, methods)  # noqa: S102 - as the standard library does
    methods["__init__"].__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    for name, method in methods.items():
        method.__qualname__ = f"{made.__qualname__}.{name}"
    return methods


def _repr_of(shown: Sequence[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return __repr__


def _refuse_setting(_self: Any, name: str, _value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED: Final[Mapping[str, Callable[..., Any]]] = {
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
