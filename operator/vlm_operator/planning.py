"""spec + catalogue + inventory -> Plan | NoFit. The only door to the sizing engine.

Called by the controller's reconcile, by ``vlmctl`` and by tests with the same arguments; what cannot be read from the
spec (an unknown GPU) is an ``InputError``, what can be read but not served is a ``NoFit`` with its reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from vlm_operator.api import names
from vlm_operator.api.spec import Objective, VLMDeploymentSpec
from vlm_operator.catalogue.alternatives import find_served_like
from vlm_operator.catalogue.load import (
    all_gpus,
    find_gpu,
    find_licence,
    find_model,
    latency_calibration,
    memory_calibration,
    model_ids,
)
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.errors import CatalogueError, InputError, Problem
from vlm_operator.sizing.advice import Opening, advise
from vlm_operator.sizing.checkpoint import Checked, check_tensors
from vlm_operator.sizing.inventory import Inventory, NodeShape, kind_from_card
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.search import JudgedPlace, Model, Task, judge_places, search
from vlm_operator.sizing.shape import ShapeRefusal, read_shape
from vlm_operator.sizing.workload import (
    AskedFlags,
    Constraints,
    ImageCount,
    ImageSize,
    LatencyMetric,
    LatencyTarget,
    Workload,
)

ENGINE_VERSION = "0.33.0"
"""The engine release that the facts of this product describe; also the default of ``spec.engine.version``."""

_SOURCES = {"catalogue": "the catalogue", "file": "the inventory file"}

SEED = 33020
"""Of the simulated traffic: the same input gives the same plan."""


def plan_deployment(
    spec: VLMDeploymentSpec,
    inventory: Inventory,
    card: ModelCard | None = None,
    *,
    tensor_parallel_size: int | None = None,
    simulate: bool = True,
    suggest: bool = True,
) -> Plan | NoFit:
    """Return what to run for ``spec`` on ``inventory``, or why nothing fits.

    Args:
        spec: What is declared.
        inventory: What could be had.
        card: Describes the model where its source is not the catalogue.
        tensor_parallel_size: The only size to consider; None leaves it to the search.
        simulate: Whether the cheapest plans are tried under simulated traffic, or closed formulas decide alone.
        suggest: Whether to look for what would fit where nothing does.

    Raises:
        InputError: the spec names a GPU that is neither in the catalogue nor in the inventory, or ``engine.extraArgs``
            has an argument that cannot be used.
    """
    task = _task(spec, inventory, card, tensor_parallel_size)
    if isinstance(task, NoFit):
        return task
    seeded = _seeded if simulate else None
    verdict = search(task.asked, seeded)
    if isinstance(verdict, NoFit) and verdict.candidates and suggest:
        return replace(
            verdict, suggestions=advise(task.asked, _openings(spec, task.offered), _seeded if simulate else None)
        )
    return _annotate(verdict, spec, task) if isinstance(verdict, Plan) else verdict


def _seeded(traffic: int) -> Random:
    return Random(SEED + traffic)  # noqa: S311 - traffic, no secret


def judge_deployment(
    spec: VLMDeploymentSpec,
    inventory: Inventory,
    card: ModelCard | None = None,
    *,
    tensor_parallel_size: int | None = None,
) -> tuple[JudgedPlace, ...] | NoFit:
    """Return what each GPU kind and tensor parallel size of ``inventory`` could run, or why none can be judged.

    Raises:
        InputError: as in ``plan_deployment``.
    """
    task = _task(spec, inventory, card, tensor_parallel_size)
    return task if isinstance(task, NoFit) else judge_places(task.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The task of a spec, the inventory before its restrictions, and what is known of the checkpoint."""

    asked: Task
    offered: Inventory
    note: str
    revision: str


