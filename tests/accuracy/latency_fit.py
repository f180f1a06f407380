"""The latency figures that rest on runs, fitted anew: ``python -m tests.accuracy.latency_fit [--without GPU]``.

Least squares of the logarithms of predicted over measured TTFT and TPOT, with a soft limit on outliers and a weak pull
towards the figures in the catalogue. It prints the figures; ``--write`` keeps those of the leave-one-GPU-out table. It
takes minutes: every step simulates every row some twenty times.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from pathlib import Path

from tests.accuracy.benchmarks import DATA
from tests.accuracy.latency_runs import SERIAL_HOST, Run, read_runs, scored, simulate_run
from vlm_operator.catalogue.load import latency_calibration
from vlm_operator.catalogue.types import EngineFigures, Figure, LatencyCalibration

PLAIN = ("layer", "host_step", "front_end", "elementwise_share", "kv_gain", "rank_skew")
GAINS = ("reading_share", "multiplying_gain")
BY_ENGINE = ("host_sequence", "prefill_step", "prefill_doubling", "all_reduce_share")
SERIAL = "suite.serial_host"
FIXED = ("reading_share.bf16", "elementwise_share")
"""Not fitted. The first rests on runs of one request at a time (the serving rows), where nothing else takes so much of
a step; the second can hardly be told from the rate of products in these rows, so it keeps what such kernels reach."""
LEFT_OUT = DATA / "latency_left_out.json"

TTFT_WEIGHT = 0.5
"""A TTFT depends on arrivals that no model knows, so its rows count less."""
SOFT = 0.05
"""Errors beyond this count linearly."""
PULL = 0.05
"""Weight of the logarithm of a figure over the one it started from."""
MOST = 0.5
"""Largest change of a logarithm in one step."""
STEP = 0.02
"""Relative change of a figure for its derivative."""

Figures = Mapping[str, float]


def figures_of(calibration: LatencyCalibration) -> dict[str, float]:
    """Return the fitted figures by name, such as ``engines.90.prefill_step``."""
    found = {name: getattr(calibration, name).value for name in PLAIN}
    found |= {f"{gain}.{key}": figure.value for gain in GAINS for key, figure in getattr(calibration, gain).items()}
    for engine in calibration.engines:
        found |= {f"engines.{engine.capability}.{name}": getattr(engine, name).value for name in BY_ENGINE}
    return found | {SERIAL: SERIAL_HOST}


def with_figures(calibration: LatencyCalibration, figures: Figures) -> LatencyCalibration:
    """Return ``calibration`` with other fitted figures."""

    def changed(name: str, figure: Figure) -> Figure:
        return figure.model_copy(update={"value": figures.get(name, figure.value)})

    def engine(old: EngineFigures) -> EngineFigures:
        names = {name: changed(f"engines.{old.capability}.{name}", getattr(old, name)) for name in BY_ENGINE}
        return old.model_copy(update=names)

    update = {name: changed(name, getattr(calibration, name)) for name in PLAIN}
    gains = {
        gain: {key: changed(f"{gain}.{key}", old) for key, old in getattr(calibration, gain).items()} for gain in GAINS
    }
    engines = tuple(engine(old) for old in calibration.engines)
    return calibration.model_copy(update={**update, **gains, "engines": engines})


def fit(runs: Sequence[Run], start: LatencyCalibration, steps: int) -> dict[str, float]:
    """Return the figures that fit ``runs`` best after ``steps`` Gauss-Newton steps with damping."""
    origin = figures_of(start)
    names = [name for name in origin if _matters(name, runs)]
    place = dict(origin)
    damping, errors = 0.01, _errors(runs, start, place, origin)
    for _ in range(steps):
        rows = [_derivative(runs, start, place, origin, name, errors) for name in names]
        while damping < 100:
            move = _solve(rows, errors, damping)
            factors = (exp(max(-MOST, min(MOST, change))) for change in move)
            trial = place | {name: _moved(name, place, by) for name, by in zip(names, factors, strict=True)}
            found = _errors(runs, start, trial, origin)
            if _cost(found) < _cost(errors):
                place, errors, damping = trial, found, damping / 4
                break
            damping *= 4
    return place


def _moved(name: str, place: Figures, factor: float) -> float:
    """Return a figure times ``factor``; no share of a datasheet's figure is above 1."""
    found = place[name] * factor
    return min(found, 1.0) if name.split(".", maxsplit=1)[0].endswith("_share") else found


