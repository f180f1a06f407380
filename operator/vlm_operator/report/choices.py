"""What could be chosen: plans, the frontier over them, the one that was. For a terminal, an SVG and the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vlm_operator.report.axes import Axis, axis_over
from vlm_operator.report.figures import megapixels, metric_words, seconds
from vlm_operator.sizing.frontier import TTFT_P95, Frontier, kept_pixels, latency_seconds, meets
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.workload import LatencyTarget

Standing = Literal["beaten", "late", "front", "declared"]
"""How a plan stands, least prominent first; ``late`` misses a latency target."""

STANDINGS: tuple[Standing, ...] = ("beaten", "late", "front", "declared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Plans of one object with everything that a picture of them says.

    Attributes:
        name: The object.
        model_id: Its model.
        declared: What comes out as declared.
        targets: The declared latency targets.
        plans: Every plan that was found.
        frontier: Those that no other beats.
    """

    name: str
    model_id: str
    declared: Plan | NoFit
    targets: Sequence[LatencyTarget] = field(default_factory=tuple)
    plans: Sequence[Plan]
    frontier: Frontier

    @property
    def compared(self) -> LatencyTarget:
        """The latency that the frontier compares."""
        return self.targets[0] if self.targets else TTFT_P95


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A plan in a picture: its price in cents, its figure, how it stands, its number where it is on the frontier."""

    cents: float
    figure: float
    standing: Standing
    number: int | None
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One frontier, ready to be drawn: marks, the least prominent first, both axes, the target where there is one."""

    title: str
    note: str
    marks: tuple[Mark, ...]
    price: Axis
    figure: Axis
    target: float | None = None

    @property
    def front(self) -> tuple[Mark, ...]:
        """The marks on the frontier by number, which is by price."""
        return tuple(sorted((m for m in self.marks if m.number is not None), key=lambda mark: mark.number or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantity:
    """What a price is held against."""

    title: str
    words: Callable[[float], str]
    of: Callable[[Plan], float]


def latency_picture(choices: Choices) -> Picture | None:
    """Return price against latency; None where no plan has a price."""
    compared = choices.compared
    least = kept_pixels(choices.declared) if isinstance(choices.declared, Plan) else None
    quantity = _Quantity(
        title=metric_words(compared), words=seconds, of=lambda plan: latency_seconds(plan, compared)
    )  # fmt: skip
    note = f"Every plan here sees at least {megapixels(least)} of the mean image, as declared." if least else ""
    enough = [plan for plan in choices.plans if (kept_pixels(plan) or 0.0) >= (least or 0.0)]
    front, target = choices.frontier.cost_latency, compared.seconds if choices.targets else None
    return _draw(replace(choices, plans=enough), front, quantity, note, target)


def pixels_picture(choices: Choices) -> Picture | None:
    """Return price against pixels; None where all plans see as many: no setting changes them, or none was tried."""
    if not choices.frontier.cost_pixels or len({kept_pixels(plan) for plan in choices.plans}) == 1:
        return None
    quantity = _Quantity(
        title="pixels seen of the mean image", words=megapixels, of=lambda plan: kept_pixels(plan) or 0.0
    )  # fmt: skip
    note = "The frontier is over plans that keep every latency target." if choices.targets else ""
    return _draw(choices, choices.frontier.cost_pixels, quantity, note, None)


def _draw(
    choices: Choices, front: Sequence[Plan], quantity: _Quantity, note: str, target: float | None
) -> Picture | None:
    numbers = {identity(plan): number for number, plan in enumerate(front, 1)}
    plans = {identity(plan): plan for plan in choices.plans if plan.hourly_cents is not None}
    if not plans:
        return None
    declared = identity(choices.declared) if isinstance(choices.declared, Plan) else None
    marks = [
        Mark(
            cents=plan.hourly_cents or 0.0,
            figure=quantity.of(plan),
            standing=_standing(plan, declared=key == declared, on_front=key in numbers, targets=choices.targets),
            number=numbers.get(key),
            plan=plan,
        )
        for key, plan in plans.items()
    ]
    limits = [] if target is None else [target]
    return Picture(
        title=f"Price against {quantity.title}",
        note=note,
        marks=tuple(sorted(marks, key=lambda mark: STANDINGS.index(mark.standing))),
        price=axis_over((mark.cents for mark in marks), "price of an hour", lambda cents: f"${cents / 100:,.2f}"),
        figure=axis_over((*(mark.figure for mark in marks), *limits), quantity.title, quantity.words),
        target=target,
    )


def _standing(plan: Plan, *, declared: bool, on_front: bool, targets: Sequence[LatencyTarget]) -> Standing:
    if declared:
        return "declared"
    if not meets(plan, targets):
        return "late"
    return "front" if on_front else "beaten"


def identity(plan: Plan) -> tuple[object, ...]:
    """Return what makes two plans the same choice: what runs, not what is expected of it."""
    flags = plan.flags
    return (plan.model_id, plan.gpu.id, flags.tensor_parallel_size, plan.replicas, plan.cap_value, flags.kv_cache_dtype)
