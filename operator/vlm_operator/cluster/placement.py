"""Which nodes a resource's pods may go to: its tolerations against taints, its selector and regions against labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.render.names import REGION_LABEL

TOLERATED_TAINT: Final = "nvidia.com/gpu"
"""The taint that keeps other pods off GPU nodes; the rendered pods always tolerate it."""
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_OF_THE_CORDON: Final = "node.kubernetes.io/"
"""Taints that mirror a condition or the cordon of the node; those are told in words of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint that keeps pods away which do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What ``spec.podTemplate`` and ``spec.accelerators.regions`` say of nodes."""

    tolerations: tuple[Mapping[str, Any], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    regions: tuple[str, ...] = ()

    def refusal(self, taints: Iterable[Taint], labels: Mapping[str, str]) -> str:
        """Return why no pod may go to such a node, or nothing."""
        for taint in taints:
            if not any(_tolerates(toleration, taint) for toleration in self.tolerations):
                return f"the node has the taint {taint.key}:{taint.effect}, which podTemplate.tolerations does not name"
        for key, value in self.node_selector:
            if labels.get(key) != value:
                return f"podTemplate.nodeSelector asks for {key}={value}"
        if self.regions and REGION_LABEL in labels and labels[REGION_LABEL] not in self.regions:
            return f"the node is in region {labels[REGION_LABEL]}; accelerators.regions has {', '.join(self.regions)}"
        return UNKNOWN_REGION if self.regions and REGION_LABEL not in labels else ""


UNKNOWN_REGION: Final = f"no label {REGION_LABEL} says whether that is in accelerators.regions; add the label"
"""Why nodes are refused that have to be named, since nothing else tells which ones lack the label."""
ANYWHERE: Final = Placement()


def placement_of(document: Mapping[str, Any]) -> Placement:
    """Return the placement that a VLMDeployment asks for, as the API server shows it."""
    spec = document.get("spec") or {}
    template = spec.get("podTemplate") or {}
    return Placement(
        tolerations=tuple(template.get("tolerations") or ()),
        node_selector=tuple(sorted((template.get("nodeSelector") or {}).items())),
        regions=tuple((spec.get("accelerators") or {}).get("regions") or ()),
    )


def blocking_taints(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints of a node that the rendered pods do not tolerate by themselves."""
    found = (node.get("spec") or {}).get("taints") or ()
    return tuple(
        Taint(key=taint["key"], value=taint.get("value") or "", effect=taint["effect"])
        for taint in found
        if taint["effect"] in _BLOCKING
        and taint["key"] != TOLERATED_TAINT
        and not taint["key"].startswith(_OF_THE_CORDON)
    )


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in {None, "", taint.effect}:
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    return toleration["key"] == taint.key and (exists or (toleration.get("value") or "") == taint.value)
