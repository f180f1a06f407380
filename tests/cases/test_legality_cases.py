"""Public reports of servers that refused to start: parallelism, number formats, releases."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import situations
from tests.cases.situations import declare, gpu_of, pictures, plan, serve, shape_of
from vlm_operator.catalogue.load import model_ids
from vlm_operator.sizing.inventory import Inventory, NodeShape, Resources
from vlm_operator.sizing.launch import LaunchFlags, LaunchRefusal
from vlm_operator.sizing.legality import check_encoder_mode, check_tensor_parallel
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.weights import weights_per_rank

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
INTERNVL3_78B = "OpenGVLab/InternVL3-78B"
SIZES = (1, 2, 4, 8, 16)
AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "zero_point": True,
    "modules_to_not_convert": ["vision_model"],
}


def legal(shape: ModelShape, *, expert_parallel: bool = False) -> list[int]:
    return [size for size in SIZES if not check_tensor_parallel(shape, size, expert_parallel=expert_parallel)]


def test_28_heads_on_a_node_of_8_gpus_are_replicas_and_never_tensor_parallel_size_8() -> None:
    """vllm-project/vllm#11797, THU-KEG/AdaptThink#1: 28 heads are divided by 1, 2, 4 and 7 alone."""
    node = NodeShape(gpu=gpu_of("l40s"), gpus_per_node=8, free_by_node=(Resources(gpus=8),))
    resource = declare(QWEN_7B, pictures((1024, 768)), workload={"traffic": {"requestsPerMinute": 900}})
    verdict = plan(resource, Inventory(shapes=(node,), source="file"))
    assert isinstance(verdict, Plan)
    assert verdict.flags.tensor_parallel_size in {1, 2, 4}
    assert verdict.replicas > 1
    assert verdict.replicas * verdict.gpus_per_replica <= 8
    forced = serve(QWEN_7B, gpu_of("l40s"), flags=LaunchFlags(tensor_parallel_size=8)).launch()
    assert isinstance(forced, LaunchRefusal)
    assert forced.reason == "attention_heads"
    assert "28 attention heads" in forced.message
    assert "1, 2, 4" in forced.message


@settings(max_examples=60, deadline=None)
@given(model=st.sampled_from(model_ids()), free=st.integers(1, 16))
def test_whatever_number_of_gpus_is_free_the_size_divides_the_heads(model: str, free: int) -> None:
    """gpustack/gpustack#2259: three free GPUs became tensor parallel size 3 for gemma-3-27b-it."""
    node = NodeShape(gpu=gpu_of("h200-sxm"), gpus_per_node=free, free_by_node=(Resources(gpus=free),))
    verdict = plan(declare(model, pictures((640, 480))), Inventory(shapes=(node,), source="file"))
    if isinstance(verdict, Plan):
        size = verdict.flags.tensor_parallel_size
        assert size <= free
        assert shape_of(model).text.heads % size == 0
        mode = verdict.flags.encoder_parallel_mode
        assert check_tensor_parallel(shape_of(model), size, mode) == check_encoder_mode(shape_of(model), mode) == ()


def test_three_free_gpus_give_two_or_a_refusal_and_never_three() -> None:
    """The same report: the 27B does not fit one card of 48 GB."""
    node = NodeShape(gpu=gpu_of("l40s"), gpus_per_node=3, free_by_node=(Resources(gpus=3),))
    verdict = plan(
        declare(
            "google/gemma-3-27b-it",
            pictures((896, 896)),
            workload={"text": {"promptTokens": {"p50": 300, "p99": 7000}}},
        ),
        Inventory(shapes=(node,), source="file"),
    )
    assert isinstance(verdict, Plan)
    assert verdict.flags.tensor_parallel_size == 2


def test_a_tower_of_25_heads_is_legal_and_does_not_shrink_to_its_share() -> None:
    """vllm-project/vllm#8097, OpenGVLab/InternVL#192: "25 is not divisible by 4"; 0.33.0 replicates the attention."""
    shape = shape_of("OpenGVLab/InternVL3-38B")
    assert shape.vision.heads == 25
    assert {2, 4} <= set(legal(shape))
    whole, quarter = (weights_per_rank(shape, size).vision_tower for size in (1, 4))
    assert quarter > 0.4 * whole
    old = plan(declare("OpenGVLab/InternVL3-38B", pictures((448, 448)), engine={"version": "0.5.5"}))
    assert isinstance(old, NoFit)
    assert old.reason == "Unservable"


