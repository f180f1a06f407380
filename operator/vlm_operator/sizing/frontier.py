"""The Pareto frontier over plans: what no other plan beats in price and in what the price buys.

In: plans, however they were found. Out: those that are on the frontier, cheapest first. Pure; called by ``cli``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from vlm_operator.sizing.plan import Plan
from vlm_operator.sizing.workload import LatencyTarget

_T = TypeVar("_T")

TTFT_P95: Final = LatencyTarget(metric="ttft", percentile=95, seconds=float("inf"))
"""What plans are compared by where no target is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """What is worth choosing from, each cheapest first and without plans that another one beats.

    Attributes:
        cost_latency: The more it costs, the sooner it answers.
        cost_pixels: The more it costs, the more it sees of an image; empty where the model's family has no setting
            that changes that.
    """

    cost_latency: tuple[Plan, ...]
    cost_pixels: tuple[Plan, ...]


def find_frontier(plans: Iterable[Plan], targets: Iterable[LatencyTarget] = (), least_pixels: float = 0.0) -> Frontier:
    """Return the frontier over ``plans``.

    Args:
        plans: Plans of one model and workload. One without a price is not compared, for its cost is unknown.
        targets: The declared targets. The first is the latency that is compared (else TTFT p95); a plan that misses
            one is no choice of pixels, but it is one of latency.
        least_pixels: Plans that see fewer pixels of the mean image are no choice of latency: they would win by
            seeing less.
    """
    targets = tuple(targets)
    compared = targets[0] if targets else TTFT_P95
    priced = [plan for plan in plans if plan.hourly_cents is not None]
    enough = [plan for plan in priced if (kept_pixels(plan) or least_pixels) >= least_pixels]
    punctual = [plan for plan in priced if meets(plan, targets) and kept_pixels(plan) is not None]
    return Frontier(
        cost_latency=undominated(enough, lambda plan: (plan.hourly_cents or 0.0, latency_seconds(plan, compared))),
        cost_pixels=undominated(punctual, lambda plan: (plan.hourly_cents or 0.0, -(kept_pixels(plan) or 0.0))),
    )


def undominated(items: Iterable[_T], costs: Callable[[_T], tuple[float, float]]) -> tuple[_T, ...]:
    """Return the items that no other is at least as good as in both ``costs`` (lower is better) and better in one.

    They come in the order of the first cost. Of items that are equal in both, the first given stays.
    """
    front: list[_T] = []
    best = float("inf")
    for item in sorted(items, key=costs):
        second = costs(item)[1]
        if second < best:
            front.append(item)
            best = second
    return tuple(front)


def latency_seconds(plan: Plan, target: LatencyTarget) -> float:
    """Return the plan's seconds at the metric and percentile of ``target``."""
    return plan.latency.of(target.metric).at(target.percentile)


def meets(plan: Plan, targets: Iterable[LatencyTarget]) -> bool:
    """Return whether the plan keeps every target."""
    return all(latency_seconds(plan, target) <= target.seconds for target in targets)


def kept_pixels(plan: Plan) -> float | None:
    """Return how many pixels of the mean declared image the model sees, None where no setting changes that."""
    total = sum(image.share for image in plan.tokens.images)
    kept = 0.0
    for image in plan.tokens.images:
        if image.kept_pixels is None:
            return None
        kept += image.kept_pixels * image.share
    return kept / total if total else None