def _task(
    spec: VLMDeploymentSpec, inventory: Inventory, card: ModelCard | None, tensor_parallel_size: int | None
) -> _Planned | NoFit:
    version = spec.engine.version or ENGINE_VERSION
    if card is None:
        try:
            card = find_model(spec.model.id)
        except CatalogueError as error:
            return _refuse(spec, names.REASON_UNKNOWN_MODEL, str(error))
    refusal = _refuse_unservable(spec, card, version)
    if refusal is not None:
        return refusal
    checked = checked_shape(card)
    if isinstance(checked, ShapeRefusal):
        return _refuse(spec, names.REASON_UNSERVABLE, checked.message)
    offered = inventory
    if spec.accelerators.inventory == "Catalogue" and inventory.source == "cluster":
        offered = catalogue_inventory()
    task = Task(
        models=(_model(spec, card, checked), *_other_formats(spec, card)),
        workload=workload_of(spec),
        constraints=replace(
            constraints_of(spec), tensor_parallel_size=tensor_parallel_size, asked=_asked_flags(spec, version)
        ),
        inventory=restrict_inventory(spec, offered),
        engine_version=version,
    )
    return _Planned(asked=task, offered=offered, note=checked.note, revision=card.revision)


def _annotate(plan: Plan, spec: VLMDeploymentSpec, task: _Planned) -> Plan:
    """Return the plan with what is known of its checkpoint, and with what nobody knows of its GPUs, in its reasons."""
    declared = plan.model_id == task.asked.models[0].id
    notes = [task.note] if declared and task.note else []
    if spec.accelerators.regions and task.offered.source != "cluster":
        where, regions = _SOURCES[task.offered.source], ", ".join(spec.accelerators.regions)
        notes.append(f"{where} knows no regions, so whether such GPUs can be had in {regions} was not checked")
    revision = task.revision if declared else plan.model_revision
    return replace(plan, model_revision=revision, reasons=(*plan.reasons, *notes))


def _asked_flags(spec: VLMDeploymentSpec, version: str) -> AskedFlags:
    """Return what ``engine.extraArgs`` asks for; the type of the KV cache is also a field, which admits it or not."""
    if not spec.engine.extra_args:
        return AskedFlags()
    from vlm_operator.engine.extra_args import PATH, read_extra_args  # noqa: PLC0415 - loads all flags of the engine

    asked = read_extra_args(spec.engine.extra_args, version)
    admitted = spec.quality.allowed_kv_cache_dtypes
    if asked.kv_cache_dtype is not None and admitted and asked.kv_cache_dtype not in admitted:
        message = f"--kv-cache-dtype {asked.kv_cache_dtype}: quality.allowedKVCacheDtypes admits {', '.join(admitted)}"
        raise InputError([Problem(path=PATH, message=f"{message}; leave the flag or that field out")])
    return asked


def checked_shape(card: ModelCard) -> Checked | ShapeRefusal:
    """Return the shape of a checkpoint, held against its tensors where they are known.

    A checkpoint of the catalogue always has the same one: what is kept of a shape is found by its identity.
    """
    catalogued = card.id in model_ids() and find_model(card.id) is card
    return _catalogued_shape(card.id) if catalogued else _checked_shape(card)


@cache
def _catalogued_shape(model_id: str) -> Checked | ShapeRefusal:
    return _checked_shape(find_model(model_id))


def _checked_shape(card: ModelCard) -> Checked | ShapeRefusal:
    shape = read_shape(card.architecture, card.config)
    if isinstance(shape, ShapeRefusal):
        return shape
    return check_tensors(shape, card.tensors) if card.tensors else Checked(shape=shape)


def _model(spec: VLMDeploymentSpec, card: ModelCard, checked: Checked) -> Model:
    return Model(
        id=card.id,
        architecture=card.architecture,
        config=card.config,
        processor=card.processor,
        shape=checked.shape,
        calibration=memory_calibration(),
        latency=latency_calibration(),
        remembered=bool(card.remembered_fields)
        or "memory" in (card.config_provenance.certainty, card.processor_provenance.certainty),
        trust_remote_code=spec.model.trust_remote_code,
    )


