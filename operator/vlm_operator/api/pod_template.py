"""The part of the spec that is handed to the pods as it is: metadata, scheduling, identity."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from vlm_operator.api.base import ApiModel, list_map, unique_by, whole

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""The name of another Kubernetes object."""
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise PydanticCustomError("key", "not a key; write letters, digits, -, _ and ., with a prefix/ at most")
    return key


LabelKey = Annotated[str, Field(min_length=1, max_length=317), AfterValidator(_check_key)]
"""The key of a label or annotation. The schema of the API server has no rule for keys, so the operator checks it."""
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


Annotation = Annotated[str, Field(max_length=65536)]


class Toleration(ApiModel):
    """A taint that the pods tolerate, as in the pod spec."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """key is the taint's key. Default: every key, which needs the operator Exists."""
    operator: Literal["Exists", "Equal"] | None = None
    """operator says whether the value counts. Default: Equal."""
    value: LabelValue | None = None
    """value is the taint's value where the operator is Equal. Default: empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """effect is the taint's effect. Default: every effect."""
    toleration_seconds: Annotated[int, whole(0, 2**31 - 1)] | None = None
    """tolerationSeconds is how long a NoExecute taint is tolerated. Default: for ever."""


class ImagePullSecret(ApiModel):
    """A secret with credentials for the image registry."""

    name: Name
    """name is the name of the secret in the same namespace. Required."""


class PodTemplate(ApiModel):
    """What is added to the pods of the model server."""

    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = Field(default_factory=dict)
    """labels are added to the pods. Default: none beside those of the operator."""
    annotations: Annotated[dict[LabelKey, Annotation], Field(max_length=64)] = Field(default_factory=dict)
    """annotations are added to the pods. Default: none beside those of the operator."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """nodeSelector is added to the selector for the GPU product. Default: nothing is added."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """tolerations are added to the toleration of nvidia.com/gpu taints. Default: nothing is added."""
    priority_class_name: Name | None = None
    """priorityClassName is the pods' priority class. Default: the cluster's default."""
    service_account_name: Name | None = None
    """serviceAccountName is the pods' service account. Default: the namespace's account named default."""
    image_pull_secrets: Annotated[
        tuple[ImagePullSecret, ...],
        Field(max_length=16, json_schema_extra=list_map("name")),
        unique_by("name"),
    ] = ()
    """imagePullSecrets are the secrets for the image registry. Default: none."""
    runtime_class_name: Name | None = None
    """runtimeClassName is the pods' runtime class, such as nvidia. Default: the node's default runtime."""
