"""What one token, one sequence and one patch ask of a rank: elements multiplied, bytes read, elements touched.

In: the shape of a model and how it is laid out. Out: ``DecoderWork`` and ``TowerWork``, which ``step.py`` turns into
seconds. Sharding follows ``weights.py``; nothing here depends on the speed of a GPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from vlm_operator.sizing.kept import kept
from vlm_operator.sizing.shape import ModelShape, Quantisation, TextShape, Weight
from vlm_operator.sizing.shape.kv_layers import AttentionLayers, StateLayers

NumberFormat = Literal["bf16", "fp8", "int8", "fp4", "w8", "w4"]
"""What matrices are multiplied in; ``w8`` and ``w4`` are stored small and multiplied in BF16."""

Capability = tuple[int, int]

RESIDUAL_PASSES: Final = 8
"""Times that a layer reads or writes a row of the hidden width beside its matrices: two fused norms with residual, each
reading two rows and writing two (vLLM ``layers/layernorm.py``)."""
INNER_PASSES: Final = 3
"""The same for a row of the MLP's width (gate and up in, their product out) and of queries, keys and values."""
_LATENT: Final = 320
"""Multiplications per head, query and key of latent attention while it prefills: keys of 128 + 64, values of 128
(DeepSeek-V2, ``M/deepseek_v2.py``)."""
_DECODER_PARTS: Final = frozenset({"attention", "mlp", "router", "other"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Matrices of one rank in one format: ``elements`` that each row is multiplied with, ``bytes`` read for it."""

    format: NumberFormat
    elements: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """Layers that attend alike: multiplications per query and key, KV bytes per token, both of one layer on one rank.

    ``layers`` is a number of layers; ones that read another layer's keys are added in proportion. ``reach`` is the
    window, 0 for everything.
    """

    layers: float
    reach: int
    elements: float
    kv_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWork:
    """The language model on one rank.

    Attributes:
        dense: Matrices that every token passes; those that ranks hold whole are not divided.
        experts: All routed experts of all layers, of which a token visits ``expert_share``.
        head: The output projection, applied to sampled tokens only.
        attention: Layers with softmax attention, alike ones together.
        state_bytes: Recurrent state of one sequence over all layers, read and written by each decode step.
        touched_bytes: Bytes that elementwise kernels read and write per token over all layers.
        row_bytes: One row of the hidden width, which an all-reduce carries for each token.
    """

    ranks: int
    layers: int
    dense: tuple[Matrices, ...]
    experts: tuple[Matrices, ...]
    expert_share: float
    head: Matrices
    attention: tuple[AttentionWork, ...]
    state_bytes: float
    touched_bytes: float
    row_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerWork:
    """The vision tower and projector on one rank; ``matrices`` are per patch.

    Attributes:
        split_ranks: Ranks that share one image (1 where each takes whole images).
        image_ranks: Ranks that share the images of a step (1 where they share each image).
        attention_elements: Multiplications per pair of patches of one layer.
        full_layers: Layers whose patches all attend to each other; the others see ``window`` patches.
    """

    split_ranks: int
    image_ranks: int
    layers: int
    matrices: tuple[Matrices, ...]
    attention_elements: float
    head_dim: int
    full_layers: int
    window: int
    touched_bytes: float
    row_bytes: float


@kept
def decoder_work(
    text: TextShape,
    ranks: int,
    capability: Capability,
    quantisation: Quantisation | None = None,
    kv_dtype: str = "auto",
) -> DecoderWork:
    """Return the work of the language model on one of ``ranks`` ranks of a GPU of this compute capability."""
    weights = [weight for weight in text.weights if weight.part in _DECODER_PARTS and weight.rows > 1]
    experts = [weight for weight in text.weights if weight.part == "experts"]
    head = [weight for weight in text.weights if weight.part == ("embedding" if text.tied else "lm_head")]
    inner = sum(len(weight.layers) * _columns(weight, ranks) for weight in weights if weight.name.find("down") < 0)
    visited = text.experts_per_token * sum(len(w.layers) * _columns(w, ranks) for w in experts) / 2 if experts else 0.0
    return DecoderWork(
        ranks=ranks,
        layers=text.layers,
        dense=_matrices(weights, text, ranks, capability, quantisation),
        experts=_matrices(experts, text, ranks, capability, quantisation),
        expert_share=text.experts_per_token / text.experts if text.experts else 0.0,
        head=_matrices(head, text, ranks, capability, quantisation)[0],
        attention=_attention(text, ranks, kv_dtype),
        state_bytes=2 * sum(kept.layers * kept.bytes_on(ranks, text.dtype_bytes) for kept in _states(text)),
        touched_bytes=text.dtype_bytes
        * (RESIDUAL_PASSES * text.hidden * text.layers + INNER_PASSES / 2 * (inner + visited)),
        row_bytes=text.dtype_bytes * text.hidden,
    )


@kept
def tower_work(shape: ModelShape, ranks: int, capability: Capability, *, whole_images: bool) -> TowerWork:
    """Return the work of the vision tower; ``whole_images`` deals images to ranks (``--mm-encoder-tp-mode data``)."""
    vision, element = shape.vision, shape.text.dtype_bytes
    split = 1 if whole_images or vision.heads % ranks else ranks
    weights = [w for w in vision.weights if w.part in {"vision_tower", "projector"} and w.rows > 1]
    width = vision.intermediate * (2 if vision.gated else 1)
    return TowerWork(
        split_ranks=split,
        image_ranks=ranks if whole_images else 1,
        layers=vision.layers,
        matrices=_tower_matrices(weights, shape, split, capability),
        attention_elements=2 * vision.hidden / split,
        head_dim=vision.hidden // max(vision.heads, 1),
        full_layers=vision.layers - vision.window_layers,
        window=vision.window_patches,
        touched_bytes=element
        * vision.layers
        * (RESIDUAL_PASSES * vision.hidden + INNER_PASSES * (width + 3 * vision.hidden) / split),
        row_bytes=element * vision.hidden,
    )


def format_of(weight: Weight, capability: Capability, quantisation: Quantisation | None) -> NumberFormat:
    """Return what ``weight`` is multiplied in on a GPU of this compute capability."""
    if weight.scheme is None or quantisation is None:
        return "bf16"
    native = capability >= quantisation.native_capability
    if weight.scheme.bits == 8:
        if quantisation.integer_activations:
            return "int8"
        return "fp8" if native else "w8"
    return "fp4" if native and weight.scheme.container_bits == 8 else "w4"


def _matrices(
    weights: Iterable[Weight], text: TextShape, ranks: int, capability: Capability, quantisation: Quantisation | None
) -> tuple[Matrices, ...]:
    """Return the sums by format."""
    found: dict[NumberFormat, list[float]] = {}
    for weight in weights:
        sums = found.setdefault(format_of(weight, capability, quantisation), [0.0, 0.0])
        sums[0] += weight.parameters * _share(weight, ranks)
        sums[1] += weight.measure(ranks, text.dtype_bytes)[1]
    return tuple(Matrices(format=name, elements=sums[0], bytes=sums[1]) for name, sums in found.items())


def _tower_matrices(
    weights: Iterable[Weight], shape: ModelShape, ranks: int, capability: Capability
) -> tuple[Matrices, ...]:
    """Return the sums by format, per patch: what works on merged patches counts for its part of a patch."""
    merged = shape.vision.merge**2
    found: dict[NumberFormat, list[float]] = {}
    for weight in weights:
        sums = found.setdefault(format_of(weight, capability, shape.quantisation), [0.0, 0.0])
        part = 1 / merged if weight.part == "projector" else shape.vision.passes
        sums[0] += weight.parameters * _share(weight, ranks) * part
        sums[1] += weight.measure(ranks, shape.text.dtype_bytes)[1]
    return tuple(Matrices(format=name, elements=sums[0], bytes=sums[1]) for name, sums in found.items())


def _share(weight: Weight, ranks: int) -> float:
    """Return the part of ``weight`` that one rank multiplies with."""
    if weight.split == "kv":
        return max(1, weight.kv_heads // ranks) / weight.kv_heads
    return 1.0 if weight.split == "whole" else 1 / ranks


def _columns(weight: Weight, ranks: int) -> float:
    """Return the width that ``weight`` produces on one rank."""
    return 0.0 if weight.split == "rows" else weight.columns * _share(weight, ranks)


def _states(text: TextShape) -> Iterable[StateLayers]:
    return (kept for kept in text.kv_layers if isinstance(kept, StateLayers))


def _attention(text: TextShape, ranks: int, dtype: str) -> tuple[AttentionWork, ...]:
    kept = [layers for layers in text.kv_layers if isinstance(layers, AttentionLayers)]
    attending = sum(len(weight.layers) for weight in text.weights if weight.name.endswith("self_attn.o_proj"))
    readers = max(1.0, attending / max(sum(layers.layers for layers in kept), 1))
    element = 1 if dtype.startswith("fp8") else text.dtype_bytes
    return tuple(
        AttentionWork(
            layers=layers.layers * readers,
            reach=layers.reach,
            elements=max(1.0, text.heads / ranks)
            * (layers.key_dim + layers.value_dim if layers.value_dim else _LATENT),
            kv_bytes=layers.heads_on(ranks) * (layers.key_dim + layers.value_dim) * element,
        )
        for layers in kept
    )
