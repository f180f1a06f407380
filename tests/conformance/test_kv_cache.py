"""Rows of kv_cache.jsonl and kv_request_blocks.jsonl: layout, capacity and verdict, exact, every row.

A row whose checkpoint has no shape fails the suite unless ``WITHOUT_SHAPE`` tells why; its layers are compared even so.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.model_shapes import architecture_of, change_config, model_configs, shape_of
from tests.conformance.vectors import check_count, read_rows, vectors_folder
from vlm_operator.sizing.kv_cache import (
    KVLayout,
    KVSettings,
    check_kv_cache,
    kv_bytes_per_token,
    kv_layout,
    lay_out,
    longest_context,
    plan_kv_cache,
)
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal, read_shape
from vlm_operator.sizing.shape.text.kv_layers import read_kv_layers

if TYPE_CHECKING:
    from vlm_operator.sizing.weights import EncoderMode

FLOOR = 5_105
"""Rows that the repository's own copy must reach, so that a broken reader cannot pass."""
REQUESTS_FLOOR = 4_402

WITHOUT_SHAPE = {"google/gemma-3n-E4B-it": "its MobileNet tower has no shape"}
"""Checkpoints that cannot be sized as a whole, with the reason; their text layers are read alone."""

Compare = Callable[[Path, dict[str, Any]], list[tuple[Any, ...]]]


def test_every_cache_is_planned_as_the_engine_plans_it(pytestconfig: pytest.Config) -> None:
    run = _compare_all(pytestconfig, "kv_cache.jsonl", _differences)
    check_count(pytestconfig, run, FLOOR)


def test_every_request_takes_the_blocks_that_the_engine_counts(pytestconfig: pytest.Config) -> None:
    run = _compare_all(pytestconfig, "kv_request_blocks.jsonl", _request_differences)
    check_count(pytestconfig, run, REQUESTS_FLOOR)


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


def _compare_all(config: pytest.Config, name: str, compare: Compare) -> int:
    """Compare every row of the file ``name`` and return how many there were."""
    folder = vectors_folder(config)
    run, wrong = 0, []
    for row in read_rows(folder, name):
        run += 1
        wrong += compare(folder, row)
    assert wrong == []
    return run


@cache
def _config(folder: Path, model: str, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration of ``model`` with the changes of a row that are written as ``a.b=number`` or null."""
    config = change_config(model_configs(folder)[model]["config"], changes)
    for change in changes:
        if found := re.match(r"([\w.]+)=null", change):
            *path, last = found.group(1).split(".")
            inner = config
            for name in path:
                inner[name] = dict(inner[name])
                inner = inner[name]
            inner[last] = None
    return config


@cache
def _shape(folder: Path, model: str, changes: tuple[str, ...]) -> ModelShape | ShapeRefusal:
    if model not in model_configs(folder):
        return ShapeRefusal(reason="UnknownModel", message=f"the configuration of {model} is not here")
    return read_shape(architecture_of(model_configs(folder)[model]), _config(folder, model, changes))


def _layout(folder: Path, row: dict[str, Any]) -> KVLayout | ShapeRefusal:
    changes = tuple(row.get("config_changes", ()))
    shape = _shape(folder, row["model"], changes)
    if isinstance(shape, ModelShape):
        return kv_layout(shape, _settings(row))
    if row["model"] in WITHOUT_SHAPE:
        return lay_out(read_kv_layers(_config(folder, row["model"], changes)), _settings(row))
    return shape


def _settings(row: dict[str, Any]) -> KVSettings:
    capability = re.search(r"\(SM(\d+)(\d)\)", row["device"])
    assert capability is not None
    return KVSettings(
        tensor_parallel_size=row["tp"],
        capability=(int(capability.group(1)), int(capability.group(2))),
        dtype=row["kv_cache_dtype"],
        prefix_caching=row["variant"] != "no_prefix_caching",
        hybrid_manager=row["variant"] != "no_hybrid_manager",
    )


def _differences(folder: Path, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    shape = _shape(folder, row["model"], tuple(row.get("config_changes", ())))
    mode: EncoderMode = row.get("mm_encoder_tp_mode") or "weights"
    broken: object = None
    if isinstance(shape, ModelShape):
        broken = check_tensor_parallel(shape, row["tp"], mode) or check_kv_cache(shape, _settings(row))
    if not row["legal"] or broken:
        return [(row.get("id"), "legal", row["legal"], broken)] if row["legal"] == bool(broken) else []
    layout = _layout(folder, row)
    if isinstance(layout, ShapeRefusal):
        return [(row.get("id"), layout.message)]
    figures = _figures(layout, row)
    return [
        (row.get("id"), name, row[name], got)
        for name, got in figures.items()
        if row.get(name) is not None and row[name] != got
    ]


def _figures(layout: KVLayout, row: dict[str, Any]) -> dict[str, Any]:
    length, flight, available = row["max_model_len"], row["max_in_flight_tokens"], row["available_bytes"]
    plan = plan_kv_cache(layout, max_model_len=length, max_in_flight_tokens=flight, available_bytes=available)
    return {
        "groups": _groups(layout, row),
        "num_groups": layout.group_count,
        "block_size": layout.block_tokens,
        "bytes_per_block": layout.bytes_per_block,
        "blocks_per_request": plan.blocks_per_request,
        "needed_bytes": plan.needed_bytes,
        "min_available_bytes": plan.min_available_bytes,
        "starts": plan.starts,
        "num_blocks": plan.num_blocks,
        "kv_cache_size_tokens": plan.tokens,
        "max_concurrency": pytest.approx(plan.concurrency, abs=1e-6),
        "auto_max_model_len": longest_context(layout, available, length, flight),
    }


def _groups(layout: KVLayout, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the groups as the row writes them, with its fields that are only information.

    A state that is kept once for the whole context has the length that the engine was started with.
    """
    found = [
        {
            "layers": list(group.layers),
            "type": group.kind,
            "block_size": group.spec.block_tokens or row["default_max_model_len"],
            "page_size_bytes": group.spec.page_bytes,
        }
        for group in layout.groups
    ]
    if len(found) != len(row["groups"]):
        return found
    return [{**given, **group} for given, group in zip(row["groups"], found, strict=True)]


def _request_differences(folder: Path, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    layout = _layout(folder, row)
    if isinstance(layout, ShapeRefusal):
        return [(row["model"], layout.message)]
    length, flight = row["request_tokens"], 2 * row["max_num_batched_tokens"]
    got = (layout.blocks_per_group(length, flight), layout.blocks_for(length, flight))
    return [] if got == (row["blocks_per_group"], row["blocks"]) else [(row, got)]


def test_a_uniform_row_states_the_bytes_of_a_token(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    wrong = []
    for row in read_rows(folder, "kv_cache.jsonl"):
        shape = shape_of(folder, row["model"])
        if shape is not None and row.get("kv_bytes_per_token_per_rank") is not None:
            got = kv_bytes_per_token(shape, row["tp"], row["kv_cache_dtype"])
            wrong += [(row.get("id"), got)] if got != row["kv_bytes_per_token_per_rank"] else []
    assert wrong == []
