"""Measured closed-loop runs of language models beside the simulation, and the same rows with their GPU left out.

``decoders``: every row with the figures of the catalogue. ``decoders, rows left out``: the half of the rows that the
figures used here were not fitted to. ``decoders, GPU left out``: figures fitted without any run of the row's GPU, whose
kernels and datasheet alone are known then. Of other rows (``SILICON=FILE``) none was fitted to, so there is no second
table.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.accuracy.latency_fit import LEFT_OUT, SERIAL, every_second, with_figures
from tests.accuracy.latency_runs import SERIAL_HOST, Run, gpu_of, read_runs, scored, simulate_run, why_not_scored
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.catalogue.types import LatencyCalibration
from vlm_operator.sizing.latency import Evidence, with_interval

SECTION = "decoders"
ROWS_LEFT_OUT = "decoders, rows left out"
GPU_LEFT_OUT = "decoders, GPU left out"


def silicon_rows(silicon: Path | None = None) -> Sequence[AccuracyRow]:
    """Return TTFT and TPOT of every row, and of the rows or the GPUs that the figures were not fitted to."""
    runs = read_runs(silicon)
    calibration = latency_calibration()
    found = [row for run in runs for row in _compare(run, SECTION, calibration)]
    figures: Mapping[str, Mapping[str, float]] = json.loads(LEFT_OUT.read_text())
    if silicon is None:
        half = figures["half"]
        fitted = set(every_second(scored(runs)))
        for run in scored(runs):
            if run not in fitted:
                found += _compare(run, ROWS_LEFT_OUT, with_figures(calibration, half), serial_host=half[SERIAL])
    for run in scored(runs):
        if run.system in figures:
            own = figures[run.system]
            without = with_figures(calibration, own)
            found += _compare(run, GPU_LEFT_OUT, without, evidence="kernels", serial_host=own[SERIAL])
    return found


def _compare(
    run: Run,
    section: str,
    calibration: LatencyCalibration,
    *,
    evidence: Evidence | None = None,
    serial_host: float = SERIAL_HOST,
) -> tuple[AccuracyRow, AccuracyRow]:
    why_not = why_not_scored(run)
    if why_not:
        return _row(run, section, "TTFT", run.ttft, why_not=why_not), _row(
            run, section, "TPOT", run.tpot, why_not=why_not
        )
    result = simulate_run(run, calibration, serial_host)
    seen = evidence or ("runs" if gpu_of(run.system).id in calibration.seen_in_runs else "kernels")
    first = with_interval(result.ttft.mean, "ttft", seen, calibration)
    later = with_interval(result.tpot.mean, "tpot", seen, calibration)
    return (
        _row(run, section, "TTFT", run.ttft, (first.value, first.low, first.high)),
        _row(run, section, "TPOT", run.tpot, (later.value, later.low, later.high)),
    )


def _row(
    run: Run,
    section: str,
    quantity: str,
    seconds: float,
    predicted: tuple[float, float, float] | None = None,
    *,
    why_not: str = "",
) -> AccuracyRow:
    value, low, high = (None, None, None) if predicted is None else (1000 * figure for figure in predicted)
    return AccuracyRow(
        id=run.name,
        section=section,
        quantity=quantity,
        unit="ms",
        source="AIConfigurator's published comparison",
        published=1000 * seconds,
        predicted=value,
        low=low,
        high=high,
        scored=not why_not,
        why_not=why_not,
        better="lower",
        labels={"model": run.model, "gpu": run.system},
    )
