"""One server as somebody would launch it: flags -> refused as the engine refuses, or its memory at start-up.

In: a model with its counting rules, a GPU, and ``LaunchFlags``, where None stands for what the engine takes by itself.
Out: ``Launched``, or the first rule that is broken as a ``LaunchRefusal``. Called by ``vlmctl memory``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from vlm_operator.catalogue.types import MemoryCalibration
from vlm_operator.sizing.encoder_budget import (
    EncoderBudget,
    EncoderRefusal,
    encoder_items,
    encoder_tokens,
    profiled_modality,
)
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kv_cache import check_kv_cache, kv_layout
from vlm_operator.sizing.legality import (
    check_encoder_mode,
    check_gpu,
    check_tensor_parallel,
    derive_max_model_len,
    describe_legal_sizes,
)
from vlm_operator.sizing.memory import MemoryRequest
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.start_up import StartUp, start_up
from vlm_operator.sizing.tokens.types import ImageRule
from vlm_operator.sizing.tokens.video import VideoRule
from vlm_operator.sizing.weights import EncoderMode
from vlm_operator.units import GIB

Modality = Literal["image", "video"]

ENGINE_UTILIZATION_PERCENT: Final = 92
"""``--gpu-memory-utilization`` where it is not given (``config/cache.py:215``)."""

HUGE_GPU_BYTES: Final = 160 * GIB
LARGE_GPU_BYTES: Final = 70 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFlags:
    """Flags of one server. None is the engine's own choice, which depends on the GPU and the checkpoint."""

    tensor_parallel_size: int = 1
    encoder_mode: EncoderMode = "weights"
    utilization_percent: int = ENGINE_UTILIZATION_PERCENT
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    images_per_prompt: int = 1
    videos_per_prompt: int = 0
    kv_cache_dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedModel:
    """A checkpoint and its counting rules under the processor settings of the server.

    Attributes:
        video: None where videos are switched off.
    """

    shape: ModelShape
    config: Mapping[str, Any]
    rule: ImageRule
    video: VideoRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefusal:
    """Why the engine would not start with these flags: a CamelCase reason, and a message with numbers and next step."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The flags that the engine runs with, what it profiles its encoder with, and its memory.

    Attributes:
        begun: The memory; ``begun.misfit`` says why it does not start, None where it does.
    """

    budget: EncoderBudget
    modality: Modality
    begun: StartUp

    @property
    def request(self) -> MemoryRequest:
        """The flags with nothing left to the engine's choice."""
        return self.begun.request


def launch(
    model: LaunchedModel, gpu: GpuKind, flags: LaunchFlags, calibration: MemoryCalibration
) -> Launched | LaunchRefusal:
    """Return the memory of a server with ``flags``, or the first rule of the engine that they break."""
    illegal = _check_legal(model.shape, gpu, flags)
    if illegal is not None:
        return illegal
    length = derive_max_model_len(model.config, flags.max_model_len)
    if not isinstance(length, int):
        return LaunchRefusal(reason=length.reason, message=f"{length.message}; ask for less")
    profiled = _largest_item(model, length)
    limits = _resolve_limits(model, gpu, flags, length, profiled.tokens)
    if isinstance(limits, LaunchRefusal):
        return limits
    budget = _encoder_budget(model, flags, profiled, limits)
    if isinstance(budget, LaunchRefusal):
        return budget
    request = MemoryRequest(
        shape=model.shape,
        gpu=gpu,
        tensor_parallel_size=flags.tensor_parallel_size,
        encoder_mode=flags.encoder_mode,
        utilization_percent=flags.utilization_percent,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=length,
        dummy_patches=profiled.patches,
        engine_tokens=profiled.tokens,
        items=budget.items_per_batch,
    )
    refused = _check_cache(request, flags.kv_cache_dtype)
    if refused is not None:
        return refused
    begun = start_up(request, calibration, kv_cache_dtype=flags.kv_cache_dtype)
    return Launched(budget=budget, modality=profiled.modality, begun=begun)


def default_batch(gpu: GpuKind) -> tuple[int, int]:
    """Return (batched tokens, sequences) that ``vllm serve`` takes on ``gpu`` (``engine/arg_utils.py:2940-3039``)."""
    name = gpu.product.lower()
    if gpu.engine_memory_bytes >= HUGE_GPU_BYTES:
        return 16_384, 1024
    if gpu.engine_memory_bytes >= LARGE_GPU_BYTES and "a100" not in name and "gb10" not in name:
        return 8192, 1024
    return 2048, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """The dummy item that the engine profiles its encoder with."""

    modality: Modality
    tokens: int
    patches: int


def _largest_item(model: LaunchedModel, max_model_len: int) -> _Item:
    """Return the item of the modality that the engine profiles with."""
    most = model.rule.maximum()
    image = _Item(modality="image", tokens=most.engine_tokens, patches=most.dummy_patches)
    if model.video is None:
        return image
    tokens = model.video.maximum(max_model_len).engine_tokens
    if profiled_modality({"image": image.tokens, "video": tokens}) == "image":
        return image
    return _Item(modality="video", tokens=tokens, patches=tokens * model.video.shape.merge_size**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What the engine runs with, whether a flag says so or not."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int


def _resolve_limits(
    model: LaunchedModel, gpu: GpuKind, flags: LaunchFlags, max_model_len: int, item_tokens: int
) -> _Limits | LaunchRefusal:
    """Return the limits of the flags, the others as the engine chooses them."""
    tokens, sequences = default_batch(gpu)
    if model.shape.prefix_lm:
        tokens = max(tokens, item_tokens)
    if flags.max_num_seqs is not None:
        sequences = flags.max_num_seqs
    tokens = (
        min(tokens, sequences * max_model_len) if flags.max_num_batched_tokens is None else flags.max_num_batched_tokens
    )
    if flags.max_num_seqs is None:
        sequences = min(sequences, tokens)
    if tokens < sequences:
        message = f"{tokens:,} batched tokens are fewer than {sequences:,} sequences; lower --max-num-seqs"
        return LaunchRefusal(reason="BatchTooSmall", message=message)
    return _Limits(max_model_len=max_model_len, max_num_batched_tokens=tokens, max_num_seqs=sequences)


def _encoder_budget(
    model: LaunchedModel, flags: LaunchFlags, profiled: _Item, limits: _Limits
) -> EncoderBudget | LaunchRefusal:
    """Return the encoder's budget and its items of the profiled modality."""
    chunked = not model.shape.prefix_lm
    tokens = encoder_tokens({profiled.modality: profiled.tokens}, limits.max_num_batched_tokens, chunked=chunked)
    if isinstance(tokens, EncoderRefusal):
        return LaunchRefusal(reason=tokens.reason, message=tokens.message)
    return encoder_items(
        tokens,
        tokens_per_item=profiled.tokens,
        limit=flags.videos_per_prompt if profiled.modality == "video" else flags.images_per_prompt,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
    )


def _check_legal(shape: ModelShape, gpu: GpuKind, flags: LaunchFlags) -> LaunchRefusal | None:
    broken = check_gpu(shape, gpu) or check_encoder_mode(shape, flags.encoder_mode)
    if broken:
        return LaunchRefusal(reason=broken[0].rule, message=broken[0].message)
    broken = check_tensor_parallel(shape, flags.tensor_parallel_size, flags.encoder_mode)
    if not broken:
        return None
    what = "; ".join(violation.message for violation in broken)
    return LaunchRefusal(reason=broken[0].rule, message=f"{what}; {describe_legal_sizes(shape)}")


def _check_cache(request: MemoryRequest, dtype: str) -> LaunchRefusal | None:
    settings = request.kv_settings(dtype)
    refused = check_kv_cache(request.shape, settings)
    if refused is not None:
        return LaunchRefusal(reason=refused.reason, message=refused.message)
    batched, step = request.max_num_batched_tokens, kv_layout(request.shape, settings).least_step
    if batched >= step:
        return None
    message = f"{batched:,} batched tokens do not hold one block of {step:,}; raise --max-num-batched-tokens"
    return LaunchRefusal(reason="BatchTooSmall", message=message)
