"""What ``vlmctl memory`` was asked and found, before it becomes a screen or a document."""

from collections.abc import Mapping
from dataclasses import dataclass

from vlm_operator.catalogue.types import MemoryCalibration, ModelCard
from vlm_operator.cli.token_mix import engine_flags
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import checked_shape
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.launch import Launched, LaunchedModel, LaunchFlags, LaunchRefusal, launch
from vlm_operator.sizing.memory import MemoryBreakdown, breakdown
from vlm_operator.sizing.shape import ShapeRefusal
from vlm_operator.sizing.tokens.types import ImageRule, TokenRefusal
from vlm_operator.sizing.tokens.video import bind_video_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The server that was asked about.

    Attributes:
        options: The options of the command line that were given, by name.
        gpus_per_node: None where no instance of the GPU is known.
    """

    options: Mapping[str, str]
    card: ModelCard
    model: LaunchedModel
    gpu: GpuKind
    gpus_per_node: int | None
    flags: LaunchFlags
    calibration: MemoryCalibration

    def launch(self) -> Launched | LaunchRefusal:
        """Return the server's memory, or the first rule that it breaks."""
        if self.gpu.mig_profile and self.flags.tensor_parallel_size > 1:
            message = f"{self.gpu.display_name}: MIG instances cannot reach each other; ask for --tp 1"
            return LaunchRefusal(reason="SeparateInstances", message=message)
        if self.gpus_per_node is not None and self.flags.tensor_parallel_size > self.gpus_per_node:
            message = (
                f"tensor parallel size {self.flags.tensor_parallel_size}: one node has at most "
                f"{self.gpus_per_node} × {self.gpu.display_name}; lower --tp"
            )
            return LaunchRefusal(reason="TooManyGPUs", message=message)
        return launch(self.model, self.gpu, self.flags, self.calibration)


def bind_model(card: ModelCard, rule: ImageRule, *, videos: bool) -> LaunchedModel:
    """Return the model with its counting rules; videos are counted under the settings of ``rule`` as well.

    Raises:
        InputError: The shape of the model, or its videos, cannot be counted.
    """
    checked = checked_shape(card)
    if isinstance(checked, ShapeRefusal):
        raise InputError([Problem(path="", message=f"{card.id}: {checked.message}")])
    video = bind_video_rule(card.architecture, card.config, card.processor, rule.settings, card.id) if videos else None
    if isinstance(video, TokenRefusal):
        raise InputError([Problem(path="", message=video.message)])
    return LaunchedModel(shape=checked.shape, config=card.config, rule=rule, video=video)


def worst_end(launched: Launched) -> MemoryBreakdown:
    """Return the whole GPU with every part at its pessimistic end."""
    end = launched.begun.pessimistic
    return breakdown(end, end, end.kv_available_bytes)


def spare_bytes(launched: Launched) -> int:
    """Return the KV cache at the pessimistic end beyond one request of the longest context."""
    return launched.begun.pessimistic.kv_available_bytes - launched.begun.cache.min_available_bytes


def serve_flags(launched: Launched, asked: Asked) -> str:
    """Return the flags of ``vllm serve`` with nothing left to its choice."""
    request, flags = launched.request, asked.flags
    words = [
        f"--tensor-parallel-size {request.tensor_parallel_size}",
        f"--mm-encoder-tp-mode {request.encoder_mode}",
        f"--max-model-len {request.max_model_len}",
        f"--max-num-seqs {request.max_num_seqs}",
        f"--max-num-batched-tokens {request.max_num_batched_tokens}",
        f"--gpu-memory-utilization {request.utilization_percent / 100:.2f}",
        "--dtype bfloat16",
        f"--kv-cache-dtype {flags.kv_cache_dtype}",
        f'--limit-mm-per-prompt \'{{"audio":0,"image":{flags.images_per_prompt},"video":{flags.videos_per_prompt}}}\'',
        engine_flags(asked.model.rule.settings),
    ]
    return " ".join(filter(None, words))
