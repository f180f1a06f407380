"""What to run for one resource: gathered facts -> Decision. Pure, and slow: ``reconcile`` has a thread for it.

When the running plan stays. A Deployment whose ``spec-digest`` annotation is that of today's spec was
planned for what the user asks today; then, in this order:

1. the fresh plan is the running one (same plan digest): it stays, and drift in its children is put back;
2. else, if the running GPU kind alone still gives the running plan (other GPUs came or went, or others hold
   the free ones): it stays, likewise;
3. else, if nodes with that GPU kind still exist (also unready or cordoned ones), or nothing fits: the
   Deployment is left as it is. This is what an upgraded operator meets whose figures changed, and it restarts
   nothing; and what a kubelet's restart looks like, and it moves nothing;
4. else the GPU kind has left the cluster and something else fits: the fresh plan replaces the running one.

When the spec or the ConfigMap that it names changed, the fresh plan replaces the running one; if nothing fits,
or the model's source says nothing, the old Deployment keeps serving and status says what is wrong.

Whether a rollout may start one pod more than there are replicas, or how many may be missing, is decided when it
starts, from the room that there is then (``rollout``); afterwards the strategy stays as it is, because other
people's pods must not cause writes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.api.validate import Resource, parse_resource
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.controller.plans import PlanFunction
from vlm_operator.controller.rollout import most_unavailable
from vlm_operator.errors import CatalogueError, InputError, Problem, RenderError
from vlm_operator.hub.types import SourceRefusal
from vlm_operator.planning import plan_deployment
from vlm_operator.render.manifests import render_manifests
from vlm_operator.render.names import PLAN_DIGEST_ANNOTATION, SPEC_DIGEST_ANNOTATION
from vlm_operator.report.status_plan import canonical_digest, plan_digest, spec_digest
from vlm_operator.sizing.inventory import Inventory, Resources
from vlm_operator.sizing.plan import NoFit, Plan

Document = dict[str, Any]
Outcome = Plan | NoFit | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided; ``manifests`` is None where the children are left as they are.

    ``keep_deployment`` says that the running Deployment is not touched although other children may be.
    """

    outcome: Outcome
    manifests: tuple[Document, ...] | None = None
    keep_deployment: bool = False
    suspended: bool = False


def decide(
    document: Document,
    inventory: Inventory,
    deployment: Document | None,
    idle: Mapping[str, Sequence[Resources]],
    model: ModelCard | SourceRefusal | None = None,
    plan: PlanFunction = plan_deployment,
) -> Decision:
    """Return what to do for a VLMDeployment as the API server shows it.

    Args:
        document: The VLMDeployment.
        inventory: What it could have.
        deployment: Its running Deployment, if there is one.
        idle: For each GPU product, what nobody holds on each node.
        model: What its source says of the model, or why it says nothing; None means the catalogue.
        plan: Asks the engine, which may take seconds.
    """
    try:
        resource = parse_resource(document)
        asked = _Asked(resource=resource, model=model, digest=_asked_digest(resource, model), ask=plan)
        fresh = asked.plan(inventory)
        outcome, keep = _stay(asked, fresh, inventory, deployment)
    except (InputError, CatalogueError) as error:
        return Decision(outcome=Problem(path="", message=str(error)))
    suspended = resource.spec.suspend
    if not isinstance(outcome, Plan):
        return Decision(outcome=outcome, keep_deployment=keep, suspended=suspended)
    missing = _most_unavailable(outcome, asked.digest, deployment, idle)
    try:
        manifests = render_manifests(
            resource, outcome, spec_digest=asked.digest, plan_digest=plan_digest(outcome), max_unavailable=missing
        )
    except RenderError as error:
        return Decision(outcome=Problem(path="", message=str(error)), suspended=suspended)
    return Decision(outcome=outcome, manifests=manifests, keep_deployment=keep, suspended=suspended)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the user asks for: the spec, what its model is, and the digest of both that tells a change of mind."""

    resource: Resource
    model: ModelCard | SourceRefusal | None
    digest: str
    ask: PlanFunction

    def plan(self, inventory: Inventory) -> Plan | NoFit:
        """Return what to run on ``inventory``; without a model, why there is none."""
        spec = self.resource.spec
        if isinstance(self.model, SourceRefusal):
            return NoFit(model_id=spec.model.id, reason=self.model.reason, message=self.model.message, candidates=0)
        return self.ask(spec, inventory, self.model)


def _asked_digest(resource: Resource, model: ModelCard | SourceRefusal | None) -> str:
    """Return the digest of the spec; the content of a ConfigMap that it names is part of what the user wrote."""
    digest = spec_digest(resource.spec)
    if resource.spec.model.config_map_name is None or not isinstance(model, ModelCard):
        return digest
    return canonical_digest(
        {"spec": digest, "config": model.config, "processor": model.processor, "tensors": model.tensors}
    )


def _stay(
    asked: _Asked,
    fresh: Plan | NoFit,
    inventory: Inventory,
    deployment: Document | None,
) -> tuple[Plan | NoFit, bool]:
    """Apply the rules of the module docstring; the second value says that the Deployment is left as it is."""
    annotations = _annotations(deployment)
    if deployment is None or annotations.get(SPEC_DIGEST_ANNOTATION) != asked.digest:
        return fresh, False
    running = annotations.get(PLAN_DIGEST_ANNOTATION)
    if isinstance(fresh, Plan) and plan_digest(fresh) == running:
        return fresh, False
    shapes = tuple(shape for shape in inventory.shapes if _runs_on(deployment, shape.gpu.product))
    if shapes:
        unlimited = tuple(replace(shape, free_by_node=None) for shape in shapes)
        same = asked.plan(replace(inventory, shapes=unlimited))
        if isinstance(same, Plan) and plan_digest(same) == running:
            return same, False
    exists = bool(shapes) or any(_runs_on(deployment, product) for product, _ in inventory.excluded)
    return fresh, exists or isinstance(fresh, NoFit)


def _most_unavailable(
    plan: Plan, digest: str, deployment: Document | None, idle: Mapping[str, Sequence[Resources]]
) -> int:
    """Return how many pods may be missing while the plan rolls out; see the module docstring."""
    if deployment is None:
        return 1
    running = _annotations(deployment)
    if (running.get(SPEC_DIGEST_ANNOTATION), running.get(PLAN_DIGEST_ANNOTATION)) == (digest, plan_digest(plan)):
        rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        chosen = rolling.get("maxUnavailable")
        return chosen if isinstance(chosen, int) and chosen <= plan.replicas else 1
    pod = plan.host.pod(plan.gpus_per_replica)
    return most_unavailable(deployment, pod, plan.replicas, idle.get(plan.gpu.product, ()))


def _runs_on(deployment: Document, product: str) -> bool:
    """Tell whether the Deployment's pods ask for this GPU product, in a node selector or an affinity."""
    spec = deployment["spec"]["template"]["spec"]
    asked = json.dumps([spec.get("nodeSelector"), spec.get("affinity")])
    return json.dumps(product) in asked


def _annotations(document: Document | None) -> Mapping[str, str]:
    metadata = (document or {}).get("metadata") or {}
    return metadata.get("annotations") or {}
