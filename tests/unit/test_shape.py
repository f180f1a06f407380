"""Shapes of quantised and sparse checkpoints, their storage, and what GPUs refuse."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.sizing.legality import check_capability, check_tensor_parallel, runs_natively
from vlm_operator.sizing.shape import ModelShape, Scheme, ShapeRefusal, read_shape
from vlm_operator.sizing.weights import count_parameters, count_stored_elements, weights_per_rank

QWEN: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 128000,
    "tie_word_embeddings": False,
    "vision_config": {"model_type": "qwen2_5_vl", "out_hidden_size": 3584},
}
IGNORE_TOWER = ["visual", "lm_head"]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": IGNORE_TOWER}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": IGNORE_TOWER}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_to_not_convert": IGNORE_TOWER}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "visual*", "model.visual*"]}


def _compressed(weights: dict[str, Any], inputs: dict[str, Any] | None, ignore: list[str]) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ignore}


INT8 = _compressed(
    {"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "int"}, ["re:.*visual.*", "lm_head"]
)
W4A8 = _compressed(
    {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}, {"num_bits": 8, "type": "int"}, ["lm_head"]
)
INT4 = _compressed({"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}, None, ["re:.*visual.*"])


def _shape(quantisation: dict[str, Any] | None = None) -> ModelShape:
    config = QWEN if quantisation is None else {**QWEN, "quantization_config": quantisation}
    shape = read_shape("Qwen2_5_VLForConditionalGeneration", config)
    assert isinstance(shape, ModelShape), shape
    return shape


@pytest.mark.parametrize(
    ("quantisation", "bytes_per_weight"),
    [
        (None, 2.0),
        (FP8, 1 + 4 / 128**2),
        (AWQ, (4 + 20 / 128) / 8),
        (GPTQ, (4 + 20 / 128) / 8 + 4 / 18944),
        (INT4, (4 + 16 / 128) / 8),
        (INT8, 1 + 4 / 3584),
        (NVFP4, 0.5 + 1 / 16),
    ],
)
def test_an_mlp_takes_the_bytes_of_its_format_and_its_scales(
    quantisation: dict[str, Any] | None, bytes_per_weight: float
) -> None:
    weights = weights_per_rank(_shape(quantisation), 1)
    assert weights.mlp / (28 * 3 * 3584 * 18944) == pytest.approx(bytes_per_weight, rel=1e-3)


@pytest.mark.parametrize("quantisation", [FP8, AWQ, GPTQ, INT4, INT8, NVFP4])
def test_a_tower_on_the_exclusion_list_stays_plain(quantisation: dict[str, Any]) -> None:
    plain, stored = weights_per_rank(_shape(), 1), weights_per_rank(_shape(quantisation), 1)
    assert stored.vision_tower == plain.vision_tower
    assert stored.projector == plain.projector
    assert stored.embedding == plain.embedding
    assert stored.lm_head == plain.lm_head
    assert stored.norms == plain.norms


def test_a_tower_that_no_list_names_is_stored_like_the_rest() -> None:
    everything = {**FP8, "modules_to_not_convert": []}
    assert weights_per_rank(_shape(everything), 1).vision_tower < weights_per_rank(_shape(FP8), 1).vision_tower * 0.6


@pytest.mark.parametrize(
    "ignore",
    [
        ["visual"],
        ["re:visual.*"],
        ["model.visual*"],
        ["visual.blocks.0.attn.qkv", "visual.blocks.0.mlp.linear_fc1", "visual.merger.linear_fc1"],
        "lm_head, all model.visual.* and router gates",
    ],
)
def test_a_tower_is_excluded_in_every_spelling(ignore: object) -> None:
    found = weights_per_rank(_shape({**FP8, "modules_to_not_convert": ignore}), 1)
    assert (found.vision_tower, found.projector) == (
        weights_per_rank(_shape(), 1).vision_tower,
        weights_per_rank(_shape(), 1).projector,
    )


@pytest.mark.parametrize(
    ("quantisation", "plain"),
    [
        # Each method's own key: fp8.py:162-168, compressed_tensors.py, modelopt.py, auto_gptq.py ("-:" skips a module).
        ({"quant_method": "fp8", "ignored_layers": ["mlp", "visual"]}, "mlp"),
        ({**FP8, "modules_to_not_convert": ["self_attn", "visual"]}, "attention"),
        ({**NVFP4, "ignore": ["*.mlp.*", "visual*"]}, "mlp"),
        ({**NVFP4, "ignore": None, "exclude_modules": ["model.layers.*.mlp*", "visual*"]}, "mlp"),
        ({**INT4, "ignore": [r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*visual.*"]}, "mlp"),
        ({**GPTQ, "dynamic": {r"-:.*\.self_attn\..*": {}}}, "attention"),
    ],
)
def test_modules_that_a_list_names_stay_plain_and_the_others_are_stored(
    quantisation: dict[str, Any], plain: str
) -> None:
    whole, stored = weights_per_rank(_shape(), 1), weights_per_rank(_shape(quantisation), 1)
    assert getattr(stored, plain) == getattr(whole, plain)
    other = {"mlp": "attention", "attention": "mlp"}[plain]
    assert getattr(stored, other) < 0.6 * getattr(whole, other)
    assert stored.vision_tower == whole.vision_tower


def test_a_list_of_200_000_names_is_looked_up_and_not_walked_through() -> None:
    names = ["model.layers.3.mlp.gate_proj", *(f"model.layers.{number}.other" for number in range(200_000))]
    shape = _shape({**AWQ, "modules_to_not_convert": names})
    assert weights_per_rank(shape, 1).mlp > weights_per_rank(_shape(AWQ), 1).mlp


@pytest.mark.parametrize("quantisation", [AWQ, GPTQ])
def test_awq_and_gptq_never_touch_a_tower(quantisation: dict[str, Any]) -> None:
    unlisted = {key: value for key, value in quantisation.items() if key != "modules_to_not_convert"}
    assert weights_per_rank(_shape(unlisted), 1).vision_tower == weights_per_rank(_shape(), 1).vision_tower


def test_excluded_layers_stay_plain_and_the_others_do_not() -> None:
    first = {**NVFP4, "ignore": [*NVFP4["ignore"], "model.language_model.layers.0.mlp*"]}
    layer = 3 * 3584 * 18944
    plain, packed = weights_per_rank(_shape(first), 1).mlp, weights_per_rank(_shape(NVFP4), 1).mlp
    assert plain - packed == pytest.approx(layer * (2 - 0.5 - 1 / 16), rel=1e-6)


def test_storage_changes_no_parameter_count() -> None:
    assert count_parameters(_shape(AWQ)) == count_parameters(_shape())
    assert count_stored_elements(_shape(AWQ)).mlp < count_parameters(_shape()).mlp / 7


@pytest.mark.parametrize(
    ("quantisation", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": "awq"}, "bits"),
        ({"quant_method": "awq", "bits": 3, "group_size": 128}, "3 bits"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "W4A8_AWQ"),
        ("fp8", "no mapping"),
        (W4A8, "4-bit weights with quantised activations"),
        ({**FP8, "weight_block_size": [128]}, "a block of 1 sides"),
        ({**FP8, "weight_block_size": [128, -128]}, "a group of -128 weights"),
        ({**AWQ, "group_size": 0}, "a group of 0 weights"),
        ({**GPTQ, "bits": 3}, "3 bits"),
        ({**GPTQ, "sym": False}, "asymmetric 4 bits"),
        ({**GPTQ, "dynamic": {r"+:.*\.mlp\..*": {"bits": 8}}}, "several weight schemes"),
        ({**NVFP4, "group_size": -16}, "a group of -16 weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
        (_compressed({"num_bits": 9, "type": "int", "strategy": "channel"}, None, []), "9 bits"),
        (_compressed({"num_bits": 4, "type": "float", "group_size": 8, "strategy": "group"}, None, []), "groups of 8"),
        ({**INT4, "ignore": ["re:("]}, "re:("),
        ({**INT4, "ignore": ["re:(.|.)*z"]}, "too long to match"),
        ({**INT4, "ignore": ["re:.*[a-z].*[a-z].*[a-z].*z"]}, "too long to match"),
        ({**INT4, "ignore": [f"re:x{number}" for number in range(65)]}, "65 expressions"),
    ],
)
def test_a_format_that_is_unknown_or_contradicts_itself_is_refused_by_name(quantisation: object, named: str) -> None:
    refused = read_shape("Qwen2_5_VLForConditionalGeneration", {**QWEN, "quantization_config": quantisation})
    assert isinstance(refused, ShapeRefusal)
    assert refused.reason == "UnknownQuantisation"
    assert named in refused.message


@pytest.mark.parametrize(
    ("quantisation", "capability", "rules"),
    [
        (None, (8, 0), []),
        (None, (7, 5), ["NoBF16"]),
        (FP8, (8, 0), []),
        (FP8, (7, 0), ["NoBF16", "QuantisationCapability"]),
        (AWQ, (8, 6), []),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, (8, 6), ["QuantisationCapability"]),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, (8, 9), []),
        (INT8, (9, 0), []),
        (INT8, (10, 3), ["NoINT8"]),
        (INT8, (12, 0), ["NoINT8"]),
        (NVFP4, (9, 0), []),
    ],
)
def test_capability_decides_what_runs(
    quantisation: dict[str, Any] | None, capability: tuple[int, int], rules: list[str]
) -> None:
    violations = check_capability(_shape(quantisation), capability)
    assert [violation.rule for violation in violations] == rules
    assert all(f"{capability[0]}.{capability[1]}" in violation.message for violation in violations)


def test_older_gpus_hold_fp8_and_fp4_weights_but_multiply_wider_ones() -> None:
    assert not runs_natively(_shape(FP8), (8, 0))
    assert runs_natively(_shape(FP8), (8, 9))
    assert not runs_natively(_shape(NVFP4), (9, 0))
    assert runs_natively(_shape(), (8, 0))


def test_a_rank_holds_whole_groups_and_blocks() -> None:
    assert [v.rule for v in check_tensor_parallel(_shape(AWQ), 4, "data")] == []
    broken = check_tensor_parallel(_shape({**AWQ, "group_size": 256}), 4, "data")
    assert {v.rule for v in broken} == {"awq_group_attn", "awq_group_mlp"}
    assert any("3,584/4" in v.message for v in broken)


@pytest.mark.parametrize("scheme", [None, FP8, AWQ, INT4, INT8, NVFP4])
def test_a_checkpoints_kv_scheme_is_read(scheme: dict[str, Any] | None) -> None:
    shape = _shape(scheme)
    assert shape.quantisation is None or shape.quantisation.kv_dtype is None
    with_kv = {**NVFP4, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    quantisation = _shape(with_kv).quantisation
    assert quantisation is not None
    assert quantisation.kv_dtype == "fp8"


@given(rows=st.integers(1, 64), columns=st.integers(1, 64), ranks=st.sampled_from([1, 2, 4, 8]))
def test_ranks_together_hold_the_whole_matrix(rows: int, columns: int, ranks: int) -> None:
    scheme = Scheme(bits=4, container_bits=32, group_rows=128, group_columns=1, scale_bytes=2, zeros=True)
    whole = scheme.measure(rows * 1024, columns * 64)
    part = scheme.measure(rows * 1024 // ranks, columns * 64)
    assert (part[0] * ranks, part[1] * ranks) == whole


def _experts(width: int) -> ModelShape:
    config = {
        "text_config": {
            "model_type": "qwen3_vl_moe_text",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": width,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "vocab_size": 151936,
        },
        "vision_config": {"model_type": "qwen3_vl_moe", "out_hidden_size": 2048},
    }
    shape = read_shape("Qwen3VLMoeForConditionalGeneration", config)
    assert isinstance(shape, ModelShape)
    return shape


def test_expert_parallelism_leaves_the_width_of_experts_free() -> None:
    (violation,) = check_tensor_parallel(_experts(770), 4)
    assert (violation.rule, violation.message) == (
        "moe_intermediate",
        "770 expert width cannot be split over tensor parallel size 4",
    )
    assert check_tensor_parallel(_experts(770), 4, expert_parallel=True) == ()


@given(size=st.sampled_from([1, 2, 4]))
def test_expert_parallelism_moves_experts_and_nothing_else(size: int) -> None:
    shape = _experts(768)
    cut, moved = weights_per_rank(shape, size), weights_per_rank(shape, size, expert_parallel=True)
    assert dataclasses.replace(moved, experts=cut.experts) == cut
    assert moved.experts * size == weights_per_rank(shape, 1).experts
    count = count_parameters(shape)
    assert count.visited_experts * 16 == count.experts
