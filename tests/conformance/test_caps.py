"""The lever that a family offers against the verdicts on its settings: only what the engine honours is offered."""

import pytest

from tests.conformance.families import Group, as_parameters, read_groups
from tests.conformance.vectors import vectors_folder
from vlm_operator.sizing.tokens import Cap, ImageRule, ServerSettings
from vlm_operator.sizing.tokens.reading import dotted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    groups = read_groups(vectors_folder(metafunc.config), "overrides.jsonl")
    metafunc.parametrize("group", as_parameters([group for group in groups if isinstance(group.shipped(), ImageRule)]))


def names(settings: ServerSettings) -> set[str]:
    return {*dotted(settings.mm_processor_kwargs), *dotted(settings.hf_overrides, "hf_overrides.")}


def shipped(group: Group) -> tuple[ImageRule, Cap | None]:
    rule = group.shipped()
    assert isinstance(rule, ImageRule)
    return rule, rule.cap


def test_a_setting_that_breaks_or_does_nothing_is_no_cap(group: Group) -> None:
    rule, cap = shipped(group)
    (row,) = group.rows
    if cap is None or not cap.tighter or row["verdict"] == "honoured":
        return
    assert names(rule.with_cap(cap.tighter[0]).settings) != names(group.settings), row["verdict"]


def test_a_family_with_an_honoured_setting_that_lowers_the_maximum_has_a_cap(group: Group) -> None:
    _, cap = shipped(group)
    (row,) = group.rows
    most, before = row.get("max_image_tokens"), row.get("max_image_tokens_default")
    if row["verdict"] == "honoured" and most is not None and before is not None and most < before:
        assert cap is not None
        assert cap.tighter
