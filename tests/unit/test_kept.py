"""Answers kept by identity of the first argument and value of the others."""

from dataclasses import dataclass

from vlm_operator.sizing.kept import kept


@dataclass(frozen=True)
class Shape:
    layers: tuple[int, ...]


asked: list[tuple[Shape, int, bool]] = []


@kept
def measure(shape: Shape, size: int, *, whole: bool = False) -> int:
    """Return the layers of one rank."""
    asked.append((shape, size, whole))
    return sum(shape.layers) // (1 if whole else size)


def test_a_question_is_answered_once_for_the_same_object() -> None:
    asked.clear()
    shape = Shape((4, 8))
    assert [measure(shape, 2), measure(shape, 2), measure(shape, 4), measure(shape, 2, whole=True)] == [6, 6, 3, 12]
    assert asked == [(shape, 2, False), (shape, 4, False), (shape, 2, True)]


def test_an_equal_object_is_another_one() -> None:
    asked.clear()
    assert measure(Shape((4, 8)), 2) == measure(Shape((4, 8)), 2)
    assert len(asked) == 2


def test_many_short_lived_objects_never_get_the_answer_of_one_that_is_gone() -> None:
    for layers in range(5000):
        assert measure(Shape((layers,)), 1) == layers


def test_the_function_keeps_its_name_and_its_words() -> None:
    assert (measure.__name__, measure.__doc__) == ("measure", "Return the layers of one rank.")
