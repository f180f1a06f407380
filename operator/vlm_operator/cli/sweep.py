"""Every combination of changes planned: spec + what to go over -> points, and the frontier over them.

Called by ``sweep`` and ``report``. Each step of the pixels is one judgement of the whole inventory, which GPUs and
tensor parallel sizes only sort.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from vlm_operator.api.spec import Objectives, VLMDeploymentSpec
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cli.changes import Change
from vlm_operator.planning import constraints_of, judge_deployment, plan_deployment
from vlm_operator.report.choices import Choices, identity
from vlm_operator.sizing.advice import SMALLEST_FLOOR_PIXELS
from vlm_operator.sizing.frontier import find_frontier, kept_pixels, meets
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan, Rejection, rank
from vlm_operator.sizing.search import JudgedPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is varied: the spec, what could be had, the model's card, and what comes out as declared."""

    spec: VLMDeploymentSpec
    inventory: Inventory
    card: ModelCard | None
    declared: Plan | NoFit


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """What comes out for one change: the cheapest plan, the nearest miss, or why nothing could be judged.

    ``late`` marks a plan that fits but misses a latency target, shown where none keeps them all.
    """

    change: Change
    outcome: Plan | Rejection | NoFit
    late: bool = False


def sweep(subject: Subject, over: Mapping[str, Sequence[str]]) -> tuple[SweepPoint, ...]:
    """Return a point for every combination of what ``over`` names; a key without values takes all that there are.

    Raises:
        InputError: a GPU is neither in the catalogue nor in the inventory.
    """
    steps: Sequence[int | None] = (None,)
    if "max-pixels" in over:
        steps = tuple(map(int, over["max-pixels"])) or pixel_steps(subject.spec)
    gpus: Sequence[str | None] = over.get("gpu") or (None,)
    sizes: Sequence[int | None] = tuple(map(int, over.get("tp", ()))) or (None,)
    split = ("gpu" in over and gpus == (None,), "tp" in over and sizes == (None,))
    return tuple(
        point
        for step, gpu, size in product(steps, gpus, sizes)
        for point in _points(subject, Change(max_pixels=step, gpu=gpu, tensor_parallel_size=size), split)
    )


def tried(subject: Subject, points: Sequence[SweepPoint]) -> tuple[SweepPoint, ...]:
    """Return the points with every plan on the frontier tried under simulated traffic.

    Closed formulas find the frontier; what the trials take off it makes room for others, which are tried in turn.
    """
    found = list(points)
    trials: dict[tuple[object, ...], tuple[Plan | NoFit, bool]] = {}
    if isinstance(subject.declared, Plan):
        trials[identity(subject.declared)] = (subject.declared, False)
    settled: set[int] = set()
    while untried := _on_frontier(subject, found) - settled:
        for at in sorted(untried):
            point, plan = found[at], found[at].outcome
            if isinstance(plan, Plan):
                key = identity(plan)
                if key not in trials:
                    trials[key] = _try(subject, point, plan)
                outcome, late = trials[key]
                found[at] = SweepPoint(change=point.change, outcome=outcome, late=late)
        settled |= untried
    return tuple(found)


def _on_frontier(subject: Subject, points: Sequence[SweepPoint]) -> set[int]:
    """Return the places of the points whose plans are on the frontier."""
    frontier = choices_of("", subject, points).frontier
    on_it = {identity(plan) for plan in (*frontier.cost_latency, *frontier.cost_pixels)}
    return {
        at for at, point in enumerate(points) if isinstance(point.outcome, Plan) and identity(point.outcome) in on_it
    }


def choices_of(name: str, subject: Subject, points: Sequence[SweepPoint]) -> Choices:
    """Return the plans among ``points`` and the frontier over them, for latency over those that see enough."""
    plans = {identity(point.outcome): point.outcome for point in points if isinstance(point.outcome, Plan)}
    if isinstance(subject.declared, Plan):  # its latency may be that of simulated traffic
        plans[identity(subject.declared)] = subject.declared
    targets = constraints_of(subject.spec).latency_targets
    least = kept_pixels(subject.declared) if isinstance(subject.declared, Plan) else None
    return Choices(
        name=name,
        model_id=subject.spec.model.id,
        declared=subject.declared,
        targets=targets,
        plans=tuple(plans.values()),
        frontier=find_frontier(plans.values(), targets, least or 0.0),
    )


