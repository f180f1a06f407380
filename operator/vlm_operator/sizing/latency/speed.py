"""How fast one GPU does each kind of work: shares of its datasheet figures that were measured, here or on its kin."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Final, Literal

from vlm_operator.catalogue.types import AttentionSpeed, EngineFigures, KernelSpeeds, LatencyCalibration, LinkSpeed
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kept import kept
from vlm_operator.sizing.latency.estimate import Evidence
from vlm_operator.sizing.latency.work import Matrices, NumberFormat

TableName = Literal["bf16", "fp8", "fp4"]
"""Formats that were measured."""

LAYER_MATRICES: Final = 4
"""Matrix products of a layer: queries, keys and values; output; gate and up; down."""
UNKNOWN_RATE: Final = 1.0
"""FLOP per second of a GPU whose rate nobody states: so slow that it is promised to no target."""
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

    def slowed(self, share: float) -> "Pass":
        """Return the same matrices at a share of the speed."""
        return replace(self, shares=tuple((rows, share * reached) for rows, reached in self.shares))

    def _share(self, rows: float) -> float:
        shares = self.shares
        place = bisect_left(shares, (rows,))
        if place == 0 or place == len(shares):
            return shares[min(place, len(shares) - 1)][1]
        (low, least), (high, most) = shares[place - 1], shares[place]
        return least + (most - least) * (rows - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpeed:
    """One GPU's figures; ``evidence`` says how near the measurements are.

    ``shares`` are the shares of the roofline by rows as they are in the engine, for each format that was measured.
    """

    gpu: GpuKind
    kernels: KernelSpeeds
    engine: EngineFigures
    calibration: LatencyCalibration
    evidence: Evidence
    shares: Mapping[TableName, tuple[tuple[int, float], ...]]

    def matrices(self, matrices: Matrices) -> Pass:
        """Return the seconds of ``matrices``."""
        rate = self._peak(matrices.format)
        if matrices.format in {"w8", "w4"}:
            rate *= self.calibration.weight_only_share.value
        return Pass(
            read=matrices.bytes / self.gpu.bandwidth_bytes_per_second,
            per_row=2 * matrices.elements / rate,
            shares=self.shares[self._table(matrices.format)],
        )

    def touch(self, touched: float) -> float:
        """Return the seconds of elementwise kernels that read and write so many bytes."""
        return touched / (self.gpu.bandwidth_bytes_per_second * self.calibration.elementwise_share.value)

    def read_kv(self, size: float, dtype: str) -> float:
        """Return the seconds of reading so many bytes of KV cache in decode attention."""
        shares = self.kernels.kv_bandwidth_share
        share = shares.get(_kv_name(dtype), shares["bf16"]) * self.calibration.kv_gain.value
        return size / (self.gpu.bandwidth_bytes_per_second * share)

    def layer_fixed(self, name: NumberFormat, kv_dtype: str) -> float:
        """Return the seconds of one decoder layer's kernels however little they do: four matrices, one attention."""
        kernels = self.kernels
        attention = kernels.decode_attention_microseconds
        kept = attention.get(_kv_name(kv_dtype), attention["bf16"])
        gemm = kernels.gemm_microseconds[self._table(name)]
        return (LAYER_MATRICES * gemm + kept) / 1e6 + self.calibration.layer.value

    def attend(self, elements: float) -> tuple[float, float]:
        """Return seconds per pair and per token of prefill attention with so many multiplications a pair."""
        return self._attention(self.kernels.prefill_attention, elements)

    def attend_patches(self, elements: float, head_dim: int) -> tuple[float, float]:
        """Return seconds per pair and per patch of the tower's attention."""
        tables = self.kernels.vision_attention
        nearest = min(tables, key=lambda width: (abs(width - head_dim), width))
        return self._attention(tables[nearest], elements)

    def all_reduce(self, ranks: int, size: float) -> tuple[float, float]:
        """Return seconds of an all-reduce: fixed, and per row of ``size`` bytes.

        The engine hides part of what the kernel takes alone; ranks that wait for one another add to it.
        """
        if ranks == 1:
            return 0.0, 0.0
        link, share = self._link(ranks), self.engine.all_reduce_share.value
        fixed = share * link.microseconds / 1e6 + self.calibration.rank_skew.value * log2(ranks)
        return fixed, share * 2 * (ranks - 1) / ranks * size / (link.gb_per_second * 1e9)

    def prefill_step(self, ranks: int) -> float:
        """Return what a step with prefill adds on each of ``ranks`` ranks."""
        return self.engine.prefill_step.value + self.engine.prefill_doubling.value * log2(ranks)

    def _link(self, ranks: int) -> LinkSpeed:
        """Return the measured link, in proportion to the GPU's own; that of the next larger number of GPUs."""
        own, measured = self.gpu.link_bytes_per_second, self.kernels.link_gb_per_second_bidirectional
        if own is None and measured is not None:
            return self.calibration.without_link
        links = self.kernels.all_reduce
        found = links[min((count for count in links if count >= ranks), default=max(links))]
        if own is None or measured is None:
            return found
        return found.model_copy(update={"gb_per_second": found.gb_per_second * own / (measured * 1e9)})

    def _attention(self, speed: AttentionSpeed, elements: float) -> tuple[float, float]:
        per_pair = 2 * elements / (self._peak("bf16") * speed.compute_share)
        return per_pair, per_pair * speed.half_length

    def _table(self, name: NumberFormat) -> TableName:
        """Return the format whose measurements ``name`` takes: what is stored small is multiplied in BF16."""
        own: TableName = "fp4" if name == "fp4" else "fp8" if name in {"fp8", "int8"} else "bf16"
        return own if own in self.kernels.gemm else "bf16"

    def _peak(self, name: NumberFormat) -> float:
        plain = self.gpu.bf16_flops or UNKNOWN_RATE
        half = self.gpu.fp8_flops or 2 * plain
        return {"bf16": plain, "w8": plain, "w4": plain, "fp8": half, "int8": half, "fp4": 2 * half}[name]


