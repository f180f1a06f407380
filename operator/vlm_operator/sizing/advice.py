"""Which single change makes a task fit that does not.

In: the ``Task`` that ended in a ``NoFit``, and inventories that the user could open up. Out: each change with
what it would run on, what is left over, and the field to write. The same search answers every one of them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import Plan, Suggestion
from vlm_operator.sizing.search import Task, search
from vlm_operator.sizing.workload import Constraints, ImageCount, Workload
from vlm_operator.units import format_gib

SLOWEST_TARGET_SECONDS: Final = 3600
"""The resource takes no slower target."""
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


def advise(task: Task, openings: tuple[Opening, ...] = ()) -> tuple[Suggestion, ...]:
    """Return each single change after which ``task`` fits, those that give up least first."""
    return tuple(_advice(task, openings))


def _advice(task: Task, openings: tuple[Opening, ...]) -> Iterator[Suggestion]:
    constraints = task.constraints
    if constraints.max_gpus_per_replica is not None and (plan := _with(task, max_gpus_per_replica=None)):
        words = f"{_runs_on(plan)} instead of at most {constraints.max_gpus_per_replica} GPUs"
        yield _suggest(words, "accelerators.maxPerReplica", plan.gpus_per_replica)
    if constraints.max_replicas is not None and (plan := _with(task, max_replicas=None)):
        yield _suggest(_runs_on(plan), "scaling.maxReplicas", plan.replicas)
    yield from _other_formats(task)
    yield from _smaller_images(task)
    yield from _other_gpus(task, openings)
    if constraints.max_hourly_cost_cents is not None and (plan := _with(task, max_hourly_cost_cents=None)):
        yield _dearer(plan)
    if constraints.latency_targets and (plan := _with(task, latency_targets=())):
        changes = dict(_slower(plan, constraints))
        yield Suggestion(words=f"slower targets on {_runs_on(plan)}", changes=changes)
    yield from _smaller_workload(task)


def _suggest(words: str, path: str, value: object) -> Suggestion:
    return Suggestion(words=words, changes={path: value})


def _plan(task: Task) -> Plan | None:
    verdict = search(task)
    return verdict if isinstance(verdict, Plan) else None


def _with(task: Task, **changes: object) -> Plan | None:
    return _plan(replace(task, constraints=replace(task.constraints, **changes)))  # type: ignore[arg-type]


def _runs_on(plan: Plan) -> str:
    """Return for example ``2 × 4 × H100 80GB with 3.1 GiB per GPU to spare``: KV cache beyond the declared need."""
    replicas = f"{plan.replicas} × " if plan.replicas > 1 else ""
    cache = next(limit for limit in plan.limits if limit.name == "KV cache")
    spare = format_gib(int(plan.memory.part("KV cache").size_bytes * cache.slack_fraction))
    return f"{replicas}{plan.gpus_per_replica} × {plan.gpu.display_name} with {spare} per GPU to spare"


def _other_formats(task: Task) -> Iterator[Suggestion]:
    """Name the checkpoint or KV cache in a smaller format that fits alone."""
    formats = dict.fromkeys(model.shape.format for model in task.models)
    admitted = task.constraints.quantisations or (task.models[0].shape.format,)
    for name in formats:
        wider = (*admitted, name)
        if name not in admitted and (plan := _with(task, quantisations=wider)):
            yield _suggest(f"{plan.model_id} → {_runs_on(plan)}", "quality.allowedQuantizations", wider)
    if "fp8" not in task.constraints.kv_cache_dtypes and (plan := _with(task, kv_cache_dtypes=("auto", "fp8"))):
        yield _suggest(f"an FP8 KV cache → {_runs_on(plan)}", "quality.allowedKVCacheDtypes", ("auto", "fp8"))


def _smaller_images(task: Task) -> Iterator[Suggestion]:
    """Name the largest images that fit, found by halving what has to be kept of them."""
    pixels, tokens = task.constraints.min_pixels_per_image, task.constraints.min_image_tokens
    if pixels is None and tokens is None:
        pixels = max(size.width * size.height for size in task.workload.image_sizes)
    while True:
        pixels = None if pixels is None else pixels // 2
        tokens = None if tokens is None else tokens // 2
        if pixels is not None and pixels < SMALLEST_FLOOR_PIXELS:
            return
        if tokens is not None and tokens < SMALLEST_FLOOR_TOKENS:
            return
        if plan := _with(task, min_pixels_per_image=pixels, min_image_tokens=tokens):
            cap = f"{plan.cap_name} {plan.cap_value:,}" if plan.cap_value is not None else "smaller images"
            floors = {"quality.minPixelsPerImage": pixels, "quality.minImageTokens": tokens}
            changes = {path: value for path, value in floors.items() if value is not None}
            yield Suggestion(words=f"{cap} → {_runs_on(plan)}", changes=changes)
            return


def _other_gpus(task: Task, openings: tuple[Opening, ...]) -> Iterator[Suggestion]:
    for opening in openings:
        plan = _plan(replace(task, inventory=opening.inventory))
        if plan is not None:
            value = opening.value
            yield _suggest(_runs_on(plan), opening.path, (*value, plan.gpu.id) if isinstance(value, tuple) else value)
            return


def _dearer(plan: Plan) -> Suggestion:
    if plan.hourly_cents is None:
        return _suggest(f"{_runs_on(plan)}, its price unknown", "accelerators.maxHourlyCostCents", None)
    cents = math.ceil(plan.hourly_cents)
    return _suggest(f"${cents / 100:.2f}/h for {_runs_on(plan)}", "accelerators.maxHourlyCostCents", cents)


def _slower(plan: Plan, constraints: Constraints) -> Iterator[tuple[str, int | None]]:
    """Return the field of each target that ``plan`` misses and the milliseconds that it keeps."""
    fields = {"ttft": "ttft", "tpot": "tpot", "request_latency": "requestLatency"}
    figures = {"ttft": plan.latency.ttft, "tpot": plan.latency.tpot, "request_latency": plan.latency.request}
    for target in constraints.latency_targets:
        seconds = figures[target.metric].at(target.percentile)
        path = f"objectives.{fields[target.metric]}"
        if seconds > SLOWEST_TARGET_SECONDS:
            yield path, None
        elif seconds > target.seconds:
            yield f"{path}.milliseconds", math.ceil(seconds * 1000)


def _smaller_workload(task: Task) -> Iterator[Suggestion]:
    """Name fewer images per request, and fewer requests at once, that would fit."""
    workload = task.workload
    most = workload.max_images_per_request

    def with_images(count: int) -> Plan | None:
        return _plan(replace(task, workload=replace(workload, images_per_request=_at_most(workload, count))))

    def with_requests(count: int) -> Plan | None:
        return _plan(replace(task, workload=replace(workload, concurrent_requests=count)))

    if found := _largest(most, with_images):
        words = f"at most {found[0]} instead of {most} images per request on {_runs_on(found[1])}"
        counts = [{"count": c.count, "weight": int(c.weight)} for c in _at_most(workload, found[0])]
        yield _suggest(words, "workload.images.perRequest", counts)
    running = workload.concurrent_requests
    if running is not None and (found := _largest(running, with_requests)):
        words = f"{found[0]} instead of {running} requests at once on {_runs_on(found[1])}"
        yield _suggest(words, "workload.traffic.concurrentRequests", found[0])


def _at_most(workload: Workload, most: int) -> tuple[ImageCount, ...]:
    weights: dict[int, float] = {}
    for entry in workload.images_per_request:
        count = min(entry.count, most)
        weights[count] = weights.get(count, 0.0) + entry.weight
    return tuple(ImageCount(count=count, weight=weight) for count, weight in weights.items())


def _largest(value: int, plan_with: Callable[[int], Plan | None]) -> tuple[int, Plan] | None:
    """Return the largest number below ``value`` that fits, and its plan; what fits one number fits those below it."""
    low, high = 1, value - 1
    found: tuple[int, Plan] | None = None
    while low <= high:
        middle = (low + high) // 2
        plan = plan_with(middle)
        if plan is None:
            high = middle - 1
        else:
            found, low = (middle, plan), middle + 1
    return found
