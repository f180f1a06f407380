"""One matrix of a model: its size, how tensor parallelism cuts it and how its elements are stored."""

from dataclasses import dataclass
from typing import Literal

Part = Literal[
    "embedding",
    "lm_head",
    "attention",
    "mlp",
    "experts",
    "router",
    "norms",
    "other",
    "audio",
    "vision_tower",
    "projector",
]
"""What a weight belongs to."""

Split = Literal["whole", "rows", "columns", "kv"]
"""The dimension that ranks share; ``kv`` is by key/value head, replicated where ranks outnumber heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a quantised matrix is stored.

    Attributes:
        bits: Bits of one weight.
        container_bits: Bits of the tensor's own element: 32 for packed INT4, 8 for FP8 and two FP4 values.
        group_rows: Input rows that share a scale; 0 for all of them.
        group_columns: Output columns that share a scale; 0 for all of them.
        scale_bytes: Bytes of one scale.
        zeros: Whether packed zero points stand beside the scales.
        index: Whether each input row has a 4-byte group index (GPTQ).
    """

    bits: int
    container_bits: int
    group_rows: int
    group_columns: int
    scale_bytes: int
    zeros: bool = False
    index: bool = False

    def measure(self, rows: int, columns: int) -> tuple[int, int]:
        """Return stored elements and bytes of a matrix of ``rows`` x ``columns``."""
        weights = rows * columns * self.bits
        # Blocks reach over the edge; groups are counted whole, as the engine allocates them.
        reach = self.group_rows - 1 if self.group_columns > 1 else 0
        down = (rows + reach) // self.group_rows if self.group_rows else 1
        across = -(-columns // self.group_columns) if self.group_columns else 1
        scales = down * across
        zeros = scales * self.bits if self.zeros else 0
        index = rows if self.index else 0
        elements = (weights + zeros) // self.container_bits + scales + index
        return elements, (weights + zeros) // 8 + scales * self.scale_bytes + 4 * index


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """``experts`` matrices of ``rows`` inputs and ``columns`` outputs in each of ``layers``.

    Attributes:
        name: Module path below its model, with ``{}`` for the layer; ignore lists of quantised checkpoints name it.
        kv_heads: Heads among which a ``kv`` split cuts the columns.
        bias: Whether each column has a bias, which follows the columns.
        linear: Whether a quantisation method may store it; norms, tables and convolutions never are.
        element_bytes: Bytes of an element where it is not the checkpoint's (0 = the checkpoint's).
        split_in_data_mode: Whether a tower's weight stays split with ``--mm-encoder-tp-mode data``.
        scheme: How it is stored, None for plain elements.
    """

    part: Part
    name: str
    rows: int
    columns: int
    split: Split = "whole"
    layers: tuple[int, ...] = (0,)
    experts: int = 1
    kv_heads: int = 0
    bias: bool = False
    linear: bool = True
    element_bytes: int = 0
    split_in_data_mode: bool = False
    scheme: Scheme | None = None

    @property
    def parameters(self) -> int:
        """Logical parameters on an unsplit model, whatever their storage."""
        return len(self.layers) * self.experts * (self.rows + self.bias) * self.columns

    def measure(self, size: int, element_bytes: int, *, expert_parallel: bool = False) -> tuple[int, int]:
        """Return stored elements and bytes on one of ``size`` ranks."""
        copies = len(self.layers) * self.experts
        rows, columns = self.rows, self.columns
        if self.part == "experts" and expert_parallel:
            copies = len(self.layers) * -(-self.experts // size)
        elif self.split == "rows":
            rows //= size
        elif self.split == "columns":
            columns //= size
        elif self.split == "kv":
            columns = columns * max(1, self.kv_heads // size) // self.kv_heads
        plain = self.element_bytes or element_bytes
        elements, stored = (
            self.scheme.measure(rows, columns) if self.scheme else (rows * columns, rows * columns * plain)
        )
        bias = columns if self.bias else 0
        return copies * (elements + bias), copies * (stored + bias * plain)


def table(part: Part, name: str, elements: int, layers: tuple[int, ...] = (0,)) -> Weight:
    """Return a norm, bias or table that every rank holds whole and no method quantises."""
    return Weight(part=part, name=name, rows=1, columns=elements, layers=layers, linear=False)
