"""Nodes and the pods on them -> Inventory: the GPUs of the cluster, and how many are free for one owner.

A resource's own pods count as free for it: they would make room for their successors, and a plan must not
change because it was carried out. Nodes that cannot take pods now, and GPUs that are shared, of another vendor or not
in the catalogue, are left out with the reason. Called by ``controller.reconcile``.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.catalogue.labels import parse_product_label
from vlm_operator.catalogue.load import find_gpu
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.cluster.kinds import NODE, POD
from vlm_operator.cluster.placement import ANYWHERE, UNKNOWN_REGION, Placement, Taint, blocking_taints
from vlm_operator.errors import CatalogueError
from vlm_operator.render.names import INSTANCE_LABEL, MANAGED_BY_LABEL, child_labels
from vlm_operator.sizing.inventory import GpuKind, GpuRefusal, Inventory, NodeShape, kind_from_label, node_shape
from vlm_operator.units import MIB, parse_quantity

GPU_RESOURCE: Final = "nvidia.com/gpu"
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
_MANAGER: Final = child_labels("")[MANAGED_BY_LABEL]

Document = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """GPUs that one pod holds on a node; ``owner`` is the (namespace, name) of its VLMDeployment, if any."""

    node: str
    gpus: int
    owner: Key | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """A node with GPUs; ``excluded`` says why it cannot be planned with, and is empty where it can."""

    name: str
    product: str
    gpus: int
    kind: GpuKind | None
    cpu_cores: int
    memory_bytes: int
    taints: tuple[Taint, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    excluded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The GPU nodes of a cluster and who holds their GPUs, at one moment."""

    nodes: tuple[GpuNode, ...]
    uses: tuple[GpuUse, ...]


async def read_snapshot(client: ClusterClient) -> ClusterSnapshot:
    """Return the cluster's GPU nodes and the GPUs that pods hold on them."""
    nodes, pods = await asyncio.gather(client.list(NODE), client.list(POD, fields=_UNFINISHED))
    return take_snapshot(nodes, pods)


def take_snapshot(nodes: Sequence[Document], pods: Sequence[Document]) -> ClusterSnapshot:
    """Return what matters of node and pod objects."""
    return ClusterSnapshot(
        nodes=tuple(sorted(filter(None, map(read_node, nodes)), key=lambda node: node.name)),
        uses=tuple(filter(None, map(_read_use, pods))),
    )


def build_inventory(snapshot: ClusterSnapshot, owner: Key, placement: Placement = ANYWHERE) -> Inventory:
    """Return what ``owner``, a VLMDeployment's (namespace, name), could have where its pods may go."""
    held = _held(use for use in snapshot.uses if use.owner != owner)
    kinds = _least_kinds(node for node in snapshot.nodes if not _bars(node, placement))
    groups: defaultdict[GpuKind, list[GpuNode]] = defaultdict(list)
    excluded: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in snapshot.nodes:
        if refusal := _refusal(node, placement):
            excluded[node.product, refusal].append(node.name)
        elif node.product in kinds:
            groups[kinds[node.product]].append(node)
    shapes = {shape for kind, nodes in groups.items() for shape in _shapes(kind, nodes, held)}
    return Inventory(
        shapes=tuple(sorted(shapes, key=_shape_order)),
        excluded=tuple(sorted((product, _told(reason, names)) for (product, reason), names in excluded.items())),
        source="cluster",
    )


def _told(reason: str, names: Sequence[str]) -> str:
    """Return the reason with the nodes that it speaks of, where only their names lead to what has to be done."""
    if reason != UNKNOWN_REGION:
        return reason
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{'nodes' if len(names) > 1 else 'node'} {', '.join(names[:_MOST_NAMED])}{more}: {reason}"


