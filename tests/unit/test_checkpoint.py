"""The tensors of a checkpoint against the formula of its shape: what counts, what the engine drops, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hub import qwen2_vl_tensors, real_files, tensor
from vlm_operator.catalogue.load import find_model
from vlm_operator.catalogue.types import StoredTensor
from vlm_operator.sizing.checkpoint import REFUSED, TOLERANCE, Checked, check_tensors
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal, read_shape
from vlm_operator.sizing.weights import weights_per_rank

AIN = real_files("MBZUAI/AIN")["config.json"]
TENSORS = tuple(qwen2_vl_tensors(AIN))


def shape_of(model_id: str) -> ModelShape:
    card = find_model(model_id)
    shape = read_shape(card.architecture, card.config)
    assert isinstance(shape, ModelShape)
    return shape


SHAPE = shape_of("Qwen/Qwen2-VL-7B-Instruct")
FORMULA = weights_per_rank(SHAPE, 1).parameter_bytes


def checked(shape: ModelShape, tensors: tuple[StoredTensor, ...]) -> Checked:
    found = check_tensors(shape, tensors)
    assert isinstance(found, Checked), found
    return found


def stand_in(name: str, size_bytes: int, dtype: str = "BF16") -> StoredTensor:
    """Return a tensor that brings a checkpoint to a size."""
    return tensor(name, size_bytes // {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4}[dtype], dtype=dtype)


def test_the_published_tensors_confirm_the_formula_to_the_byte() -> None:
    assert sum(one.size_bytes for one in TENSORS) == FORMULA
    found = checked(SHAPE, TENSORS)
    assert found.shape == SHAPE
    assert "confirmed by the headers" in found.note


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_floats_count_in_the_type_that_is_served(dtype: str) -> None:
    assert checked(SHAPE, tuple(qwen2_vl_tensors(AIN, dtype))).shape == SHAPE


@pytest.mark.parametrize(
    "name",
    [
        "mtp.layers.0.mlp.gate_proj.weight",
        "model.layers.28.mlp.gate_proj.weight",
        "model.rotary_emb.inv_freq",
        "vision_tower.vision_model.encoder.layers.32.mlp.fc1.weight",
    ],
)
def test_what_the_engine_drops_takes_nothing(name: str) -> None:
    assert checked(SHAPE, (*TENSORS, tensor(name, 2**31))).shape == SHAPE


@pytest.mark.parametrize("name", ["model.layers.27.extra.weight", "visual.extra.weight", "value_head.weight"])
def test_what_nobody_knows_is_given_to_every_rank(name: str) -> None:
    found = checked(SHAPE, (*TENSORS, tensor(name, 2**30)))
    for size in (1, 4):
        grown = weights_per_rank(found.shape, size).total - weights_per_rank(SHAPE, size).total
        assert grown == 2**31
    assert "the larger is planned" in found.note


def test_an_output_matrix_that_is_tied_counts_once() -> None:
    shape = shape_of("Qwen/Qwen2-VL-2B-Instruct")
    assert shape.text.tied
    filler = stand_in("model.embed_tokens.weight", weights_per_rank(shape, 1).parameter_bytes)
    assert checked(shape, (filler, tensor("lm_head.weight", 2**28))).shape == shape


def test_scales_keep_their_own_type() -> None:
    shape = shape_of("Qwen/Qwen3-VL-8B-Instruct-FP8")
    whole = weights_per_rank(shape, 1).parameter_bytes
    scales = tensor("model.layers.0.mlp.gate_proj.weight_scale_inv", 2**27, dtype="F32")
    packed = stand_in("model.layers.0.mlp.gate_proj.weight", whole - scales.size_bytes, "F8_E4M3")
    assert "confirmed" in checked(shape, (packed, scales)).note


def test_less_than_the_formula_is_told_and_not_believed() -> None:
    found = checked(SHAPE, tuple(one for one in TENSORS if "visual." not in one.name))
    assert found.shape == SHAPE
    assert "14.19 GiB" in found.note
    assert "15.44 GiB" in found.note


@pytest.mark.parametrize(
    ("tensors", "words"),
    [(TENSORS[::2], "tensors are missing"), ((*TENSORS, tensor("a", 2**32)), "fewer or smaller layers")],
)
def test_another_models_weights_are_refused(tensors: tuple[StoredTensor, ...], words: str) -> None:
    found = check_tensors(SHAPE, tensors)
    assert isinstance(found, ShapeRefusal)
    assert found.reason == "CheckpointMismatch"
    assert words in found.message


@given(st.floats(0.5, 1.5))
def test_never_less_is_planned_than_either_says(share: float) -> None:
    stored = stand_in("weights", int(FORMULA * share))
    found = check_tensors(SHAPE, (stored,))
    if isinstance(found, ShapeRefusal):
        assert abs(share - 1) > REFUSED - 1e-6
        return
    planned = weights_per_rank(found.shape, 1).parameter_bytes
    assert planned >= FORMULA
    assert planned >= stored.size_bytes * (1 - TOLERANCE) - 2