def pixel_steps(spec: VLMDeploymentSpec) -> tuple[int, ...]:
    """Return the steps from the smallest useful image to the largest declared one, doubling, and the declared floor."""
    largest = max(size.width * size.height for size in spec.workload.images.sizes)
    steps = [SMALLEST_FLOOR_PIXELS]
    while steps[-1] < largest:
        steps.append(steps[-1] * 2)
    steps[-1] = min(steps[-1], max(largest, SMALLEST_FLOOR_PIXELS))
    floor = spec.quality.min_pixels_per_image
    return tuple(sorted({*steps, *((min(floor, steps[-1]),) if floor else ())}))


def _points(subject: Subject, change: Change, split: tuple[bool, bool]) -> Iterator[SweepPoint]:
    spec = change.apply(subject.spec)
    judged = judge_deployment(
        spec, subject.inventory, subject.card, tensor_parallel_size=change.tensor_parallel_size
    )  # fmt: skip
    if isinstance(judged, NoFit):
        yield SweepPoint(change=change, outcome=judged)
        return
    relaxed = _without_targets(subject, change, spec, judged)
    groups: dict[Change, list[int]] = {}
    for at, place in enumerate(judged):
        key = Change(
            max_pixels=change.max_pixels,
            gpu=place.gpu.id if split[0] else change.gpu,
            tensor_parallel_size=place.tensor_parallel_size if split[1] else change.tensor_parallel_size,
        )
        groups.setdefault(key, []).append(at)
    for key, members in groups.items():
        yield _point(key, [judged[at] for at in members], [relaxed[at] for at in members])


def _try(subject: Subject, point: SweepPoint, plan: Plan) -> tuple[Plan | NoFit, bool]:
    """Return what simulated traffic makes of the plan, as it is or with more replicas, and whether it is late."""
    spec = replace(point.change, gpu=plan.gpu.id).apply(subject.spec)
    size = plan.flags.tensor_parallel_size
    if not point.late:
        kept = plan_deployment(spec, subject.inventory, subject.card, tensor_parallel_size=size, suggest=False)
        if isinstance(kept, Plan):
            return kept, False
    late = plan_deployment(_patient(spec), subject.inventory, subject.card, tensor_parallel_size=size, suggest=False)
    targets = constraints_of(spec).latency_targets
    return late, isinstance(late, Plan) and not meets(late, targets)


def _patient(spec: VLMDeploymentSpec) -> VLMDeploymentSpec:
    return spec.model_copy(update={"objectives": Objectives()})


def _without_targets(
    subject: Subject, change: Change, spec: VLMDeploymentSpec, judged: tuple[JudgedPlace, ...]
) -> tuple[JudgedPlace, ...]:
    """Return the places judged without latency targets, as they are where there are none or all are met."""
    if not constraints_of(spec).latency_targets or all(isinstance(place.verdict, Plan) for place in judged):
        return judged
    relaxed = judge_deployment(
        _patient(spec), subject.inventory, subject.card, tensor_parallel_size=change.tensor_parallel_size
    )  # fmt: skip
    return judged if isinstance(relaxed, NoFit) else relaxed


def _point(change: Change, judged: Sequence[JudgedPlace], relaxed: Sequence[JudgedPlace]) -> SweepPoint:
    for places, late in ((judged, False), (relaxed, True)):
        plans = [place.verdict for place in places if isinstance(place.verdict, Plan)]
        if plans:
            return SweepPoint(change=change, outcome=min(plans, key=rank), late=late)
    misses = [place.verdict for place in judged if isinstance(place.verdict, Rejection)]
    nearest = min(misses, key=lambda miss: (miss.shortfall_fraction, miss.gpus_per_replica, miss.gpu))
    return SweepPoint(change=change, outcome=nearest)
