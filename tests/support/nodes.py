"""Node objects as in a GPU cluster: labels as GPU feature discovery writes them, figures of the catalogue."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vlm_operator.catalogue.load import find_gpu
from vlm_operator.catalogue.types import GpuCard

# What GPU feature discovery calls the generation of a compute capability (nvidia/k8s-device-plugin,
# internal/lm/resource.go); 12.0 shares its name with 10.0.
_FAMILY_OF_MAJOR = {7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell", 13: "rubin"}
_KEPT_FOR_SYSTEM_CORES = 1
_KEPT_FOR_SYSTEM_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of node: which GPUs, how many, beside how many cores and how much memory."""

    gpu: str
    gpus: int
    instance_type: str
    cores: int
    memory_gib: int


H100_X8 = Shape(gpu="h100-80gb-sxm", gpus=8, instance_type="p5.48xlarge", cores=192, memory_gib=2048)
H200_X8 = Shape(gpu="h200-sxm", gpus=8, instance_type="p5en.48xlarge", cores=192, memory_gib=2048)
A100_X8 = Shape(gpu="a100-80gb-sxm", gpus=8, instance_type="p4de.24xlarge", cores=96, memory_gib=1152)
L40S_X4 = Shape(gpu="l40s", gpus=4, instance_type="g6e.12xlarge", cores=48, memory_gib=384)
L4_X1 = Shape(gpu="l4", gpus=1, instance_type="g6.2xlarge", cores=8, memory_gib=32)
SHAPES = (H100_X8, H200_X8, A100_X8, L40S_X4, L4_X1)


def gpu_node(
    shape: Shape,
    name: str | None = None,
    *,
    zone: str = "eu-test-1a",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Returns a Node with GPUs.

    Args:
        shape: the kind of node.
        name: the node's name; by default made of GPU and count, `h100-80gb-sxm-x8`.
        zone: the zone it stands in; the region is the zone without its last letter.
        labels: labels to add or to overwrite, for instance those of a shared or cut GPU.
        taints: the node's taints.
    """
    name = name or f"{shape.gpu}-x{shape.gpus}"
    found = gpu_labels(find_gpu(shape.gpu), shape.gpus)
    common = common_labels(name, shape.instance_type, zone)
    return _node(
        name,
        {**common, **found, **(labels or {})},
        _resources(shape.cores, shape.memory_gib, shape.gpus),
        taints,
    )


def cpu_node(name: str = "cpu", *, cores: int = 16, memory_gib: int = 64, zone: str = "eu-test-1a") -> dict[str, Any]:
    """Returns a Node without GPUs."""
    return _node(name, common_labels(name, "m7i.4xlarge", zone), _resources(cores, memory_gib, 0), ())


def common_labels(name: str, instance_type: str, zone: str) -> dict[str, str]:
    """Returns the labels that every node of a cloud has."""
    return {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
    }


def gpu_labels(card: GpuCard, gpus: int) -> dict[str, str]:
    """Returns what GPU feature discovery says about a node with whole, unshared GPUs of one product.

    Raises:
        ValueError: the card lacks a figure that the labels carry.
    """
    if card.compute_capability is None or card.driver_memory_mib is None or not card.labels:
        raise ValueError(f"{card.id} has no label, compute capability or driver memory in the catalogue")
    major, minor = card.compute_capability.split(".")
    return {
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "95",
        "nvidia.com/cuda.driver-version.revision": "05",
        "nvidia.com/cuda.runtime-version.full": "13.0",
        "nvidia.com/cuda.runtime-version.major": "13",
        "nvidia.com/cuda.runtime-version.minor": "0",
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.family": _family(int(major), int(minor)),
        "nvidia.com/gpu.memory": str(card.driver_memory_mib),
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": card.labels[0],
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": str((int(major), int(minor)) in {(8, 0), (9, 0), (10, 0)}).lower(),
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
    }


def _family(major: int, minor: int) -> str:
    if (major, minor) == (7, 5):
        return "turing"
    if (major, minor) == (8, 9):
        return "ada-lovelace"
    return _FAMILY_OF_MAJOR[major]


def _resources(cores: int, memory_gib: int, gpus: int) -> dict[str, dict[str, str]]:
    """Returns capacity, and allocatable: less what a kubelet keeps for the system."""
    fixed = {"pods": "110", "ephemeral-storage": "1Ti"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    memory_mib = memory_gib * 1024
    left_mib = int(memory_mib * (1 - _KEPT_FOR_SYSTEM_SHARE))
    return {
        "capacity": {**fixed, "cpu": str(cores), "memory": f"{memory_mib}Mi"},
        "allocatable": {**fixed, "cpu": str(cores - _KEPT_FOR_SYSTEM_CORES), "memory": f"{left_mib}Mi"},
    }


def _node(
    name: str,
    labels: Mapping[str, str],
    resources: Mapping[str, Mapping[str, str]],
    taints: Iterable[Mapping[str, str]],
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"taints": [dict(one) for one in taints]},
        "status": {key: dict(value) for key, value in resources.items()},
    }
