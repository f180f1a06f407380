"""Command lines against the verdicts and the settings of the real engine."""

import json
from functools import cache
from typing import Any

import pytest

from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.catalogue.load import find_engine, find_gpu, find_model, model_ids
from vlm_operator.engine.command_line import MODEL, CommandLineRefusal, parse_command_line
from vlm_operator.engine.config import ConfigRefusal, EngineConfig, resolve_config
from vlm_operator.engine.extra_args import read_extra_args
from vlm_operator.errors import InputError
from vlm_operator.sizing.inventory import kind_from_card
from vlm_operator.sizing.shape import ShapeRefusal, read_shape

ENGINE = find_engine("0.33.0")
NEEDS_MORE_OF_THE_ENGINE = {
    "cumem allocator is not supported": "sleep mode depends on the platform that the rows were made on",
}
"""Verdicts that are no matter of the command line, by the beginning of the engine's words, with the reason."""
FIELDS = (
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "block_size",
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "limits",
    "mm_processor_kwargs",
    "mm_encoder_tp_mode",
    "mm_processor_cache_gb",
    "disable_chunked_mm_input",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rows = list(read_rows(vectors_folder(metafunc.config), "flag_cases.jsonl"))
    metafunc.parametrize("row", rows, ids=[row["id"] for row in rows])


@cache
def resolve(arguments: str) -> EngineConfig | ConfigRefusal | CommandLineRefusal | ShapeRefusal:
    values = parse_command_line(json.loads(arguments), ENGINE)
    if isinstance(values, CommandLineRefusal):
        return values
    model = values[MODEL] if values[MODEL] in model_ids() else "Qwen/Qwen2.5-VL-7B-Instruct"
    card = find_model(model)
    shape = read_shape(card.architecture, card.config)
    if isinstance(shape, ShapeRefusal):
        return shape
    return resolve_config(values, ENGINE, card, shape, kind_from_card(find_gpu("NVIDIA-H100-80GB-HBM3")))


def test_a_command_line_is_parsed_or_refused_as_by_the_engine(row: dict[str, Any]) -> None:
    values = parse_command_line(row["argv"], ENGINE)
    assert isinstance(values, CommandLineRefusal) != row["parse_ok"], values


def test_what_the_engine_refuses_is_refused_from_a_user_and_what_is_obeyed_is_read_alike(row: dict[str, Any]) -> None:
    arguments = row["argv"][1:]
    try:
        asked = read_extra_args(arguments, ENGINE.version)
    except InputError:
        return
    assert row["parse_ok"]
    for field, value in row.get("resolved", {}).items() if row["start_ok"] else ():
        # A tower that cannot share images out is told so when the plan is made; the engine itself only warns.
        if field != "mm_encoder_tp_mode":
            assert getattr(asked, field, None) in (None, value), field
    # What is passed on or left out is nothing that the plan rests on.
    values = parse_command_line([MODEL, *asked.passed], ENGINE)
    assert not isinstance(values, CommandLineRefusal)
    assert not set(values) & set(FIELDS)


def test_a_command_line_starts_with_the_settings_of_the_engine_or_not_at_all(row: dict[str, Any]) -> None:
    outcome = resolve(json.dumps(row["argv"]))
    if not row["parse_ok"]:
        assert isinstance(outcome, CommandLineRefusal)
        return
    if isinstance(outcome, ShapeRefusal) or str(row.get("error")).startswith(tuple(NEEDS_MORE_OF_THE_ENGINE)):
        # A model that the product refuses to serve has no settings.
        return
    assert isinstance(outcome, EngineConfig) == row["start_ok"], outcome
    if isinstance(outcome, EngineConfig):
        assert {field: getattr(outcome, field) for field in FIELDS} == {
            field: row["resolved"][field] for field in FIELDS
        }
