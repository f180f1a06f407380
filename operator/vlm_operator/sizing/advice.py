"""Which single change makes a task fit that does not.

In: the ``Task`` that ended in a ``NoFit``, and inventories that the user could open up. Out: each change with
what it would run on, what is left over, and the field to write. The same search answers every one of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import Plan, Suggestion
from vlm_operator.sizing.prove import Seeded
from vlm_operator.sizing.search import Task, search
from vlm_operator.sizing.workload import AskedFlags, ImageCount, LatencyMetric, LatencyTarget, Workload
from vlm_operator.units import format_gib

SLOWEST_TARGET_SECONDS: Final = 3600
"""The resource takes no slower target."""
MOST_TRIALS: Final = 4
"""Of one change: advice that takes longer to check is not given."""
_FIELDS: Final[Mapping[LatencyMetric, str]] = {"ttft": "ttft", "tpot": "tpot", "request_latency": "requestLatency"}
SMALLEST_FLOOR_PIXELS: Final = 50_176
"""224 x 224, the smallest image that vision towers are made for: no smaller cap is advised."""
SMALLEST_FLOOR_TOKENS: Final = 64
"""What the thriftiest families spend on an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """More GPUs that could be had: the inventory with them, and the field of the spec that opens it up.

    ``value`` is what to write there, None to drop the field; a list gets the chosen GPU added.
    """

    inventory: Inventory
    path: str
    value: str | tuple[str, ...] | None


