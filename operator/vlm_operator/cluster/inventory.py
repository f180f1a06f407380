"""Nodes and the pods on them -> Inventory: GPUs, cores and memory of the cluster, and what is free for one owner.

A resource's own pods count as free for it: they would make room for their successors, and a plan must not
change because it was carried out. What daemons and static pods hold is none of a node's offer: they come with it.
Nodes that cannot take pods now, and GPUs that are shared, of another vendor or not in the catalogue, are left out with
the reason. Called by ``controller.reconcile``.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from vlm_operator.catalogue.labels import parse_product_label
from vlm_operator.catalogue.load import find_gpu
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.cluster.kinds import NODE, POD
from vlm_operator.cluster.placement import ANYWHERE, UNKNOWN_REGION, Placement, Taint, blocking_taints
from vlm_operator.cluster.pod_requests import GPU_RESOURCE, Amounts, as_resources, pod_requests, read_amounts
from vlm_operator.errors import CatalogueError
from vlm_operator.render.names import INSTANCE_LABEL, MANAGED_BY_LABEL, child_labels
from vlm_operator.sizing.inventory import GpuKind, GpuRefusal, Inventory, Resources, kind_from_label, node_shape
from vlm_operator.units import MIB, parse_quantity

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
GKE_LABEL: Final = "cloud.google.com/gke-accelerator"
SHARED_RESOURCE: Final = "nvidia.com/gpu.shared"
"""What the device plug-in offers instead where sharing renames the resource."""
SLICE_PREFIX: Final = "nvidia.com/mig-"
"""Resources of MIG instances under the strategy ``mixed``."""
OTHER_VENDORS: Final = {"amd.com/gpu": "amd.com/gpu.product-name", "habana.ai/gaudi": ""}
"""Resources of GPUs that are not planned with, and the labels that name their products."""

_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_MOST_NAMED: Final = 5
_LASTING: Final = frozenset({"DaemonSet", "Node"})
"""Owners of pods that stay as long as their node: daemons, and the static pods of the kubelet."""
_MANAGER: Final = child_labels("")[MANAGED_BY_LABEL]

Document = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What one pod holds of a node.

    ``owner`` is the (namespace, name) of its VLMDeployment, if any; ``lasting`` pods come with the node.
    """

    node: str
    asked: Amounts
    owner: Key | None
    lasting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """A node with GPUs; ``excluded`` says why it cannot be planned with, and is empty where it can.

    ``offered`` is what it has for pods, daemons included.
    """

    name: str
    product: str
    offered: Amounts
    kind: GpuKind | None
    taints: tuple[Taint, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    excluded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The GPU nodes of a cluster and the pods on them, at one moment."""

    nodes: tuple[GpuNode, ...]
    uses: tuple[PodUse, ...]


async def read_snapshot(client: ClusterClient) -> ClusterSnapshot:
    """Return the cluster's GPU nodes and what pods hold of them."""
    nodes, pods = await asyncio.gather(client.list(NODE), client.list(POD, fields=_UNFINISHED))
    return take_snapshot(nodes, pods)


def take_snapshot(nodes: Sequence[Document], pods: Sequence[Document]) -> ClusterSnapshot:
    """Return what matters of node and pod objects."""
    found = sorted(filter(None, map(read_node, nodes)), key=lambda node: node.name)
    names = {node.name for node in found}
    here = (pod for pod in pods if pod["spec"].get("nodeName") in names)
    return ClusterSnapshot(nodes=tuple(found), uses=tuple(map(_read_use, here)))


def build_inventory(snapshot: ClusterSnapshot, owner: Key, placement: Placement = ANYWHERE) -> Inventory:
    """Return what ``owner``, a VLMDeployment's (namespace, name), could have where its pods may go."""
    lasting = _held(use for use in snapshot.uses if use.lasting)
    held = _held(use for use in snapshot.uses if use.owner != owner)
    kinds = _least_kinds(node for node in snapshot.nodes if not _bars(node, placement))
    groups: defaultdict[GpuKind, list[GpuNode]] = defaultdict(list)
    excluded: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in snapshot.nodes:
        if refusal := _refusal(node, placement):
            excluded[node.product, refusal].append(node.name)
        elif node.product in kinds:
            groups[kinds[node.product]].append(node)
    shapes = [
        node_shape(kind, sorted(_left(nodes, lasting), key=astuple), sorted(_left(nodes, held), key=astuple))
        for kind, nodes in sorted(groups.items(), key=lambda group: (group[0].id, group[0].product))
    ]
    return Inventory(
        shapes=tuple(shapes),
        excluded=tuple(sorted((product, _told(reason, names)) for (product, reason), names in excluded.items())),
        source="cluster",
    )


def _told(reason: str, names: Sequence[str]) -> str:
    """Return the reason with the nodes that it speaks of, where only their names lead to what has to be done."""
    if reason != UNKNOWN_REGION:
        return reason
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{'nodes' if len(names) > 1 else 'node'} {', '.join(names[:_MOST_NAMED])}{more}: {reason}"


def idle_nodes(snapshot: ClusterSnapshot, placement: Placement = ANYWHERE) -> dict[str, tuple[Resources, ...]]:
    """Return, for each GPU product, what no pod at all holds on each node."""
    held = _held(snapshot.uses)
    idle: defaultdict[str, list[Resources]] = defaultdict(list)
    for node in snapshot.nodes:
        if not _refusal(node, placement):
            idle[node.product] += _left([node], held)
    return {product: tuple(nodes) for product, nodes in idle.items()}


def _refusal(node: GpuNode, placement: Placement) -> str:
    return node.excluded or _bars(node, placement)


def _bars(node: GpuNode, placement: Placement) -> str:
    return placement.refusal(node.taints, dict(node.labels))


def _least_kinds(nodes: Iterable[GpuNode]) -> dict[str, GpuKind]:
    """Return the kind of each product, with the least memory that a node has of it: pods ask for a product only.

    Nodes that take no pods now count as well, because they may come back.
    """
    least: dict[str, GpuKind] = {}
    for node in nodes:
        kind, known = node.kind, least.get(node.product)
        if kind is not None and (known is None or kind.engine_memory_bytes < known.engine_memory_bytes):
            least[node.product] = kind
    return least


def _held(uses: Iterable[PodUse]) -> dict[str, Amounts]:
    """Return what ``uses`` hold on each node together."""
    held: defaultdict[str, Amounts] = defaultdict(Counter)
    for use in uses:
        held[use.node].update(use.asked)
    return held


def _left(nodes: Iterable[GpuNode], held: Mapping[str, Amounts]) -> Iterator[Resources]:
    """Yield what is left of each node beside ``held``."""
    return (as_resources(node.offered - held.get(node.name, Counter())) for node in nodes)


def read_node(node: Document) -> GpuNode | None:
    """Return a node as planning sees it, or None where it has no GPUs and claims none."""
    metadata, status = node["metadata"], node.get("status", {})
    labels = metadata.get("labels") or {}
    allocatable = status.get("allocatable") or {}
    offered = {name for name, amount in allocatable.items() if parse_quantity(amount)}
    product = labels.get(PRODUCT_LABEL, "")
    gpus = read_amounts(allocatable)[GPU_RESOURCE]
    if not product and not any(name.startswith("nvidia.com/") or name in OTHER_VENDORS for name in offered):
        return None
    found = _find_kind(product, labels.get(MEMORY_LABEL, ""))
    kind = found if isinstance(found, GpuKind) else None
    reasons = _reasons(node, offered, gpus, found.message if isinstance(found, GpuRefusal) else "")
    return GpuNode(
        name=metadata["name"],
        product=product or _name_unlabelled(labels, offered),
        offered=read_amounts(allocatable),
        kind=kind,
        taints=blocking_taints(node),
        labels=tuple(sorted(labels.items())),
        excluded=next(reasons, ""),
    )


def _name_unlabelled(labels: Mapping[str, str], offered: Iterable[str]) -> str:
    """Return how others than NVIDIA's feature discovery call the GPU, else the resource that it is offered as."""
    names = [labels.get(label, "") or resource for resource, label in OTHER_VENDORS.items() if resource in offered]
    return labels.get(GKE_LABEL, "") or next(iter(names), "unlabelled GPU")


def _reasons(node: Document, offered: Iterable[str], gpus: int, refusal: str) -> Iterator[str]:
    """Yield why the node cannot be planned with, the most telling reason first."""
    labels = node["metadata"].get("labels") or {}
    others = sorted(name for name in offered if name in OTHER_VENDORS)
    slices = sorted(name for name in offered if name.startswith(SLICE_PREFIX))
    if others and not gpus:
        yield f"GPUs offered as {others[0]} are not planned with: how the engine runs on them is not known"
    if not labels.get(PRODUCT_LABEL):
        yield f"the node has no {PRODUCT_LABEL} label; install GPU feature discovery"
    if slices and not gpus:
        yield f"its MIG instances are offered as {slices[0]} (strategy mixed); offer them as {GPU_RESOURCE} (single)"
    if sharing := _find_sharing(labels, offered):
        yield sharing
    if not gpus:
        yield f"the node offers no {GPU_RESOURCE}; is the device plug-in running?"
    if refusal:
        yield refusal
    if not _is_ready(node):
        yield "the node is not ready"
    if node.get("spec", {}).get("unschedulable"):
        yield "the node is cordoned"


def _find_sharing(labels: Mapping[str, str], offered: Iterable[str]) -> str:
    """Return that the node's GPUs are shared, by how many pods and how; empty where they are not.

    A whole GPU's replicas are 1, or 0 where the plug-in has no sharing configuration. The product's ``-SHARED`` is
    missing where the resource was renamed, so the other signs count as well.
    """
    replicas = labels.get(REPLICAS_LABEL, "")
    strategy = labels.get(SHARING_LABEL, "none")
    many = replicas.isdigit() and int(replicas) > 1
    label = parse_product_label(labels.get(PRODUCT_LABEL, ""))
    if not (many or label.shared or strategy != "none" or SHARED_RESOURCE in offered):
        return ""
    how = f"{strategy}, up to {replicas} pods" if many and strategy != "none" else "time-slicing or MPS"
    return f"the GPU is shared between pods ({how}), so its memory cannot be promised; offer it whole or cut by MIG"


def _is_ready(node: Document) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _find_kind(product: str, memory_mib: str) -> GpuKind | GpuRefusal:
    """Return the catalogue's kind under the node's own label, of the memory that the label reports."""
    label = parse_product_label(product)
    try:
        card = find_gpu(label.product)
    except CatalogueError:
        known = "-MIG-" not in product or label.mig_profile
        return GpuRefusal(message="the GPU is not in the catalogue" if known else "the node's MIG instances differ")
    if card.vendor != "nvidia" or card.driver_memory_mib is None or card.bandwidth_gb_per_second is None:
        return GpuRefusal(message="too little is known of the GPU to plan with it")
    reported = int(memory_mib) * MIB if memory_mib.isdigit() else None
    return kind_from_label(card, label, product, reported)


def _read_use(pod: Document) -> PodUse:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    ours = labels.get(MANAGED_BY_LABEL) == _MANAGER and INSTANCE_LABEL in labels
    return PodUse(
        node=pod["spec"]["nodeName"],
        asked=pod_requests(pod["spec"]),
        owner=(metadata["namespace"], labels[INSTANCE_LABEL]) if ours else None,
        lasting=any(owner["kind"] in _LASTING for owner in metadata.get("ownerReferences") or ()),
    )
