"""No request line, however odd, stops the stream."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.cli.tokens import answer_requests

KEYS = st.sampled_from(
    [
        "size", "shortest_edge", "longest_edge", "min_pixels", "max_pixels", "images_kwargs", "max_dynamic_patch",
        "min_dynamic_patch", "use_thumbnail", "dynamic_image_size", "force_image_size", "downsample_ratio",
        "vision_config", "patch_size", "image_size", "do_pan_and_scan", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_crop_size", "pan_and_scan_min_ratio_to_activate", "max_slice_nums", "slice_config",
        "scale_resolution", "query_num", "crop_size", "config_format", "hf_overrides", "limit_mm_per_prompt", "image",
        "spatial_merge_size", "model_type", "mm_tokens_per_image", "vision_feature_select_strategy",
    ]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 4000), st.integers(), st.floats(), st.text(max_size=4), st.just("mistral")
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=3)), max_leaves=6
)
OBJECTS = st.one_of(st.dictionaries(KEYS, VALUES, max_size=3), VALUES)
REQUESTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(model_ids()),
        "width": st.one_of(st.integers(1, 9000), LEAVES),
        "height": st.one_of(st.integers(1, 9000), LEAVES),
    },
    optional={
        "mm_processor_kwargs": OBJECTS,
        "other_server_args": st.one_of(st.fixed_dictionaries({"hf_overrides": OBJECTS}), OBJECTS),
    },
)


def check(line: str) -> dict[str, Any]:
    (answer,) = answer_requests([line], find_model)
    document: dict[str, Any] = json.loads(answer)
    if "error" in document:
        assert document["error"]["reason"]
        assert document["error"]["message"]
    else:
        assert document["embed_tokens"] > 0
    return document


@given(REQUESTS)
@settings(max_examples=500, deadline=None)
def test_any_request_is_answered(request_: dict[str, Any]) -> None:
    check(json.dumps(request_))


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_answered(line: str) -> None:
    assert "error" in check(line)


@pytest.mark.parametrize("depth", [10, 200, 900, 990])
@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-VL-7B-Instruct", "mistralai/Mistral-Small-3.1-24B-Instruct-2503"])
def test_deep_settings_are_answered(depth: int, model: str) -> None:
    kwargs = '{"size": ' * depth + "1" + "}" * depth
    other = '{"config_format": "mistral"}' if model.startswith("mistralai") else "{}"
    settings_ = f'"mm_processor_kwargs": {kwargs}, "other_server_args": {other}'
    check(f'{{"model": "{model}", "width": 9, "height": 9, {settings_}}}')
