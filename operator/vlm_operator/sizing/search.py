"""Every candidate judged, the cheapest fit chosen, the rest explained.

In: a ``Task`` from ``planning.py``. Out: ``Plan`` with its alternatives, or ``NoFit`` with the nearest misses. What
would make a task fit is asked in ``advice.py``. Deterministic: ties are broken by name.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from vlm_operator.catalogue.types import LatencyCalibration, MemoryCalibration
from vlm_operator.sizing.assemble import Judged
from vlm_operator.sizing.candidates import Place, enumerate_layouts, enumerate_places
from vlm_operator.sizing.demand import Demand, context_length, measure_demand
from vlm_operator.sizing.fit import SMALLER_STEPS
from vlm_operator.sizing.inventory import GpuKind, Inventory, NodeShape
from vlm_operator.sizing.judge import judge
from vlm_operator.sizing.plan import Alternative, NoFit, Plan, Rejection, rank
from vlm_operator.sizing.prove import MAX_TRIALS, MORE_TRIALS, Seeded, Trials, improve, prove
from vlm_operator.sizing.question import Candidate, Question
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.tokens.caps import tightest_cap
from vlm_operator.sizing.tokens.registry import bind_rule, refuse_dropped
from vlm_operator.sizing.tokens.types import ImageRule, ServerSettings, TokenRefusal
from vlm_operator.sizing.workload import Constraints, Workload

MAX_ALTERNATIVES = 5
MAX_NEAREST = 3
SLACK = 0.5
"""Share by which closed formulas may miss a target or the traffic for a trial to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A checkpoint as the engine reads it: its configuration files, its shape, and how sure the figures are."""

    id: str
    architecture: str
    config: dict[str, Any]
    processor: dict[str, Any]
    shape: ModelShape
    calibration: MemoryCalibration
    latency: LatencyCalibration
    remembered: bool
    trust_remote_code: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be planned. ``models`` are the declared checkpoint and those that hold it in other formats."""

    models: tuple[Model, ...]
    workload: Workload
    constraints: Constraints
    inventory: Inventory
    engine_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPlace:
    """So many GPUs of a kind on one node: the best plan that they can run, or the nearest miss."""

    gpu: GpuKind
    tensor_parallel_size: int
    verdict: Plan | Rejection


def search(task: Task, seeded: Seeded | None = None, trials: int = MAX_TRIALS) -> Plan | NoFit:
    """Return the cheapest plan of the inventory that keeps every constraint, or why there is none.

    With ``seeded``, which gives a fresh generator for each trial, the cheapest plans are tried under simulated traffic
    and the cheapest that keeps up and keeps every target wins; without it the closed formulas decide.
    """
    questions = _questions(task)
    if isinstance(questions, TokenRefusal):
        return _refused(task, questions)
    places = enumerate_places(task.inventory, task.constraints)
    if not places:
        return _no_places(task.models[0], task)
    judged = [_best_layout(node, size, questions) for node, size in places]
    fits = sorted((verdict for verdict in judged if isinstance(verdict, Judged)), key=lambda fit: fit.rank)
    rejections = [verdict for verdict in judged if isinstance(verdict, Rejection)]
    best = fits[0].plan if fits else None
    if seeded is not None:
        tried = Trials(seeded)
        best, missed = prove(fits, tried, trials)
        if task.constraints.latency_targets:
            best = improve(best, _near_fits(places, questions, best), tried, MORE_TRIALS * trials)
        rejections += missed
    rejections.sort(key=_nearness)
    if best is not None:
        dearer = _dearer_kinds(best, fits)
        first, *others = best.reasons
        reasons = (first, *_capacity_words(best, dearer), *others)
        return replace(best, reasons=reasons, alternatives=_alternatives(best, dearer, rejections))
    return _no_fit(task.models[0], rejections)


def _near_fits(places: Sequence[Place], questions: Sequence[Question], held: Plan | None) -> Iterator[Judged]:
    """Yield every layout that may hold for less than ``held`` does though the formulas refuse it narrowly.

    They are near, not exact: what they find too slow by less than ``SLACK`` may hold, and a layout that they rank
    behind another of the same place may hold with fewer replicas.
    """
    for node, size in places:
        for candidate, question in enumerate_layouts(node, size, questions):
            fixed = question.constraints.asked.max_num_batched_tokens
            steps = (None,) if fixed else (None, *SMALLER_STEPS)
            judged = [judge(replace(candidate, max_num_batched_tokens=step), question, SLACK, held) for step in steps]
            fits = [verdict for verdict in judged if isinstance(verdict, Judged)]
            if fits:
                yield min(fits, key=lambda fit: (fit.replicas, max(1.0, fit.strain)))


