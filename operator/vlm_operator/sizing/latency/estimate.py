"""A predicted figure with its interval and what it rests on."""

from dataclasses import dataclass
from typing import Literal

from vlm_operator.catalogue.types import LatencyCalibration

Evidence = Literal["runs", "kernels", "datasheet"]
"""``runs``: served runs of this GPU were compared; ``kernels``: its kernels were measured, no run was seen;
``datasheet``: only its datasheet is known, and the kernels of a GPU of a near architecture."""

Quantity = Literal["ttft", "tpot", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and the interval that is to hold nine measurements of ten."""

    value: float
    low: float
    high: float
    evidence: Evidence


def spread_of(quantity: Quantity, evidence: Evidence, calibration: LatencyCalibration) -> tuple[float, float]:
    """Return what measured figures are of predicted ones, lowest and highest, among the rows of that evidence."""
    spread = calibration.spread[evidence][quantity]
    return spread.low, spread.high


def with_interval(value: float, quantity: Quantity, evidence: Evidence, calibration: LatencyCalibration) -> Estimate:
    """Return ``value`` with the spread of measured over predicted among the rows of that evidence."""
    low, high = spread_of(quantity, evidence, calibration)
    return Estimate(value=value, low=value * low, high=value * high, evidence=evidence)
