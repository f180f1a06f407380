"""Rows of the accuracy tables, their summary and both of their forms."""

import json
from pathlib import Path

import pytest

from tests.accuracy.__main__ import main
from tests.accuracy.table import AccuracyRow, summarise, to_json, to_text


def _row(predicted: float, **changes: object) -> AccuracyRow:
    fields: dict[str, object] = {
        "id": "row",
        "section": "memory",
        "quantity": "KV cache",
        "unit": "GiB",
        "source": "a log",
        "predicted": predicted,
        "published": 10.0,
        "low": 9.0,
        "high": 11.0,
        "labels": {"gpu": "H100", "model": "a model"},
    }
    return AccuracyRow(**{**fields, **changes})  # type: ignore[arg-type]


def test_more_memory_and_less_time_than_published_are_optimistic() -> None:
    assert _row(12.0).optimism == pytest.approx(0.2)
    assert _row(12.0, better="lower").optimism == pytest.approx(-0.2)
    assert _row(-12.0, published=-10.0).error == pytest.approx(-0.2)


def test_a_row_counts_with_both_figures_or_says_why_not() -> None:
    with pytest.raises(ValueError, match="needs a prediction"):
        _row(12.0, published=None)
    with pytest.raises(ValueError, match="says why"):
        _row(12.0, scored=False)
    assert _row(12.0, published=None, scored=False, why_not="no figure").error is None


def test_the_summary_is_of_scored_rows_by_section_and_quantity() -> None:
    rows = [_row(9.0), _row(10.5), _row(12.0, high=11.0), _row(10.0, published=20.0, scored=False, why_not="no")]
    (summary,) = summarise(rows)
    assert summary.rows == 3
    assert summary.median_error == pytest.approx(0.1)
    assert summary.p90_error == pytest.approx(0.2)
    assert summary.largest_optimism == pytest.approx(0.2)
    assert summary.contained == 1
    assert [one.quantity for one in summarise([*rows, _row(1.0, quantity="weights")])] == ["KV cache", "weights"]


def test_both_forms_show_every_row() -> None:
    rows = [_row(9.0, id="first"), _row(8.0, low=7.0, high=9.0, id="outside"), _row(1.0, scored=False, why_not="why")]
    text, document = to_text(rows), json.loads(to_json(rows))
    assert "first" in text
    assert "outside" in text
    assert "why" in text
    assert [row["contains"] for row in document["rows"]] == [True, False, True]
    assert document["summary"][0]["contained"] == 0.5


def test_other_rows_of_the_same_format_are_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = {
        "id": "mine",
        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
        "gpu": "H100 80GB",
        "vllm": "0.33.0",
        "flags": "max_model_len 8192 video=0",
        "kv_cache_gib": 50.0,
        "source": "me",
    }
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"memory_logs": [log]}))
    assert main(["--section", "memory", "--benchmarks", str(file), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in document["rows"]] == ["mine"]


def test_gpus_and_models_with_enough_rows_are_summarised_by_themselves() -> None:
    rows = [
        AccuracyRow(
            id=str(number),
            section="latency",
            quantity="TTFT",
            unit="ms",
            source="a run",
            predicted=110.0 if number % 2 else 100.0,
            published=100.0,
            labels={"gpu": "slow" if number % 2 else "fast", "model": "one" if number else "single"},
        )
        for number in range(10)
    ]
    found = to_text(rows)
    assert "  fast: 5 rows, median error 0.0 %, p90 0.0 %" in found
    assert "  slow: 5 rows, median error 10.0 %, p90 10.0 %" in found
    assert "  one: 9 rows, median error 10.0 %, p90 10.0 %" in found
    assert "  single:" not in found