def judge_places(task: Task) -> tuple[JudgedPlace, ...] | NoFit:
    """Return every place of the inventory with the best that it can run, or why none can be judged."""
    questions = _questions(task)
    if isinstance(questions, TokenRefusal):
        return _refused(task, questions)
    places = enumerate_places(task.inventory, task.constraints)
    if not places:
        return _no_places(task.models[0], task)
    verdicts = [(node, size, _best_layout(node, size, questions)) for node, size in places]
    return tuple(
        JudgedPlace(gpu=node.gpu, tensor_parallel_size=size, verdict=v.plan if isinstance(v, Judged) else v)
        for node, size, v in verdicts
    )


def _refused(task: Task, refusal: TokenRefusal) -> NoFit:
    return NoFit(model_id=task.models[0].id, reason=refusal.reason, message=refusal.message, candidates=0)


def _questions(task: Task) -> tuple[Question, ...] | TokenRefusal:
    """Return a question for each checkpoint whose format is admitted, the declared one first.

    A checkpoint in another format that cannot be counted is left out; why the declared one cannot is the answer.
    """
    admitted = task.constraints.quantisations or (task.models[0].shape.format,)
    models = [model for model in task.models if model.shape.format in admitted]
    if not task.constraints.quantisations:
        models = models[:1]
    if not models:
        published = ", ".join(f"{model.id} ({model.shape.format})" for model in task.models)
        return TokenRefusal(
            reason="QuantizationNotAllowed",
            message=f"quality.allowedQuantizations admits {', '.join(admitted)}; known checkpoints are {published}; "
            "admit one of these formats or choose another model",
        )
    found = [_question(model, task) for model in models]
    questions = tuple(question for question in found if isinstance(question, Question))
    first = found[0]
    return first if isinstance(first, TokenRefusal) and not questions else questions


def _question(model: Model, task: Task) -> Question | TokenRefusal:
    dropped = refuse_dropped(model.architecture, model.id)
    if dropped is not None:
        return dropped
    counted = _count(model, task, ServerSettings())
    if isinstance(counted, TokenRefusal):
        return counted
    rule, demand = counted
    max_model_len = context_length(demand, model.config, task.constraints.asked.max_model_len)
    if rule.follows_context and isinstance(max_model_len, int):
        counted = _count(model, task, ServerSettings(max_model_len=max_model_len))
        if isinstance(counted, TokenRefusal):
            return counted
        rule, demand = counted
    return Question(
        declared_id=task.models[0].id,
        model_id=model.id,
        shape=model.shape,
        calibration=model.calibration,
        latency=model.latency,
        rule=rule,
        demand=demand,
        max_model_len=max_model_len,
        workload=task.workload,
        constraints=task.constraints,
        engine_version=task.engine_version,
        trust_remote_code=model.trust_remote_code,
        remembered=model.remembered,
    )


def _count(model: Model, task: Task, settings: ServerSettings) -> tuple[ImageRule, Demand] | TokenRefusal:
    """Return the rule under the cap that is chosen, and what the workload asks under it."""
    shipped = bind_rule(model.architecture, model.config, model.processor, settings, model.id)
    if isinstance(shipped, TokenRefusal):
        return shipped
    rule = _capped(shipped, task.workload, task.constraints)
    if isinstance(rule, TokenRefusal):
        return rule
    demand = measure_demand(task.workload, rule)
    return demand if isinstance(demand, TokenRefusal) else (rule, demand)


def _capped(shipped: ImageRule, workload: Workload, constraints: Constraints) -> ImageRule | TokenRefusal:
    """Return the rule under the tightest cap that the quality floor allows; the shipped one where no lever exists.

    Fewer tokens per image never cost more, so no other cap within the floor can be cheaper.
    """
    sizes = [(size.width, size.height) for size in workload.image_sizes]
    refused = next((r for w, h in sizes if isinstance(r := shipped.count_image(w, h), TokenRefusal)), None)
    if refused is not None:
        return refused
    capped = tightest_cap(
        shipped, sizes, min_pixels=constraints.min_pixels_per_image, min_tokens=constraints.min_image_tokens
    )
    return capped or shipped


def _best_layout(node: NodeShape, size: int, questions: Sequence[Question]) -> Judged | Rejection:
    """Return the cheapest plan on ``size`` GPUs of ``node``, or the nearest miss.

    Checkpoints and KV cache types come in the order of preference; what is less preferred is taken where it needs
    fewer replicas, so nothing is asked further once the fewest allowed are enough.
    """
    best: Judged | None = None
    misses: list[Rejection] = []
    layouts = groupby(
        enumerate_layouts(node, size, questions), key=lambda layout: (layout[1].model_id, layout[0].kv_cache_dtype)
    )
    for _, alike in layouts:
        for candidate, question in alike:
            verdict = _best_step(candidate, question)
            if isinstance(verdict, Rejection):
                misses.append(verdict)
            elif best is None or _beats(verdict, best):
                best = verdict
        if best is not None and best.replicas == best.question.constraints.least_replicas:
            return best
    return best or min(misses, key=_nearness)


