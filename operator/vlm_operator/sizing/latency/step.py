"""Seconds of one engine step: what it reads, multiplies, attends to and exchanges, and what the host adds.

``StepModel`` is what the traffic simulation and the closed formulas share. All times are seconds on one replica.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from vlm_operator.catalogue.types import LatencyCalibration
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kept import kept_for_two
from vlm_operator.sizing.latency.speed import GpuSpeed, Pass, gpu_speed
from vlm_operator.sizing.latency.work import (
    AttentionWork,
    DecoderWork,
    NumberFormat,
    TowerWork,
    decoder_work,
    tower_work,
)
from vlm_operator.sizing.shape import ModelShape, Quantisation, TextShape

MOST_BATCHES: Final = 20_000
"""Batch sizes whose seconds are kept; an hour of traffic asks for some thousands, again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The vision tower in seconds."""

    matrices: tuple[Pass, ...]
    fixed: float
    per_patch: float
    per_pair: float
    window: int
    full_share: float
    image_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Layers that attend alike: prefill per pair and per token, decode per token of context."""

    reach: int
    pair: float
    token: float
    kv_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """The costs of a replica.

    Attributes:
        dense, experts, head: Matrices of the language model.
        fixed: What any step takes beside its work: kernels of all layers, all-reduces, host.
        per_token: Elementwise kernels and all-reduces.
        per_sequence: Host work for each sequence of a step.
        prefill_fixed: What a step with prefill adds.
        attention: Softmax attention, whole reach first.
        state: Recurrent states of one sequence.
        patch_pixels: Pixels of one patch of the tower.
    """

    speed: GpuSpeed
    work: DecoderWork
    dense: tuple[Pass, ...]
    experts: tuple[Pass, ...]
    head: Pass
    fixed: float
    per_token: float
    per_sequence: float
    prefill_fixed: float
    attention: tuple[Attention, ...]
    state: float
    tower: Tower | None
    patch_pixels: int = 0
    _batches: dict[tuple[int, int], float] = field(default_factory=dict, repr=False, compare=False)

    def batch(self, tokens: int, sampled: int) -> float:
        """A step over ``tokens`` tokens of which ``sampled`` need logits, without attention."""
        key = (tokens, sampled)
        found = self._batches.get(key)
        if found is None:
            if len(self._batches) >= MOST_BATCHES:
                self._batches.clear()
            found = self._batches[key] = self._batch(tokens, sampled)
        return found

    def _batch(self, tokens: int, sampled: int) -> float:
        seconds = sum(matrices.seconds(tokens) for matrices in self.dense)
        if self.experts:
            seconds += self._routed(tokens)
        seconds += self.head.seconds(max(sampled, 1))
        return seconds + self.fixed + tokens * self.per_token + sampled * self.per_sequence

    def _routed(self, tokens: int) -> float:
        """Experts: those that at least one token visits are read; each token is multiplied with its own.

        A token visits a given expert with the probability ``expert_share``, independently of the others.
        """
        share = self.work.expert_share
        visited = 1 - (1 - share) ** tokens
        return sum(every.part(visited, share).seconds(tokens) for every in self.experts)

    def prefill_attention(self, tokens: int, context: int) -> float:
        """Attention of a chunk of ``tokens`` behind ``context`` computed ones."""
        seen = context + (tokens + 1) / 2
        seconds = 0.0
        for layers in self.attention:
            seconds += layers.pair * (min(seen, layers.reach) if layers.reach else seen) + layers.token
        return seconds * tokens

    def prefill_overhead(self) -> float:
        """What a step with any prefill takes beside its work."""
        return self.prefill_fixed

    def decode_attention(self, sequences: float, context: float) -> float:
        """Attention of one decode step over ``sequences`` with ``context`` tokens in all."""
        seconds = sequences * self.state
        for layers in self.attention:
            reach = layers.reach * sequences
            seconds += layers.kv_token * (reach if layers.reach and reach < context else context)
        return seconds

    def encode(self, patches: int, pairs: int, images: int) -> float:
        """The vision tower over ``images`` of ``patches`` in all; ``pairs`` sums patches times those they attend to."""
        tower = self.tower
        if tower is None or not patches:
            return 0.0
        share = -(-images // tower.image_ranks) / images  # of the rank with the most images
        seconds = tower.fixed + patches * share * tower.per_patch + pairs * share * tower.per_pair * tower.full_share
        if tower.window:
            span = min(tower.window, pairs / patches)
            seconds += patches * share * span * tower.per_pair * (1 - tower.full_share)
        return seconds + sum(matrices.seconds(patches * share) for matrices in tower.matrices)

    def preprocess(self, megapixels: float, patches: float) -> float:
        """Preparing one image on one core: what was sent is decoded and resized, what is kept is cut into patches."""
        figures = self.speed.calibration
        kept = patches * self.patch_pixels / 1e6
        sent = megapixels * figures.preprocess_megapixel.value
        return figures.preprocess_image.value + sent + kept * figures.preprocess_kept_megapixel.value

    def request(self) -> float:
        """The front end: HTTP, chat template, tokenizer, hand-over to the engine."""
        return self.speed.calibration.front_end.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model lies on its GPUs."""

    gpu: GpuKind
    ranks: int = 1
    kv_dtype: str = "auto"
    whole_images: bool = False


def step_model(shape: ModelShape, layout: Layout, calibration: LatencyCalibration) -> StepModel:
    """Return the costs of one replica of ``shape``."""
    return _step_model(shape, calibration, layout)


@kept_for_two
def _step_model(shape: ModelShape, calibration: LatencyCalibration, layout: Layout) -> StepModel:
    speed = gpu_speed(layout.gpu, calibration)
    tower = tower_work(shape, layout.ranks, _capability(layout.gpu), whole_images=layout.whole_images)
    model = _model(shape.text, shape.quantisation, layout, speed, _tower(tower, speed))
    return replace(model, patch_pixels=shape.vision.patch_size**2)


def decoder_model(
    text: TextShape, quantisation: Quantisation | None, layout: Layout, calibration: LatencyCalibration
) -> StepModel:
    """Return the costs of a language model alone."""
    return _model(text, quantisation, layout, gpu_speed(layout.gpu, calibration), None)


def _capability(gpu: GpuKind) -> tuple[int, int]:
    return gpu.compute_capability or (0, 0)


def _model(
    text: TextShape, quantisation: Quantisation | None, layout: Layout, speed: GpuSpeed, tower: Tower | None
) -> StepModel:
    work = decoder_work(text, layout.ranks, _capability(layout.gpu), quantisation, layout.kv_dtype)
    wait, per_row = speed.all_reduce(work.ranks, work.row_bytes)
    expert_share = speed.calibration.expert_share.value
    return StepModel(
        speed=speed,
        work=work,
        dense=tuple(speed.matrices(matrices) for matrices in work.dense),
        experts=tuple(speed.matrices(matrices).slowed(expert_share) for matrices in work.experts),
        head=speed.matrices(work.head),
        fixed=speed.calibration.host_step.value
        + work.layers * (speed.layer_fixed(_main_format(work), layout.kv_dtype) + 2 * wait),
        per_token=speed.touch(work.touched_bytes) + 2 * work.layers * per_row,
        per_sequence=speed.engine.host_sequence.value,
        prefill_fixed=speed.prefill_step(work.ranks),
        attention=tuple(_attention(layers, speed, layout.kv_dtype) for layers in work.attention),
        state=speed.touch(work.state_bytes),
        tower=tower,
    )


def _main_format(work: DecoderWork) -> NumberFormat:
    """Return the format of most elements that a token is multiplied with."""
    return max(work.dense, key=lambda matrices: matrices.elements).format


def _attention(work: AttentionWork, speed: GpuSpeed, dtype: str) -> Attention:
    pair, token = speed.attend(work.elements)
    return Attention(
        reach=work.reach,
        pair=pair * work.layers,
        token=token * work.layers,
        kv_token=speed.read_kv(work.kv_bytes, dtype) * work.layers,
    )


def _tower(work: TowerWork, speed: GpuSpeed) -> Tower:
    wait, per_row = speed.all_reduce(work.split_ranks, work.row_bytes)
    pair, patch = speed.attend_patches(work.attention_elements, work.head_dim)
    return Tower(
        matrices=tuple(speed.matrices(matrices) for matrices in work.matrices),
        fixed=work.layers * (speed.layer_fixed("bf16", "auto") + 2 * wait),
        per_patch=speed.touch(work.touched_bytes) + work.layers * (2 * per_row + patch),
        per_pair=pair * work.layers,
        window=work.window,
        full_share=work.full_layers / work.layers if work.layers else 1.0,
        image_ranks=work.image_ranks,
    )
