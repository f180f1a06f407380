"""Figures for people: the one place where the numbers of screens and pages are formatted."""

from collections.abc import Mapping
from typing import Final

from vlm_operator.sizing.memory import MemoryBreakdown
from vlm_operator.sizing.plan import Plan
from vlm_operator.sizing.workload import LatencyTarget
from vlm_operator.units import GIB

EVIDENCE_WORDS: Final[Mapping[str, str]] = {
    "runs": "served runs of this GPU were compared",
    "kernels": "kernels of this GPU were measured, no served run was compared",
    "datasheet": "only the datasheet of this GPU is known, and kernels of a near one",
}


def seconds(value: float) -> str:
    """Return a duration such as ``410 ms`` or ``1.2 s``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def money(cents: float | None) -> str:
    """Return dollars per hour, or that the price is unknown."""
    return "price unknown" if cents is None else f"${cents / 100:,.2f}/h"


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(fraction: float) -> str:
    """Return a share as whole percent."""
    return f"{fraction * 100:.0f} %"


def megapixels(pixels: float) -> str:
    """Return pixels such as ``1.00 MP`` or ``12.2 MP``."""
    return f"{pixels / 1e6:.1f} MP" if pixels >= 9.95e6 else f"{pixels / 1e6:.2f} MP"


def gpu_words(number: int, display_name: str) -> str:
    """Return ``2 × L40S 48GB``."""
    return f"{number} × {display_name}"


def runs_on(plan: Plan) -> str:
    """Return ``2 × L40S 48GB``, with the replicas in front where there are several: ``3 × (2 × L40S 48GB)``."""
    what = gpu_words(plan.gpus_per_replica, plan.gpu.display_name)
    return f"{plan.replicas} × ({what})" if plan.replicas > 1 else what


def metric_words(target: LatencyTarget) -> str:
    """Return the latency of a target such as ``TTFT p95``."""
    names = {"ttft": "TTFT", "tpot": "TPOT", "request_latency": "request"}
    return f"{names[target.metric]} p{target.percentile}"


def tenths_that_sum(memory: MemoryBreakdown) -> Mapping[str, int]:
    """Return each part in tenths of a GiB so that the figures printed add up to the total printed."""
    tenths = {part.name: round(part.size_bytes / GIB * 10) for part in memory.parts}
    last = memory.parts[-1].name
    tenths[last] += round(memory.total_bytes / GIB * 10) - sum(tenths.values())
    return tenths
