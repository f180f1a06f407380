"""What a pod asks of its node, counted as the scheduler counts it (k8s.io/component-helpers/resource, PodRequests)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING
from typing import Any, Final

from vlm_operator.sizing.inventory import Resources
from vlm_operator.units import parse_quantity

GPU_RESOURCE: Final = "nvidia.com/gpu"
CPU: Final = "cpu"
MEMORY: Final = "memory"
_COUNTED: Final = (GPU_RESOURCE, CPU, MEMORY)

Amounts = Counter[str]
"""Whole GPUs, thousandths of a core and bytes, each rounded up; by the name of the resource."""


def read_amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Return the counted resources among ``quantities``."""
    found: Amounts = Counter()
    for name in _COUNTED:
        if quantities and name in quantities:
            scale = 1000 if name == CPU else 1
            found[name] = int((parse_quantity(quantities[name]) * scale).to_integral_value(ROUND_CEILING))
    return found


def as_resources(amounts: Amounts) -> Resources:
    """Return ``amounts`` in whole cores: our pods ask for no parts of one."""
    return Resources(gpus=amounts[GPU_RESOURCE], cpu_cores=amounts[CPU] // 1000, memory_bytes=amounts[MEMORY])


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return what the pod of this spec asks for.

    That is its containers together with sidecars, which are init containers that keep running, or the greediest init
    container beside the sidecars before it, where that is more; cores and memory that the pod asks for as a whole
    stand over that; the overhead of its runtime class comes on top.
    """
    running = _sum(map(_container_requests, spec.get("containers") or ()))
    sidecars: Amounts = Counter()
    greediest: Amounts = Counter()
    for container in spec.get("initContainers") or ():
        asked = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            asked = Counter()
        greediest |= sidecars + asked
    whole = _container_requests(spec)
    return Counter({**((running + sidecars) | greediest), **whole}) + read_amounts(spec.get("overhead"))


def _container_requests(container: Mapping[str, Any]) -> Amounts:
    """Return the requests; what has only a limit is requested as much, as the API server writes it."""
    resources = container.get("resources") or {}
    return read_amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = Counter()
    for amount in amounts:
        total += amount
    return total