def _other_formats(spec: VLMDeploymentSpec, card: ModelCard) -> tuple[Model, ...]:
    """Return the published checkpoints that hold the model in other formats; a volume holds only the declared one."""
    if spec.model.storage is not None and spec.model.storage.persistent_volume_claim is not None:
        return ()
    others = [find_model(other) for other in card.quantised_as]
    read = [(other, checked_shape(other)) for other in others]
    return tuple(_model(spec, other, checked) for other, checked in read if isinstance(checked, Checked))


def _openings(spec: VLMDeploymentSpec, offered: Inventory) -> tuple[Opening, ...]:
    """Return what the user could open up: GPUs that the spec leaves out, then those that the cluster lacks."""
    found: list[Opening] = []
    limits = spec.accelerators

    def without(field: str) -> Inventory:
        wider = limits.model_copy(update={field: ()})
        return restrict_inventory(spec.model_copy(update={"accelerators": wider}), offered)

    if limits.allowed:
        opened = without("allowed")
        found.append(Opening(inventory=opened, path="accelerators.allowed", value=tuple(limits.allowed)))
    if limits.denied:
        found.append(Opening(inventory=without("denied"), path="accelerators.denied", value=None))
    if offered.source == "cluster":
        whole = restrict_inventory(spec, catalogue_inventory())
        found.append(Opening(inventory=whole, path="accelerators.inventory", value="Catalogue"))
    return tuple(found)


def catalogue_inventory() -> Inventory:
    """Return every NVIDIA GPU of the catalogue as nodes that could be had; other vendors with the reason."""
    shapes: list[NodeShape] = []
    excluded: list[tuple[str, str]] = []
    for card in all_gpus():
        if card.vendor != "nvidia":
            excluded.append((card.id, f"{card.vendor} is not covered by the engine facts; only NVIDIA GPUs are"))
        elif card.driver_memory_mib is None or card.bandwidth_gb_per_second is None:
            excluded.append((card.id, "its memory or bandwidth is unknown"))
        else:
            shapes.append(NodeShape(gpu=kind_from_card(card), gpus_per_node=card.max_gpus_per_node or 1))
    return Inventory(shapes=tuple(shapes), excluded=tuple(excluded), source="catalogue")


def workload_of(spec: VLMDeploymentSpec) -> Workload:
    """Translate the declared workload into engine words."""
    declared = spec.workload
    prompt, output = declared.text.prompt_tokens, declared.output.tokens
    return Workload(
        image_sizes=tuple(
            ImageSize(width=size.width, height=size.height, weight=size.weight) for size in declared.images.sizes
        ),
        images_per_request=tuple(
            ImageCount(count=entry.count, weight=entry.weight) for entry in declared.images.per_request
        ),
        prompt_tokens_p50=prompt.p50,
        prompt_tokens_max=prompt.p99,
        output_tokens_p50=output.p50,
        output_tokens_max=output.max,
        requests_per_minute=declared.traffic.requests_per_minute,
        burst_percent=declared.traffic.burst_percent or 100,
        concurrent_requests=declared.traffic.concurrent_requests,
        repeat_percent=declared.images.repeat_percent,
        shared_prefix_tokens=declared.text.shared_prefix_tokens,
    )


def constraints_of(spec: VLMDeploymentSpec) -> Constraints:
    """Translate objectives, quality floor and limits."""
    objectives = spec.objectives
    declared: tuple[tuple[LatencyMetric, Objective | None], ...] = (
        ("ttft", objectives.ttft),
        ("tpot", objectives.tpot),
        ("request_latency", objectives.request_latency),
    )
    return Constraints(
        latency_targets=tuple(
            LatencyTarget(metric=metric, percentile=target.percentile, seconds=target.milliseconds / 1000)
            for metric, target in declared
            if target is not None
        ),
        min_pixels_per_image=spec.quality.min_pixels_per_image,
        min_image_tokens=spec.quality.min_image_tokens,
        quantisations=spec.quality.allowed_quantizations,
        kv_cache_dtypes=spec.quality.allowed_kv_cache_dtypes or ("auto",),
        max_gpus_per_replica=spec.accelerators.max_per_replica,
        max_hourly_cost_cents=spec.accelerators.max_hourly_cost_cents,
        min_replicas=spec.scaling.min_replicas or 1,
        max_replicas=spec.scaling.max_replicas,
        spare_replicas=spec.scaling.spare_replicas or 0,
    )


