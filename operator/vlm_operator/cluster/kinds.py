"""The kinds of object the operator reads or writes, and where the API server keeps them."""

from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.render.names import (
    cache_claim_name,
    deployment_name,
    service_account_name,
    service_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind: its API version, its name and the plural in its address."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the address of one object, or of the collection where ``name`` is left out."""
        root = "/api" if "/" not in self.api_version else "/apis"
        parts = [root, self.api_version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        return "/".join(parts)


VLM_DEPLOYMENT: Final = Kind(api_version=names.API_VERSION, name=names.KIND, plural=names.PLURAL)
DEPLOYMENT: Final = Kind(api_version="apps/v1", name="Deployment", plural="deployments")
SERVICE: Final = Kind(api_version="v1", name="Service", plural="services")
SERVICE_ACCOUNT: Final = Kind(api_version="v1", name="ServiceAccount", plural="serviceaccounts")
CLAIM: Final = Kind(api_version="v1", name="PersistentVolumeClaim", plural="persistentvolumeclaims")
DISRUPTION_BUDGET: Final = Kind(api_version="policy/v1", name="PodDisruptionBudget", plural="poddisruptionbudgets")
NODE: Final = Kind(api_version="v1", name="Node", plural="nodes")
POD: Final = Kind(api_version="v1", name="Pod", plural="pods")
EVENT: Final = Kind(api_version="v1", name="Event", plural="events")
CONFIG_MAP: Final = Kind(api_version="v1", name="ConfigMap", plural="configmaps")
SECRET: Final = Kind(api_version="v1", name="Secret", plural="secrets")

CHILD_KINDS: Final = (SERVICE_ACCOUNT, CLAIM, DEPLOYMENT, SERVICE, DISRUPTION_BUDGET)
"""Everything a resource may own, in the order in which it is applied."""

_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in (VLM_DEPLOYMENT, *CHILD_KINDS)}


def kind_of(document: dict[str, Any]) -> Kind:
    """Return the kind of a manifest; KeyError if the operator has no business with it."""
    return _BY_NAME[document["apiVersion"], document["kind"]]


def child_name(kind: Kind, owner_name: str) -> str:
    """Return what the child of a kind is called whose owner is a VLMDeployment of this name."""
    match kind.name:
        case SERVICE_ACCOUNT.name:
            return service_account_name(owner_name)
        case CLAIM.name:
            return cache_claim_name(owner_name)
        case SERVICE.name:
            return service_name(owner_name)
        case _:
            return deployment_name(owner_name)


def is_owned_by(child: dict[str, Any], uid: str) -> bool:
    """Tell whether the object with this ``uid`` controls ``child``."""
    return any(owner["uid"] == uid for owner in child["metadata"].get("ownerReferences") or ())


def is_orphan_of(child: dict[str, Any], document: dict[str, Any]) -> bool:
    """Tell whether ``child`` belonged to an earlier object of the same name, and waits to be collected."""
    name = document["metadata"]["name"]
    return any(
        owner["kind"] == names.KIND and owner["name"] == name
        for owner in child["metadata"].get("ownerReferences") or ()
    )
