"""Nodes and pods become an inventory that only promises what a pod could get."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support import nodes
from vlm_operator.catalogue.load import find_gpu
from vlm_operator.cluster.inventory import build_inventory, idle_nodes, take_snapshot
from vlm_operator.cluster.placement import placement_of
from vlm_operator.sizing.inventory import NodeShape, Resources, kind_from_card
from vlm_operator.units import GIB, MIB

OWNER = ("documents", "invoices")


def ready(node: dict[str, Any], **labels: str) -> dict[str, Any]:
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    node["metadata"]["labels"] |= labels
    return node


def pod(
    node: str, gpus: int, owner: tuple[str, str] | None = None, asked: dict[str, str] | None = None
) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "vlm-operator", "app.kubernetes.io/instance": owner[1]} if owner else {}
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": asked or {}}
    return {
        "metadata": {"name": "pod", "namespace": owner[0] if owner else "other", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "engine", "resources": resources}]},
    }


def daemon(node: str, kind: str = "DaemonSet", **asked: str) -> dict[str, Any]:
    found = pod(node, 0, asked=asked)
    found["metadata"]["ownerReferences"] = [{"kind": kind, "name": "exporter"}]
    return found


def free_gpus(shape: NodeShape) -> tuple[int, ...]:
    return tuple(node.gpus for node in shape.free_by_node or ())


def test_a_node_is_a_shape_with_its_gpus_and_its_host() -> None:
    snapshot = take_snapshot([ready(nodes.gpu_node(nodes.H100_X8))], [])
    (shape,) = build_inventory(snapshot, OWNER).shapes
    whole = Resources(gpus=8, cpu_cores=191, memory_bytes=int(2048 * 1024 * 0.95) * MIB)
    assert (shape.gpu.id, shape.gpus_per_node) == ("h100-80gb-sxm", 8)
    assert shape.nodes == shape.free_by_node == (whole,)


def test_pods_of_others_hold_gpus_and_pods_of_the_owner_do_not() -> None:
    node = ready(nodes.gpu_node(nodes.H100_X8, name="a"))
    host = {"cpu": "10", "memory": "64Gi"}
    receipts, ours = pod("a", 1, ("documents", "receipts"), host), pod("a", 4, OWNER, host)
    elsewhere = [pod("", 8, asked=host), pod("cpu", 0, asked=host)]
    snapshot = take_snapshot([node], [pod("a", 2, asked={"cpu": "500m"}), receipts, ours, *elsewhere])
    (shape,) = build_inventory(snapshot, OWNER).shapes
    every = int(2048 * 1024 * 0.95) * MIB
    assert shape.free_by_node == (Resources(gpus=5, cpu_cores=180, memory_bytes=every - 64 * GIB),)
    nobodys = Resources(gpus=1, cpu_cores=170, memory_bytes=every - 128 * GIB)
    assert idle_nodes(snapshot) == {"NVIDIA-H100-80GB-HBM3": (nobodys,)}


def test_pods_without_gpus_hold_cores_and_memory_too() -> None:
    node = ready(nodes.gpu_node(nodes.L40S_X4, name="a"))
    other = pod("a", 0, asked={"cpu": "40", "memory": "300Gi"})
    (shape,) = build_inventory(take_snapshot([node], [other]), OWNER).shapes
    (free,) = shape.free_by_node or ()
    assert (free.gpus, free.cpu_cores) == (4, 7)
    assert shape.room_for(Resources(gpus=1)) == 4
    assert shape.room_for(Resources(gpus=1, cpu_cores=5)) == 1
    assert shape.room_for(Resources(gpus=1, memory_bytes=30 * GIB)) == 2
    assert shape.can_hold(Resources(gpus=4, cpu_cores=40))


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_what_daemons_and_static_pods_take_is_none_of_what_the_node_offers(kind: str) -> None:
    node = ready(nodes.gpu_node(nodes.L4_X1, name="a"))
    pods = [daemon("a", kind, cpu="250m", memory="1Gi"), daemon("a", kind, cpu="850m"), pod("a", 0, asked={"cpu": "1"})]
    (shape,) = build_inventory(take_snapshot([node], pods), OWNER).shapes
    memory = int(32 * 1024 * 0.95) * MIB - GIB
    assert shape.nodes == (Resources(gpus=1, cpu_cores=5, memory_bytes=memory),)  # 7 - 1.1
    assert shape.free_by_node == (Resources(gpus=1, cpu_cores=4, memory_bytes=memory),)


def test_a_node_that_promised_more_than_it_has_now_has_nothing_left() -> None:
    node = ready(nodes.gpu_node(nodes.L4_X1, name="a"))
    greedy = pod("a", 2, asked={"cpu": "20", "memory": "1Ti"})
    (shape,) = build_inventory(take_snapshot([node], [greedy]), OWNER).shapes
    assert shape.free_by_node == (Resources(gpus=0, cpu_cores=0, memory_bytes=0),)


def test_init_containers_count_where_they_ask_for_more() -> None:
    one = pod("a", 1)
    one["spec"]["initContainers"] = [{"name": "warm", "resources": {"requests": {"nvidia.com/gpu": "3"}}}]
    snapshot = take_snapshot([ready(nodes.gpu_node(nodes.H100_X8, name="a"))], [one])
    (shape,) = build_inventory(snapshot, OWNER).shapes
    assert free_gpus(shape) == (5,)


def test_alike_nodes_are_one_shape() -> None:
    pair = [ready(nodes.gpu_node(nodes.L40S_X4, name=name)) for name in ("b", "a")]
    (shape,) = build_inventory(take_snapshot(pair, [pod("a", 3)]), OWNER).shapes
    assert (len(shape.nodes), shape.gpus_per_node, free_gpus(shape)) == (1, 4, (1, 4))


def test_the_order_of_nodes_changes_nothing() -> None:
    some = [ready(nodes.gpu_node(shape)) for shape in nodes.SHAPES]
    forwards = build_inventory(take_snapshot(some, []), OWNER)
    assert build_inventory(take_snapshot(some[::-1], []), OWNER) == forwards


def test_less_memory_on_the_label_makes_the_gpu_smaller() -> None:
    whole = ready(nodes.gpu_node(nodes.H100_X8))
    cut = ready(nodes.gpu_node(nodes.H100_X8), **{"nvidia.com/gpu.memory": "40000"})
    (full,) = build_inventory(take_snapshot([whole], []), OWNER).shapes
    (less,) = build_inventory(take_snapshot([cut], []), OWNER).shapes
    assert less.gpu.driver_memory_bytes == 40000 * MIB
    assert less.gpu.engine_memory_bytes < full.gpu.engine_memory_bytes / 1.9
    assert less.gpu.engine_memory_certainty == "estimated"


def test_pods_ask_for_a_product_so_the_least_memory_that_a_node_has_of_it_counts() -> None:
    whole = ready(nodes.gpu_node(nodes.H100_X8, "whole"))
    cut = ready(nodes.gpu_node(nodes.H100_X8, "cut"), **{"nvidia.com/gpu.memory": "40000", "pool": "odd"})
    (shape,) = build_inventory(take_snapshot([whole, cut], []), OWNER).shapes
    assert (shape.gpu.driver_memory_bytes, free_gpus(shape)) == (40000 * MIB, (8, 8))
    cut["spec"]["unschedulable"] = True  # it may come back
    (shape,) = build_inventory(take_snapshot([whole, cut], []), OWNER).shapes
    assert (shape.gpu.driver_memory_bytes, free_gpus(shape)) == (40000 * MIB, (8,))
    whole["metadata"]["labels"]["pool"] = "usual"
    never = placement_of({"spec": {"podTemplate": {"nodeSelector": {"pool": "usual"}}}})
    (shape,) = build_inventory(take_snapshot([whole, cut], []), OWNER, never).shapes
    assert shape.gpu.driver_memory_bytes > 80000 * MIB


def test_nodes_of_every_size_count_for_the_pods_that_they_hold() -> None:
    half = replace(nodes.H100_X8, gpus=4, cores=96, memory_gib=1024)
    odd = replace(nodes.H100_X8, gpus=2, cores=400, memory_gib=64)
    some = [ready(nodes.gpu_node(shape, name)) for name, shape in (("a", nodes.H100_X8), ("b", half), ("c", odd))]
    (shape,) = build_inventory(take_snapshot(some, [pod("a", 3)]), OWNER).shapes
    assert (shape.gpus_per_node, free_gpus(shape)) == (8, (2, 4, 5))
    assert shape.room_for(Resources(gpus=2, cpu_cores=12, memory_bytes=32 * GIB)) == 5
    assert shape.room_for(Resources(gpus=2, cpu_cores=12, memory_bytes=61 * GIB)) == 4  # the odd one has 60.8 GiB
    assert shape.room_for(Resources(gpus=2, cpu_cores=48, memory_bytes=32 * GIB)) == 4  # 2 × 48 > 95


@pytest.mark.parametrize(
    ("gpus", "least", "cores"),
    [
        (1, 5, 11),  # of 48 cores for 4 GPUs
        (2, 6, 23),
        (4, 8, 47),
        (8, 12, 191),  # no other node holds 8
        (1, 12, 23),  # of the larger nodes, since the share of the smaller ones is less than the least
        (1, 30, 30),  # the least, where no share is enough
    ],
)
def test_the_cores_that_go_with_gpus_are_the_smallest_share_that_is_enough(gpus: int, least: int, cores: int) -> None:
    small = replace(nodes.H100_X8, gpus=4, cores=48, memory_gib=384)
    some = [ready(nodes.gpu_node(shape, name)) for name, shape in (("a", nodes.H100_X8), ("b", small))]
    (shape,) = build_inventory(take_snapshot(some, []), OWNER).shapes
    assert shape.fair_cores(gpus, least) == cores


def test_mig_instances_count_one_by_one_on_nodes_of_every_size() -> None:
    product = "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"
    some = [sliced(product, "40192", count, name) for name, count in (("a", 16), ("b", 2))]
    (shape,) = build_inventory(take_snapshot(some, [pod("a", 5), pod("b", 1)]), OWNER).shapes
    assert (shape.gpus_per_node, shape.room_for(Resources(gpus=1))) == (1, 12)
    assert shape.fair_cores(1, 1) == 11  # 191 cores for 16 instances


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID"}, "MIG instances differ"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1c.3g.40gb"}, "shares the memory"),
        ({"nvidia.com/gpu.product": "NVIDIA-L40S-MIG-1g.24gb"}, "no MIG instances of NVIDIA L40S"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}, "shared"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"}, "shared"),
        ({"nvidia.com/gpu.replicas": "4"}, "shared"),
        ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}, "mps, up to 4 pods"),
        ({"nvidia.com/gpu.replicas": "0", "nvidia.com/gpu.sharing-strategy": "time-slicing"}, "shared"),
        ({"nvidia.com/gpu.product": "NVIDIA-Nobody-Knows"}, "catalogue"),
        ({"nvidia.com/gpu.product": ""}, "label"),
    ],
)
def test_gpus_that_cannot_be_promised_are_left_out_with_the_reason(labels: dict[str, str], reason: str) -> None:
    inventory = build_inventory(take_snapshot([ready(nodes.gpu_node(nodes.H100_X8), **labels)], []), OWNER)
    assert inventory.shapes == ()
    assert reason in inventory.excluded[0][1]


def offering(node: dict[str, Any], **resources: str) -> dict[str, Any]:
    """Return ``node`` with these resources, a dot written as ``_`` and a slash as ``__``, instead of its GPUs."""
    allocatable = node["status"]["allocatable"]
    allocatable.pop("nvidia.com/gpu", None)
    allocatable |= {name.replace("__", "/").replace("_", "."): amount for name, amount in resources.items()}
    return node


def test_replicas_of_0_and_no_strategy_are_no_sharing() -> None:
    node = ready(nodes.gpu_node(nodes.H100_X8), **{"nvidia.com/gpu.replicas": "0"})
    assert build_inventory(take_snapshot([node], []), OWNER).shapes


def test_a_renamed_shared_resource_is_known_as_shared() -> None:
    node = offering(ready(nodes.gpu_node(nodes.L4_X1)), nvidia_com__gpu_shared="4")
    (excluded,) = build_inventory(take_snapshot([node], []), OWNER).excluded
    assert excluded[0] == "NVIDIA-L4"
    assert "shared between pods" in excluded[1]


def sliced(product: str, memory: str, gpus: int, name: str = "cut") -> dict[str, Any]:
    node = ready(
        nodes.gpu_node(nodes.H100_X8, name=name),
        **{"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory},
    )
    node["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
    return node


def test_equal_mig_instances_are_gpus_of_their_own_size_that_serve_one_replica_each() -> None:
    node = sliced("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "40192", 16)
    (shape,) = build_inventory(take_snapshot([node], [pod("cut", 5)]), OWNER).shapes
    gpu = shape.gpu
    assert (shape.gpus_per_node, shape.room_for(Resources(gpus=1))) == (1, 11)
    assert (gpu.id, gpu.product) == ("a100-80gb-sxm-mig-3g.40gb", "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")
    assert (gpu.driver_memory_bytes, gpu.engine_memory_certainty) == (40192 * MIB, "estimated")
    assert 0.97 < gpu.engine_memory_bytes / gpu.driver_memory_bytes < 1
    assert gpu.bandwidth_bytes_per_second == pytest.approx(2039e9 / 2)
    assert gpu.bf16_flops == pytest.approx(312e12 * 3 / 8)
    assert gpu.hourly_cents is None


@pytest.mark.parametrize(
    ("product", "memory", "gib", "share"),
    [
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "9984", 9.75, 1 / 8),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.20gb.me", "20096", 19.63, 2 / 8),
        ("NVIDIA-H100-80GB-HBM3-MIG-7g.80gb", "81050", 79.15, 1),
        ("NVIDIA-A30-MIG-2g.12gb", "11968", 11.69, 2 / 4),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "", 9.31, 1 / 8),  # the decimal 10 GB of its name
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "81559", 10, 1 / 8),  # the whole GPU's label: never more than 10 GiB
    ],
)
def test_a_mig_instance_has_its_own_memory_and_its_share_of_the_bandwidth(
    product: str, memory: str, gib: float, share: float
) -> None:
    (shape,) = build_inventory(take_snapshot([sliced(product, memory, 7)], []), OWNER).shapes
    whole = kind_from_card(find_gpu(product.partition("-MIG-")[0]))
    assert shape.gpu.driver_memory_bytes / GIB == pytest.approx(gib, abs=0.01)
    assert shape.gpu.bandwidth_bytes_per_second == pytest.approx(whole.bandwidth_bytes_per_second * share)


def test_mig_instances_of_the_strategy_mixed_are_left_out_and_whole_gpus_beside_them_are_not() -> None:
    cut = offering(ready(nodes.gpu_node(nodes.H100_X8, name="cut")), **{"nvidia_com__mig-3g_40gb": "16"})
    both = ready(nodes.gpu_node(nodes.H200_X8, name="both"), **{"nvidia.com/mig-1g.18gb.count": "7"})
    both["status"]["allocatable"] |= {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.18gb": "28"}
    inventory = build_inventory(take_snapshot([cut, both], []), OWNER)
    assert [(shape.gpu.id, shape.gpus_per_node) for shape in inventory.shapes] == [("h200-sxm", 4)]
    (excluded,) = inventory.excluded
    assert "nvidia.com/mig-3g.40gb (strategy mixed)" in excluded[1]


@pytest.mark.parametrize(
    ("resource", "labels", "name"),
    [
        ("amd_com__gpu", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"}, "AMD_Instinct_MI300X"),
        ("habana_ai__gaudi", {}, "habana.ai/gaudi"),
    ],
)
def test_gpus_of_other_vendors_are_named_and_left_out(resource: str, labels: dict[str, str], name: str) -> None:
    node = offering(ready(nodes.cpu_node(), **labels), **{resource: "8"})
    (excluded,) = build_inventory(take_snapshot([node], []), OWNER).excluded
    assert excluded[0] == name
    assert "are not planned with: how the engine runs on them is not known" in excluded[1]


def test_a_node_that_only_its_cloud_has_labelled_is_named_after_that_label() -> None:
    node = ready(nodes.cpu_node(), **{"cloud.google.com/gke-accelerator": "nvidia-l4"})
    node["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    (excluded,) = build_inventory(take_snapshot([node], []), OWNER).excluded
    assert excluded[0] == "nvidia-l4"
    assert "install GPU feature discovery" in excluded[1]


def test_nodes_that_take_no_pods_are_left_out_with_the_reason() -> None:
    unready = nodes.gpu_node(nodes.H100_X8, name="unready")
    cordoned = ready(nodes.gpu_node(nodes.L40S_X4, name="cordoned"))
    cordoned["spec"]["unschedulable"] = True
    tainted = ready(nodes.gpu_node(nodes.L4_X1, taints=[{"key": "team", "value": "other", "effect": "NoSchedule"}]))
    inventory = build_inventory(take_snapshot([unready, cordoned, tainted], []), OWNER)
    assert inventory.shapes == ()
    assert [reason for _, reason in inventory.excluded] == [
        "the node is not ready",
        "the node has the taint team:NoSchedule, which podTemplate.tolerations does not name",
        "the node is cordoned",
    ]


def test_the_usual_taint_of_gpu_nodes_is_tolerated_and_cpu_nodes_are_no_matter() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    some = [ready(nodes.gpu_node(nodes.L4_X1, taints=[taint])), ready(nodes.cpu_node())]
    inventory = build_inventory(take_snapshot(some, []), OWNER)
    assert len(inventory.shapes) == 1
    assert inventory.excluded == ()


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "vision"}, True),
        ({"key": "team", "value": "vision", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "speech"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_is_no_obstacle_to_who_tolerates_it(toleration: dict[str, str], *, fits: bool) -> None:
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    snapshot = take_snapshot([ready(nodes.gpu_node(nodes.H100_X8, taints=[taint]))], [])
    placement = placement_of({"spec": {"podTemplate": {"tolerations": [toleration]}}})
    assert bool(build_inventory(snapshot, OWNER, placement).shapes) == fits
    assert bool(idle_nodes(snapshot, placement)) == fits


def test_a_node_selector_leaves_other_nodes_out() -> None:
    snapshot = take_snapshot([ready(nodes.gpu_node(nodes.H100_X8), pool="a")], [])
    same = placement_of({"spec": {"podTemplate": {"nodeSelector": {"pool": "a"}}}})
    other = placement_of({"spec": {"podTemplate": {"nodeSelector": {"pool": "b"}}}})
    assert build_inventory(snapshot, OWNER, same).shapes
    assert build_inventory(snapshot, OWNER, other).excluded[0][1] == "podTemplate.nodeSelector asks for pool=b"