def _best_step(candidate: Candidate, question: Question) -> Judged | Rejection:
    """Return the verdict with the largest steps, or with smaller ones where they keep TPOT with fewer replicas."""
    best = judge(candidate, question)
    constraints = question.constraints
    paced = any(target.metric != "ttft" for target in constraints.latency_targets)
    if not paced or constraints.asked.max_num_batched_tokens is not None:
        return best
    for step in SMALLER_STEPS:
        if isinstance(best, Judged) and best.replicas == constraints.least_replicas:
            break
        if isinstance(best, Rejection) and best.reason != "Latency":
            break
        smaller = judge(replace(candidate, max_num_batched_tokens=step), question)
        if isinstance(smaller, Judged) and (isinstance(best, Rejection) or smaller.replicas < best.replicas):
            best = smaller
    return best


def _beats(other: Judged, best: Judged) -> bool:
    """Return whether ``other`` needs fewer replicas, or only lays the tower out so that images are answered sooner."""
    if other.replicas != best.replicas:
        return other.replicas < best.replicas
    same = other.question is best.question and other.candidate.kv_cache_dtype == best.candidate.kv_cache_dtype
    return same and other.seconds[95].ttft < best.seconds[95].ttft


def _nearness(rejection: Rejection) -> tuple[float, int, str]:
    return rejection.shortfall_fraction, rejection.gpus_per_replica, rejection.gpu


def _dearer_kinds(best: Plan, fits: Sequence[Judged]) -> tuple[Plan, ...]:
    """Return the cheapest plan of each of the next three GPU kinds in price."""
    others: dict[str, Judged] = {}
    for fit in fits:
        gpu = fit.candidate.node.gpu.id
        if gpu != best.gpu.id and fit.rank > rank(best):
            others.setdefault(gpu, fit)
    return tuple(fit.plan for fit in list(others.values())[:3])


def _capacity_words(best: Plan, dearer: Sequence[Plan]) -> Iterator[str]:
    """Say what a replica serves for its price, and what one of the next GPU kind in price would."""
    other = next(iter(dearer), None)
    if other is None or not best.hourly_cents or not other.hourly_cents:
        return
    served = [
        f"{plan.latency.requests_per_minute_per_replica:,.0f} requests a minute for "
        f"${plan.hourly_cents / plan.replicas / 100:.2f}/h on {plan.gpus_per_replica} × {plan.gpu.display_name}"
        for plan in (best, other)
        if plan.hourly_cents is not None
    ]
    yield f"a replica serves {served[0]}; {served[1]}"


def _alternatives(best: Plan, dearer: Sequence[Plan], rejections: Sequence[Rejection]) -> tuple[Alternative, ...]:
    """Return at most five others: the next GPU kinds in price, then the nearest miss of each cheaper one."""
    fitting = [_fits(best, plan) for plan in dearer]
    cheaper = [r for r in rejections if r.hourly_cents is not None and r.hourly_cents < (best.hourly_cents or math.inf)]
    missing: dict[str, Alternative] = {}
    for rejection in cheaper:
        missing.setdefault(rejection.gpu, _misses(rejection))
    return (*fitting, *missing.values())[:MAX_ALTERNATIVES]


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


def _no_places(model: Model, task: Task) -> NoFit:
    if task.inventory.shapes:
        return _too_few_in_a_node(model, task)
    return _empty_inventory(model, task.inventory)


def _too_few_in_a_node(model: Model, task: Task) -> NoFit:
    """GPUs there are, but no node holds, or no replica may take, as many as the wanted tensor parallel size."""
    wanted, limit = task.constraints.only_size, task.constraints.max_gpus_per_replica
    most = max(shape.gpus_per_node for shape in task.inventory.shapes)
    message = f"tensor parallel size {wanted} takes {wanted} GPUs of one node; the largest node has {most}"
    if limit is not None and limit < most:
        message = f"tensor parallel size {wanted} takes {wanted} GPUs; accelerators.maxPerReplica allows {limit}"
    return NoFit(
        model_id=model.id, reason="TooFewGPUs", message=f"{message}; choose a smaller size or other GPUs", candidates=0
    )


def _empty_inventory(model: Model, inventory: Inventory) -> NoFit:
    left_out = "; ".join(f"{product}: {reason}" for product, reason in inventory.excluded)
    where = {"cluster": "the cluster's nodes", "file": "the inventory file", "catalogue": "the catalogue"}
    message = f"no usable GPU in {where[inventory.source]}"
    message += f" ({left_out})" if left_out else ""
    if inventory.source == "cluster":
        message += "; add GPU nodes labelled by NVIDIA GPU feature discovery, or set accelerators.inventory: Catalogue"
    return NoFit(model_id=model.id, reason="NoGPUs", message=message, candidates=0)


def _no_fit(model: Model, rejections: Sequence[Rejection]) -> NoFit:
    reasons = Counter(rejection.reason for rejection in rejections)
    return NoFit(
        model_id=model.id,
        reason="NoFit",
        message=f"nothing in the inventory fits ({len(rejections)} candidates); nearest: {rejections[0].message}",
        candidates=len(rejections),
        nearest=tuple(rejections[:MAX_NEAREST]),
        by_reason=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )
