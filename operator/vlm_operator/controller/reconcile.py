"""Gather, decide, act: one visit of one VLMDeployment. Idempotent; writes nothing where nothing differs.

In: a key of the queue. Out: the children and status on the API server, and Events about what was done.
``decide`` says what is wanted; this module reads, compares and writes.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.cluster import kinds
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.cluster.events import EventType, post_event
from vlm_operator.cluster.inventory import build_inventory, idle_nodes
from vlm_operator.cluster.observe import observe
from vlm_operator.cluster.placement import placement_of
from vlm_operator.cluster.snapshot import SnapshotCache
from vlm_operator.controller.apply import Applied, apply_children
from vlm_operator.controller.decide import Decision, decide
from vlm_operator.controller.news import ready_news
from vlm_operator.controller.plans import KeptPlans
from vlm_operator.controller.queue import Key
from vlm_operator.controller.sources import ModelSources
from vlm_operator.errors import RenderError
from vlm_operator.render.names import (
    MANAGED_BY_LABEL,
    PLAN_DIGEST_ANNOTATION,
    SPEC_DIGEST_ANNOTATION,
    child_labels,
    selector_labels,
)
from vlm_operator.report.conditions import build_status
from vlm_operator.sizing.plan import Plan

Document = dict[str, Any]
Children = dict[str, Document]
"""Live children by kind name; a resource has at most one of each kind."""

NO_FIT_RECHECK_SECONDS: Final = 30.0
"""Other people's pods are not watched; a resource without a plan looks again for GPUs they gave back."""
REFUSED_RECHECK_SECONDS: Final = 30.0

REASON_PLANNED: Final = "Planned"
REASON_RESTORED: Final = "DriftRestored"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """What status needs of a resource, also of one whose spec cannot be read."""

    name: str
    namespace: str
    generation: int


class Reconciler:
    """Visits VLMDeployments; holds nothing of them between visits that another visit would not find again.

    Decisions are made in one thread beside the event loop. More of them would be no faster, since they compute all the
    time, and each would keep the loop waiting for its turn.
    """

    def __init__(
        self,
        client: ClusterClient,
        snapshots: SnapshotCache,
        sources: ModelSources,
        plans: KeptPlans,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._snapshots = snapshots
        self._sources = sources
        self._clock = clock
        self._plans = plans
        self._decider = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decide")

    async def visit(self, key: Key) -> float | None:
        """Bring one resource to what it asks for; return after how many seconds to look again, if so."""
        document = await self._client.get(kinds.VLM_DEPLOYMENT, *key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return None
        document |= {"apiVersion": names.API_VERSION, "kind": names.KIND}
        children = await self._read_children(key)
        model = await self._sources.describe(document)
        snapshot, placement = await self._snapshots.read(), placement_of(document)
        ours = _owned(children, document)
        question = partial(
            decide,
            document,
            build_inventory(snapshot, key, placement),
            ours.get(kinds.DEPLOYMENT.name),
            idle_nodes(snapshot, placement),
            model,
            self._plans.plan,
        )
        decision = await asyncio.get_running_loop().run_in_executor(self._decider, question)
        applied = await apply_children(self._client, document, decision, children)
        status = await self._report(document, decision, applied)
        await self._tell(document, decision, applied, ours)
        await self._tell_ready(document, status)
        if applied.error:
            return REFUSED_RECHECK_SECONDS
        return None if isinstance(decision.outcome, Plan) else NO_FIT_RECHECK_SECONDS

    async def _read_children(self, key: Key) -> Children:
        """Return the live child of each kind: by the names that our manifests have, whoever made it."""
        namespace, name = key
        try:
            child_names = [kinds.child_name(kind, name) for kind in kinds.CHILD_KINDS]
        except RenderError:  # a name that no child can have; `decide` tells the user
            return {}
        found = await asyncio.gather(
            *(
                self._client.get(kind, namespace, child)
                for kind, child in zip(kinds.CHILD_KINDS, child_names, strict=True)
            )
        )
        return {kind.name: child for kind, child in zip(kinds.CHILD_KINDS, found, strict=True) if child is not None}

    async def _report(self, document: Document, decision: Decision, applied: Applied) -> Document:
        metadata = document["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        labels = selector_labels(name) | {MANAGED_BY_LABEL: child_labels(name)[MANAGED_BY_LABEL]}
        ours = _owned(applied.children, document)
        deployment = ours.get(kinds.DEPLOYMENT.name)
        pods = (
            await self._client.list(kinds.POD, namespace, labels=",".join(f"{k}={v}" for k, v in labels.items()))
            if deployment is not None
            else []
        )
        observation = observe(name, deployment, ours.get(kinds.SERVICE.name), pods, applied.error)
        if decision.keep_deployment:  # it is meant to run another plan; nothing is about to replace it
            observation = replace(observation, plan_digest="")
        before = document.get("status") or {}
        status = build_status(
            _Identity(name=name, namespace=namespace, generation=metadata.get("generation", 0)),
            decision.outcome,
            observation,
            before.get("conditions") or (),
            self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            suspended=decision.suspended,
        )
        if status != before:
            await self._client.apply_status(
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
                    "status": status,
                }
            )
        return status

    async def _tell_ready(self, document: Document, status: Document) -> None:
        news = ready_news((document.get("status") or {}).get("conditions") or (), status["conditions"])
        if news is not None:
            reason, message, is_warning = news
            await self._post(document, reason, message, "Warning" if is_warning else "Normal")

    async def _tell(
        self, document: Document, decision: Decision, applied: Applied, before: Mapping[str, Document]
    ) -> None:
        for kind in applied.restored:
            await self._post(document, REASON_RESTORED, f"put back what had been changed in the {kind}")
        if not isinstance(decision.outcome, Plan) or kinds.DEPLOYMENT.name not in applied.written:
            return
        after = _digests(applied.children.get(kinds.DEPLOYMENT.name))
        if after != _digests(before.get(kinds.DEPLOYMENT.name)):
            plan = decision.outcome
            message = f"{plan.replicas} × ({plan.gpus_per_replica} x {plan.gpu.display_name})"
            await self._post(document, REASON_PLANNED, message)

    async def _post(self, document: Document, reason: str, message: str, event_type: EventType = "Normal") -> None:
        await post_event(self._client, document, reason, message, self._clock(), event_type)


def _owned(children: Mapping[str, Document], document: Document) -> Children:
    """Return the children that this very object owns; those of an older one of its name are not ours."""
    uid = document["metadata"]["uid"]
    return {kind: child for kind, child in children.items() if kinds.is_owned_by(child, uid)}


def _digests(deployment: Document | None) -> tuple[str | None, str | None]:
    annotations = ((deployment or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(SPEC_DIGEST_ANNOTATION), annotations.get(PLAN_DIGEST_ANNOTATION)
