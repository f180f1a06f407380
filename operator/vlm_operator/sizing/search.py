"""Every candidate judged, the cheapest fit chosen, the rest explained.

In: a ``Question``'s ingredients from ``planning.py``. Out: ``Plan`` with its alternatives, or ``NoFit`` with the
nearest misses and the changes that would make it fit. Deterministic: ties are broken by name.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.catalogue.types import MemoryCalibration
from vlm_operator.sizing.demand import measure_demand
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.judge import judge
from vlm_operator.sizing.plan import Alternative, NoFit, Plan, Rejection
from vlm_operator.sizing.question import Candidate, Question
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.registry import bind_rule, refuse_dropped
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal
from vlm_operator.sizing.workload import Constraints, Workload

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8, 16)
MAX_ALTERNATIVES = 5
MAX_NEAREST = 3
SLOWEST_TARGET_SECONDS = 3600
"""The resource takes no slower target."""
SUGGESTED_FLOORS_PIXELS = (1_003_520, 501_760, 200_704)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as the engine reads it: its configuration files, its shape, and how sure the figures are."""

    id: str
    architecture: str
    config: dict[str, Any]
    processor: dict[str, Any]
    shape: ModelShape
    calibration: MemoryCalibration
    remembered: bool
    trust_remote_code: bool


def search(
    model: Model, workload: Workload, constraints: Constraints, inventory: Inventory, engine_version: str
) -> Plan | NoFit:
    """Return the cheapest plan of the inventory that keeps every constraint, or why there is none."""
    question = _question(model, workload, constraints, engine_version)
    if isinstance(question, TokenRefusal):
        return NoFit(model_id=model.id, reason=question.reason, message=question.message, candidates=0)
    candidates = enumerate_candidates(inventory, constraints)
    if not candidates:
        return _empty_inventory(model, inventory)
    verdicts = [judge(candidate, question) for candidate in candidates]
    plans = sorted((v for v in verdicts if isinstance(v, Plan)), key=_rank)
    rejections = sorted((v for v in verdicts if isinstance(v, Rejection)), key=_nearness)
    if plans:
        return replace(plans[0], alternatives=_alternatives(plans, rejections))
    return _no_fit(model, workload, constraints, inventory, engine_version, rejections)


def enumerate_candidates(inventory: Inventory, constraints: Constraints) -> tuple[Candidate, ...]:
    """Return each node shape with each tensor parallel size that one such node can hold."""
    limit = constraints.max_gpus_per_replica or max(TENSOR_PARALLEL_SIZES)
    return tuple(
        Candidate(node=shape, tensor_parallel_size=size)
        for shape in sorted(inventory.shapes, key=lambda shape: (shape.gpu.id, shape.gpus_per_node))
        for size in TENSOR_PARALLEL_SIZES
        if size <= min(shape.gpus_per_node, limit)
    )


def _question(
    model: Model, workload: Workload, constraints: Constraints, engine_version: str
) -> Question | TokenRefusal:
    dropped = refuse_dropped(model.architecture, model.id)
    if dropped is not None:
        return dropped
    shipped = bind_rule(model.architecture, model.config, model.processor, ServerSettings(), model.id)
    if isinstance(shipped, TokenRefusal):
        return shipped
    rule = _capped(shipped, workload, constraints)
    if isinstance(rule, TokenRefusal):
        return rule
    demand = measure_demand(workload, rule)
    if isinstance(demand, TokenRefusal):
        return demand
    return Question(
        model_id=model.id,
        config=model.config,
        shape=model.shape,
        calibration=model.calibration,
        rule=rule,
        demand=demand,
        workload=workload,
        constraints=constraints,
        engine_version=engine_version,
        trust_remote_code=model.trust_remote_code,
        remembered=model.remembered,
    )


