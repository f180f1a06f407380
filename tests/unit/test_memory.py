"""Memory of one GPU and of one pod, against published start-up logs and worked examples."""

import dataclasses

import pytest

from tests.conformance.model_shapes import shape_of
from tests.conformance.vectors import DATA
from vlm_operator.catalogue.load import memory_calibration
from vlm_operator.sizing.host import estimate_host
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kv_cache import kv_bytes_per_token
from vlm_operator.sizing.legality import check_gpu, check_tensor_parallel, derive_max_model_len
from vlm_operator.sizing.memory import (
    MemoryRequest,
    breakdown,
    capture_sizes,
    estimate_memory,
)
from vlm_operator.sizing.memory_constants import constants_at
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal, read_shape
from vlm_operator.sizing.weights import count_parameters, weights_per_rank
from vlm_operator.units import GIB, MIB

LIKELY = constants_at(memory_calibration(), "value")
PESSIMISTIC = constants_at(memory_calibration(), "high")
GPU = GpuKind(
    id="h100-80gb-sxm",
    product="NVIDIA-H100-80GB-HBM3",
    display_name="H100 80 GB SXM",
    vendor="nvidia",
    compute_capability=(9, 0),
    driver_memory_bytes=81_559 * MIB,
    engine_memory_bytes=int(79.18 * GIB),
    engine_memory_certainty="measured",
    bandwidth_bytes_per_second=3.35e12,
    bf16_flops=989e12,
    fp8_flops=1979e12,
    link_bytes_per_second=450e9,
    hourly_cents=688,
)


def _shape(model: str) -> ModelShape:
    shape = shape_of(DATA, model)
    assert shape is not None
    return shape


def _request(model: str = "Qwen/Qwen2.5-VL-7B-Instruct", size: int = 1) -> MemoryRequest:
    return MemoryRequest(
        shape=_shape(model),
        gpu=GPU,
        tensor_parallel_size=size,
        utilization_percent=90,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        max_model_len=32_768,
        dummy_patches=65_536,
        engine_tokens=16_384,
    )


@pytest.mark.parametrize(("image_tokens", "request_tokens", "gib"), [(15_552, 63_016, 107.7), (1_230, 5_728, 9.8)])
def test_kv_cache_of_32_requests_with_four_images_each(image_tokens: int, request_tokens: int, gib: float) -> None:
    # An image takes two more tokens in the prompt than in the encoder: its start and its end.
    tokens = 4 * (image_tokens + 2) + 300 + 500
    assert tokens == request_tokens
    size = 32 * tokens * kv_bytes_per_token(_shape("Qwen/Qwen2.5-VL-7B-Instruct"), 1)
    assert round(size / GIB, 1) == gib


def test_weights_and_request_state_span_the_published_load_size() -> None:
    # "Model loading took 15.63-15.67 GiB": weights, and part of the buffers that loading creates.
    estimate = estimate_memory(_request(), LIKELY)
    assert estimate.need.weights.total / GIB == pytest.approx(15.65, rel=0.006)
    assert estimate.need.weights.total < 15.63 * GIB
    assert estimate.need.weights.total + estimate.need.buffers_bytes > 15.67 * GIB


def test_deepstack_buffers_are_part_of_the_published_load_size() -> None:
    # "Model loading took 16.78 GiB": Qwen3-VL-8B with 8,192 batched tokens (mem11).
    request = dataclasses.replace(_request("Qwen/Qwen3-VL-8B-Instruct"), max_num_batched_tokens=8192)
    estimate = estimate_memory(request, LIKELY)
    assert (estimate.need.weights.total + estimate.need.buffers_bytes) / GIB == pytest.approx(16.78, abs=0.03)


def test_a_model_that_was_seen_to_run_out_of_memory_does_not_fit() -> None:
    # mem31: InternVL3-78B on four A100 of 40 GB at utilization 0.95.
    gpu = dataclasses.replace(GPU, engine_memory_bytes=int(39.38 * GIB))
    request = dataclasses.replace(
        _request("OpenGVLab/InternVL3-78B", 4),
        gpu=gpu,
        utilization_percent=95,
        max_num_seqs=2,
        dummy_patches=13 * 1024,
        engine_tokens=3328,
    )
    assert estimate_memory(request, LIKELY).kv_available_bytes < 0


def test_a_default_video_sets_the_peak_that_was_observed() -> None:
    # Qwen2.5-VL-7B profiles a video of 114,688 tokens where videos are on: about 15.5 GiB (release 0.23).
    request = dataclasses.replace(_request(), dummy_patches=4 * 114_688, engine_tokens=114_688)
    activations = estimate_memory(request, LIKELY).need.activations
    assert activations.peak == activations.encoder
    assert activations.peak / GIB == pytest.approx(15.5, rel=0.05)


def test_experts_keep_their_workspaces_while_the_sampler_runs() -> None:
    # Kimi-VL-A3B on H100: 2.92 GiB (release 0.19); its logits alone are 2.3 GiB at 1,024 rows.
    request = dataclasses.replace(
        _request("moonshotai/Kimi-VL-A3B-Instruct"),
        max_num_seqs=1024,
        max_num_batched_tokens=8192,
        dummy_patches=4096,
        engine_tokens=1024,
        items=7,
    )
    activations = estimate_memory(request, LIKELY).need.activations
    assert activations.peak == activations.sampler
    assert activations.peak / GIB == pytest.approx(2.92, rel=0.05)


@pytest.mark.parametrize(
    ("model", "observed"),
    [("Qwen/Qwen2.5-VL-7B-Instruct", 0.51), ("google/gemma-3-27b-it", 1.02)],
)
def test_cuda_graphs_are_near_the_observed_ones(model: str, observed: float) -> None:
    assert estimate_memory(_request(model), LIKELY).need.cuda_graphs_bytes / GIB == pytest.approx(observed, rel=0.25)


def test_a_small_batch_captures_few_graphs() -> None:
    assert capture_sizes(8, 2048) == (1, 2, 4, 8, 16)
    assert len(capture_sizes(256, 2048)) == 51


def test_parallel_ranks_share_the_model_and_pay_for_nccl() -> None:
    one, four = estimate_memory(_request(), LIKELY), estimate_memory(_request(size=4), LIKELY)
    assert four.need.weights.total < one.need.weights.total / 3
    assert four.kv_available_bytes > one.kv_available_bytes
    assert one.need.outside.nccl == 0 < four.need.outside.nccl


def test_ranks_without_nvlink_switches_hold_smaller_buffers() -> None:
    hopper = estimate_memory(_request(size=2), LIKELY)
    gpu = dataclasses.replace(GPU, compute_capability=(8, 9))
    ada = estimate_memory(dataclasses.replace(_request(size=2), gpu=gpu), LIKELY)
    workstation = dataclasses.replace(GPU, compute_capability=(12, 0))
    blackwell = estimate_memory(dataclasses.replace(_request(size=2), gpu=workstation), LIKELY)
    # Two H100 of release 0.19: 2.07 GiB grow while profiling, 1.53 with the context are there before.
    assert hopper.need.non_torch_bytes / GIB == pytest.approx(2.07, abs=0.05)
    assert (hopper.need.outside.nccl + hopper.need.outside.context) / GIB == pytest.approx(1.53, abs=0.1)
    assert ada.need.non_torch_bytes == blackwell.need.non_torch_bytes < hopper.need.non_torch_bytes
    assert ada.need.outside.nccl == blackwell.need.outside.nccl < hopper.need.outside.nccl


def test_a_tower_that_rotates_in_float32_needs_the_copies() -> None:
    # One image of 16,384 tokens through Qwen2.5-VL's tower in a release that copied: 3.0 GiB beside its outputs.
    request = _request("Qwen/Qwen2.5-VL-3B-Instruct")
    copied = dataclasses.replace(request.shape, vision=dataclasses.replace(request.shape.vision, wide_rotary=True))
    wide = estimate_memory(dataclasses.replace(request, shape=copied), LIKELY).need.activations
    assert wide.encoder / GIB == pytest.approx(3.0, rel=0.03)
    assert wide.encoder > 1.3 * estimate_memory(request, LIKELY).need.activations.encoder
    assert _shape("PaddlePaddle/PaddleOCR-VL").vision.wide_rotary
    assert not request.shape.vision.wide_rotary


def test_a_model_that_is_too_large_leaves_negative_memory() -> None:
    estimate = estimate_memory(_request("Qwen/Qwen2.5-VL-72B-Instruct"), LIKELY)
    assert estimate.kv_available_bytes < 0


def test_full_utilization_leaves_no_room_outside_the_budget() -> None:
    assert estimate_memory(_request(), LIKELY).fits_outside
    assert not estimate_memory(dataclasses.replace(_request(), utilization_percent=100), LIKELY).fits_outside


