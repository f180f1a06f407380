"""GPU kinds and node shapes that could be had. Built from cluster nodes, a file or the catalogue."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from vlm_operator.catalogue.labels import MigProfile, ProductLabel, parse_mig_profile
from vlm_operator.catalogue.types import GpuCard, MigSupport
from vlm_operator.errors import CatalogueError
from vlm_operator.units import GIB, MIB, format_gib

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
    the price is unknown. ``bf16_flops`` is the rate of FP16 where the GPU has no BF16. ``mig_profile`` names the
    instance where the kind is one, and is empty for a whole GPU; instances cannot reach each other, so one replica
    takes one of them.
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
    mig_profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRefusal:
    """Why a GPU that the catalogue knows cannot be planned with as it is offered."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one pod asks for, what one node has for pods, or what of it is free: GPUs, CPU cores, bytes of memory.

    None is unknown and limits nothing.
    """

    gpus: int
    cpu_cores: int | None = None
    memory_bytes: int | None = None

    def count(self, pod: "Resources") -> int:
        """Return how many such pods find room here; each asks for a GPU at least."""
        return min(
            have // asked
            for have, asked in (
                (self.gpus, pod.gpus),
                (self.cpu_cores, pod.cpu_cores),
                (self.memory_bytes, pod.memory_bytes),
            )
            if have is not None and asked
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The nodes with one kind of GPU: a pod asks for the kind, so each of its replicas may run on any of them.

    Attributes:
        gpu: The kind.
        gpus_per_node: The most GPUs that one replica can have, since it cannot span two nodes.
        nodes: What nodes have while nothing runs on them, each size of node once; empty where that is unknown.
        free_by_node: What is free on each node; None means as many nodes as wanted.
    """

    gpu: GpuKind
    gpus_per_node: int
    nodes: tuple[Resources, ...] = ()
    free_by_node: tuple[Resources, ...] | None = None

    def room_for(self, pod: Resources) -> int | None:
        """Return how many such pods find room; None means as many as wanted."""
        if self.free_by_node is None:
            return None
        return sum(free.count(pod) for free in self.free_by_node)

    def can_hold(self, pod: Resources) -> bool:
        """Tell whether a node would hold such a pod if nothing ran on it."""
        return not self.nodes or any(node.count(pod) for node in self.nodes)

    def fair_cores(self, gpus: int, least: int) -> int | None:
        """Return the CPU cores that go with ``gpus`` GPUs of a node, so that no GPU is left without; None if unknown.

        Of nodes of several sizes the smallest share counts, so that every node can be filled. Shares below ``least``
        do not: such nodes are filled less, or not at all.
        """
        known = [(node.cpu_cores, node.gpus) for node in self.nodes if node.cpu_cores is not None and node.gpus >= gpus]
        shares = [cores * gpus // all_gpus for cores, all_gpus in known]
        return min((share for share in shares if share >= least), default=least) if shares else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why pods would wait for ever: what they lack, in words; ``fraction`` orders near misses."""

    reason: Literal["NotEnoughGPUs", "HostTooSmall"]
    message: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All node shapes that could be had, and GPUs that were left out with the reason (product, reason)."""

    shapes: tuple[NodeShape, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    source: Literal["cluster", "file", "catalogue"] = "catalogue"


def node_shape(gpu: GpuKind, nodes: Sequence[Resources], free_by_node: Sequence[Resources] | None) -> NodeShape:
    """Return the shape of ``nodes``, with what is free on them; None means as many of them as wanted, all free.

    MIG instances cannot reach each other, so a replica takes one of them.
    """
    return NodeShape(
        gpu=gpu,
        gpus_per_node=1 if gpu.mig_profile else max(node.gpus for node in nodes),
        nodes=tuple(dict.fromkeys(nodes)),
        free_by_node=None if free_by_node is None else tuple(free_by_node),
    )


def find_shortage(shape: NodeShape, pod: Resources, replicas: int) -> Shortage | None:
    """Return what so many pods lack on these nodes, where some would wait for ever; None where all find room."""
    enough = shape.room_for(pod)
    if enough is not None and enough >= replicas:
        return None
    if not shape.can_hold(pod):
        return min((_find_lack(node, pod) for node in shape.nodes), key=lambda shortage: shortage.fraction)
    gpus = Resources(gpus=pod.gpus)
    for place, asked in enumerate((gpus, replace(pod, memory_bytes=None), pod)):
        room = shape.room_for(asked)
        if room is not None and room < replicas:
            free = [node for node in shape.free_by_node or () if asked is gpus or node.count(gpus)]
            needed, left = _figures(pod)[place][1], _figures(_sum(free))[place][1]
            many = "1 replica is" if replicas == 1 else f"{replicas} replicas are"
            where = "" if asked is gpus else " beside free GPUs"
            words = f"{many} needed of {needed} each; nodes have {left} free{where}, room for {room}"
            return Shortage(
                reason="NotEnoughGPUs" if asked is gpus else "HostTooSmall",
                message=f"{words} where none spans two nodes; free some or add nodes",
                fraction=replicas / max(room, 0.5) - 1,
            )
    return None


def _find_lack(node: Resources, pod: Resources) -> Shortage:
    """Return what ``node``, with nothing on it, lacks most for one pod."""
    fraction, needed, offered = max(
        ((asked or 0) / max(have, 1) - 1, needed, offered)
        for (asked, needed), (have, offered) in zip(_figures(pod), _figures(node), strict=True)
        if have is not None
    )
    message = f"a pod needs {needed}; the nearest node offers {offered} to pods; take larger nodes"
    return Shortage(reason="HostTooSmall", message=message, fraction=fraction)


def _figures(resources: Resources) -> tuple[tuple[int | None, str], ...]:
    """Return GPUs, cores and memory, each with its words."""
    gpus, cores, memory = resources.gpus, resources.cpu_cores, resources.memory_bytes
    return (
        (gpus, f"{gpus} GPU{'' if gpus == 1 else 's'}"),
        (cores, f"{cores} CPU core{'' if cores == 1 else 's'}"),
        (memory, f"{format_gib(memory or 0)} of host memory"),
    )


def _sum(nodes: Iterable[Resources]) -> Resources:
    total = Resources(gpus=0, cpu_cores=0, memory_bytes=0)
    for node in nodes:
        total = Resources(
            gpus=total.gpus + node.gpus,
            cpu_cores=(total.cpu_cores or 0) + (node.cpu_cores or 0),
            memory_bytes=(total.memory_bytes or 0) + (node.memory_bytes or 0),
        )
    return total


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
        why = "its memory or its bandwidth is unknown; complete its catalogue file"
        if card.vendor != "nvidia":
            why = "it is no NVIDIA GPU, and how the engine runs on others is not known; choose one of NVIDIA's"
        raise CatalogueError(f"GPU {card.id!r} cannot be planned with: {why}")
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
        bf16_flops=_times(card.bf16_tflops or card.fp16_tflops, 1e12),
        fp8_flops=_times(card.fp8_tflops, 1e12),
        link_bytes_per_second=_times(card.link_gb_per_second_bidirectional, 1e9),
        hourly_cents=_times(card.price.usd_per_gpu_hour if card.price else None, 100),
        price_note=_price_note(card),
    )


def kind_from_label(
    card: GpuCard, label: ProductLabel, product: str, reported_bytes: int | None = None
) -> GpuKind | GpuRefusal:
    """Return the GPU as a node offers it: whole, smaller than usual, or a MIG instance; or why it cannot be had.

    Args:
        card: The catalogue's card of ``label.product``.
        label: The product label, taken apart.
        product: The product label as it stands, which pods select nodes by.
        reported_bytes: What the node's label says of one GPU's, or one instance's, memory; None where it says nothing.
    """
    if label.shared:
        return GpuRefusal(
            message="the GPU is shared between pods (time-slicing or MPS), so its memory cannot be promised; "
            "offer it whole, or cut into MIG instances"
        )
    kind = replace(kind_from_card(card), product=product)
    if label.mig_profile is None:
        return _with_memory(kind, reported_bytes) if reported_bytes else kind
    profile = parse_mig_profile(label.mig_profile)
    if card.mig is None:
        return GpuRefusal(message=f"the catalogue knows no MIG instances of {card.display_name}")
    if profile.shares_memory:
        return GpuRefusal(
            message=f"{label.mig_profile} shares the memory of its GPU instance with other compute instances, so it "
            "cannot be promised; cut one compute instance from each GPU instance"
        )
    return _instance(kind, card.mig, label.mig_profile, profile, reported_bytes)


def _with_memory(kind: GpuKind, reported_bytes: int) -> GpuKind:
    """Return ``kind`` with less memory where its driver reports less, the engine's share of it kept."""
    if reported_bytes >= kind.driver_memory_bytes:
        return kind
    engine = kind.engine_memory_bytes * reported_bytes // kind.driver_memory_bytes
    return replace(
        kind,
        driver_memory_bytes=reported_bytes,
        engine_memory_bytes=engine // MIB * MIB,
        engine_memory_certainty="estimated",
    )


def _instance(kind: GpuKind, mig: MigSupport, name: str, profile: MigProfile, reported_bytes: int | None) -> GpuKind:
    """Return one MIG instance of ``kind``.

    Its memory is what the label reports, and no more GiB than its name has GB; without a label, that many decimal GB,
    which the driver's figure never falls below. Bandwidth follows the memory slices. Multiprocessors are counted as if
    the memory slices shared them (1g is 14 of an A100's 108). No price is known for an instance.
    """
    named = profile.memory_gigabytes
    size = min(reported_bytes or named * 10**9, named * GIB, kind.driver_memory_bytes - 1)
    smaller = _with_memory(kind, size)
    slices = max(1, round(mig.memory_slices * smaller.driver_memory_bytes / kind.driver_memory_bytes))
    compute = profile.compute_slices / mig.memory_slices
    return replace(
        smaller,
        id=f"{kind.id}-mig-{name}",
        display_name=f"{kind.display_name} MIG {name}",
        mig_profile=name,
        engine_memory_certainty="estimated",
        bandwidth_bytes_per_second=kind.bandwidth_bytes_per_second * slices / mig.memory_slices,
        bf16_flops=_times(kind.bf16_flops, compute),
        fp8_flops=_times(kind.fp8_flops, compute),
        link_bytes_per_second=None,
        hourly_cents=None,
        price_note="price of a MIG instance unknown",
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
