"""What ``vllm serve`` takes by itself where a flag is not given, and what it refuses."""

import pytest

from tests.cases.situations import gpu_of, serve
from vlm_operator.sizing.launch import Launched, LaunchFlags, LaunchRefusal, default_batch

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
GEMMA = "google/gemma-3-27b-it"


@pytest.mark.parametrize(
    ("gpu", "batch"),
    [
        ("l4", (2048, 256)),
        ("l40s", (2048, 256)),
        ("a100-80gb-sxm", (2048, 256)),  # its name counts, not its size
        ("h100-80gb-sxm", (8192, 1024)),
        ("h200-sxm", (8192, 1024)),
        ("rtx-pro-6000-blackwell-server", (8192, 1024)),
        ("b200-sxm", (16_384, 1024)),
        ("mi300x", (16_384, 1024)),
    ],
)
def test_batch_limits_follow_the_gpu(gpu: str, batch: tuple[int, int]) -> None:
    assert default_batch(gpu_of(gpu)) == batch


@pytest.mark.parametrize(
    ("flags", "batch"),
    [
        (LaunchFlags(), (8192, 1024)),
        (LaunchFlags(max_num_seqs=2, max_model_len=1000), (2000, 2)),  # no more tokens than the sequences hold
        (LaunchFlags(max_num_batched_tokens=512), (512, 512)),
        (LaunchFlags(max_num_batched_tokens=512, max_num_seqs=16), (512, 16)),
    ],
)
def test_a_limit_that_is_given_moves_the_one_that_is_not(flags: LaunchFlags, batch: tuple[int, int]) -> None:
    launched = serve(QWEN_7B, gpu_of("h200-sxm"), flags=flags).launch()
    assert isinstance(launched, Launched)
    assert (launched.request.max_num_batched_tokens, launched.request.max_num_seqs) == batch


def test_an_image_that_may_not_be_cut_must_fit_into_a_step_that_is_given() -> None:
    flags = LaunchFlags(max_num_batched_tokens=128, max_num_seqs=8, max_model_len=8192)
    refused = serve(GEMMA, gpu_of("h200-sxm"), flags=flags).launch()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason == "EncoderBudget"
    assert "256" in refused.message


def test_the_context_is_the_checkpoints_where_none_is_given_and_never_above_it() -> None:
    launched = serve(QWEN_7B, gpu_of("h200-sxm")).launch()
    assert isinstance(launched, Launched)
    assert launched.request.max_model_len == 128_000
    refused = serve(QWEN_7B, gpu_of("h200-sxm"), flags=LaunchFlags(max_model_len=128_001)).launch()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason == "ContextTooLong"


@pytest.mark.parametrize(("size", "mode", "legal"), [(8, "weights", False), (8, "data", True), (3, "data", False)])
def test_a_size_is_refused_with_those_that_work(size: int, mode: str, legal: bool) -> None:  # noqa: FBT001 - a table's column
    flags = LaunchFlags(tensor_parallel_size=size, encoder_mode="data" if mode == "data" else "weights")
    launched = serve("Qwen/Qwen2.5-VL-3B-Instruct", gpu_of("h100-80gb-sxm"), flags=flags).launch()
    assert isinstance(launched, Launched) == legal
    if isinstance(launched, LaunchRefusal):
        assert "1, 2, 4; with encoder mode data also 8, 16" in launched.message


def test_data_mode_of_a_tower_that_has_none_is_refused() -> None:
    flags = LaunchFlags(tensor_parallel_size=2, encoder_mode="data")
    refused = serve(GEMMA, gpu_of("h100-80gb-sxm"), flags=flags).launch()
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason == "EncoderMode"
