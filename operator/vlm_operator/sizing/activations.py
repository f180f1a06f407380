"""The memory of one step of the engine's profile run, by phase (fact sheet 2.3).

The encoder runs its largest batch of dummy images, the language model one step of batched tokens, and the sampler one
row for each sequence; the largest of the three counts. What is alive is counted, in elements for one patch or token;
what the allocator cannot reuse comes as a calibrated ratio on top.
"""

from dataclasses import dataclass

from vlm_operator.sizing.memory_constants import MemoryConstants
from vlm_operator.sizing.shape import ModelShape, TextShape
from vlm_operator.sizing.weights import EncoderMode
from vlm_operator.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of a rank processes.

    Attributes:
        rows: Sequences that the sampler takes a row for.
        items: Images of the profiled batch, of ``patches`` patches and ``item_tokens`` tokens each.
    """

    shape: ModelShape
    tensor_parallel_size: int
    encoder_mode: EncoderMode
    tokens: int
    rows: int
    items: int
    patches: int
    item_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationPeaks:
    """The three phases of the engine's profile run, in bytes; the largest counts."""

    encoder: int
    language_model: int
    sampler: int

    @property
    def peak(self) -> int:
        """The largest phase."""
        return max(self.encoder, self.language_model, self.sampler)


def measure_activations(step: Step, constants: MemoryConstants) -> ActivationPeaks:
    """Return the bytes of each phase.

    The encoder's outputs stay while the language model runs, and so do its last hidden states and the workspaces of
    its experts while the sampler runs.
    """
    text, element = step.shape.text, step.shape.text.dtype_bytes
    outputs = _encoder_outputs(step)
    workspaces = step.tokens * _expert_workspaces(step.shape, step.tensor_parallel_size) * element
    row = constants.residual_copies * text.hidden + _layer_width(step.shape, step.tensor_parallel_size)
    rows = min(step.tokens, step.rows)
    return ActivationPeaks(
        encoder=measure_encoder(step, constants),
        language_model=int(constants.allocator_slack * step.tokens * row * element) + workspaces + outputs,
        sampler=int(constants.sampler_copies * rows * text.padded_vocab * 4)
        + step.tokens * text.hidden * element
        + workspaces
        + outputs,
    )


def measure_encoder(step: Step, constants: MemoryConstants) -> int:
    """Return the bytes of the encoder's phase alone."""
    return int(constants.allocator_slack * _encoder_bytes(step)) + _encoder_outputs(step)


def _encoder_outputs(step: Step) -> int:
    return step.items * step.item_tokens * step.shape.vision.out_width * step.shape.text.dtype_bytes


def _layer_width(shape: ModelShape, size: int) -> int:
    """Return the live elements of the widest part of a layer for one token, residuals and workspaces aside.

    A dense MLP holds gate and up projection and their product, and a copy of the product in the narrow type where
    activations are quantised. FP4 experts hold each routed token before and after it is put back in order.
    """
    text = shape.text
    dense = max(text.dense_intermediate, text.shared_intermediate) // size
    mlp = 3 * dense + (dense // 2 if _quantises_activations(shape) else 0)
    routed = 2 * text.experts_per_token * text.hidden if _has_fp4_experts(shape) else 0
    return max(mlp, routed, _attention_width(text, size))


def _expert_workspaces(shape: ModelShape, size: int) -> int:
    """Return the elements that the fused experts keep for one token.

    Two buffers for every expert that a token visits: the wider of the gate with the up projection and the output, and
    the wider of their product and the output. MXFP4 kernels keep none.
    """
    text = shape.text
    if not text.experts or _is_mxfp4(shape):
        return 0
    width = text.expert_intermediate // size or text.expert_intermediate
    return text.experts_per_token * (max(2 * width, text.hidden) + max(width, text.hidden))


def _is_mxfp4(shape: ModelShape) -> bool:
    return shape.quantisation is not None and shape.quantisation.method == "mxfp4"


def _has_fp4_experts(shape: ModelShape) -> bool:
    """Return whether experts are multiplied in FP4: two values share a byte."""
    scheme = shape.quantisation.scheme if shape.quantisation else None
    return scheme is not None and (scheme.bits, scheme.container_bits) == (4, 8) and not _is_mxfp4(shape)


def _quantises_activations(shape: ModelShape) -> bool:
    return shape.quantisation is not None and shape.quantisation.scheme.bits == 8


def _attention_width(text: TextShape, size: int) -> int:
    """Return the live elements of attention for one token: queries, keys, values and the output.

    Linear attention holds all its projections, their convolved copy and its output twice, normed and plain.
    """
    full = (2 * text.heads + 2 * max(text.kv_heads, size)) * text.head_dim // size
    if not text.linear_heads:
        return full
    projected = sum(w.columns for w in text.weights if "linear_attn" in w.name and w.rows == text.hidden)
    return max(full, 2 * projected // size)


def _encoder_bytes(step: Step) -> int:
    """Return the tower's live tensors: pixels, residuals, the wider of MLP and attention (fact sheet 2.3).

    The tower is not compiled: a gated MLP holds both projections, the activated gate and the product, a plain one its
    input projection and the activated copy. Attention holds the joint projection, rotated queries and keys, and its
    output; where it rotates in float32, contiguous copies and both sides of the rotation. Data mode deals whole images
    to ranks.
    """
    vision, size = step.shape.vision, step.tensor_parallel_size
    whole = step.encoder_mode == "data" and step.shape.supports_encoder_data_parallel
    items = ceil_div(step.items, size) if whole else step.items
    shards = 1 if whole else size
    mlp = (4 if vision.gated else 2) * vision.intermediate // shards
    uncut = not vision.split_heads or (vision.replicates_odd_heads and vision.heads % shards)
    attention_shards = 1 if uncut else shards
    attention = (16 if vision.wide_rotary else 6) * vision.hidden // attention_shards
    row = vision.patch_row + 2 * vision.hidden + max(mlp, attention)
    return items * step.patches * row * step.shape.text.dtype_bytes
