"""Files come from strangers: whatever one value of them is, the model is described or refused, and soon."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hub import real_files, real_models
from vlm_operator.catalogue.load import find_model, model_ids
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.plausible import find_implausible
from vlm_operator.hub.types import ModelFiles, SourceRefusal
from vlm_operator.planning import checked_shape
from vlm_operator.sizing.shape import ShapeRefusal

STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 3, 10**6, 10**9, 10**30]),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


def documents_of(model_id: str) -> dict[str, Any]:
    if model_id in real_models():
        return real_files(model_id)
    card = find_model(model_id)
    config = {**card.config, "architectures": [card.architecture]}
    return {"config.json": config, "preprocessor_config.json": card.processor}


def places(document: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = [
        place for key, value in document.items() if isinstance(value, dict) for place in places(value, (*path, key))
    ]
    return [*((*path, key) for key in document), *inner]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from((*real_models(), *model_ids())), st.data())
def test_a_strange_value_ends_in_a_shape_or_a_refusal(model_id: str, data: st.DataObject) -> None:
    documents = copy.deepcopy(documents_of(model_id))
    config = documents["config.json"]
    *path, key = data.draw(st.sampled_from(places(config)))
    inner = config
    for step in path:
        inner = inner[step]
    inner[key] = data.draw(STRANGE)
    found = describe_model(model_id, ModelFiles(documents=documents, origin="a stranger"))
    if isinstance(found, SourceRefusal):
        assert found.message.startswith(f"{model_id}: a stranger ")
        return
    shape = checked_shape(found)
    assert not isinstance(shape, ShapeRefusal) or shape.message


@pytest.mark.parametrize("model_id", [*real_models(), *model_ids()])
def test_nothing_is_strange_about_real_files(model_id: str) -> None:
    for document in documents_of(model_id).values():
        assert list(find_implausible(document)) == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"text_config": 7}, "text_config is 7, but must be an object"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "text_config.num_hidden_layers is 1000000000; at most 1,024"),
        ({"vision_feature_layer": 10**12}, "vision_feature_layer is 1000000000000; at most 1,024"),
        ({"patch_size": 0}, "patch_size is 0, but must be a whole number above 0"),
        ({"patch_size": "14"}, "patch_size is '14', but must be a whole number above 0"),
        (
            {"llm_config": {"num_key_value_heads": 0.5}},
            "llm_config.num_key_value_heads is 0.5, but must be a whole number above 0",
        ),
        ({"downsample_ratio": False}, "downsample_ratio is False"),
        ({"text_config": {"max_seq_len": -1}}, "text_config.max_seq_len is -1, but must be a whole number above 0"),
        ({"rope_scaling": {"factor": [4]}}, "rope_scaling.factor is [4], but must be a number"),
        ({"image_size": [448, -1]}, "image_size is -1"),
        ({"max_dynamic_patch": 10**6}, "max_dynamic_patch is 1000000; at most 65,536"),
        ({"rope_theta": 10**13}, "rope_theta is 10000000000000, which is more than any model has"),
        ({"rope_scaling": {"words": "x" * 99, "rope_type": 10.0**300}}, "rope_scaling.rope_type is 1e+300"),
    ],
)
def test_a_strange_value_is_told_by_its_place(document: dict[str, Any], words: str) -> None:
    (found,) = find_implausible(document)
    assert found.startswith(words)


def test_a_card_is_refused_by_the_first_strange_value() -> None:
    model_id = next(iter(real_models()))
    documents = real_files(model_id)
    documents["preprocessor_config.json"] = {"patch_size": -14}
    found = describe_model(model_id, ModelFiles(documents=documents, origin="a stranger"))
    assert not isinstance(found, ModelCard)
    assert "patch_size is -14" in found.message