def every_second(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return half of the rows, spread over GPUs, formats and sizes: the half that figures are fitted to in a check."""
    return tuple(sorted(runs, key=lambda run: run.name)[::2])


def _matters(name: str, runs: Sequence[Run]) -> bool:
    """Whether any row depends on the figure; without its rows an architecture keeps what its neighbour has."""
    if name in FIXED:
        return False
    if name == SERIAL:
        return any(run.is_serial for run in runs)
    if name.startswith("engines.80."):
        return False
    if name.startswith("engines."):
        blackwell = name.split(".")[1] == "100"
        return any(((run.gpu.compute_capability or (0, 0)) >= (10, 0)) is blackwell for run in runs)
    formats = {"fp4": "fp4", "fp8": "fp8", "bf16": ""}
    kind = name.rsplit(".", 1)[-1]
    return kind not in formats or any(run.format == formats[kind] for run in runs)


def _errors(runs: Sequence[Run], start: LatencyCalibration, figures: Figures, origin: Figures) -> list[float]:
    calibration = with_figures(start, figures)
    found: list[float] = []
    for run in runs:
        result = simulate_run(run, calibration, figures[SERIAL])
        if run.ttft is not None:
            found.append(_soft(TTFT_WEIGHT * log(result.ttft.mean / run.ttft)))
        if run.tpot is not None:
            found.append(_soft(log(result.tpot.mean / run.tpot)))
    return found + [PULL * log(figures[name] / origin[name]) for name in origin]


def _soft(error: float) -> float:
    """Return the error whose square is the soft cost ``2 s^2 (sqrt(1 + (e/s)^2) - 1)``."""
    size = sqrt(2 * (sqrt(1 + (error / SOFT) ** 2) - 1)) * SOFT
    return size if error >= 0 else -size


def _derivative(
    runs: Sequence[Run], start: LatencyCalibration, place: Figures, origin: Figures, name: str, errors: Sequence[float]
) -> list[float]:
    moved = _errors(runs, start, {**place, name: place[name] * exp(STEP)}, origin)
    return [(after - before) / STEP for after, before in zip(moved, errors, strict=True)]


def _cost(errors: Sequence[float]) -> float:
    return sum(error * error for error in errors)


def _solve(rows: Sequence[Sequence[float]], errors: Sequence[float], damping: float) -> list[float]:
    """Solve the damped normal equations by elimination."""
    size = len(rows)
    matrix = [[sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for j in range(size)] for i in range(size)]
    right = [-sum(a * e for a, e in zip(row, errors, strict=True)) for row in rows]
    for i in range(size):
        matrix[i][i] = matrix[i][i] * (1 + damping) + 1e-9
    for i in range(size):
        for j in range(i + 1, size):
            factor = matrix[j][i] / matrix[i][i]
            right[j] -= factor * right[i]
            matrix[j] = [b - factor * a for a, b in zip(matrix[i], matrix[j], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (right[i] - sum(matrix[i][j] * found[j] for j in range(i + 1, size))) / matrix[i][i]
    return found


def neighbours(figures: Figures, runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures with those that no row is about taken from the nearest: other architecture, FP8 for FP4."""
    found = dict(figures)
    for name in figures:
        if name in FIXED or _matters(name, runs):
            continue
        if name.startswith("engines."):
            other = "100" if name.split(".")[1] == "90" else "90"
            found[name] = figures[f"engines.{other}.{name.split('.')[2]}"]
        elif name.endswith(".fp4"):
            found[name] = figures[name.replace(".fp4", ".fp8")]
    return found


def main() -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.latency_fit", description=__doc__)
    parser.add_argument("--without", metavar="GPU", help="leave this GPU's rows out, such as h200-sxm")
    parser.add_argument("--half", action="store_true", help="leave every second row out")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--write", type=Path, metavar="FILE", help="add the figures to a file of left-out fits")
    options = parser.parse_args()
    runs = scored(read_runs())
    if options.without:
        runs = tuple(run for run in runs if run.gpu.id != options.without)
    if options.half:
        runs = every_second(runs)
    figures = neighbours(fit(runs, latency_calibration(), options.steps), runs)
    shown = {name: float(f"{value:.4g}") for name, value in figures.items()}
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    if options.write:
        kept = json.loads(options.write.read_text()) if options.write.exists() else {}
        kept[options.without or ("half" if options.half else "all")] = shown
        options.write.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
