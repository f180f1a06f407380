"""Plans beside the plan: what twice or half the quality floor would cost. The same engine answers."""

from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.errors import VlmOperatorError
from vlm_operator.planning import plan_deployment
from vlm_operator.report.figures import seconds
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan


def what_if(spec: VLMDeploymentSpec, inventory: Inventory, plan: Plan, card: ModelCard | None) -> tuple[str, ...]:
    """Return one line for twice and one for half the pixels; nothing where no floor is declared."""
    pixels = spec.quality.min_pixels_per_image
    if pixels is None or plan.cap_value is None:
        return ()
    rows = []
    for words, floor in (("twice the pixels", pixels * 2), ("half the pixels", pixels // 2)):
        outcome = _plan_with_floor(spec, inventory, floor, card)
        if outcome is not None:
            rows.append(f"{words:<19}{_difference(plan, outcome)}")
    return tuple(rows)


def _plan_with_floor(
    spec: VLMDeploymentSpec, inventory: Inventory, floor: int, card: ModelCard | None
) -> Plan | NoFit | None:
    quality = spec.quality.model_copy(update={"min_pixels_per_image": max(floor, 1)})
    try:
        return plan_deployment(spec.model_copy(update={"quality": quality}), inventory, card)
    except VlmOperatorError:
        return None


def _difference(plan: Plan, other: Plan | NoFit) -> str:
    if isinstance(other, NoFit):
        return "does not fit"
    price = "price unknown"
    if plan.hourly_cents is not None and other.hourly_cents is not None:
        change = other.hourly_cents - plan.hourly_cents
        price = f"{'−' if change < 0 else '+'}${abs(change) / 100:.2f}/h"
    what = f"{other.gpus_per_replica} × {other.gpu.display_name}"
    if other.replicas > 1:
        what = f"{other.replicas} × ({what})"
    return f"{price} on {what} · TTFT p95 {seconds(other.latency.ttft.p95)}"
