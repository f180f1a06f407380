"""Rows of kv_cache.jsonl: groups, blocks, capacity and verdict, exact.

The repository's copy holds every row of the architectures that can be sized, 2,422 of 5,105. Run are their
default rows, KV in bf16 and fp8. Left out: ``no_hybrid_manager`` rows (the planner never renders that flag) and fp8
on compute capability 8.0, which the attention backend refuses and the planner never asks for.
"""

from typing import Any

import pytest

from tests.conformance.model_shapes import shape_of
from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.sizing.kv_cache import KVCachePlan, kv_bytes_per_token, longest_context, plan_kv_cache
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import ModelShape

FLOOR = 2_000
"""Rows that the repository's own copy must reach, so that a broken reader cannot pass."""


def test_every_default_row_is_planned_as_the_engine_plans_it(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "kv_cache.jsonl"):
        shape = shape_of(folder, row["model"])
        if shape is None or row["variant"] != "default" or _is_refused_fp8(row):
            continue
        run += 1
        wrong += _differences(shape, row)
    assert wrong == []
    assert run >= FLOOR or pytestconfig.getoption("vectors")


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", 57_344),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 327_680),
        ("llava-hf/llava-1.5-7b-hf", 524_288),
        ("Qwen/Qwen3-VL-8B-Instruct", 147_456),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 163_840),
    ],
)
def test_published_kv_bytes_per_token(model: str, size: int, pytestconfig: pytest.Config) -> None:
    shape = shape_of(vectors_folder(pytestconfig), model)
    assert shape is not None
    assert kv_bytes_per_token(shape, 1) == size


def test_kv_heads_are_replicated_above_their_number(pytestconfig: pytest.Config) -> None:
    shape = shape_of(vectors_folder(pytestconfig), "Qwen/Qwen2.5-VL-72B-Instruct")
    assert shape is not None
    assert [kv_bytes_per_token(shape, size) for size in (4, 8, 16)] == [81_920, 40_960, 40_960]


def _is_refused_fp8(row: dict[str, Any]) -> bool:
    return "(SM80)" in row["device"] and row["kv_cache_dtype"] == "fp8"


def _differences(shape: ModelShape, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    if not row["legal"]:
        broken = check_tensor_parallel(shape, row["tp"])
        return [] if broken else [(row["id"], "legal")]
    plan = plan_kv_cache(
        shape,
        row["tp"],
        dtype=row["kv_cache_dtype"],
        max_model_len=row["max_model_len"],
        max_in_flight_tokens=row["max_in_flight_tokens"],
        available_bytes=row["available_bytes"],
    )
    return [
        (row["id"], name, expected, got)
        for name, expected, got in _figures(plan, row)
        if expected is not None and got != expected
    ]


def _figures(plan: KVCachePlan, row: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    groups = [(g["layers"], g["type"], g["block_size"], g["page_size_bytes"]) for g in row["groups"]]
    longest = longest_context(plan, row["available_bytes"], row["max_model_len"])
    concurrency = row["max_concurrency"]
    return [
        ("groups", groups, [(list(g.layers), g.kind, plan.block_size, g.page_bytes) for g in plan.groups]),
        ("num_groups", row["num_groups"], sum(len(g.layers) for g in plan.groups)),
        ("block_size", row["block_size"], plan.block_size),
        ("bytes_per_block", row["bytes_per_block"], plan.bytes_per_block),
        ("needed_bytes", row["needed_bytes"], plan.needed_bytes),
        ("min_available_bytes", row["min_available_bytes"], plan.min_available_bytes),
        ("starts", row["starts"], plan.starts),
        ("num_blocks", row["num_blocks"], plan.num_blocks),
        ("kv_cache_size_tokens", row["kv_cache_size_tokens"], plan.tokens),
        ("max_concurrency", concurrency, pytest.approx(plan.concurrency, abs=1e-6)),
        ("auto_max_model_len", row.get("auto_max_model_len"), longest),
    ]


def test_every_request_takes_the_blocks_that_the_engine_counts(pytestconfig: pytest.Config) -> None:
    """Rows of kv_request_blocks.jsonl: the blocks of requests shorter than the context."""
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "kv_request_blocks.jsonl"):
        shape = shape_of(folder, row["model"])
        if shape is None or row["variant"] != "default" or _is_refused_fp8(row):
            continue
        run += 1
        plan = plan_kv_cache(
            shape,
            row["tp"],
            dtype=row["kv_cache_dtype"],
            max_model_len=row["request_tokens"],
            max_in_flight_tokens=2 * row["max_num_batched_tokens"],
            available_bytes=0,
        )
        got = (plan.blocks_per_group(row["request_tokens"]), plan.blocks_for(row["request_tokens"]))
        if got != (row["blocks_per_group"], row["blocks"]):
            wrong.append((row, got))
    assert wrong == []
    assert run >= FLOOR // 2 or pytestconfig.getoption("vectors")