def advise(task: Task, openings: tuple[Opening, ...] = (), seeded: Seeded | None = None) -> tuple[Suggestion, ...]:
    """Return each single change after which ``task`` fits, those that give up least first.

    With ``seeded`` every change is tried under simulated traffic, as ``search`` does.
    """
    return tuple(_advice(_Asked(task=task, seeded=seeded), openings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The task and how its plans are tried."""

    task: Task
    seeded: Seeded | None

    def quick(self, **changes: Any) -> Plan | None:
        """Return the plan of the task with ``changes``, by closed formulas."""
        verdict = search(replace(self.task, **changes))
        return verdict if isinstance(verdict, Plan) else None

    def sure(self, **changes: Any) -> Plan | None:
        """Return the plan of the task with ``changes`` that holds in a trial."""
        verdict = search(replace(self.task, **changes), self.seeded, MOST_TRIALS)
        return verdict if isinstance(verdict, Plan) else None

    def under(self, **changes: Any) -> Plan | None:
        """Return the plan under changed constraints that holds in a trial."""
        return self.sure(constraints=replace(self.task.constraints, **changes))


def _advice(asked: _Asked, openings: tuple[Opening, ...]) -> Iterator[Suggestion]:
    constraints = asked.task.constraints
    if constraints.max_gpus_per_replica is not None and (plan := asked.under(max_gpus_per_replica=None)):
        most = constraints.max_gpus_per_replica
        words = f"{_runs_on(plan)} instead of at most {most} {'GPU' if most == 1 else 'GPUs'} per replica"
        yield _suggest(words, "accelerators.maxPerReplica", plan.gpus_per_replica)
    if constraints.max_replicas is not None and (plan := asked.under(max_replicas=None)):
        yield _suggest(_runs_on(plan), "scaling.maxReplicas", plan.replicas)
    yield from _other_formats(asked)
    yield from _smaller_images(asked)
    yield from _other_gpus(asked, openings)
    if constraints.max_hourly_cost_cents is not None and (plan := asked.under(max_hourly_cost_cents=None)):
        yield _dearer(plan)
    if constraints.latency_targets:
        yield from _slower_targets(asked)
    yield from _smaller_workload(asked)
    flags = constraints.asked
    if flags.obeyed and (plan := asked.under(asked=AskedFlags(passed=flags.passed))):
        words = f"{_runs_on(plan)} without {', '.join(flags.obeyed)}"
        yield _suggest(words, "engine.extraArgs", flags.passed or None)


def _suggest(words: str, path: str, value: object) -> Suggestion:
    return Suggestion(words=words, changes={path: value})


def _runs_on(plan: Plan) -> str:
    """Return for example ``2 × 4 × H100 80GB with 3.1 GiB per GPU to spare``: KV cache beyond the declared need."""
    replicas = f"{plan.replicas} × " if plan.replicas > 1 else ""
    cache = next(limit for limit in plan.limits if limit.name == "KV cache")
    spare = format_gib(int(plan.memory.part("KV cache").size_bytes * cache.slack_fraction))
    return f"{replicas}{plan.gpus_per_replica} × {plan.gpu.display_name} with {spare} per GPU to spare"


def _other_formats(asked: _Asked) -> Iterator[Suggestion]:
    """Name the checkpoint or KV cache in a smaller format that fits alone."""
    models, constraints = asked.task.models, asked.task.constraints
    admitted = constraints.quantisations or (models[0].shape.format,)
    for name in dict.fromkeys(model.shape.format for model in models):
        wider = (*admitted, name)
        if name not in admitted and (plan := asked.under(quantisations=wider)) and plan.quantisation == name:
            yield _suggest(f"{plan.model_id} → {_runs_on(plan)}", "quality.allowedQuantizations", wider)
    free = constraints.asked.kv_cache_dtype is None and "fp8" not in constraints.kv_cache_dtypes
    if free and (plan := asked.under(kv_cache_dtypes=("auto", "fp8"))):
        yield _suggest(f"an FP8 KV cache → {_runs_on(plan)}", "quality.allowedKVCacheDtypes", ("auto", "fp8"))


def _smaller_images(asked: _Asked) -> Iterator[Suggestion]:
    """Name the largest images that fit, found by halving what has to be kept of them."""
    constraints = asked.task.constraints
    pixels, tokens = constraints.min_pixels_per_image, constraints.min_image_tokens
    if pixels is None and tokens is None:
        pixels = max(size.width * size.height for size in asked.task.workload.image_sizes)
    while True:
        pixels = None if pixels is None else pixels // 2
        tokens = None if tokens is None else tokens // 2
        if pixels is not None and pixels < SMALLEST_FLOOR_PIXELS:
            return
        if tokens is not None and tokens < SMALLEST_FLOOR_TOKENS:
            return
        floors = replace(constraints, min_pixels_per_image=pixels, min_image_tokens=tokens)
        if asked.quick(constraints=floors) and (plan := asked.sure(constraints=floors)):
            cap = f"{plan.cap_name} {plan.cap_value:,}" if plan.cap_value is not None else "smaller images"
            fields = {"quality.minPixelsPerImage": pixels, "quality.minImageTokens": tokens}
            changes = {path: value for path, value in fields.items() if value is not None}
            yield Suggestion(words=f"{cap} → {_runs_on(plan)}", changes=changes)
            return


def _other_gpus(asked: _Asked, openings: tuple[Opening, ...]) -> Iterator[Suggestion]:
    for opening in openings:
        plan = asked.sure(inventory=opening.inventory)
        if plan is not None:
            value = opening.value
            yield _suggest(_runs_on(plan), opening.path, (*value, plan.gpu.id) if isinstance(value, tuple) else value)
            return


def _dearer(plan: Plan) -> Suggestion:
    if plan.hourly_cents is None:
        return _suggest(f"{_runs_on(plan)}, its price unknown", "accelerators.maxHourlyCostCents", None)
    cents = math.ceil(plan.hourly_cents)
    return _suggest(f"${cents / 100:.2f}/h for {_runs_on(plan)}", "accelerators.maxHourlyCostCents", cents)


def _slower_targets(asked: _Asked) -> Iterator[Suggestion]:
    """Name the targets that can be kept: what the cheapest plan without targets needs, by formulas and in a trial."""
    constraints = asked.task.constraints
    plans = [asked.quick(constraints=replace(constraints, latency_targets=())), asked.under(latency_targets=())]
    found = [plan for plan in plans if plan is not None]
    if len(found) < len(plans):
        return
    changes: dict[str, int | None] = {}
    targets: list[LatencyTarget] = []
    for target in constraints.latency_targets:
        needed = max(plan.latency.of(target.metric).at(target.percentile) for plan in found)
        milliseconds = math.ceil(max(needed, target.seconds) * 1000)
        path = f"objectives.{_FIELDS[target.metric]}"
        if milliseconds > SLOWEST_TARGET_SECONDS * 1000:
            changes[path] = None
            continue
        targets.append(replace(target, seconds=milliseconds / 1000))
        if needed > target.seconds:
            changes[f"{path}.milliseconds"] = milliseconds
    plan = asked.under(latency_targets=tuple(targets))
    if plan is not None:
        yield Suggestion(words=f"slower targets on {_runs_on(plan)}", changes=changes)


def _smaller_workload(asked: _Asked) -> Iterator[Suggestion]:
    """Name fewer images per request, and fewer requests at once, that would fit."""
    workload = asked.task.workload
    most, running = workload.max_images_per_request, workload.concurrent_requests

    def with_images(count: int) -> Workload:
        return replace(workload, images_per_request=_at_most(workload, count))

    def with_requests(count: int) -> Workload:
        return replace(workload, concurrent_requests=count)

    images = _largest(most, lambda count: asked.quick(workload=with_images(count)) is not None)
    if images and (plan := asked.sure(workload=with_images(images))):
        words = f"at most {images} instead of {most} images per request on {_runs_on(plan)}"
        counts = [{"count": c.count, "weight": int(c.weight)} for c in _at_most(workload, images)]
        yield _suggest(words, "workload.images.perRequest", counts)
    requests = running and _largest(running, lambda count: asked.quick(workload=with_requests(count)) is not None)
    if requests and (plan := asked.sure(workload=with_requests(requests))):
        words = f"{requests} instead of {running} requests at once on {_runs_on(plan)}"
        yield _suggest(words, "workload.traffic.concurrentRequests", requests)


def _at_most(workload: Workload, most: int) -> tuple[ImageCount, ...]:
    weights: dict[int, float] = {}
    for entry in workload.images_per_request:
        count = min(entry.count, most)
        weights[count] = weights.get(count, 0.0) + entry.weight
    return tuple(ImageCount(count=count, weight=weight) for count, weight in weights.items())


def _largest(value: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number below ``value`` that fits, 0 where none does; what fits one fits those below it."""
    low, high = 0, value - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
