"""The names of a resource's children, and the labels that select its pods. For render, cluster and cli."""

from typing import Final

from vlm_operator.api.names import GROUP, SINGULAR
from vlm_operator.errors import RenderError

NAME_LABEL: Final = "app.kubernetes.io/name"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
SPEC_DIGEST_ANNOTATION: Final = f"{GROUP}/spec-digest"
PLAN_DIGEST_ANNOTATION: Final = f"{GROUP}/plan-digest"
SERVICE_PORT: Final = 8000
REGION_LABEL: Final = "topology.kubernetes.io/region"

_APPLICATION: Final = "vlm-server"
_SERVICE_PREFIX: Final = "serve-"
_LONGEST_SERVICE_NAME: Final = 63


def deployment_name(name: str) -> str:
    """Return the name of the Deployment and of the PodDisruptionBudget."""
    return name


def service_name(name: str) -> str:
    """Return the name of the Service: the resource's own, or with ``serve-`` before it.

    A Service ``vllm`` (or ``vllm-port``) would give the pods of its namespace variables named ``VLLM_*``,
    which the engine reads as its settings; and a Service may not start with a digit. Names that start with
    ``serve-`` get the prefix too, so that two resources never share a Service.

    Raises: RenderError: the name is no DNS label of at most 63 characters.
    """
    leads_to_engine_settings = name == "vllm" or name.startswith("vllm-")
    if leads_to_engine_settings or name[:1].isdigit() or name.startswith(_SERVICE_PREFIX):
        name = _SERVICE_PREFIX + name
    if len(name) > _LONGEST_SERVICE_NAME or "." in name:
        raise RenderError(
            f"metadata.name: the Service would be called {name!r}, which is not a DNS label of at most "
            f"{_LONGEST_SERVICE_NAME} characters; choose a shorter {SINGULAR} name without dots"
        )
    return name


def service_account_name(name: str) -> str:
    """Return the name of the pods' ServiceAccount; never ``default``, which belongs to the namespace."""
    return f"{name}-server"


def cache_claim_name(name: str) -> str:
    """Return the name of the PersistentVolumeClaim that keeps downloaded weights."""
    return f"{name}-cache"


def selector_labels(name: str) -> dict[str, str]:
    """Return the labels that select the pods; of the name alone, as a selector cannot change."""
    return {INSTANCE_LABEL: name, NAME_LABEL: _APPLICATION}


def child_labels(name: str) -> dict[str, str]:
    """Return the labels of every child."""
    return {**selector_labels(name), COMPONENT_LABEL: "inference", MANAGED_BY_LABEL: "vlm-operator"}