def _kv_name(dtype: str) -> Literal["bf16", "fp8"]:
    return "fp8" if dtype.startswith("fp8") else "bf16"


def gpu_speed(gpu: GpuKind, calibration: LatencyCalibration) -> GpuSpeed:
    """Return the speeds of ``gpu``: its own tables, else those of the GPU whose architecture is nearest."""
    return _speed_under(calibration, gpu)


@kept
def _speed_under(calibration: LatencyCalibration, gpu: GpuKind) -> GpuSpeed:
    major, minor = gpu.compute_capability or (0, 0)
    wanted = 10 * major + minor
    own = next((table for table in calibration.kernels if table.gpu == gpu.id), None)
    evidence: Evidence = "datasheet"
    if own is not None:
        evidence = "runs" if gpu.id in calibration.seen_in_runs else "kernels"
    kernels = own or min(calibration.kernels, key=lambda table: (abs(table.capability - wanted), table.gpu))
    engine = min(calibration.engines, key=lambda engine: (abs(engine.capability - wanted), engine.capability))
    sustained = engine.sustained_share.value
    return GpuSpeed(
        gpu=gpu,
        kernels=kernels,
        engine=engine,
        calibration=calibration,
        evidence=evidence,
        shares={name: _shares(table, name, calibration, sustained) for name, table in kernels.gemm.items()},
    )


def _shares(
    table: Mapping[int, float], name: TableName, calibration: LatencyCalibration, sustained: float
) -> tuple[tuple[int, float], ...]:
    """Return a table as it is in the engine.

    Reading reaches what a captured graph reaches, where kernels overlap, and follows the table's dips from row count
    to row count; multiplying loses to what runs beside it.
    """
    best = max(share for rows, share in table.items() if rows <= GRAPH_ROWS)
    reading = calibration.reading_share[name].value / best
    multiplying = calibration.multiplying_gain[name].value * sustained
    return tuple(
        (rows, min(1.0, share * (reading if rows <= GRAPH_ROWS else multiplying)))
        for rows, share in sorted(table.items())
    )
