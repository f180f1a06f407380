"""Frozen types of a model's shape. Counts are parameters unless the name ends in ``_bytes``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShape:
    """The language model.

    Attributes:
        window_layers: Layers with sliding-window attention; the others attend to everything.
        window: Tokens of the window, 0 where no layer has one.
        qkv_bias: Whether the query, key and value projections have biases (Qwen2).
        qk_norm: Whether queries and keys are normalised per head (Qwen3, Gemma-3).
        norms_per_layer: RMS norms of the hidden width in one layer: 2, or 4 in Gemma-3.
        rotary_tables: Rows of each rotary table (cos and sin of one head): real memory on every rank.
        mrope: Whether the engine keeps three extra pinned positions a token (Qwen-VL).
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    max_positions: int
    window_layers: int
    window: int
    qkv_bias: bool
    qk_norm: bool
    norms_per_layer: int
    rotary_tables: tuple[int, ...]
    mrope: bool
    dtype_bytes: int

    @property
    def full_layers(self) -> int:
        """Layers that attend to everything."""
        return self.layers - self.window_layers

    @property
    def padded_vocab(self) -> int:
        """The vocabulary as the engine pads it, a multiple of 64."""
        return -(-self.vocab // 64) * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """The vision tower and the projector behind it.

    Attributes:
        merge: Patches along one side that become one token (1 where tokens are made otherwise).
        out_width: Width of one image token as the encoder cache holds it, deepstack levels included.
        patch_row: Elements of one patch as the tower takes it.
        gated: Whether the tower's MLP has a gate (its intermediate is computed twice).
        replicates_odd_heads: InternViT: heads that do not divide replicate the attention instead of failing.
        attention: Attention parameters of all layers that tensor parallelism splits.
        mlp: MLP parameters of all layers that tensor parallelism splits.
        other: Parameters of the tower on every rank: embeddings, norms, row biases.
        projector_split: Projector parameters that tensor parallelism splits.
        projector_other: Projector parameters on every rank.
        buffer_bytes: Tables that are no parameters (MiniCPM's position tables).
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    patch_size: int
    merge: int
    out_width: int
    patch_row: int
    gated: bool
    replicates_odd_heads: bool = False
    attention: int
    mlp: int
    other: int
    projector_split: int
    projector_other: int
    buffer_bytes: int = 0

    @property
    def parameters(self) -> int:
        """Parameters of the tower without the projector."""
        return self.attention + self.mlp + self.other

    @property
    def projector(self) -> int:
        """Parameters between the tower and the language model."""
        return self.projector_split + self.projector_other


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A whole checkpoint.

    Attributes:
        prefix_lm: Image tokens attend to each other, so the engine takes an image whole in one step.
        deepstack_levels: Extra copies of an image's tokens that enter deeper layers (Qwen3-VL).
        supports_encoder_data_parallel: Whether ``--mm-encoder-tp-mode data`` works (fact sheet 6.2).
        dtype: Element type of the checkpoint's weights.
    """

    architecture: str
    text: TextShape
    vision: VisionShape
    prefix_lm: bool
    deepstack_levels: int
    supports_encoder_data_parallel: bool
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRefusal:
    """Why a checkpoint's shape cannot be read: a CamelCase reason and a message."""

    reason: str
    message: str
