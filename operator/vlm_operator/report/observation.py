"""What was seen of a resource's children, as plain values. Filled by ``cluster``, read by ``conditions``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrouble:
    """Why a container of a pod waits or ended: ``CrashLoopBackOff``, ``ImagePullBackOff``, ``OOMKilled``."""

    pod: str
    reason: str
    message: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The children as the API server shows them.

    ``service_name`` is the name of the Service that leads to the pods (``render.names.service_name``), empty
    while there is none; it becomes the endpoint in status. ``apply_error`` is what the API server said when
    it refused a child. ``plan_digest`` is the annotation on the running Deployment.
    """

    deployment_present: bool = False
    generation_observed: bool = True
    desired_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    waiting: tuple[PodTrouble, ...] = ()
    terminated: tuple[PodTrouble, ...] = ()
    unschedulable_message: str = ""
    apply_error: str = ""
    service_name: str = ""
    selector: str = ""
    plan_digest: str = ""


NOTHING_OBSERVED = Observation()
"""No Deployment exists yet."""
