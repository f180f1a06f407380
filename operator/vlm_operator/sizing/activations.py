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
    """Return the bytes of each phase; the encoder's outputs stay while the language model runs."""
    text = step.shape.text
    outputs = step.items * step.item_tokens * step.shape.vision.out_width * text.dtype_bytes
    row = constants.residual_copies * text.hidden + max(
        _mlp_width(text, step.tensor_parallel_size), _attention_width(text, step.tensor_parallel_size)
    )
    language = int(constants.allocator_slack * step.tokens * row * text.dtype_bytes)
    return ActivationPeaks(
        encoder=int(constants.allocator_slack * _encoder_bytes(step)) + outputs,
        language_model=language + outputs,
        sampler=int(constants.sampler_copies * min(step.tokens, step.rows) * text.padded_vocab * 4),
    )


def _mlp_width(text: TextShape, size: int) -> int:
    """Return the live elements of the widest MLP for one token.

    A dense MLP holds gate and up projection and their product. Fused experts hold, for each expert that a token
    visits, the wider of gate and up projection and the expert's output, and the product between them.
    """
    dense = 3 * text.dense_intermediate // size
    if not text.experts:
        return dense
    width = text.expert_intermediate // size or text.expert_intermediate
    routed = text.experts_per_token * (max(2 * width, text.hidden) + width)
    return max(dense, routed + 3 * text.shared_intermediate // size)


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

    The MLP holds its input projection (twice as wide with a gate) and the activated copy; attention holds the
    joint projection, rotated queries and keys, and its output. Data mode deals whole images to ranks.
    """
    vision, size = step.shape.vision, step.tensor_parallel_size
    whole = step.encoder_mode == "data" and step.shape.supports_encoder_data_parallel
    items = ceil_div(step.items, size) if whole else step.items
    shards = 1 if whole else size
    mlp = (3 if vision.gated else 2) * vision.intermediate // shards
    uncut = not vision.split_heads or (vision.replicates_odd_heads and vision.heads % shards)
    attention_shards = 1 if uncut else shards
    attention = 6 * vision.hidden // attention_shards
    row = vision.patch_row + 2 * vision.hidden + max(mlp, attention)
    return items * step.patches * row * step.shape.text.dtype_bytes
