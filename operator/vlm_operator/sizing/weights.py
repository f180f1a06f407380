"""Weight bytes per rank, part by part, with the engine's sharding rules (fact sheet 6.3 and 12.1)."""

from dataclasses import dataclass
from typing import Literal

from vlm_operator.sizing.shape import ModelShape, TextShape, VisionShape

EncoderMode = Literal["weights", "data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsBreakdown:
    """What one rank holds, in bytes. ``lm_head`` is 0 where it is tied to the embedding."""

    embedding: int
    lm_head: int
    attention: int
    mlp: int
    norms: int
    vision_tower: int
    projector: int
    buffers: int

    @property
    def parameter_bytes(self) -> int:
        """Parameters alone, without the tables."""
        return self.total - self.buffers

    @property
    def decoder_bytes(self) -> int:
        """What a decode step reads: the language model without its input embedding, which is a look-up."""
        head = self.lm_head or self.embedding
        return self.attention + self.mlp + self.norms + head

    @property
    def total(self) -> int:
        """Everything that loading the model takes."""
        parts = (self.embedding, self.lm_head, self.attention, self.mlp, self.norms)
        return sum(parts) + self.vision_tower + self.projector + self.buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters as the engine builds them on one rank (vocabulary padded, unused tower layers dropped)."""

    embedding: int
    lm_head: int
    attention: int
    mlp: int
    norms: int
    vision_tower: int
    projector: int

    @property
    def decoder(self) -> int:
        """Parameters that multiply each token of the language model."""
        return self.attention + self.mlp + self.norms + (self.lm_head or self.embedding)

    @property
    def encoder(self) -> int:
        """Parameters of the vision tower and projector."""
        return self.vision_tower + self.projector

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.lm_head + self.attention + self.mlp + self.norms + self.encoder


def count_parameters(shape: ModelShape) -> ParameterCount:
    """Return the parameters of ``shape`` by part."""
    text = shape.text
    embedding = text.padded_vocab * text.hidden
    return ParameterCount(
        embedding=embedding,
        lm_head=0 if text.tied else embedding,
        attention=_attention(text, 1),
        mlp=3 * text.layers * text.hidden * text.intermediate,
        norms=_norms(text),
        vision_tower=shape.vision.parameters,
        projector=shape.vision.projector,
    )


def weights_per_rank(
    shape: ModelShape, tensor_parallel_size: int, encoder_mode: EncoderMode = "weights"
) -> WeightsBreakdown:
    """Return the bytes that one of ``tensor_parallel_size`` ranks holds.

    ``data`` keeps the tower whole on each rank; a model that does not support it falls back to ``weights``.
    """
    text, vision, size = shape.text, shape.vision, tensor_parallel_size
    element = text.dtype_bytes
    whole = encoder_mode == "data" and shape.supports_encoder_data_parallel
    tower_size = 1 if whole else size
    embedding = text.padded_vocab * text.hidden // size
    return WeightsBreakdown(
        embedding=embedding * element,
        lm_head=0 if text.tied else embedding * element,
        attention=_attention(text, size) * element,
        mlp=3 * text.layers * text.hidden * text.intermediate // size * element,
        norms=_norms(text) * element,
        vision_tower=_tower(vision, tower_size) * element,
        projector=(vision.projector_split // tower_size + vision.projector_other) * element,
        buffers=sum(text.rotary_tables) * text.head_dim * element + vision.buffer_bytes,
    )


def _attention(text: TextShape, size: int) -> int:
    """Return the attention parameters of one rank; KV heads are replicated above their number."""
    queries = text.heads * text.head_dim // size
    keys = 2 * max(1, text.kv_heads // size) * text.head_dim
    biases = queries + keys if text.qkv_bias else 0
    return text.layers * (text.hidden * (2 * queries + keys) + biases)


def _norms(text: TextShape) -> int:
    per_layer = text.norms_per_layer * text.hidden + (2 * text.head_dim if text.qk_norm else 0)
    return text.layers * per_layer + text.hidden


def _tower(vision: VisionShape, size: int) -> int:
    split_attention = not vision.replicates_odd_heads or vision.heads % size == 0
    attention = vision.attention // size if split_attention else vision.attention
    return attention + vision.mlp // size + vision.other
