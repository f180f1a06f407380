"""Measured closed-loop runs of language models beside the simulation, and the same rows with their GPU left out.

``decoders``: every row with the figures of the catalogue. ``decoders, rows left out``: the half of the rows that the
figures used here were not fitted to. ``decoders, GPU left out``: figures fitted without any run of the row's GPU, whose
kernels and datasheet alone are known then. Of other rows (``SILICON=FILE``) none was fitted to, so there is no second
table.

The runs of B200 show a cost of each prefill step that grows with the ranks: 26 ms from one GPU to two, where Hopper's
is 3 ms. No kernel table and no datasheet tells of it. With B200 left out, TTFT on one of them is predicted as well as
elsewhere, on two 14 % too low, on eight 43 %; the interval of GPUs without runs reaches that far up.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.accuracy.latency_fit import LEFT_OUT, SERIAL, every_second, with_figures
from tests.accuracy.latency_runs import SERIAL_HOST, Run, UnreadRun, read_runs, scored, simulate_run
from tests.accuracy.table import AccuracyRow
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.catalogue.types import LatencyCalibration
from vlm_operator.sizing.latency import Evidence, Quantity, with_interval
from vlm_operator.sizing.latency.speed import gpu_speed
from vlm_operator.sizing.traffic import TrafficResult

SECTION = "decoders"
ROWS_LEFT_OUT = "decoders, rows left out"
GPU_LEFT_OUT = "decoders, GPU left out"
QUANTITIES: tuple[Quantity, ...] = ("ttft", "tpot")


def silicon_rows(silicon: Path | None = None, models: Path | None = None) -> Sequence[AccuracyRow]:
    """Return TTFT and TPOT of every row, and of the rows or the GPUs that the figures were not fitted to.

    Raises:
        UnreadableFileError: A file is missing or not of the format.
    """
    runs = read_runs(silicon, models)
    calibration = latency_calibration()
    found = [row for run in runs for row in _show(run, calibration)]
    figures: Mapping[str, Mapping[str, float]] = json.loads(LEFT_OUT.read_text())
    if silicon is None:
        half = figures["half"]
        fitted = {run.line for run in every_second(scored(runs))}
        for run in scored(runs):
            if run.line not in fitted:
                without = with_figures(calibration, half)
                found += _compare(run, ROWS_LEFT_OUT, simulate_run(run, without, half[SERIAL]), _evidence(run))
    for run in scored(runs):
        own = figures.get(run.gpu.id)
        if own is not None:
            result = simulate_run(run, with_figures(calibration, own), own[SERIAL])
            found += _compare(run, GPU_LEFT_OUT, result, "kernels")
    return found


def _show(run: Run | UnreadRun, calibration: LatencyCalibration) -> list[AccuracyRow]:
    if isinstance(run, Run):
        return _compare(run, SECTION, simulate_run(run, calibration, SERIAL_HOST), _evidence(run))
    stated = [quantity for quantity in QUANTITIES if getattr(run, quantity) is not None]
    return [_row(run, SECTION, quantity, why_not=run.why) for quantity in stated or QUANTITIES[:1]]


def _evidence(run: Run) -> Evidence:
    return gpu_speed(run.gpu, latency_calibration()).evidence


def _compare(run: Run, section: str, result: TrafficResult, evidence: Evidence) -> list[AccuracyRow]:
    found = []
    for quantity in QUANTITIES:
        if getattr(run, quantity) is None:
            continue
        if quantity == "tpot" and run.output_tokens == 1:
            found.append(_row(run, section, quantity, why_not="a single output token has no time per later token"))
            continue
        estimate = with_interval(getattr(result, quantity).mean, quantity, evidence, latency_calibration())
        found.append(_row(run, section, quantity, (estimate.value, estimate.low, estimate.high)))
    return found


def _row(
    run: Run | UnreadRun,
    section: str,
    quantity: Quantity,
    predicted: tuple[float, float, float] | None = None,
    *,
    why_not: str = "",
) -> AccuracyRow:
    value, low, high = (None, None, None) if predicted is None else (1000 * figure for figure in predicted)
    seconds = getattr(run, quantity)
    return AccuracyRow(
        id=run.name,
        section=section,
        quantity=quantity.upper(),
        unit="ms",
        source="measured closed-loop runs",
        published=None if seconds is None else 1000 * seconds,
        predicted=value,
        low=low,
        high=high,
        scored=not why_not,
        why_not=why_not,
        better="lower",
        labels={"model": run.model, "gpu": run.system},
    )