def free_blocks(snapshot: ClusterSnapshot, placement: Placement = ANYWHERE) -> dict[str, int]:
    """Return, for each GPU product, the most GPUs of one node that no pod at all holds."""
    held = _held(snapshot.uses)
    blocks: dict[str, int] = {}
    for node in snapshot.nodes:
        if not _refusal(node, placement):
            blocks[node.product] = max(blocks.get(node.product, 0), node.gpus - held[node.name])
    return blocks


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


def _held(uses: Iterable[GpuUse]) -> Counter[str]:
    held: Counter[str] = Counter()
    for use in uses:
        held[use.node] += use.gpus
    return held


def _shapes(kind: GpuKind, nodes: Sequence[GpuNode], held: Mapping[str, int]) -> Iterator[NodeShape]:
    """Yield a shape for each number of GPUs that nodes of a kind have.

    Its host is the smallest of those nodes. GPUs that are free on other nodes of the kind count too, where the host is
    no smaller: a pod asks for GPUs of the kind and fits there as well.
    """
    for gpus in {node.gpus for node in nodes}:
        cores = min(node.cpu_cores for node in nodes if node.gpus == gpus)
        memory = min(node.memory_bytes for node in nodes if node.gpus == gpus)
        hosts = [node for node in nodes if node.cpu_cores >= cores and node.memory_bytes >= memory]
        free = [max(node.gpus - held.get(node.name, 0), 0) for node in hosts]
        if kind.mig_profile:  # each instance stands for itself
            free = [1] * sum(free) + [0] * (sum(node.gpus for node in hosts) - sum(free))
        each = 1 if kind.mig_profile else gpus
        yield replace(node_shape(kind, each, free), cpu_cores=cores, host_memory_bytes=memory)


def _shape_order(shape: NodeShape) -> tuple[str, str, int, int, int]:
    gpu = shape.gpu
    return gpu.id, gpu.product, shape.gpus_per_node, shape.cpu_cores or 0, shape.host_memory_bytes or 0


def read_node(node: Document) -> GpuNode | None:
    """Return a node as planning sees it, or None where it has no GPUs and claims none."""
    metadata, status = node["metadata"], node.get("status", {})
    labels = metadata.get("labels") or {}
    allocatable = status.get("allocatable") or {}
    offered = {name for name, amount in allocatable.items() if parse_quantity(amount)}
    product = labels.get(PRODUCT_LABEL, "")
    gpus = int(parse_quantity(allocatable.get(GPU_RESOURCE, 0)))
    if not product and not any(name.startswith("nvidia.com/") or name in OTHER_VENDORS for name in offered):
        return None
    found = _find_kind(product, labels.get(MEMORY_LABEL, ""))
    kind = found if isinstance(found, GpuKind) else None
    reasons = _reasons(node, offered, gpus, found.message if isinstance(found, GpuRefusal) else "")
    return GpuNode(
        name=metadata["name"],
        product=product or _name_unlabelled(labels, offered),
        gpus=gpus,
        kind=kind,
        cpu_cores=int(parse_quantity(allocatable.get("cpu", 0))),
        memory_bytes=int(parse_quantity(allocatable.get("memory", 0))),
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


def _read_use(pod: Document) -> GpuUse | None:
    spec, labels = pod.get("spec", {}), pod["metadata"].get("labels") or {}
    gpus = _requested_gpus(spec)
    if not gpus or not spec.get("nodeName"):
        return None
    ours = labels.get(MANAGED_BY_LABEL) == _MANAGER and INSTANCE_LABEL in labels
    owner = (pod["metadata"]["namespace"], labels[INSTANCE_LABEL]) if ours else None
    return GpuUse(node=spec["nodeName"], gpus=gpus, owner=owner)


def _requested_gpus(spec: Document) -> int:
    """Return the GPUs of all containers, or of the greediest init container where that is more."""

    def count(container: Document) -> int:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        return int(parse_quantity(asked.get(GPU_RESOURCE, 0)))

    together = sum(map(count, spec.get("containers") or ()))
    return max([together, *map(count, spec.get("initContainers") or ())])
