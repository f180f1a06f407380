"""Rows of the same formats that nobody has seen: each is scored or says why not; a file that is none says so once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.accuracy.__main__ import main
from tests.accuracy.benchmarks import load_published
from tests.accuracy.latency_serving import LOAD_INFERRED, MOST_LOAD, compare_serving
from tests.accuracy.latency_silicon import GPU_LEFT_OUT, SECTION, silicon_rows
from tests.accuracy.memory import compare_log
from tests.accuracy.table import AccuracyRow

HEAD = "model,system,prec,isl,osl,b,tp,ttft_m,ttft_p,tpot_m,tpot_p,note"
RUN = "Qwen/Qwen3-32B,h100_sxm,,1024,128,8.0,4.0,126.1,126.9,11.7,10.5,0.12.0"


def table(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def run_of(tmp_path: Path, **changes: str) -> Sequence[AccuracyRow]:
    fields = {**dict(zip(HEAD.split(","), RUN.split(","), strict=True)), **changes}
    return silicon_rows(table(tmp_path, ",".join(fields), ",".join(fields.values())))


def serving_row(**changes: Any) -> dict[str, Any]:
    row = next(row for row in load_published("serving") if row["id"].endswith("7b-instruct-a100-bf16-visual_reasoning"))
    return {**row, **changes}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("", "the file is empty"),
        ("[1, 2", "no JSON"),
        ("[]", "a list where an object of lists belongs"),
        ('{"serving": {}}', "serving is an object, not a list of rows"),
        ('{"serving": [{}, 5]}', "serving, row 2 is a number, not an object of fields"),
    ],
)
def test_a_file_of_rows_that_is_none_is_named_with_its_row(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"
    if content is not None:
        file.write_text(content)
    assert main(["--section", "serving", "--benchmarks", str(file)]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(f"{file}: ")
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "the first row lacks the column model"),
        (b"model,system,isl,osl,tp,ttft_m\n", "the first row lacks the column b"),
        (b"model,system,isl,osl,b,tp\n", "the first row lacks the column ttft_m or tpot_m"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b'{"serving": []}', "the first row lacks the column model"),
    ],
)
def test_a_table_of_runs_that_is_none_is_named_with_its_column(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.csv"
    if content is not None:
        file.write_bytes(content)
    assert main(["--section", "decoders", "--silicon", str(file)]) == 2
    found = capsys.readouterr()
    assert found.err.startswith(f"{file}: ")
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({}, "a list named models"),
        ({"models": [{"hidden_size": 1}]}, "models, row 1 has no id"),
        ({"models": [{"id": "a/b", "hidden_size": "wide"}]}, "models, row 1 (a/b): hidden_size is 'wide'"),
        ({"models": [{"id": "a/b"}]}, "models, row 1 (a/b) lacks num_hidden_layers"),
    ],
)
def test_shapes_that_are_none_are_named_with_their_field(
    models: Mapping[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps(models))
    assert main(["--section", "decoders", "--silicon", str(table(tmp_path, HEAD, RUN)), "--models", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_a_file_without_rows_is_an_empty_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    file.write_text("{}")
    arguments = ["--benchmarks", str(file), "--silicon", str(table(tmp_path, HEAD))]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "no published rows\n"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tp": ""}, "it does not state tp"),
        ({"b": "many"}, "b is 'many', which is no number"),
        ({"b": "2.5"}, "b is 2.5, which is not whole"),
        ({"isl": "-1"}, "isl is -1, which is not above zero"),
        ({"tp": "3"}, "tp 3 does not divide the model's 64 heads"),
        ({"system": "tpu_v5"}, "the catalogue has no GPU named tpu_v5"),
        ({"prec": "int3"}, "the number format int3 is not modelled"),
        ({"model": "nobody/knows"}, "the shape of nobody/knows in bf16 is not known"),
        ({"isl": "1e9"}, "isl and osl exceed the model's context of 131072 tokens"),
        ({"b": "100000"}, "more than 4096 clients are not simulated"),
        ({"system": "l4", "tp": "1"}, "its weights leave no room for the KV cache of one request"),
        ({"ttft_m": "nan", "tpot_m": "", "note": ""}, "it states no TTFT and no TPOT"),
    ],
)
def test_a_run_that_cannot_be_compared_says_why(changes: dict[str, str], why: str, tmp_path: Path) -> None:
    rows = run_of(tmp_path, **changes)
    assert {row.why_not for row in rows} == {why}


@pytest.mark.parametrize(
    "changes",
    [
        {"system": "l40s", "prec": "fp8", "tp": "4", "note": ""},
        {"system": "a100_sxm"},
        {"system": "gb200", "prec": "nvfp4", "tp": "1", "note": ""},
        {"model": "meta-llama/Meta-Llama-3.1-70B-Instruct"},
        {"model": "Qwen/Qwen3-VL-8B-Instruct", "tp": "1"},
        {"model": "Qwen/Qwen3-8B", "prec": "w8a8", "tp": "1"},
        {"note": "RuntimeError: the peer had no prediction"},
    ],
)
def test_runs_of_other_gpus_models_and_formats_are_scored(changes: dict[str, str], tmp_path: Path) -> None:
    rows = [row for row in run_of(tmp_path, **changes) if row.section == SECTION]
    assert [row.quantity for row in rows if row.scored] == ["TTFT", "TPOT"]
    assert all(row.low and row.predicted and row.high and row.low < row.predicted < row.high for row in rows)


def test_a_run_of_a_gpu_that_was_fitted_is_shown_without_it_too(tmp_path: Path) -> None:
    assert {row.section for row in run_of(tmp_path)} == {SECTION, GPU_LEFT_OUT}
    assert {row.section for row in run_of(tmp_path, system="l40s")} == {SECTION}


def test_a_run_counts_for_the_one_time_that_it_states(tmp_path: Path) -> None:
    assert {(row.quantity, row.scored) for row in run_of(tmp_path, ttft_m="")} == {("TPOT", True)}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu": None}, "it does not state gpu"),
        ({"gpu": "TPU v5"}, "the GPU is not known, or the replica spans several nodes"),
        ({"model": "nobody/knows"}, "the model, or how its weights are stored, is not known"),
        ({"image_size": "large"}, "image_size is 'large', which is no width and height"),
        ({"image_size": None, "visual_tokens_derived": None}, "it does not state image size"),
        ({"image_size": None, "images_per_request": None, "visual_tokens_derived": None, "text_in": None},
         "it states neither image size nor tokens"),
        ({"out_tokens": "few"}, "out_tokens is 'few', which is no number"),
        ({"gpu_counts": None, "gpu_count": 4}, "it does not state how its 4 GPUs share the model (tp)"),
        ({"engine": "another"}, "another engine (another)"),
        ({"conditions": 7}, "conditions is 7, which has no fields"),
        ({"results": {}}, "it states no latency and no throughput that is compared"),
        ({"results": {"req_s": 3}}, MOST_LOAD),
        ({"results": {"ttft_ms": 3}}, "its load is not stated"),
        ({"results": {"ttft_ms": 3}, "request_rate": "inf"}, "how many prompts is not stated"),
        ({"results": {"ttft_ms": 3}, "request_rate": 500, "num_prompts": 5000},
         "more than its replicas keep up with, by the prediction: its latency grows as long as requests come"),
        ({"results": {"ttft_ms": 3}, "request_rate": 1e6}, "more than 100000 requests are not simulated"),
    ],
)  # fmt: skip
def test_a_serving_row_that_cannot_be_compared_says_why(changes: dict[str, Any], why: str) -> None:
    rows = [row for row in compare_serving(serving_row(**changes)) if row.section != LOAD_INFERRED]
    assert {row.why_not for row in rows} == {why}


@pytest.mark.parametrize(
    "load",
    [
        {"concurrency": 16},
        {"max_concurrency": "16"},
        {"request_rate": 1.5},
        {"request_rate": "inf", "num_prompts": 64},
        {"workload": "64 prompts all at once (request rate inf)"},
        {"workload": "random images, concurrency 16"},
        {"scenario": "Offline"},
        {"flags": "--max-concurrency 16 --request-rate inf --num-prompts 64"},
    ],
)
def test_a_throughput_is_scored_under_each_load_that_a_row_states(load: dict[str, Any]) -> None:
    rows = compare_serving(serving_row(results={"req_s": 2.0}, **load))
    assert [(row.quantity, row.scored, row.section) for row in rows] == [("throughput", True, "serving")]


@pytest.mark.parametrize(
    ("results", "quantities"),
    [
        ({"ttft_ms": {"mean": 300, "p50": 200, "p99": 900}}, ["median TTFT", "p99 TTFT"]),
        ({"median_ttft_ms": 200, "mean_tpot_ms": 20}, ["median TTFT", "mean TPOT"]),
        ({"p99_e2el_ms": 4000}, ["p99 end to end"]),
        ({"latency_mean_s": 3, "latency_p99_s": "4"}, ["mean end to end", "p99 end to end"]),
        ({"request_throughput": 3, "output_throughput": 400}, ["throughput"]),
        ({"out_tok_s": 400}, ["output"]),
    ],
)  # fmt: skip
def test_figures_are_read_under_the_names_that_benchmarks_give_them(
    results: dict[str, Any], quantities: list[str]
) -> None:
    rows = compare_serving(serving_row(results=results, concurrency=4))
    assert [row.quantity for row in rows] == quantities
    assert all(row.scored for row in rows)


def test_tokens_do_where_an_image_has_no_size() -> None:
    (row,) = compare_serving(serving_row(image_size=None, visual_tokens=391, results={"req_s": 2}, concurrency=4))
    (same,) = compare_serving(serving_row(results={"req_s": 2}, concurrency=4))
    assert row.predicted == pytest.approx(same.predicted, rel=0.05)


def test_what_ends_early_in_the_mean_ends_early_in_the_simulation() -> None:
    text = {"image_size": None, "images_per_request": None, "visual_tokens_derived": None, "engine": None}
    burst = {**text, "workload": "random text 1000/1000 x32, rate inf", "flags": "vllm serve"}
    full, early = (
        compare_serving(serving_row(results={"req_s": 2, "out_tok_s": tokens}, **burst))[0] for tokens in (2000, 1800)
    )
    assert full.predicted is not None
    assert early.predicted is not None
    assert full.predicted < early.predicted


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tp": "two"}, "tp is 'two', which is no number"),
        ({"tp": 3}, "tp 3 does not divide the model's heads"),
        ({"kv_cache_gib": "much"}, "kv_cache_gib is 'much', which is no number"),
        ({"kv_cache_gib": None}, "the log gives no KV cache memory"),
        ({"model": "(no name)"}, "the model, or how its weights are stored, is not known"),
        ({"vllm": None}, "the release is not stated"),
    ],
)
def test_a_log_that_cannot_be_compared_says_why(changes: dict[str, Any], why: str) -> None:
    log = {
        "id": "mine",
        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
        "gpu": "H100 80GB",
        "vllm": "0.33.0",
        "flags": "max_model_len 8192 video=0",
        "kv_cache_gib": "50.0",
        "source": "me",
    }
    (row,) = compare_log({**log, **changes})
    assert row.why_not == why
    assert compare_log(log)[0].scored


def test_a_row_without_an_id_has_its_number_for_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"serving": [{"model": "a"}, {"id": None}]}))
    assert [row["id"] for row in load_published("serving", file)] == ["serving, row 1", "serving, row 2"]
