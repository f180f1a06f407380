"""What ``vlmctl memory`` found, before it becomes a screen or a document, and what would start where it does not."""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.catalogue.load import all_gpus
from vlm_operator.catalogue.types import MemoryCalibration, ModelCard
from vlm_operator.cli.token_mix import engine_flags
from vlm_operator.errors import InputError, Problem
from vlm_operator.planning import checked_shape
from vlm_operator.sizing.inventory import GpuKind, kind_from_card
from vlm_operator.sizing.launch import (
    ENGINE_UTILIZATION_PERCENT,
    Launched,
    LaunchedModel,
    LaunchFlags,
    LaunchRefusal,
    launch,
)
from vlm_operator.sizing.memory import MemoryBreakdown, breakdown
from vlm_operator.sizing.shape import ShapeRefusal
from vlm_operator.sizing.tokens.types import ImageRule, TokenRefusal
from vlm_operator.sizing.tokens.video import bind_video_rule

CONTEXT_STEP = 256
SMALLER_BATCHES = (8192, 4096, 2048)
FEWER_SEQUENCES = (256, 128, 64, 32, 16, 8)
TENSOR_PARALLEL_SIZES = (2, 4, 8, 16)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A single change of the options after which the server starts, and its KV cache then."""

    words: str
    options: Mapping[str, str]
    spare_bytes: int
    kv_cache_tokens: int


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
        f"--kv-cache-dtype {flags.kv_cache_dtype}",
        f'--limit-mm-per-prompt \'{{"audio":0,"image":{flags.images_per_prompt},"video":{flags.videos_per_prompt}}}\'',
        engine_flags(asked.model.rule.settings),
    ]
    return " ".join(filter(None, words))


def find_changes(asked: Asked, launched: Launched) -> tuple[Change, ...]:
    """Return the single changes after which a server that does not start would: settings first, then more GPU."""
    found = (
        _tighter_cap(asked),
        _no_videos(asked),
        _other_utilization(asked, launched),
        *_first_that_starts(asked, launched),
        _shorter_context(asked, launched),
        _more_gpus(asked),
        _larger_gpu(asked),
    )
    return tuple(change for change in found if change is not None)


def _loosest(values: Sequence[int], change: Callable[[int], Asked]) -> int | None:
    """Return the largest of ``values``, ascending, with which the server starts: memory grows with each of them."""
    # False for every value that starts, True from the first that does not.
    too_loose = bisect_left(values, True, key=lambda value: _starts(change(value)) is None)  # noqa: FBT003
    return values[too_loose - 1] if too_loose else None


def _starts(asked: Asked) -> Launched | None:
    """Return the server where it starts."""
    launched = asked.launch()
    return launched if isinstance(launched, Launched) and launched.begun.misfit is None else None


def _with(asked: Asked, words: str, **options: Any) -> Change | None:
    """Return the change to ``options``, named as attributes of the arguments, where ``asked`` starts with it."""
    launched = _starts(asked)
    if launched is None:
        return None
    named = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items()}
    return Change(
        words=words,
        options=named,
        spare_bytes=spare_bytes(launched),
        kv_cache_tokens=launched.begun.cache.tokens,
    )


def _shorter_context(asked: Asked, launched: Launched) -> Change | None:
    length = launched.request.max_model_len
    shorter = range(CONTEXT_STEP, length, CONTEXT_STEP)

    def cut(value: int) -> Asked:
        return replace(asked, flags=replace(asked.flags, max_model_len=value))

    value = _loosest(shorter, cut)
    if value is None:
        return None
    return _with(cut(value), f"context length {value:,}, not {length:,}", max_model_len=value)


def _tighter_cap(asked: Asked) -> Change | None:
    """Return the loosest cap with which the server starts; memory falls with the cap wherever a cap is monotone."""
    rule = asked.model.rule
    cap = rule.cap
    if cap is None or not cap.tighter or not cap.monotone:
        return None

    def capped(value: int) -> Asked:
        return replace(asked, model=bind_model(asked.card, rule.with_cap(value), videos=asked.model.video is not None))

    value = _loosest(cap.tighter, capped)
    if value is None:
        return None
    if isinstance(value, bool):  # a switch has no number to ask for
        settings = rule.with_cap(value).settings
        given = {"processor_kwargs": settings.mm_processor_kwargs, "hf_overrides": settings.hf_overrides}
        options = {name: json.dumps(value) for name, value in given.items() if value}
        return _with(capped(value), f"{cap.name} {str(value).lower()}", **options)
    return _with(capped(value), f"{cap.name} {value:,}, not {cap.value:,}", cap=value)


def _first_that_starts(asked: Asked, launched: Launched) -> Iterator[Change | None]:
    flags, request = asked.flags, launched.request
    tokens, sequences = request.max_num_batched_tokens, request.max_num_seqs
    smaller = (
        _with(
            replace(asked, flags=replace(flags, max_num_batched_tokens=value)),
            f"{value:,} batched tokens, not {tokens:,}",
            max_num_batched_tokens=value,
        )
        for value in SMALLER_BATCHES
        if sequences <= value < tokens
    )
    fewer = (
        _with(
            replace(asked, flags=replace(flags, max_num_seqs=value)),
            f"{value:,} sequences, not {sequences:,}",
            max_num_seqs=value,
        )
        for value in FEWER_SEQUENCES
        if value < sequences
    )
    for tries in (smaller, fewer):
        yield next((change for change in tries if change is not None), None)


def _other_utilization(asked: Asked, launched: Launched) -> Change | None:
    """Return the nearest share of the GPU that starts: smaller where too little was left outside, else larger."""
    now = asked.flags.utilization_percent
    if _lacks_room_beside(launched):
        return _at_smaller_share(asked, "")
    larger = (_at_share(asked, percent, "") for percent in range(now + 1, ENGINE_UTILIZATION_PERCENT + 1))
    return next(filter(None, larger), None)


def _with_room_beside(asked: Asked, words: str, **options: Any) -> Change | None:
    """Return the change, with a smaller share of the GPU where the engine's budget leaves too little beside it."""
    launched = asked.launch()
    if isinstance(launched, Launched) and _lacks_room_beside(launched):
        return _at_smaller_share(asked, f"{words}, ", **options)
    return _with(asked, words, **options)


