"""What the layers of a language model keep of a request: keys and values, one latent, or a state of fixed size."""

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal[
    "FullAttentionSpec", "RSWASpec", "MLAAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec"
]
"""Kinds under the names that the engine gives them (``v1/kv_cache_interface.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayers:
    """Layers that keep something of every token, alike in all that counts.

    Attributes:
        layers: How many of them hold keys of their own; layers that read another's keys are not among them.
        kv_heads: Heads of the whole model; a latent is one head that every rank holds.
        key_dim: Width of one key, or of the latent with its rotary part.
        value_dim: Width of one value, 0 for a latent.
        reach: Tokens that a window or chunk looks back, 0 for everything.
    """

    kind: AttentionKind
    layers: int
    kv_heads: int
    key_dim: int
    value_dim: int
    reach: int = 0

    def heads_on(self, size: int) -> int:
        """Return the heads on each of ``size`` ranks; beyond their number they are copied (fact sheet 3.1)."""
        return max(1, self.kv_heads // size)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayers:
    """Layers that keep a state whose size does not depend on the request's length, alike in all that counts.

    Attributes:
        kernel: Which kernels run them: their prefill may need coarser blocks.
        head_dim: Width of one key of a gated delta net, else 0.
        conv_rows: Tokens that the convolution remembers.
        conv_columns: Channels of the convolution, which ranks split.
        group_columns: Channels of one group beside them (Mamba-2's B and C).
        groups: Such groups.
        recurrent: Elements of the recurrent state, which ranks split.
        recurrent_bytes: Bytes of one of them, 0 where they are of the model's type.
    """

    kernel: Literal["gated_delta_net", "mamba2", "short_conv"]
    layers: int
    conv_rows: int
    conv_columns: int
    head_dim: int = 0
    group_columns: int = 0
    groups: int = 0
    recurrent: int = 0
    recurrent_bytes: int = 0

    def bytes_on(self, size: int, element: int) -> int:
        """Return the bytes of one layer's state on each of ``size`` ranks (``layers/mamba/mamba_utils.py:272-293``).

        Groups that do not divide are copied until there is one for every rank.
        """
        groups = self.groups if self.groups % size == 0 else max(self.groups, size)
        columns = (self.conv_columns + self.group_columns * groups) // size
        return self.conv_rows * columns * element + self.recurrent // size * (self.recurrent_bytes or element)


KVLayers = AttentionLayers | StateLayers