def _capped(shipped: ImageRule, workload: Workload, constraints: Constraints) -> ImageRule | TokenRefusal:
    """Return the rule under the tightest cap that the quality floor allows; the shipped one where no lever exists."""
    sizes = [(size.width, size.height) for size in workload.image_sizes]
    refused = next((r for w, h in sizes if isinstance(r := shipped.count_image(w, h), TokenRefusal)), None)
    if refused is not None:
        return refused
    capped = tightest_cap(
        shipped, sizes, min_pixels=constraints.min_pixels_per_image, min_tokens=constraints.min_image_tokens
    )
    return capped or shipped


def _rank(plan: Plan) -> tuple[bool, float, int, str, int]:
    return (
        plan.hourly_cents is None,
        plan.hourly_cents or 0.0,
        plan.gpus_per_replica * plan.replicas,
        plan.gpu.id,
        plan.flags.tensor_parallel_size,
    )


def _nearness(rejection: Rejection) -> tuple[float, int, str]:
    return rejection.shortfall_fraction, rejection.gpus_per_replica, rejection.gpu


def _alternatives(plans: Sequence[Plan], rejections: Sequence[Rejection]) -> tuple[Alternative, ...]:
    """Return at most five others: the cheapest plan of each other GPU kind, then cheaper ones that nearly fit."""
    best = plans[0]
    others: dict[str, Plan] = {}
    for plan in plans[1:]:
        if plan.gpu.id != best.gpu.id:
            others.setdefault(plan.gpu.id, plan)
    fitting = [_fits(best, plan) for plan in list(others.values())[:3]]
    missing = [
        _misses(rejection)
        for rejection in rejections
        if rejection.hourly_cents is not None and rejection.hourly_cents < (best.hourly_cents or float("inf"))
    ]
    return (*fitting, *missing)[:MAX_ALTERNATIVES]


def _fits(best: Plan, plan: Plan) -> Alternative:
    if plan.hourly_cents is None:
        message = "fits; its price is unknown, so it ranks after every priced GPU"
    elif best.hourly_cents:
        message = f"meets all, {100 * (plan.hourly_cents / best.hourly_cents - 1):.0f} % dearer"
    else:
        message = "meets all"
    return Alternative(
        gpu=plan.gpu.display_name,
        gpus_per_replica=plan.gpus_per_replica,
        tensor_parallel_size=plan.flags.tensor_parallel_size,
        replicas=plan.replicas,
        hourly_cents=plan.hourly_cents,
        fits=True,
        reason="Dearer" if plan.hourly_cents is not None else "PriceUnknown",
        message=message,
    )


def _misses(rejection: Rejection) -> Alternative:
    return Alternative(
        gpu=rejection.gpu,
        gpus_per_replica=rejection.gpus_per_replica,
        tensor_parallel_size=rejection.gpus_per_replica,
        replicas=1,
        hourly_cents=rejection.hourly_cents,
        fits=False,
        reason=rejection.reason,
        message=rejection.message,
    )


def _empty_inventory(model: Model, inventory: Inventory) -> NoFit:
    left_out = "; ".join(f"{product}: {reason}" for product, reason in inventory.excluded)
    where = {"cluster": "the cluster's nodes", "file": "the inventory file", "catalogue": "the catalogue"}
    message = f"no usable GPU in {where[inventory.source]}"
    message += f" ({left_out})" if left_out else ""
    if inventory.source == "cluster":
        message += "; add GPU nodes labelled by NVIDIA GPU feature discovery, or set accelerators.inventory: Catalogue"
    return NoFit(model_id=model.id, reason="NoGPUs", message=message, candidates=0)


def _no_fit(
    model: Model,
    workload: Workload,
    constraints: Constraints,
    inventory: Inventory,
    engine_version: str,
    rejections: Sequence[Rejection],
) -> NoFit:
    reasons = Counter(rejection.reason for rejection in rejections)
    return NoFit(
        model_id=model.id,
        reason="NoFit",
        message=f"nothing in the inventory fits ({len(rejections)} candidates); nearest: {rejections[0].message}",
        candidates=len(rejections),
        nearest=tuple(rejections[:MAX_NEAREST]),
        by_reason=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        suggestions=tuple(_suggestions(model, workload, constraints, inventory, engine_version)),
    )


