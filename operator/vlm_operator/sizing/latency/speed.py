"""How fast one GPU does each kind of work: shares of its datasheet figures that were measured, here or on its kin."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, Literal

from vlm_operator.catalogue.types import AttentionSpeed, KernelSpeeds, LatencyCalibration, LinkSpeed
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.latency.estimate import Evidence
from vlm_operator.sizing.latency.work import Matrices, NumberFormat

LAYER_MATRICES: Final = 4
"""Matrix products of a layer: queries, keys and values; output; gate and up; down."""
GRAPH_ROWS: Final = 128
"""Up to so many rows matrices are bound by reading, and steps run as one captured graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Matrices as seconds on the roofline: for reading them once, and for each row that is multiplied with them.

    ``shares`` are (rows, share of the roofline that is reached), rows growing.
    """

    read: float
    per_row: float
    shares: tuple[tuple[float, float], ...]

    def seconds(self, rows: float) -> float:
        """Return the time for ``rows`` rows."""
        return max(self.read, rows * self.per_row) / self._share(rows)

    def part(self, read: float, multiplied: float) -> "Pass":
        """Return a part of these matrices: the share that is read, and the share that each row meets.

        A row's kernels see as many rows as one matrix gets, so the shares of the roofline move with ``multiplied``.
        """
        shares = tuple((rows / multiplied, share) for rows, share in self.shares)
        return Pass(read=self.read * read, per_row=self.per_row * multiplied, shares=shares)

    def _share(self, rows: float) -> float:
        shares = self.shares
        place = bisect_left(shares, (rows,))
        if place == 0 or place == len(shares):
            return shares[min(place, len(shares) - 1)][1]
        (low, least), (high, most) = shares[place - 1], shares[place]
        return least + (most - least) * (rows - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpeed:
    """One GPU's figures; ``evidence`` says how near the measurements are."""

    gpu: GpuKind
    kernels: KernelSpeeds
    calibration: LatencyCalibration
    evidence: Evidence

    def matrices(self, matrices: Matrices) -> Pass:
        """Return the seconds of ``matrices``."""
        rate = self._peak(matrices.format)
        if matrices.format in {"w8", "w4"}:
            rate *= self.calibration.weight_only_share.value
        return Pass(
            read=matrices.bytes / self.gpu.bandwidth_bytes_per_second,
            per_row=2 * matrices.elements / rate,
            shares=self._gemm(matrices.format),
        )

    def touch(self, touched: float) -> float:
        """Return the seconds of elementwise kernels that read and write so many bytes."""
        return touched / (self.gpu.bandwidth_bytes_per_second * self.calibration.elementwise_share.value)

    def read_kv(self, size: float, dtype: str) -> float:
        """Return the seconds of reading so many bytes of KV cache in decode attention."""
        shares = self.kernels.kv_bandwidth_share
        share = shares.get("fp8" if dtype.startswith("fp8") else "bf16", shares["bf16"])
        return size / (self.gpu.bandwidth_bytes_per_second * share)

    def layer_fixed(self, name: NumberFormat, kv_dtype: str) -> float:
        """Return the seconds of one decoder layer's kernels however little they do: four matrices, one attention."""
        kernels = self.kernels
        gemm = kernels.gemm_microseconds.get(_table_name(name), kernels.gemm_microseconds["bf16"])
        attention = kernels.decode_attention_microseconds
        kept = attention.get("fp8" if kv_dtype.startswith("fp8") else "bf16", attention["bf16"])
        return (LAYER_MATRICES * gemm + kept) / 1e6 + self.calibration.layer.value

    def attend(self, elements: float) -> tuple[float, float]:
        """Return seconds per pair and per token of prefill attention with so many multiplications a pair."""
        return self._attention(self.kernels.prefill_attention, elements)

    def attend_patches(self, elements: float, head_dim: int) -> tuple[float, float]:
        """Return seconds per pair and per patch of the tower's attention."""
        tables = self.kernels.vision_attention
        nearest = min(tables, key=lambda width: (abs(width - head_dim), width))
        return self._attention(tables[nearest], elements)

    def link(self, ranks: int) -> LinkSpeed:
        """Return the all-reduce among ``ranks`` GPUs; the next larger measured number where there is none."""
        links = self.kernels.all_reduce
        size = min((count for count in links if count >= ranks), default=max(links))
        found = links[size]
        if self.evidence == "datasheet" and self.gpu.link_bytes_per_second is None:
            return self.calibration.without_link
        return found

    def all_reduce(self, ranks: int, size: float) -> tuple[float, float]:
        """Return seconds of an all-reduce: fixed, and per row of ``size`` bytes."""
        if ranks == 1:
            return 0.0, 0.0
        link = self.link(ranks)
        return link.microseconds / 1e6, 2 * (ranks - 1) / ranks * size / (link.gb_per_second * 1e9)

    def _attention(self, speed: AttentionSpeed, elements: float) -> tuple[float, float]:
        per_pair = 2 * elements / (self._peak("bf16") * speed.compute_share)
        return per_pair, per_pair * speed.half_length

    def _gemm(self, name: NumberFormat) -> tuple[tuple[int, float], ...]:
        """Return the shares of the roofline by rows; what is read faster or slower in a captured graph than alone."""
        tables = self.kernels.gemm
        own = _table_name(name)
        table = tables.get(own) or tables["bf16"]
        graph = self.calibration.graph_gain[own]
        return tuple(
            (rows, share * graph.value if rows <= GRAPH_ROWS else share) for rows, share in sorted(table.items())
        )

    def _peak(self, name: NumberFormat) -> float:
        plain = self.gpu.bf16_flops or 0.0
        half = self.gpu.fp8_flops or 2 * plain
        return {"bf16": plain, "w8": plain, "w4": plain, "fp8": half, "int8": half, "fp4": 2 * half}[name]


def _table_name(name: NumberFormat) -> Literal["bf16", "fp8", "fp4"]:
    """Return the format whose measurements ``name`` takes: what is stored small is multiplied in BF16."""
    if name == "fp4":
        return "fp4"
    return "fp8" if name in {"fp8", "int8"} else "bf16"


def gpu_speed(gpu: GpuKind, calibration: LatencyCalibration) -> GpuSpeed:
    """Return the speeds of ``gpu``: its own tables, else those of the GPU whose architecture is nearest."""
    own = next((table for table in calibration.kernels if table.gpu == gpu.id), None)
    if own is not None:
        evidence: Evidence = "runs" if gpu.id in calibration.seen_in_runs else "kernels"
        return GpuSpeed(gpu=gpu, kernels=own, calibration=calibration, evidence=evidence)
    major, minor = gpu.compute_capability or (0, 0)
    wanted = 10 * major + minor
    nearest = min(calibration.kernels, key=lambda table: (abs(table.capability - wanted), table.gpu))
    return GpuSpeed(gpu=gpu, kernels=nearest, calibration=calibration, evidence="datasheet")
