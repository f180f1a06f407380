"""Observation -> is the Deployment available, and if not, what holds it back. Called by ``conditions``."""

from typing import Final

from vlm_operator.api import names
from vlm_operator.report.observation import Observation, PodTrouble
from vlm_operator.report.verdict import Verdict, pending

_OUT_OF_HOST_MEMORY: Final = "OOMKilled"
"""What the kubelet calls a container that the kernel ended (137); a GPU that is full ends the engine by itself."""
_ORDINARY_WAITING: Final = frozenset({"ContainerCreating", "PodInitializing", ""})


def available_verdict(observation: Observation, *, suspended: bool) -> Verdict:
    """Return whether the pods serve, or the one thing that keeps them from it."""
    if suspended:
        return _suspended(observation)
    if not observation.deployment_present:
        return pending("there is no Deployment yet")
    serving = f"{observation.available_replicas} of {observation.desired_replicas} replicas answer"
    if observation.available_replicas >= observation.desired_replicas > 0:
        return Verdict("True", names.REASON_SERVING, serving)
    if trouble := _worst_trouble(observation):
        reason = names.REASON_HOST_OOM if trouble.reason == _OUT_OF_HOST_MEMORY else names.REASON_CRASHING
        return Verdict("False", reason, f"{serving}; {_describe(trouble)}")
    if observation.unschedulable_message:
        message = f"{serving}; a pod waits for a node: {observation.unschedulable_message}"
        return Verdict("False", names.REASON_UNSCHEDULABLE, message)
    return Verdict("False", names.REASON_LOADING, f"{serving}; the others start and load the weights")


def _suspended(observation: Observation) -> Verdict:
    running = observation.ready_replicas
    still = f"; {running} still stopping" if running else ""
    message = f"spec.suspend is true, so no replica is wanted{still}; set it to false to serve"
    return Verdict("False", names.REASON_SUSPENDED, message)


def _worst_trouble(observation: Observation) -> PodTrouble | None:
    """Return what ended the pod that restarted most often, or else what a pod waits for.

    The order is total, so that the same pods in another order give the same message.
    """
    ended = sorted(observation.terminated, key=lambda trouble: (-trouble.restarts, trouble.pod, trouble.reason))
    waiting = sorted(
        (trouble for trouble in observation.waiting if trouble.reason not in _ORDINARY_WAITING),
        key=lambda trouble: (trouble.pod, trouble.reason),
    )
    return next(iter([*ended, *waiting]), None)


def _describe(trouble: PodTrouble) -> str:
    restarts = f" after {trouble.restarts} restarts" if trouble.restarts else ""
    detail = f": {trouble.message.strip()}" if trouble.message.strip() else ""
    if trouble.reason == _OUT_OF_HOST_MEMORY:
        detail = ": it outgrew its limit of host memory (status.plan.hostMemory), which is not the GPU's memory"
    look = "kubectl logs --previous" if trouble.restarts else "kubectl describe pod"
    return f"pod {trouble.pod}: {trouble.reason}{restarts}{detail}; see {look} {trouble.pod}"
