"""Building blocks of towers and projectors: transformer layers, linears, tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vlm_operator.sizing.shape.text.config import thinker
from vlm_operator.sizing.shape.types import VisionShape
from vlm_operator.sizing.shape.weight import Split, Weight, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one transformer layer of a tower holds.

    Attributes:
        norms: Elements of all its norms and scales, which every rank holds.
        key_width: Width of all keys together where several queries share one, 0 where they are as wide as the layer.
        key_heads: Key heads among which tensor parallelism cuts that width.
        split_attention: Whether tensor parallelism splits the four projections.
        split_mlp: Whether it splits the MLP.
    """

    hidden: int
    intermediate: int
    norms: int
    key_width: int = 0
    key_heads: int = 0
    gated: bool = False
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    split_attention: bool = True
    split_mlp: bool = True

    def weights(self, layers: int) -> tuple[Weight, ...]:
        """Return the weights of ``layers`` such layers."""
        every, hidden, wide = tuple(range(layers)), self.hidden, self.intermediate
        attention: tuple[Split, Split] = ("columns", "rows") if self.split_attention else ("whole", "whole")
        mlp: tuple[Split, Split] = ("columns", "rows") if self.split_mlp else ("whole", "whole")
        rows = hidden * (self.out_bias + self.mlp_bias)
        found = [
            Weight(
                part="vision_tower",
                name=f"blocks.{{}}.attn.{name}",
                rows=hidden,
                columns=columns,
                split="kv" if heads and self.split_attention else attention[0],
                kv_heads=heads,
                layers=every,
                bias=self.qkv_bias,
            )
            for name, columns, heads in (
                ("q_proj", hidden, 0),
                ("k_proj", self.key_width or hidden, self.key_heads),
                ("v_proj", self.key_width or hidden, self.key_heads),
            )
        ]
        found.append(tower("blocks.{}.attn.proj", hidden, hidden, attention[1], layers=every))
        found += [
            tower(f"blocks.{{}}.mlp.{name}", hidden, wide, mlp[0], layers=every, bias=self.mlp_bias)
            for name in (("gate_proj", "up_proj") if self.gated else ("fc1",))
        ]
        found.append(tower("blocks.{}.mlp.fc2", wide, hidden, mlp[1], layers=every))
        found.append(table("vision_tower", "blocks.{}.norms", self.norms + rows, every))
        return tuple(found)


def tower(
    name: str, rows: int, columns: int, split: Split = "whole", *, layers: tuple[int, ...] = (0,), bias: bool = False
) -> Weight:
    """Return one matrix of the tower; patch embeddings are convolutions, which no method quantises."""
    return Weight(
        part="vision_tower",
        name=name,
        rows=rows,
        columns=columns,
        split=split,
        layers=layers,
        bias=bias,
        linear="patch" not in name,
    )


def tower_table(elements: int) -> Weight:
    """Return embeddings, norms and other tables of the tower, together."""
    return table("vision_tower", "embeddings", elements)


def linear(name: str, rows: int, columns: int, split: Split = "whole", *, bias: bool = True) -> tuple[Weight, ...]:
    """Return a linear of the projector with its bias, which only a split by columns cuts."""
    cut = bias and split == "columns"
    matrix = Weight(part="projector", name=name, rows=rows, columns=columns, split=split, bias=cut)
    return (matrix, projector_table(columns)) if bias and not cut else (matrix,)


def mlp_projector(rows: int, wide: int, out: int, *, split: bool, bias: bool = True) -> tuple[Weight, ...]:
    """Return the usual two linears, split by columns and then by rows, or whole."""
    first: Split = "columns" if split else "whole"
    second: Split = "rows" if split else "whole"
    return (*linear("linear_1", rows, wide, first, bias=bias), *linear("linear_2", wide, out, second, bias=bias))


def projector_table(elements: int) -> Weight:
    """Return norms, separators and biases of the projector that every rank holds."""
    return table("projector", "tables", elements)


def shape(  # noqa: PLR0913 - a tower's own sizes; a type for them would be VisionShape again
    layer: Layer,
    layers: int,
    weights: tuple[Weight, ...],
    *,
    heads: int,
    patch: int,
    out: int,
    merge: int = 1,
    patch_row: int | None = None,
    odd_heads: Literal["refuse", "replicate_attention", "replicate_tower"] = "refuse",
    buffer_bytes: int = 0,
) -> VisionShape:
    """Return the tower made of ``layers`` times ``layer`` and of ``weights``."""
    return VisionShape(
        layers=layers,
        hidden=layer.hidden,
        heads=heads,
        intermediate=layer.intermediate,
        patch_size=patch,
        merge=merge,
        out_width=out,
        patch_row=3 * patch**2 if patch_row is None else patch_row,
        gated=layer.gated,
        split_heads=heads if layer.split_attention else 0,
        odd_heads=odd_heads,
        weights=(*layer.weights(layers), *weights),
        buffer_bytes=buffer_bytes,
    )


def number(config: Mapping[str, Any], key: str, default: int) -> int:
    """Return ``config[key]``, or the class default where the file leaves it out."""
    found = config.get(key)
    return default if found is None else int(found)


def vision_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tower's part of ``config.json``."""
    found = thinker(config).get("vision_config")
    return found if isinstance(found, Mapping) else {}
