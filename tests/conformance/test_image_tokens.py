"""Image tokens, maxima and overrides against what the engine's own code answered."""

from typing import Any

import pytest

from tests.conformance.families import Group, as_parameters, read_groups
from tests.conformance.vectors import vectors_folder
from vlm_operator.sizing.tokens import ImageRule, ImageTokens, TokenRefusal

FILES = {
    "tokens_group": "image_tokens.jsonl",
    "maximum_group": "max_tokens.jsonl",
    "override_group": "overrides.jsonl",
}
REFUSES_SETTING = {"StartupFails", "SettingMismatch"}
REFUSED_BY_NAME = {"ArchitectureDropped", "ArchitectureNotCounted", "ArchitectureNotServable", "TakesNoImages"}
CLASSES = {
    "honoured": "honoured",
    "no effect": "no effect",
    "start-up fails": "StartupFails",
    "ignored in the token count but applied to the pixels": "SettingMismatch",
    "partly honoured": "SettingMismatch",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, name in FILES.items():
        if fixture in metafunc.fixturenames:
            groups = read_groups(vectors_folder(metafunc.config), name)
            metafunc.parametrize(fixture, as_parameters(groups))


def bind(group: Group) -> ImageRule | TokenRefusal:
    """Bind the rule; rows of an architecture that the product refuses by name are skipped, with its reason."""
    rule = group.bind()
    if isinstance(rule, TokenRefusal) and rule.reason in REFUSED_BY_NAME:
        pytest.skip(rule.message)
    return rule


def test_image_tokens(tokens_group: Group) -> None:
    rule = bind(tokens_group)
    if isinstance(rule, TokenRefusal):
        assert rule.reason in REFUSES_SETTING, rule.message
        # A refusal covers a whole setting, so some row must show that the setting, and no mere size, breaks something.
        broken = [row for row in tokens_group.rows if row.get("placeholder_mismatch") or about_setting(row)]
        assert broken, rule.message
        return
    wrong = [problem for row in tokens_group.rows if (problem := compare_row(rule, row))]
    assert not wrong, f"{len(wrong)} of {len(tokens_group.rows)} rows:\n" + "\n".join(wrong)


def compare_row(rule: ImageRule, row: dict[str, Any]) -> str:
    """Return what is wrong with the answer to one row, nothing where it agrees."""
    where = f"{row['width']}x{row['height']}"
    if row["width"] is None:
        return f"start-up fails, but the setting is accepted: {row.get('error')}"
    answer = rule.count_image(row["width"], row["height"])
    if row.get("error") or row.get("placeholder_mismatch"):
        return compare_refusal(answer, row, where)
    if not isinstance(answer, ImageTokens):
        return f"{where}: {answer.message}"
    fields = ["embed_tokens", "placeholder_length", "prompt_tokens", "resized", "tiles"]
    if not row["architecture"].startswith("MiniCPM"):  # their patches may follow the wrong rounding
        fields.append("vit_patches")
    differences = []
    for field in fields:
        expected = row.get(field)
        expected = tuple(expected) if isinstance(expected, list) else expected
        if expected is not None and getattr(answer, field) != expected:
            differences.append(f"{field} {getattr(answer, field)} instead of {expected}")
    return f"{where}: {', '.join(differences)}" if differences else ""


def about_aspect(row: dict[str, Any]) -> bool:
    return "aspect ratio" in (row.get("error") or "")


def about_setting(row: dict[str, Any]) -> bool:
    return bool(row.get("error")) and not about_aspect(row)


def compare_refusal(answer: ImageTokens | TokenRefusal, row: dict[str, Any], where: str) -> str:
    """Return what is wrong with the answer to a row that the engine turns away."""
    error = row.get("error") or "mismatch"
    if not isinstance(answer, TokenRefusal):
        return f"{where}: counted, but {error}"
    if about_aspect(row) != (answer.reason == "AspectRatioTooExtreme"):
        return f"{where}: {answer.reason}, but {error}"
    return ""


def test_maximum(maximum_group: Group) -> None:
    (row,) = maximum_group.rows
    rule = bind(maximum_group)
    if isinstance(rule, TokenRefusal):
        assert rule.reason in REFUSES_SETTING, rule.message
        # Settings that only break pixels still have a maximum in the rows; refusing them whole is right.
        broken = [value for value in (row, *row.values()) if isinstance(value, dict) and value.get("error")]
        assert rule.reason == "SettingMismatch" or broken, rule.message
        return
    maximum = rule.maximum()
    if "max_tokens_image_only" in row:  # an architecture that the engine dropped has no such figure
        # Kimi-K2.5 and K3 call images and pieces of videos alike "vision_chunk".
        assert [maximum.engine_tokens] == list(row["max_tokens_image_only"].values())
    if row.get("start_up_dummy_embed_tokens") is not None:
        assert maximum.dummy_tokens == row["start_up_dummy_embed_tokens"]
    if row.get("dummy_image_size") is not None:
        assert list(maximum.dummy_size) == row["dummy_image_size"]
    if row.get("max_over_vectors") is not None:
        assert maximum.true_tokens >= row["max_over_vectors"]["embed_tokens"]
    if row.get("budget_underestimates_image") is not None:
        # The row speaks of its own sizes; a size that it does not hold may be larger yet.
        largest = rule.count_image(*row["max_over_vectors"]["size"])
        assert isinstance(largest, ImageTokens)
        assert (largest.embed_tokens > maximum.engine_tokens) == row["budget_underestimates_image"]


def test_override(override_group: Group) -> None:
    (row,) = override_group.rows
    if row["verdict"].startswith("probe:"):
        # The engine swallows a misspelt option; the product must not.
        probed = bind(override_group)
        assert isinstance(probed, TokenRefusal) or probed.ignored_settings
        return
    expected = next(known for start, known in CLASSES.items() if row["verdict"].startswith(start))
    rule = bind(override_group)
    if isinstance(rule, TokenRefusal):
        assert rule.reason == expected, rule.message
        return
    assert expected == ("no effect" if rule.ignored_settings else "honoured")
    if row.get("max_image_tokens") is not None:
        assert rule.maximum().engine_tokens == row["max_image_tokens"]
    if row.get("budget_follows_override") is not None:
        shipped = override_group.shipped()
        assert not isinstance(shipped, TokenRefusal), shipped.message
        changed = shipped.maximum().engine_tokens != rule.maximum().engine_tokens
        assert changed == row["budget_follows_override"]
