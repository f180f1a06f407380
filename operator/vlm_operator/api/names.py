"""The names of the contract: group, version, kind, condition types and reasons. Documented here once."""

from typing import Final

GROUP: Final = "vlm-operator.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "VLMDeployment"
PLURAL: Final = "vlmdeployments"
SINGULAR: Final = "vlmdeployment"
SHORT_NAME: Final = "vlmd"
MAX_NAME_LENGTH: Final = 57
"""A Service's name has at most 63 characters, and the operator may put ``serve-`` before it."""
NAME_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_MESSAGE: Final = (
    f"metadata.name becomes the name of a Service: use at most {MAX_NAME_LENGTH} lower-case letters, digits "
    "and hyphens, no dots"
)
CATEGORY: Final = "vlm"
FIELD_MANAGER: Final = "vlm-operator"

ACCEPTED: Final = "Accepted"
"""Condition: the spec was read and the engine could serve this model."""
SIZED: Final = "Sized"
"""Condition: a plan that fits was found."""
APPLIED: Final = "Applied"
"""Condition: the children on the cluster are those of the plan."""
AVAILABLE: Final = "Available"
"""Condition: the Deployment has its replicas available."""
READY: Final = "Ready"
"""Condition: the conjunction of the others."""
CONDITION_TYPES: Final = (ACCEPTED, SIZED, APPLIED, AVAILABLE, READY)

REASON_ACCEPTED: Final = "Accepted"
REASON_INVALID_SPEC: Final = "InvalidSpec"
REASON_UNKNOWN_MODEL: Final = "UnknownModel"
REASON_UNSERVABLE: Final = "Unservable"
REASON_PLANNED: Final = "Planned"
REASON_NO_FIT: Final = "NoFit"
REASON_NO_GPUS: Final = "NoGPUs"
REASON_UNKNOWN_GPU: Final = "UnknownGPU"
REASON_APPLIED: Final = "Applied"
REASON_APPLY_FAILED: Final = "ApplyFailed"
REASON_SERVING: Final = "Serving"
REASON_LOADING: Final = "Loading"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_CRASHING: Final = "Crashing"
REASON_SUSPENDED: Final = "Suspended"
