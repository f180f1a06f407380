"""Weight bytes per rank, part by part, with the engine's sharding rules (fact sheet 6.3 and 12.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vlm_operator.sizing.kept import kept
from vlm_operator.sizing.shape import ModelShape, Weight

EncoderMode = Literal["weights", "data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """One number for each part of a model.

    ``lm_head`` is 0 where it is tied to the embedding; ``mlp`` has the shared experts; ``other`` are short
    convolutions and per-layer projections.
    """

    embedding: int = 0
    lm_head: int = 0
    attention: int = 0
    mlp: int = 0
    experts: int = 0
    router: int = 0
    norms: int = 0
    other: int = 0
    audio: int = 0
    vision_tower: int = 0
    projector: int = 0

    @property
    def encoder(self) -> int:
        """Vision tower and projector."""
        return self.vision_tower + self.projector

    @property
    def parts_total(self) -> int:
        """All parts."""
        layers = self.attention + self.mlp + self.experts + self.router + self.norms + self.other
        return layers + self.embedding + self.lm_head + self.audio + self.encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsBreakdown(_Parts):
    """What one rank holds, in bytes."""

    buffers: int = 0

    @property
    def parameter_bytes(self) -> int:
        """Parameters alone, without the tables."""
        return self.parts_total

    @property
    def total(self) -> int:
        """Everything that loading the model takes."""
        return self.parts_total + self.buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount(_Parts):
    """Elements of an unsplit model as the engine builds it (vocabulary padded, unused tower layers dropped).

    ``visited_experts`` are those that one token multiplies with.
    """

    visited_experts: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.parts_total


@kept
def count_parameters(shape: ModelShape) -> ParameterCount:
    """Return the logical parameters of ``shape`` by part, whatever their storage."""
    parts = _sum(shape, lambda weight: weight.parameters)
    text = shape.text
    visited = parts.get("experts", 0) * text.experts_per_token // text.experts if text.experts else 0
    return ParameterCount(**parts, visited_experts=visited)


def count_stored_elements(shape: ModelShape) -> ParameterCount:
    """Return the elements of the tensors that hold ``shape``: packed integers, scales and zero points."""
    return ParameterCount(**_sum(shape, lambda weight: weight.measure(1, 2)[0]))


@kept
def weights_per_rank(
    shape: ModelShape,
    tensor_parallel_size: int,
    encoder_mode: EncoderMode = "weights",
    *,
    expert_parallel: bool = False,
) -> WeightsBreakdown:
    """Return the bytes that one of ``tensor_parallel_size`` ranks holds.

    ``data`` keeps the tower whole on each rank; a model that does not support it falls back to ``weights``.
    ``expert_parallel`` gives each rank whole experts instead of a slice of each.
    """
    size, element = tensor_parallel_size, shape.text.dtype_bytes
    whole = encoder_mode == "data" and shape.supports_encoder_data_parallel

    def measure(weight: Weight) -> int:
        ranks = _ranks(shape, weight, size, whole=whole)
        return weight.measure(ranks, element, expert_parallel=expert_parallel)[1]

    buffers = shape.text.rotary_elements * element + shape.vision.buffer_bytes
    return WeightsBreakdown(**_sum(shape, measure), buffers=buffers)


def _ranks(shape: ModelShape, weight: Weight, size: int, *, whole: bool) -> int:
    """Return over how many ranks ``weight`` is split."""
    if weight.part not in {"vision_tower", "projector"}:
        return size
    if whole:
        return size if weight.split_in_data_mode else 1
    vision = shape.vision
    if vision.heads % size and weight.part == "vision_tower":
        if vision.odd_heads == "replicate_tower":
            return 1
        if vision.odd_heads == "replicate_attention" and ".attn." in weight.name:
            return 1
    return size


def _sum(shape: ModelShape, measure: Callable[[Weight], int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for weight in (*shape.text.weights, *shape.vision.weights):
        found[weight.part] = found.get(weight.part, 0) + measure(weight)
    return found
