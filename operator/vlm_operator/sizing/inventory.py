"""GPU kinds and node shapes that could be had. Built from cluster nodes, a file or the catalogue."""

from dataclasses import dataclass
from typing import Literal

Certainty = Literal["measured", "datasheet", "estimated", "remembered", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """One kind of GPU as the engine sees it; bytes, bytes per second, FLOP per second.

    ``engine_memory_bytes`` is CUDA's total, which multiplies with the utilization; ``driver_memory_bytes`` is what
    the driver (and the ``nvidia.com/gpu.memory`` label) reports. ``hourly_cents`` None means the price is unknown.
    """

    id: str
    product: str
    display_name: str
    vendor: str
    compute_capability: tuple[int, int] | None
    driver_memory_bytes: int
    engine_memory_bytes: int
    engine_memory_certainty: Certainty
    bandwidth_bytes_per_second: float
    bf16_flops: float | None
    fp8_flops: float | None
    link_bytes_per_second: float | None
    hourly_cents: float | None
    price_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Nodes with this many GPUs of a kind, and what a replica may use of the host.

    ``nodes`` None means as many as wanted (catalogue inventory). ``free_gpus`` counts GPUs that are free on all these
    nodes together; None means unknown or unlimited.
    """

    gpu: GpuKind
    gpus_per_node: int
    nodes: int | None = None
    free_gpus: int | None = None
    cpu_cores: int | None = None
    host_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All node shapes that could be had, and GPUs that were left out with the reason (product, reason)."""

    shapes: tuple[NodeShape, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    source: Literal["cluster", "file", "catalogue"] = "catalogue"