def test_breakdown_ends_with_the_headroom() -> None:
    estimate = estimate_memory(_request(), LIKELY)
    table = breakdown(estimate, estimate, estimate.kv_available_bytes)
    assert table.total_bytes == GPU.engine_memory_bytes
    assert table.parts[-1].name == "headroom"
    assert table.part("weights").size_bytes > table.part("weights, vision").size_bytes


def test_host_memory_grows_with_context_and_gpus() -> None:
    one, four = estimate_host(_request(), LIKELY), estimate_host(_request(size=4), LIKELY)
    assert one.cpu_cores == 5
    assert four.cpu_cores == 8
    assert four.memory_bytes > one.memory_bytes
    assert four.shared_memory_bytes == 5 * GIB
    wide = dataclasses.replace(_request(), max_model_len=262_144, max_num_seqs=1024)
    assert estimate_host(wide, LIKELY).memory_bytes - one.memory_bytes > 3.8 * GIB


def test_gpus_without_bfloat16_or_of_another_vendor_are_refused() -> None:
    shape = _shape("Qwen/Qwen2.5-VL-7B-Instruct")
    assert check_gpu(shape, GPU) == ()
    old = dataclasses.replace(GPU, compute_capability=(7, 5), display_name="T4")
    assert [v.rule for v in check_gpu(shape, old)] == ["NoBF16"]
    other = dataclasses.replace(GPU, vendor="amd", compute_capability=None)
    assert [v.rule for v in check_gpu(shape, other)] == ["UnsupportedVendor"]
    unknown = dataclasses.replace(GPU, compute_capability=None)
    assert [v.rule for v in check_gpu(shape, unknown)] == ["UnknownCapability"]


def test_data_mode_rescues_a_tower_that_cannot_be_split() -> None:
    shape = _shape("Qwen/Qwen2.5-VL-3B-Instruct")
    assert [v.rule for v in check_tensor_parallel(shape, 8)] == ["vision_mlp"]
    assert check_tensor_parallel(shape, 8, "data") == ()


def test_odd_internvit_heads_replicate_the_attention() -> None:
    shape = _shape("OpenGVLab/InternVL3-38B")
    assert check_tensor_parallel(shape, 2) == ()
    assert weights_per_rank(shape, 2).vision_tower > weights_per_rank(shape, 1).vision_tower * 0.6


@pytest.mark.parametrize(
    ("architecture", "config", "reason"),
    [
        ("NoSuchModel", {}, "UnknownArchitecture"),
        (
            "Qwen2VLForConditionalGeneration",
            {"model_type": "qwen2_vl", "quantization_config": {"quant_method": "bitsandbytes"}},
            "UnknownQuantisation",
        ),
        ("Qwen2VLForConditionalGeneration", {"model_type": "qwen2_vl"}, "IncompleteConfig"),
        ("MiniCPMV", {"model_type": "minicpmv", "version": 2.0}, "UnknownArchitecture"),
        ("InternVLChatModel", {"llm_config": {"model_type": "falcon"}}, "UnknownArchitecture"),
        (
            "LlavaForConditionalGeneration",
            {"model_type": "llava", "text_config": {"model_type": "llama"}},
            "UnknownArchitecture",
        ),
    ],
)
def test_what_cannot_be_sized_is_refused(architecture: str, config: dict[str, object], reason: str) -> None:
    refused = read_shape(architecture, config)
    assert isinstance(refused, ShapeRefusal)
    assert refused.reason == reason


def test_sparse_llava_config_takes_class_defaults() -> None:
    config = {
        "text_config": {"model_type": "llama", "vocab_size": 32_064, "max_position_embeddings": 4096},
        "vision_config": {"model_type": "clip_vision_model"},
        "tie_word_embeddings": False,
    }
    shape = read_shape("LlavaForConditionalGeneration", config)
    assert isinstance(shape, ModelShape)
    assert count_parameters(shape) == count_parameters(_shape("llava-hf/llava-1.5-7b-hf"))
    assert derive_max_model_len(config) == 4096
    assert not isinstance(derive_max_model_len(config, 8192), int)
    assert not isinstance(derive_max_model_len(config, 0), int)


def test_inputs_of_single_layers_have_a_buffer_of_their_own() -> None:
    # Gemma-4-E4B: 42 layers take 256 elements each, for every batched token, in two bytes.
    small = _request("google/gemma-4-E4B-it")
    large = dataclasses.replace(small, max_num_batched_tokens=small.max_num_batched_tokens + 1000)
    more = estimate_memory(large, LIKELY).need.buffers_bytes - estimate_memory(small, LIKELY).need.buffers_bytes
    assert more == 1000 * (small.shape.text.hidden + 42 * 256) * 2
