"""The largest video against what the engine's own code answered."""

import pytest

from tests.conformance.families import Group, read_groups
from tests.conformance.vectors import vectors_folder
from vlm_operator.sizing.tokens import TokenRefusal
from vlm_operator.sizing.tokens.video import VIDEO_ARCHITECTURES, bind_video_rule


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    groups = [
        group
        for group in read_groups(vectors_folder(metafunc.config), "max_tokens.jsonl")
        if group.architecture in VIDEO_ARCHITECTURES
    ]
    metafunc.parametrize("group", [pytest.param(group, id=group.name) for group in groups])


def test_video_maximum(group: Group) -> None:
    (row,) = group.rows
    processor = {
        **group.files.get("processor_config.json", {}),
        **group.files.get("preprocessor_config.json", {}),
    }
    if "video_preprocessor_config.json" in group.files:
        processor["video_processor"] = group.files["video_preprocessor_config.json"]
    rule = bind_video_rule(group.architecture, group.files["config.json"], processor, group.settings, row["model"])
    if isinstance(rule, TokenRefusal):
        assert rule.reason == "StartupFails", rule.message
        assert "error" in str(row["start_up_dummy_embed_tokens"])
        return
    maximum = rule.maximum(row["max_model_len"])
    assert maximum.engine_tokens == row["max_tokens"]["video"]
    assert maximum.most_tokens >= maximum.engine_tokens