def _lacks_room_beside(launched: Launched) -> bool:
    return launched.begun.misfit is not None and launched.begun.misfit.reason == "OutsideBudget"


def _at_smaller_share(asked: Asked, words: str, **options: Any) -> Change | None:
    smaller = range(asked.flags.utilization_percent - 1, 0, -1)
    return next(filter(None, (_at_share(asked, percent, words, **options) for percent in smaller)), None)


def _at_share(asked: Asked, percent: int, words: str, **options: Any) -> Change | None:
    share, now = f"{percent / 100:.2f}", f"{asked.flags.utilization_percent / 100:.2f}"
    other = replace(asked, flags=replace(asked.flags, utilization_percent=percent))
    return _with(other, f"{words}{share} of the GPU, not {now}", **options, utilization=share)


def _no_videos(asked: Asked) -> Change | None:
    if not asked.flags.videos_per_prompt:
        return None
    without = replace(asked, model=replace(asked.model, video=None), flags=replace(asked.flags, videos_per_prompt=0))
    return _with(without, "no videos", videos_per_request=0)


def _more_gpus(asked: Asked) -> Change | None:
    flags = asked.flags
    for size in TENSOR_PARALLEL_SIZES:
        if size <= flags.tensor_parallel_size:
            continue
        for mode in (flags.encoder_mode, "data"):
            larger = replace(asked, flags=replace(flags, tensor_parallel_size=size, encoder_mode=mode))
            words = f"{size} × {asked.gpu.display_name}, not {flags.tensor_parallel_size}"
            change = _with_room_beside(
                larger, words, **{"tp": size} | ({} if mode == flags.encoder_mode else {"encoder_mode": mode})
            )
            if change is not None:
                return change
    return None


def _larger_gpu(asked: Asked) -> Change | None:
    """Return the GPU with the least memory on which as many of them start the server."""
    cards = [card for card in all_gpus() if card.vendor == asked.gpu.vendor and card.engine_memory_gib is not None]
    kinds = [(kind_from_card(card), card.max_gpus_per_node) for card in cards]
    for kind, most in sorted(kinds, key=lambda pair: (pair[0].engine_memory_bytes, pair[0].id)):
        if kind.engine_memory_bytes <= asked.gpu.engine_memory_bytes:
            continue
        count = asked.flags.tensor_parallel_size
        change = _with(
            replace(asked, gpu=kind, gpus_per_node=most),
            f"{count} × {kind.display_name}, not {asked.gpu.display_name}",
            gpu=kind.id,
        )
        if change is not None:
            return change
    return None
