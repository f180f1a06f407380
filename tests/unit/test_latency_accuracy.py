"""How near predictions are to runs that the figures were not fitted to; `make accuracy` prints the rows."""

from collections.abc import Sequence
from functools import cache

import pytest

from tests.accuracy.latency_serving import LOAD_INFERRED, MOST_LOAD, serving_rows
from tests.accuracy.latency_silicon import GPU_LEFT_OUT, ROWS_LEFT_OUT, SECTION, silicon_rows
from tests.accuracy.table import AccuracyRow, Summary, summarise, summarise_group


@cache
def decoders() -> Sequence[AccuracyRow]:
    return silicon_rows()


@cache
def summaries() -> dict[tuple[str, str], Summary]:
    return {(found.section, found.quantity): found for found in summarise(decoders())}


@pytest.mark.parametrize(("quantity", "median", "p90"), [("TTFT", 0.06, 0.20), ("TPOT", 0.03, 0.10)])
@pytest.mark.parametrize("section", [SECTION, ROWS_LEFT_OUT])
def test_rows_that_were_left_out_are_met(section: str, quantity: str, median: float, p90: float) -> None:
    found = summaries()[section, quantity]
    assert found.median_error <= median
    assert found.p90_error <= p90


@pytest.mark.parametrize(("quantity", "median"), [("TTFT", 0.12), ("TPOT", 0.05)])
def test_a_gpu_that_was_left_out_altogether_is_met(quantity: str, median: float) -> None:
    assert summaries()[GPU_LEFT_OUT, quantity].median_error <= median


@pytest.mark.parametrize("section", [ROWS_LEFT_OUT, GPU_LEFT_OUT])
@pytest.mark.parametrize("quantity", ["TTFT", "TPOT"])
def test_intervals_hold_nine_rows_of_ten(section: str, quantity: str) -> None:
    contained = summaries()[section, quantity].contained
    assert contained is not None
    assert contained >= 0.9


def test_single_requests_with_images_are_met_within_a_tenth() -> None:
    rows = [row for row in serving_rows() if row.scored and row.quantity == "end to end"]
    found = summarise_group(rows)
    assert found.rows >= 45
    assert found.median_error <= 0.10
    assert found.contained is not None
    assert found.contained >= 0.9


def test_throughput_is_met_within_15_percent() -> None:
    stated = [row for row in serving_rows() if row.scored and row.section == "serving" and row.quantity == "throughput"]
    inferred = [row for row in serving_rows() if row.section == LOAD_INFERRED]
    assert summarise_group(stated).median_error <= 0.15
    found = summarise_group(inferred)
    assert found.rows >= 45
    assert found.median_error <= 0.15
    assert found.contained is not None
    assert found.contained >= 0.9


def test_a_throughput_without_its_load_is_shown_beside_that_of_a_saturated_server() -> None:
    unstated = [row for row in serving_rows() if row.why_not == MOST_LOAD]
    assert len(unstated) >= 45
    assert all(row.predicted and row.published and row.predicted > row.published for row in unstated)


def test_rows_that_do_not_count_say_why() -> None:
    assert {row.why_not for row in decoders() if not row.scored} == {
        "behaves like disaggregated prefill and decode, which is not modelled"
    }
