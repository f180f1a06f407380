"""GPU kinds and node shapes that could be had. Built from cluster nodes, a file or the catalogue."""

from dataclasses import dataclass
from typing import Final, Literal

from vlm_operator.catalogue.types import GpuCard
from vlm_operator.errors import CatalogueError
from vlm_operator.units import GIB, MIB

Certainty = Literal["measured", "datasheet", "estimated", "remembered", "unknown"]
_CERTAINTIES: Final[dict[str, Certainty]] = {
    "measured": "measured",
    "datasheet": "datasheet",
    "estimated": "estimated",
    "remembered": "remembered",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """One kind of GPU as the engine sees it; bytes, bytes per second, FLOP per second.

    ``engine_memory_bytes`` is CUDA's total, which multiplies with the utilization; ``driver_memory_bytes``
    is what the driver (and the ``nvidia.com/gpu.memory`` label) reports. ``hourly_cents`` None means that
    the price is unknown.
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

    ``nodes`` None means as many as wanted (catalogue inventory). ``free_by_node`` counts the GPUs that are free on each
    of these nodes, since a replica cannot span two; None means unknown or unlimited.
    """

    gpu: GpuKind
    gpus_per_node: int
    nodes: int | None = None
    free_by_node: tuple[int, ...] | None = None
    cpu_cores: int | None = None
    host_memory_bytes: int | None = None

    def room_for(self, gpus: int) -> int | None:
        """Return how many replicas of ``gpus`` GPUs the free GPUs hold; None means as many as wanted."""
        if self.free_by_node is None:
            return None
        return sum(free // gpus for free in self.free_by_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All node shapes that could be had, and GPUs that were left out with the reason (product, reason)."""

    shapes: tuple[NodeShape, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    source: Literal["cluster", "file", "catalogue"] = "catalogue"


def kind_from_card(card: GpuCard) -> GpuKind:
    """The GPU of a catalogue card as the sizing engine sees it.

    Args:
        card: A card with known memory and bandwidth; every NVIDIA card of the catalogue is one.

    Returns:
        The kind. Its price is the cheapest GPU-hour; ``card.price_for`` knows the price for a number of GPUs.
        Its link is the sum of both directions.

    Raises:
        CatalogueError: The card lacks a figure without which no plan can be made.
    """
    driver, engine, bandwidth = card.driver_memory_mib, card.engine_memory_gib, card.bandwidth_gb_per_second
    if driver is None or engine is None or bandwidth is None:
        raise CatalogueError(
            f"GPU {card.id!r} cannot be planned with: its memory or its bandwidth is unknown; complete its "
            "catalogue file"
        )
    return GpuKind(
        id=card.id,
        product=card.labels[0] if card.labels else card.id,
        display_name=card.display_name,
        vendor=card.vendor,
        compute_capability=_capability(card.compute_capability),
        driver_memory_bytes=driver * MIB,
        engine_memory_bytes=int(engine * GIB),
        engine_memory_certainty=_CERTAINTIES.get(card.engine_memory_provenance.certainty, "unknown"),
        bandwidth_bytes_per_second=bandwidth * 1e9,
        bf16_flops=_times(card.bf16_tflops, 1e12),
        fp8_flops=_times(card.fp8_tflops, 1e12),
        link_bytes_per_second=_times(card.link_gb_per_second_bidirectional, 1e9),
        hourly_cents=_times(card.price.usd_per_gpu_hour if card.price else None, 100),
        price_note=_price_note(card),
    )


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def _times(figure: float | None, factor: float) -> float | None:
    return None if figure is None else round(figure * factor, 6)


def _price_note(card: GpuCard) -> str:
    if card.price is None:
        return "price unknown"
    return f"share of {card.price.instance}" if card.price.by_share else card.price.instance