def restrict_inventory(spec: VLMDeploymentSpec, inventory: Inventory) -> Inventory:
    """Keep the GPUs that the spec allows; every other one is excluded with the field that did it."""
    allowed = _gpu_ids(spec.accelerators.allowed, "spec.accelerators.allowed", inventory)
    denied = _gpu_ids(spec.accelerators.denied, "spec.accelerators.denied", inventory)
    shapes: list[NodeShape] = []
    excluded = list(inventory.excluded)
    for shape in inventory.shapes:
        if shape.gpu.id in denied:
            excluded.append((shape.gpu.product, "denied by accelerators.denied"))
        elif allowed and shape.gpu.id not in allowed:
            excluded.append((shape.gpu.product, "not in accelerators.allowed"))
        else:
            shapes.append(shape)
    return Inventory(shapes=tuple(shapes), excluded=tuple(excluded), source=inventory.source)


def _gpu_ids(wanted: Iterable[str], path: str, inventory: Inventory) -> frozenset[str]:
    ids: set[str] = set()
    problems: list[Problem] = []
    for position, name in enumerate(wanted):
        known = {shape.gpu.id for shape in inventory.shapes if name in (shape.gpu.id, shape.gpu.product)}
        if not known:
            try:
                known = {find_gpu(name).id}
            except CatalogueError as error:
                problems.append(Problem(path=f"{path}[{position}]", message=str(error)))
        ids |= known
    if problems:
        raise InputError(problems)
    return frozenset(ids)


def _refuse_unservable(spec: VLMDeploymentSpec, card: ModelCard, version: str) -> NoFit | None:
    if version != ENGINE_VERSION:
        return _refuse(
            spec,
            names.REASON_UNSERVABLE,
            f"engine version {version} is not known; this release knows vLLM {ENGINE_VERSION} (spec.engine.version)",
        )
    if not card.served:
        last = f"; the last version that served it is {card.last_engine_version}" if card.last_engine_version else ""
        return _refuse(
            spec,
            names.REASON_UNSERVABLE,
            f"{card.id}: vLLM {version} does not serve {card.architecture}{last}; "
            f"choose another model, {_such_as(card)}",
        )
    if card.parameters is None and card.config_provenance.certainty == "class-default":
        return _refuse(
            spec,
            names.REASON_UNSERVABLE,
            f"{card.id}: only its token counts are known; its layers and widths are the defaults of its class, not "
            "the checkpoint's own, so its memory cannot be sized; choose another model (vlmctl catalogue models)",
        )
    return _refuse_licence(spec, card)


def _such_as(card: ModelCard) -> str:
    """Name a served model of the size of ``card``, and where the others are listed."""
    alike = find_served_like(card)
    return f"such as {alike} of its size (all: vlmctl catalogue models)" if alike else "see vlmctl catalogue models"


def _refuse_licence(spec: VLMDeploymentSpec, card: ModelCard) -> NoFit | None:
    jurisdiction = spec.compliance.jurisdiction
    if jurisdiction is None:
        return None
    licence = find_licence(card.id)
    if licence is None:
        return _refuse(
            spec,
            names.REASON_LICENCE_UNKNOWN,
            f"{card.id}: its licence is not in the catalogue, so whether it grants rights in {jurisdiction} is not "
            "known; read it, then drop spec.compliance.jurisdiction, or choose another model",
        )
    if not licence.excludes(jurisdiction):
        return None
    sure = "" if licence.provenance.certainty == "documented" else " (remembered, not read: check the licence)"
    return _refuse(
        spec,
        names.REASON_LICENCE_EXCLUDED,
        f"{card.id}: the {licence.licence} grants no rights in {jurisdiction}{sure}: "
        f"{licence.provenance.source[0]}; choose another model",
    )


def _refuse(spec: VLMDeploymentSpec, reason: str, message: str) -> NoFit:
    return NoFit(model_id=spec.model.id, reason=reason, message=message, candidates=0)