def test_awq_groups_of_128_leave_one_gpu_for_the_unpadded_checkpoint_and_four_sizes_for_the_padded_one() -> None:
    """vllm-project/vllm#21695, #13677, QwenLM/Qwen3-VL#831: 29568 / 128 = 231 = 3 · 7 · 11, 29696 / 128 = 232."""
    unpadded = shape_of(INTERNVL3_78B, quantization_config=AWQ)
    assert unpadded.text.dense_intermediate == 29_568
    assert legal(unpadded) == [1]
    broken = check_tensor_parallel(unpadded, 2)
    assert any("29,568/2" in violation.message and "128" in violation.message for violation in broken)
    padded = shape_of("Qwen/Qwen2.5-VL-72B-Instruct-AWQ")
    assert padded.text.dense_intermediate == 29_696
    assert legal(padded)[:4] == [1, 2, 4, 8]


def test_fp8_blocks_of_experts_are_refined_and_those_of_dense_layers_are_not() -> None:
    """vllm-project/vllm#17569, #25292, #54178, #44763, QwenLM/Qwen3#1485: 1536/8 = 192 and 768/4 = 192 of block 128."""
    large, small = shape_of("Qwen/Qwen3-VL-235B-A22B-Instruct-FP8"), shape_of("Qwen/Qwen3-VL-30B-A3B-Instruct-FP8")
    assert 8 in legal(large)
    assert {4, 8} <= set(legal(small))
    assert not any(v.rule.endswith("_moe") for v in check_tensor_parallel(small, 8))
    at_16 = check_tensor_parallel(small, 16)
    assert any("768/16" in violation.message for violation in at_16)
    assert not any(
        "768/16" in violation.message for violation in check_tensor_parallel(small, 16, expert_parallel=True)
    )
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["visual"]}
    dense = shape_of("Qwen/Qwen2.5-VL-72B-Instruct", quantization_config=blocks)
    (violation,) = [v for v in check_tensor_parallel(dense, 4) if "quantisation block" in v.message]
    assert "128" in violation.message


@pytest.mark.parametrize(("gpu", "capability"), [("t4", "7.5"), ("v100-16gb", "7.0"), ("v100-32gb", "7.0")])
def test_a_gpu_without_bfloat16_is_refused_and_the_type_is_always_rendered(gpu: str, capability: str) -> None:
    """vllm-project/vllm#1157, substratusai/vllm-docker#37, gpustack/gpustack#1774: bfloat16 on T4 and V100."""
    verdict = plan(declare("Qwen/Qwen2.5-VL-3B-Instruct", pictures((640, 480)), accelerators={"allowed": [gpu]}))
    assert isinstance(verdict, NoFit)
    assert dict(verdict.by_reason).keys() == {"NoBF16"}
    assert f"compute capability {capability}" in verdict.nearest[0].message
    assert "bfloat16, which needs 8.0" in verdict.nearest[0].message
    resource = declare("Qwen/Qwen2.5-VL-3B-Instruct", pictures((640, 480)), accelerators={"allowed": ["l4"]})
    fits = plan(resource)
    assert isinstance(fits, Plan)
    assert situations.flags_of(resource, fits)["--dtype"] == "bfloat16"


@pytest.mark.parametrize("version", ["0.7.2", "0.32.0", "0.34.0"])
def test_a_release_of_the_engine_that_is_not_known_is_refused_before_a_pod_starts(version: str) -> None:
    """vllm-project/vllm#12932, #19951, huggingface/transformers#36292: 0.7.2 "failed to be inspected" the model."""
    verdict = plan(declare(QWEN_7B, pictures((1024, 768)), engine={"version": version}))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "Unservable"
    assert version in verdict.message
    assert "0.33.0" in verdict.message
    assert verdict.candidates == 0
