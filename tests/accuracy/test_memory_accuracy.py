"""The goals of the memory model on the published start-up logs, and how their free text is read."""

from collections.abc import Sequence

import pytest

from tests.accuracy.memory import ACTIVATIONS, KV_CACHE, KV_TOKENS, WEIGHTS, compare_log, memory_rows
from tests.accuracy.memory_logs import LogConditions, NotUnderstood, read_conditions, read_gpu
from tests.accuracy.models import find_published
from tests.accuracy.table import AccuracyRow, Summary, summarise_group
from vlm_operator.units import GIB


@pytest.fixture(scope="module")
def rows() -> Sequence[AccuracyRow]:
    return memory_rows()


def _summary(rows: Sequence[AccuracyRow], quantity: str) -> Summary:
    return summarise_group([row for row in rows if row.scored and row.quantity == quantity])


def test_kv_cache_memory_is_within_the_goals(rows: Sequence[AccuracyRow]) -> None:
    summary = _summary(rows, KV_CACHE)
    assert summary.rows >= 40
    assert summary.median_error <= 0.04
    assert summary.largest_optimism <= 0.05
    assert summary.contained is not None
    assert summary.contained >= 0.9


def test_vision_models_alone_are_within_the_goals(rows: Sequence[AccuracyRow]) -> None:
    with_images = [
        row for row in rows if (model := find_published(row.labels["model"])) is not None and model.rule is not None
    ]
    summary = _summary(with_images, KV_CACHE)
    assert summary.rows >= 12
    assert summary.median_error <= 0.04
    assert summary.largest_optimism <= 0.05


def test_intervals_are_narrower_than_the_memory_that_they_are_about(rows: Sequence[AccuracyRow]) -> None:
    # An interval that always contains the truth would be no use: half of them span less than a tenth of the cache.
    widths = sorted(
        (row.high - row.low) / row.published
        for row in rows
        if row.scored and row.quantity == KV_CACHE and row.high and row.low is not None and row.published
    )
    assert widths[len(widths) // 2] < 0.1


@pytest.mark.parametrize(("quantity", "error"), [(WEIGHTS, 0.01), (ACTIVATIONS, 0.03)])
def test_parts_are_near_what_the_logs_say(rows: Sequence[AccuracyRow], quantity: str, error: float) -> None:
    assert _summary(rows, quantity).median_error <= error


def test_the_tokens_of_a_cache_are_the_engines(rows: Sequence[AccuracyRow]) -> None:
    # Exact: an interval here is nothing but the two decimals of the logged memory.
    summary = _summary(rows, KV_TOKENS)
    assert summary.rows >= 25
    assert summary.contained == 1


def test_every_row_is_scored_or_says_why_not(rows: Sequence[AccuracyRow]) -> None:
    reasons = {row.id: row.why_not for row in rows if not row.scored}
    assert reasons["ctl1"] == "release 0.6 runs the engine before V1"
    assert reasons["mem03-4096"] == "another vendor's GPU (amd)"
    assert reasons["mem38"] == "another engine (LMDeploy TurboMind)"
    assert reasons["mem11"] == "the GPU, or what the engine sees of its memory, is not stated"
    assert reasons["pr25631-default"] == "the video that this release profiles with is not stated"
    assert reasons["mem02g"] == "its parts add up to 75.2 GiB, its flags give a budget of 71.3"


@pytest.mark.parametrize(
    ("text", "kind", "gib"),
    [
        ("H100 80GB (79.18 GiB)", "h100-80gb-sxm", 79.18),
        ("NVIDIA L4 (nvidia-smi 23034 MiB; torch ~22.05-22.07 GiB)", "l4", 22.06),
        ("4x RTX 3090 24GB (23.57 GiB)", "rtx-3090", 23.57),
        ("4x A100-PCIE-40GB", "a100-40gb-pcie", 39.39),
        ("A100-80GB", "a100-80gb-sxm", 79.25),
        ("H100 NVL", "h100-94gb-nvl", 93.1),
        ("H200", "h200-sxm", 139.8),
        ("2x L40S", "l40s", 44.4),
        ("RTX 4090", "rtx-4090", 23.64),
        ("48GB-class (~47 GiB derived)", "unnamed", 47.0),
    ],
)
def test_gpus_are_read_from_free_text(text: str, kind: str, gib: float) -> None:
    gpu = read_gpu(text)
    assert gpu is not None
    assert gpu.id == kind
    assert gpu.engine_memory_bytes / GIB == pytest.approx(gib, abs=0.01)


def test_a_class_of_gpus_is_none() -> None:
    assert read_gpu("48GB-class Ampere/Ada (FA2), exact model not in log") is None


def test_flags_are_read_in_their_many_spellings() -> None:
    row = {
        "vllm": "~0.19 dev (2026-04)",
        "gpu": "2x L40S",
        "tp": 2,
        "flags": "util 0.95 max-model-len 40960 --enforce-eager image=1 video=0 mnbt 4096 max_num_seqs 8",
    }
    conditions = read_conditions(row)
    assert isinstance(conditions, LogConditions)
    assert (conditions.utilization, conditions.max_model_len, conditions.eager) == (0.95, 40960, True)
    assert (conditions.image_limit, conditions.video_limit) == (1, 0)
    assert (conditions.max_num_batched_tokens, conditions.max_num_seqs) == (4096, 8)


def test_what_a_row_does_not_state_is_the_default_of_its_release() -> None:
    old = read_conditions({"vllm": "0.11.0", "gpu": "H100", "flags": "max_model_len 4096"})
    new = read_conditions({"vllm": "0.33.0", "gpu": "A100-80GB", "flags": "max_model_len 4096"})
    assert isinstance(old, LogConditions)
    assert isinstance(new, LogConditions)
    assert (old.utilization, old.max_num_batched_tokens, old.max_num_seqs) == (0.9, 8192, 1024)
    assert (new.utilization, new.max_num_batched_tokens, new.max_num_seqs) == (0.92, 2048, 256)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ("max_model_len 4096 --pipeline-parallel-size 2", "pipeline"),
        ("max_model_len 4096 --speculative-config {...}", "draft"),
        ("max_model_len 4096, MTP on", "draft"),
        ("max_model_len 4096 --cpu-offload-gb 10", "not on the GPU"),
        ("max_model_len 4096 --kv-cache-memory-bytes 1000000000", "given"),
    ],
)
def test_what_the_product_never_asks_of_an_engine_is_not_compared(flags: str, word: str) -> None:
    refused = read_conditions({"vllm": "0.23.0", "gpu": "H100", "flags": flags})
    assert isinstance(refused, NotUnderstood)
    assert word in refused.why


