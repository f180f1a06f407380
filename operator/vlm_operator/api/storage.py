"""Where the weights of a model lie: a part of the spec."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vlm_operator.api.base import ApiModel, Rule
from vlm_operator.api.pod_template import Name


class PersistentVolumeClaim(ApiModel):
    """Weights that are already on a volume."""

    claim_name: Name
    """claimName is the name of a claim in the same namespace. Required."""
    path: (
        Annotated[
            str,
            Field(max_length=1024, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"),
        ]
        | None
    ) = None
    """path is the folder of the model on the volume, no leading slash. Default: the volume's root."""


class Cache(ApiModel):
    """A volume that the operator creates and that keeps the downloaded weights."""

    size: Annotated[str, Field(max_length=20, pattern=r"^[1-9][0-9]*(Mi|Gi|Ti|M|G|T)$")] | None = None
    """size is the size of the volume, such as 40Gi. Default: what the weights need, and a quarter more."""
    storage_class_name: Name | None = None
    """storageClassName is the class of the volume. Default: the cluster's default class."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteOnce"
    """accessMode says whether replicas on several nodes share the volume. Default: ReadWriteOnce."""


class Storage(ApiModel):
    """Where the weights lie: on a claim that exists, or in a cache that the operator creates."""

    persistent_volume_claim: PersistentVolumeClaim | None = None
    """persistentVolumeClaim names a claim with the weights. Default: the weights are downloaded."""
    cache: Cache | None = None
    """cache asks for a volume that keeps the download. Default: the download lives as long as the pod."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.cache)",
            message="set exactly one of persistentVolumeClaim and cache, or leave storage out",
            holds=lambda it: (it.persistent_volume_claim is None) != (it.cache is None),
        ),
    )
