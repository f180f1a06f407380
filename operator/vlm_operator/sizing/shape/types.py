"""Frozen types of a model's shape. Counts are parameters unless the name ends in ``_bytes``."""

from dataclasses import dataclass, field
from typing import Literal

from vlm_operator.sizing.shape.exclusions import Exclusions
from vlm_operator.sizing.shape.kv_layers import KVLayers
from vlm_operator.sizing.shape.weight import Scheme, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """How a quantised checkpoint stores its matrices.

    Attributes:
        format: The format of the weights, as ``quality.allowedQuantizations`` names it.
        plain: Modules that stay plain.
        min_capability: Below this compute capability the engine refuses the method.
        native_capability: From here on the method's own kernels run; below, weights alone are compressed.
        integer_activations: Whether matrices are multiplied in INT8, which capability 10.0 and above refuses.
        text_only: Whether towers stay plain whatever the list says: AWQ and GPTQ exports never touch them, and
            the engine builds them so (``M/qwen2_vl.py``, ``M/internvl.py``).
        kv_dtype: KV-cache type that the checkpoint asks for, None where it names none.
    """

    method: str
    format: str
    scheme: Scheme
    plain: Exclusions
    min_capability: tuple[int, int]
    native_capability: tuple[int, int]
    integer_activations: bool = False
    text_only: bool = False
    kv_dtype: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShape:
    """The language model.

    Attributes:
        intermediate: Width that one token passes through in an MLP: dense, or all experts that it visits.
        kv_layers: What the layers keep of a request, layers that are alike together.
        qkv_bias: Whether the query, key and value projections have biases (Qwen2).
        qk_norm: Whether queries and keys are normalised per head (Qwen3, Gemma-3).
        rotary_elements: Elements of all rotary tables: real memory on every rank.
        mrope: Whether the engine keeps three extra pinned positions a token (Qwen-VL).
        weights: Every matrix and table of the language model.
        latent_attention: Whether keys and values are cached as one latent (MLA): no rule for KV heads.
        dense_intermediate: Width of the dense MLP, 0 where no layer has one.
        expert_intermediate: Width of one routed expert, 0 without experts.
        shared_intermediate: Width of the shared expert, 0 without one.
        experts: Routed experts of a layer, of which each token visits ``experts_per_token``.
        linear_heads: Key and value heads of linear-attention layers, empty without such layers.
        per_layer_inputs: Elements that enter all layers beside the hidden state of one token (Gemma-3n, Gemma-4).
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
    kv_layers: tuple[KVLayers, ...]
    qkv_bias: bool
    qk_norm: bool
    rotary_elements: int
    mrope: bool
    dtype_bytes: int
    weights: tuple[Weight, ...] = field(repr=False)
    latent_attention: bool = False
    dense_intermediate: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    experts: int = 0
    experts_per_token: int = 0
    linear_heads: tuple[int, ...] = ()
    per_layer_inputs: int = 0

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
        split_heads: Heads that tensor parallelism must divide; 0 where the attention is on every rank.
        odd_heads: What the engine does with heads that do not divide: refuse, or keep the attention or the
            whole tower on every rank.
        weights: Every matrix and table of tower and projector.
        buffer_bytes: Tables that are no parameters (MiniCPM's position tables).
        wide_rotary: Whether queries and keys are rotated in float32 copies.
        passes: Products with each weight of the tower for one patch: 1, except where convolutions visit positions
            finer than the patches (Gemma-3n).
        window_layers: Layers whose patches attend within windows of ``window_patches`` only (Qwen2.5-VL).
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
    split_heads: int
    odd_heads: Literal["refuse", "replicate_attention", "replicate_tower"] = "refuse"
    weights: tuple[Weight, ...] = field(repr=False)
    buffer_bytes: int = 0
    wide_rotary: bool = False
    passes: float = 1.0
    window_layers: int = 0
    window_patches: int = 0

    @property
    def replicates_odd_heads(self) -> bool:
        """Whether heads that do not divide leave the attention on every rank instead of a refusal."""
        return self.odd_heads != "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A whole checkpoint.

    Attributes:
        prefix_lm: Image tokens attend to each other, so the engine takes an image whole in one step.
        deepstack_levels: Extra copies of an image's tokens that enter deeper layers (Qwen3-VL).
        supports_encoder_data_parallel: Whether ``--mm-encoder-tp-mode data`` works (fact sheet 6.2).
        dtype: Element type of the checkpoint's plain weights.
        quantisation: How the others are stored, None where all are plain.
    """

    architecture: str
    text: TextShape
    vision: VisionShape
    prefix_lm: bool
    deepstack_levels: int
    supports_encoder_data_parallel: bool
    dtype: str
    quantisation: Quantisation | None = None

    @property
    def format(self) -> str:
        """The format of the weights, as ``quality.allowedQuantizations`` names it; ``none`` where all are plain."""
        return self.quantisation.format if self.quantisation else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRefusal:
    """Why a checkpoint's shape cannot be read: a CamelCase reason and a message."""

    reason: str
    message: str