@pytest.mark.parametrize("row", [{"gpu": "MI300X (191.98 GiB)", "vllm": "0.23.0"}, {"engine": "TensorRT-LLM 0.12"}])
def test_other_engines_and_vendors_are_not_compared(row: dict[str, str]) -> None:
    refused = read_conditions({"flags": "max_model_len 4096", **row})
    assert isinstance(refused, NotUnderstood)
    assert refused.why.startswith("another")


def test_models_are_found_by_their_id_or_by_its_last_part_and_a_format() -> None:
    exact = find_published("Qwen/Qwen3-VL-8B-Instruct-FP8")
    stated = find_published("Qwen3-VL-8B-Instruct fp8")
    plain = find_published("Qwen3-VL-8B-Instruct bf16")
    assert exact is not None
    assert stated is not None
    assert plain is not None
    assert exact.shape.quantisation is not None
    assert stated.shape.quantisation is not None
    assert plain.shape.quantisation is None
    assert find_published("unsloth Qwen2.5-VL-3B-Instruct (bnb 4-bit)") is None
    assert find_published("gemma-3-27b-it int4 AWQ") is None


def test_a_cap_on_pixels_shrinks_what_the_encoder_is_profiled_with() -> None:
    model, capped = (find_published("Qwen/Qwen2.5-VL-7B-Instruct", pixels) for pixels in (None, 1_003_520))
    assert model is not None
    assert capped is not None
    assert model.rule is not None
    assert capped.rule is not None
    assert model.rule.maximum().engine_tokens == 16_384
    assert capped.rule.maximum().engine_tokens == 1_280


def test_a_row_without_a_release_is_not_compared() -> None:
    assert isinstance(read_conditions({"gpu": "H100", "flags": "max_model_len 4096"}), NotUnderstood)


def test_a_server_that_did_not_start_lacks_as_much_as_predicted() -> None:
    # Qwen2.5-VL-7B with its default video on an A100 at utilization 0.22, release 0.23.
    row = {
        "id": "lacking",
        "model": "Qwen2.5-VL-7B-Instruct",
        "gpu": "A100 80GB",
        "vllm": "0.23.0",
        "flags": "--gpu-memory-utilization 0.22",
        "kv_cache_gib": -14.28,
        "source": "gh:55021192520",
    }
    (kv_cache,) = compare_log(row)
    assert kv_cache.predicted is not None
    assert kv_cache.error is not None
    assert -0.05 < kv_cache.error < 0.05
    assert (kv_cache.error > 0) == (kv_cache.predicted > -14.28)
    assert kv_cache.contains


def test_a_log_of_another_model_is_compared_by_the_same_rules() -> None:
    # Gemma-4-E4B on an RTX 4090, release 0.22: videos on, 0.79 GiB charged for graphs.
    row = {
        "id": "other",
        "model": "google/gemma-4-E4B-it",
        "gpu": "RTX 4090",
        "vllm": "0.22.1",
        "flags": "--max-model-len 32768 util 0.9",
        "encoder_budget_tokens": 2496,
        "profiled": "1 video item",
        "kv_cache_gib": 4.1,
        "source": "start-up log",
    }
    (kv_cache,) = compare_log(row)
    assert kv_cache.scored
    assert kv_cache.contains
