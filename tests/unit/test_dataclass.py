"""The product's ``dataclass`` behaves as the standard library's does."""

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vlm_operator
from vlm_operator.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """With every kind of field that the product has."""

    number: int
    word: str = "none"
    items: list[int] = dataclasses.field(default_factory=list, compare=False)
    hidden: str = dataclasses.field(default="", repr=False)
    shared: ClassVar[int] = 3

    @property
    def twice(self) -> int:
        return self.number * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Base):
    """A field more, and a check of its own."""

    share: float = 0.5

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError("more than the whole")


@dataclass(frozen=True, slots=True)
class Placed:
    """Fields by place."""

    left: int
    right: int = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alone:
    """Equal to nothing but itself."""

    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Worded:
    """Says itself what it is and whom it equals."""

    number: int = 1

    def __repr__(self) -> str:
        return "one"

    def __eq__(self, other: object) -> bool:
        return other == 1

    def __hash__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Without fields."""


def standard(made: type, *, kw_only: bool = True) -> Callable[..., Any]:
    """Return the class of the standard library with the same fields."""
    fields = [
        (one.name, one.type, dataclasses.field(default_factory=one.default_factory, compare=one.compare, repr=one.repr))
        if one.default_factory is not dataclasses.MISSING
        else (one.name, one.type, dataclasses.field(default=one.default, compare=one.compare, repr=one.repr))
        for one in dataclasses.fields(made)
    ]
    return dataclasses.make_dataclass(made.__name__, fields, frozen=True, slots=True, kw_only=kw_only)


numbers = st.integers(0, 2)
words = st.sampled_from(["", "none", "other"])
values = st.fixed_dictionaries(
    {"number": numbers},
    optional={"word": words, "items": st.lists(numbers, max_size=2), "hidden": words, "share": st.floats(0, 1)},
)


@given(values, values)
def test_equality_hash_and_words_are_those_of_the_standard_library(one: dict[str, Any], other: dict[str, Any]) -> None:
    theirs = standard(Derived)
    left, right = Derived(**one), Derived(**other)
    assert (left == right) == (theirs(**one) == theirs(**other))
    assert hash(left) == hash(theirs(**one))
    assert repr(left) == repr(theirs(**one))
    assert dataclasses.asdict(left) == dataclasses.asdict(theirs(**one))


@given(values)
def test_copies_and_changed_copies_are_what_they_say(one: dict[str, Any]) -> None:
    made = Derived(**one)
    assert copy.deepcopy(made) == copy.copy(made) == pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own
    assert dataclasses.replace(made, number=7) == Derived(**{**one, "number": 7})


def test_a_list_that_nobody_gives_is_made_anew_each_time() -> None:
    assert Base(number=1).items is not Base(number=1).items


@pytest.mark.parametrize("made", [Base, Derived, Placed, Alone, Empty])
def test_a_constructor_has_the_parameters_of_the_standard_library(made: type) -> None:
    ours = list(inspect.signature(made).parameters.values())
    theirs = list(inspect.signature(standard(made, kw_only=made is not Placed)).parameters.values())
    assert [(one.name, one.kind, one.annotation) for one in ours] == [
        (one.name, one.kind, one.annotation) for one in theirs
    ]


def test_no_field_is_set_or_deleted() -> None:
    made: Any = Derived(number=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'share'"):
        made.share = 0.25
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'word'"):
        del made.word
    assert not hasattr(made, "__dict__")


def test_what_a_class_checks_and_defines_itself_stays() -> None:
    with pytest.raises(ValueError, match="more than the whole"):
        Derived(number=1, share=2.0)
    assert Derived(number=2).twice == 4
    assert repr(Worded()) == "one"
    assert Worded() == 1
    assert hash(Worded()) == 1


def test_classes_of_other_names_are_not_equal_and_empty_ones_are() -> None:
    assert Base(number=1) != Derived(number=1)
    assert Alone() != Alone()
    assert Empty() == Empty()
    assert Placed(1, 3) != Placed(1)


def test_a_missing_value_is_called_by_the_name_of_the_class() -> None:
    with pytest.raises(TypeError, match=r"Derived\.__init__\(\) missing 1 required keyword-only argument: 'number'"):
        Derived()  # type: ignore[call-arg]


def test_a_class_that_changes_is_refused() -> None:
    with pytest.raises(TypeError, match="only for frozen classes with slots"):

        @dataclass(frozen=False, slots=True)
        class Changing:
            number: int


def test_the_whole_product_takes_it() -> None:
    taken = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    files = Path(vlm_operator.__file__).parent.rglob("*.py")
    others = {file.name for file in files if taken.search(file.read_text())} - {"dataclass.py"}
    assert not others
