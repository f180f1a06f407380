"""spec + catalogue + inventory -> Plan | NoFit. The only door to the sizing engine.

Called by the controller's reconcile, by ``vlmctl`` and by tests with the same arguments; what cannot be read from the
spec (an unknown GPU) is an ``InputError``, what can be read but not served is a ``NoFit`` with its reason.
"""

from collections.abc import Iterable

from vlm_operator.api import names
from vlm_operator.api.spec import Objective, VLMDeploymentSpec
from vlm_operator.catalogue.load import all_gpus, find_gpu, find_licence, find_model, memory_calibration
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.errors import CatalogueError, InputError, Problem
from vlm_operator.sizing.inventory import Inventory, NodeShape, kind_from_card
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.search import Model, search
from vlm_operator.sizing.shape import ShapeRefusal, read_shape
from vlm_operator.sizing.workload import (
    Constraints,
    ImageCount,
    ImageSize,
    LatencyMetric,
    LatencyTarget,
    Workload,
)

ENGINE_VERSION = "0.33.0"
"""The engine release that the facts of this product describe; also the default of ``spec.engine.version``."""


def plan_deployment(spec: VLMDeploymentSpec, inventory: Inventory) -> Plan | NoFit:
    """Return what to run for ``spec`` on ``inventory``, or why nothing fits.

    Raises:
        InputError: the spec names a GPU that is neither in the catalogue nor in the inventory.
    """
    version = spec.engine.version or ENGINE_VERSION
    try:
        card = find_model(spec.model.id)
    except CatalogueError as error:
        return _refuse(spec, names.REASON_UNKNOWN_MODEL, str(error))
    refusal = _refuse_unservable(spec, card, version)
    if refusal is not None:
        return refusal
    shape = read_shape(card.architecture, card.config)
    if isinstance(shape, ShapeRefusal):
        return _refuse(spec, names.REASON_UNSERVABLE, shape.message)
    model = Model(
        id=card.id,
        architecture=card.architecture,
        config=card.config,
        processor=card.processor,
        shape=shape,
        calibration=memory_calibration(),
        remembered=bool(card.remembered_fields)
        or "memory" in (card.config_provenance.certainty, card.processor_provenance.certainty),
        trust_remote_code=spec.model.trust_remote_code,
    )
    if spec.accelerators.inventory == "Catalogue" and inventory.source == "cluster":
        inventory = catalogue_inventory()
    return search(model, workload_of(spec), constraints_of(spec), restrict_inventory(spec, inventory), version)


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
        max_gpus_per_replica=spec.accelerators.max_per_replica,
        max_hourly_cost_cents=spec.accelerators.max_hourly_cost_cents,
        min_replicas=spec.scaling.min_replicas or 1,
        max_replicas=spec.scaling.max_replicas,
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
            "choose another model (vlmctl catalogue models)",
        )
    if card.parameters is None and card.config_provenance.certainty == "class-default":
        return _refuse(
            spec,
            names.REASON_UNSERVABLE,
            f"{card.id}: only its token counts are known; its layers and widths are the defaults of its class, not "
            "the checkpoint's own, so its memory cannot be sized; choose another model (vlmctl catalogue models)",
        )
    return _refuse_licence(spec, card)


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
