"""The children as the API server shows them -> Observation. Pure; called by ``controller.reconcile``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vlm_operator.render.names import PLAN_DIGEST_ANNOTATION, selector_labels
from vlm_operator.report.observation import Observation, PodTrouble

Document = dict[str, Any]


def observe(
    name: str,
    deployment: Document | None,
    service: Document | None,
    pods: Sequence[Document],
    apply_error: str = "",
) -> Observation:
    """Return what is seen of one resource's children."""
    seen = deployment or {}
    metadata, status = seen.get("metadata", {}), seen.get("status", {})
    alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return Observation(
        deployment_present=deployment is not None,
        generation_observed=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        desired_replicas=seen.get("spec", {}).get("replicas", 0),
        ready_replicas=status.get("readyReplicas", 0),
        available_replicas=status.get("availableReplicas", 0),
        updated_replicas=status.get("updatedReplicas", 0),
        waiting=tuple(trouble for pod in alive for trouble in _waiting(pod)),
        terminated=tuple(trouble for pod in alive for trouble in _terminated(pod)),
        unschedulable_message=next(filter(None, map(_unschedulable, alive)), ""),
        apply_error=apply_error,
        service_name=service["metadata"]["name"] if service else "",
        selector=",".join(f"{key}={value}" for key, value in sorted(selector_labels(name).items())),
        plan_digest=(metadata.get("annotations") or {}).get(PLAN_DIGEST_ANNOTATION, ""),
    )


def _waiting(pod: Document) -> Iterator[PodTrouble]:
    for container in _containers(pod):
        if waiting := container.get("state", {}).get("waiting"):
            yield _trouble(pod, container, waiting)


def _terminated(pod: Document) -> Iterator[PodTrouble]:
    """Yield how containers ended: now, or before the restart that is now running or waiting."""
    for container in _containers(pod):
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
        if ended and (container.get("restartCount", 0) > 0 or ended.get("exitCode", 0) != 0):
            yield _trouble(pod, container, ended)


def _containers(pod: Document) -> Iterator[Document]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _trouble(pod: Document, container: Mapping[str, Any], state: Mapping[str, Any]) -> PodTrouble:
    return PodTrouble(
        pod=pod["metadata"]["name"],
        reason=state.get("reason") or f"ExitCode{state.get('exitCode', '')}",
        message=state.get("message", ""),
        restarts=container.get("restartCount", 0),
    )


def _unschedulable(pod: Document) -> str:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""
