"""Which GPUs of the catalogue the engine runs a checkpoint's number formats on, and what a refusal says."""

from typing import Any

import pytest

from vlm_operator.catalogue.load import all_gpus, find_gpu, find_model
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.legality import check_encoder_mode, check_gpu
from vlm_operator.sizing.shape import ModelShape, read_shape

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
INT8: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
        }
    },
    "ignore": ["re:visual.*", "lm_head"],
}
MODELOPT_FP8 = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["visual*", "lm_head"]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["visual*", "lm_head"]}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["visual"]}


def shape_of(model_id: str = QWEN_7B, quantisation: dict[str, Any] | None = None) -> ModelShape:
    card = find_model(model_id)
    config = card.config if quantisation is None else {**card.config, "quantization_config": quantisation}
    shape = read_shape(card.architecture, config)
    assert isinstance(shape, ModelShape)
    return shape


def gpu(name: str) -> GpuKind:
    return kind_from_card(find_gpu(name))


def test_plain_checkpoints_run_from_ampere_on_and_on_nvidia_alone() -> None:
    shape = shape_of()
    refused = {
        card.id: [violation.rule for violation in check_gpu(shape, kind_from_card(card))]
        for card in all_gpus()
        if card.engine_memory_gib is not None and check_gpu(shape, kind_from_card(card))
    }
    assert refused == {
        "mi300x": ["UnsupportedVendor"],
        "t4": ["NoBF16"],
        "v100-16gb": ["NoBF16"],
        "v100-32gb": ["NoBF16"],
    }


@pytest.mark.parametrize(
    ("quantisation", "name", "rule"),
    [
        (FP8_BLOCKS, "a100-80gb-sxm", None),  # weights alone are compressed: Marlin (llm_compressor/fp8.md, 0.32)
        (FP8_BLOCKS, "l4", None),
        (MODELOPT_FP8, "a100-80gb-sxm", "QuantisationCapability"),  # ModelOptFp8Config.get_min_capability: 89
        (MODELOPT_FP8, "a10g", "QuantisationCapability"),
        (MODELOPT_FP8, "l40s", None),
        (NVFP4, "h100-80gb-sxm", None),
        (NVFP4, "b200-sxm", None),
        (INT8, "h100-80gb-sxm", None),
        (INT8, "a10g", None),
        (INT8, "b200-sxm", "NoINT8"),  # llm_compressor/int8.md: not from capability 10.0 on
        (INT8, "b300-sxm", "NoINT8"),
        (INT8, "rtx-pro-6000-blackwell-server", "NoINT8"),
    ],
)
def test_the_format_and_the_gpu_decide_together(quantisation: dict[str, Any], name: str, rule: str | None) -> None:
    found = check_gpu(shape_of(quantisation=quantisation), gpu(name))
    assert [violation.rule for violation in found] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("quantisation", "name", "words"),
    [
        (None, "t4", ("NVIDIA T4", "7.5", "bfloat16", "8.0", "vlmctl catalogue gpus")),
        (MODELOPT_FP8, "a10g", ("NVIDIA A10G", "8.6", "modelopt", "8-bit", "8.9", "another format")),
        (INT8, "b300-sxm", ("10.3", "INT8", "10.0", "FP8 checkpoint")),
    ],
)
def test_a_refusal_names_the_gpu_the_rule_the_numbers_and_what_to_do(
    quantisation: dict[str, Any] | None, name: str, words: tuple[str, ...]
) -> None:
    (violation,) = check_gpu(shape_of(quantisation=quantisation), gpu(name))
    assert [word for word in words if word not in violation.message] == []


def test_data_mode_is_refused_where_the_engine_would_only_warn_and_split_the_weights() -> None:
    gemma, qwen = shape_of("google/gemma-3-4b-it"), shape_of()
    (violation,) = check_encoder_mode(gemma, "data")
    assert violation.rule == "EncoderMode"
    assert gemma.architecture in violation.message
    assert check_encoder_mode(gemma, "weights") == check_encoder_mode(qwen, "data") == ()
