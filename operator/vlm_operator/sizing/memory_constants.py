"""One end of the calibrated constants of the memory model, in the units that the arithmetic takes."""

from typing import Literal, NamedTuple

from vlm_operator.catalogue.types import Figure, MemoryCalibration
from vlm_operator.sizing.kept import kept
from vlm_operator.units import GIB, MIB

End = Literal["low", "value", "high"]
"""Least memory, the likely figure, most memory."""


class MemoryConstants(NamedTuple):
    """The figures of ``MemoryCalibration`` at one end; sizes in bytes, the others as they stand there."""

    allocator_slack: float
    sampler_copies: float
    residual_copies: float
    non_torch: int
    non_torch_parallel: int
    non_torch_fabric: int
    loader_residue: int
    graph_per_layer_and_size: int
    graph_experts: int
    context: int
    nccl: int
    nccl_fabric: int
    process_memory: int
    loader_memory: int
    shared_memory: int


@kept
def constants_at(calibration: MemoryCalibration, end: End) -> MemoryConstants:
    """Return the constants at one end of their spread."""

    def at(figure: Figure) -> float:
        return float(getattr(figure, end))

    def size(figure: Figure) -> int:
        return int(at(figure) * (MIB if figure.unit == "MiB" else GIB))

    return MemoryConstants(
        allocator_slack=at(calibration.allocator_slack),
        sampler_copies=at(calibration.sampler_copies),
        residual_copies=at(calibration.residual_copies),
        non_torch=size(calibration.non_torch),
        non_torch_parallel=size(calibration.non_torch_parallel),
        non_torch_fabric=size(calibration.non_torch_fabric),
        loader_residue=size(calibration.loader_residue),
        graph_per_layer_and_size=size(calibration.graph_per_layer_and_size),
        graph_experts=size(calibration.graph_experts),
        context=size(calibration.context),
        nccl=size(calibration.nccl),
        nccl_fabric=size(calibration.nccl_fabric),
        process_memory=size(calibration.process_memory),
        loader_memory=size(calibration.loader_memory),
        shared_memory=size(calibration.shared_memory),
    )