def _suggestions(
    model: Model, workload: Workload, constraints: Constraints, inventory: Inventory, engine_version: str
) -> list[str]:
    """Try single changes of the constraints and name those that make it fit."""

    def cheapest(changed: Constraints) -> Plan | None:
        question = _question(model, workload, changed, engine_version)
        if isinstance(question, TokenRefusal):
            return None
        verdicts = [judge(candidate, question) for candidate in enumerate_candidates(inventory, changed)]
        return min((v for v in verdicts if isinstance(v, Plan)), key=_rank, default=None)

    found: list[str] = []
    if constraints.max_gpus_per_replica is not None and (
        plan := cheapest(replace(constraints, max_gpus_per_replica=None))
    ):
        found.append(
            f"{plan.gpus_per_replica} × {plan.gpu.display_name} per replica instead of at most "
            f"{constraints.max_gpus_per_replica} (accelerators.maxPerReplica: {plan.gpus_per_replica})"
        )
    for pixels in SUGGESTED_FLOORS_PIXELS:
        if pixels < (constraints.min_pixels_per_image or 2**62) and (
            plan := cheapest(replace(constraints, min_pixels_per_image=pixels))
        ):
            found.append(
                f"images capped at {pixels:,} pixels on {plan.gpus_per_replica} × {plan.gpu.display_name} "
                f"(quality.minPixelsPerImage: {pixels})"
            )
            break
    if constraints.max_hourly_cost_cents is not None and (
        plan := cheapest(replace(constraints, max_hourly_cost_cents=None))
    ):
        found.append(_price_suggestion(plan))
    return found + _replica_suggestion(constraints, cheapest) + _latency_suggestion(constraints, cheapest)


def _price_suggestion(plan: Plan) -> str:
    if plan.hourly_cents is None:
        where = f"{plan.replicas} × {plan.gpus_per_replica} × {plan.gpu.display_name}"
        return f"{where} would do, but its price is unknown: drop accelerators.maxHourlyCostCents"
    cents = math.ceil(plan.hourly_cents)
    return f"${cents / 100:.2f}/h (accelerators.maxHourlyCostCents: {cents})"


def _replica_suggestion(constraints: Constraints, cheapest: Callable[[Constraints], Plan | None]) -> list[str]:
    if constraints.max_replicas is None:
        return []
    plan = cheapest(replace(constraints, max_replicas=None))
    if plan is None:
        return []
    where = f"{plan.replicas} × {plan.gpus_per_replica} × {plan.gpu.display_name}"
    return [f"{where} (scaling.maxReplicas: {plan.replicas})"]


def _latency_suggestion(constraints: Constraints, cheapest: Callable[[Constraints], Plan | None]) -> list[str]:
    """Name each target that the cheapest plan without targets misses, and the milliseconds that it keeps."""
    if not constraints.latency_targets:
        return []
    plan = cheapest(replace(constraints, latency_targets=()))
    if plan is None:
        return []
    fields = {"ttft": "ttft", "tpot": "tpot", "request_latency": "requestLatency"}
    figures = {"ttft": plan.latency.ttft, "tpot": plan.latency.tpot, "request_latency": plan.latency.request}
    slower = [
        f"objectives.{fields[target.metric]}.milliseconds: {math.ceil(seconds * 1000)}"
        if seconds <= SLOWEST_TARGET_SECONDS
        else f"drop objectives.{fields[target.metric]}"
        for target in constraints.latency_targets
        if (seconds := figures[target.metric].at(target.percentile)) > target.seconds
    ]
    where = f"{plan.replicas} × {plan.gpus_per_replica} × {plan.gpu.display_name}"
    return [f"slower targets on {where} ({', '.join(slower)})"]
