"""Which single change of the options makes a server start that does not: a setting, another layout, other GPUs."""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.catalogue.load import all_gpus
from vlm_operator.cli.memory_answer import Asked, bind_model, spare_bytes
from vlm_operator.sizing.inventory import kind_from_card
from vlm_operator.sizing.launch import ENGINE_UTILIZATION_PERCENT, Launched, LaunchRefusal
from vlm_operator.sizing.weights import EncoderMode

CONTEXT_STEP: Final = 256
SMALLER_BATCHES: Final = (8192, 4096, 2048)
FEWER_SEQUENCES: Final = (256, 128, 64, 32, 16, 8)
TENSOR_PARALLEL_SIZES: Final = (1, 2, 4, 8, 16)
KV_CACHE_DTYPES: Final = ("auto", "fp8")
ENCODER_MODES: Final[tuple[EncoderMode, ...]] = ("weights", "data")

Outcome = Launched | LaunchRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A single change of the options after which the server starts, and its KV cache then."""

    words: str
    options: Mapping[str, str]
    spare_bytes: int
    kv_cache_tokens: int


def find_changes(asked: Asked, outcome: Outcome) -> tuple[Change, ...]:
    """Return the single changes after which a server that does not start would: settings first, then other GPUs."""
    found = (
        _tighter_cap(asked),
        _no_videos(asked),
        _other_kv_type(asked),
        _other_utilization(asked, outcome),
        *_smaller_batches(asked, outcome),
        _shorter_context(asked, outcome),
        _other_encoder_mode(asked),
        _fewer_gpus(asked),
        _more_gpus(asked),
        _other_gpu(asked, outcome),
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


def _with_flags(asked: Asked, **flags: Any) -> Asked:
    return replace(asked, flags=replace(asked.flags, **flags))


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


def _no_videos(asked: Asked) -> Change | None:
    if not asked.flags.videos_per_prompt:
        return None
    without = _with_flags(replace(asked, model=replace(asked.model, video=None)), videos_per_prompt=0)
    return _with(without, "no videos", videos_per_request=0)


def _other_kv_type(asked: Asked) -> Change | None:
    now = asked.flags.kv_cache_dtype
    changes = (
        _with(_with_flags(asked, kv_cache_dtype=dtype), f"KV cache type {dtype}, not {now}", kv_cache_dtype=dtype)
        for dtype in KV_CACHE_DTYPES
        if dtype != now
    )
    return next(filter(None, changes), None)


def _other_utilization(asked: Asked, outcome: Outcome) -> Change | None:
    """Return the nearest share of the GPU that starts: smaller where too little was left outside, else larger."""
    if isinstance(outcome, Launched) and _lacks_room_beside(outcome):
        return _at_smaller_share(asked, "")
    larger = range(asked.flags.utilization_percent + 1, ENGINE_UTILIZATION_PERCENT + 1)
    return next(filter(None, (_at_share(asked, percent, "") for percent in larger)), None)


def _lacks_room_beside(launched: Launched) -> bool:
    return launched.begun.misfit is not None and launched.begun.misfit.reason == "OutsideBudget"


def _at_smaller_share(asked: Asked, words: str, **options: Any) -> Change | None:
    smaller = range(asked.flags.utilization_percent - 1, 0, -1)
    return next(filter(None, (_at_share(asked, percent, words, **options) for percent in smaller)), None)


def _at_share(asked: Asked, percent: int, words: str, **options: Any) -> Change | None:
    share, now = f"{percent / 100:.2f}", f"{asked.flags.utilization_percent / 100:.2f}"
    other = _with_flags(asked, utilization_percent=percent)
    return _with(other, f"{words}{share} of the GPU, not {now}", **options, utilization=share)


def _smaller_batches(asked: Asked, outcome: Outcome) -> Iterator[Change | None]:
    """Yield the largest smaller step, and the most sequences, with which the server starts."""
    flags = asked.flags
    tokens, sequences = flags.max_num_batched_tokens, flags.max_num_seqs
    if isinstance(outcome, Launched):
        tokens, sequences = outcome.request.max_num_batched_tokens, outcome.request.max_num_seqs
    for name, noun, now, values in (
        ("max_num_batched_tokens", "batched tokens", tokens, SMALLER_BATCHES),
        ("max_num_seqs", "sequences", sequences, FEWER_SEQUENCES),
    ):
        tries = (
            _with(_with_flags(asked, **{name: value}), f"{value:,} {noun}, not {now:,}", **{name: value})
            for value in values
            if now is not None and value < now
        )
        yield next(filter(None, tries), None)


def _shorter_context(asked: Asked, outcome: Outcome) -> Change | None:
    length = outcome.request.max_model_len if isinstance(outcome, Launched) else asked.flags.max_model_len
    if length is None:
        return None

    def cut(value: int) -> Asked:
        return _with_flags(asked, max_model_len=value)

    value = _loosest(range(CONTEXT_STEP, length, CONTEXT_STEP), cut)
    if value is None:
        return None
    return _with(cut(value), f"context length {value:,}, not {length:,}", max_model_len=value)


def _other_encoder_mode(asked: Asked) -> Change | None:
    now = asked.flags.encoder_mode
    (other,) = (mode for mode in ENCODER_MODES if mode != now)
    return _with(_with_flags(asked, encoder_mode=other), f"encoder mode {other}, not {now}", encoder_mode=other)


def _fewer_gpus(asked: Asked) -> Change | None:
    """Return the largest smaller number of GPUs that starts: one that the engine can split the model over."""
    sizes = [size for size in reversed(TENSOR_PARALLEL_SIZES) if size < asked.flags.tensor_parallel_size]
    return next(filter(None, (_at_size(asked, size) for size in sizes)), None)


def _more_gpus(asked: Asked) -> Change | None:
    sizes = [size for size in TENSOR_PARALLEL_SIZES if size > asked.flags.tensor_parallel_size]
    return next(filter(None, (_at_size(asked, size) for size in sizes)), None)


def _at_size(asked: Asked, size: int) -> Change | None:
    """Return the change to so many GPUs, with the tower's images shared out where its weights cannot be."""
    now = asked.flags
    words = f"{size} × {asked.gpu.display_name}, not {now.tensor_parallel_size}"
    modes = dict.fromkeys((now.encoder_mode, *ENCODER_MODES))
    for mode in modes:
        options: dict[str, Any] = {"tp": size} | ({} if mode == now.encoder_mode else {"encoder_mode": mode})
        other = _with_flags(asked, tensor_parallel_size=size, encoder_mode=mode)
        launched = other.launch()
        if isinstance(launched, Launched) and _lacks_room_beside(launched):
            change = _at_smaller_share(other, f"{words}, ", **options)
        else:
            change = _with(other, words, **options)
        if change is not None:
            return change
    return None


def _other_gpu(asked: Asked, outcome: Outcome) -> Change | None:
    """Return the GPU with the least memory on which as many of them start the server; a larger one where it is full."""
    cards = [card for card in all_gpus() if card.engine_memory_gib is not None]
    kinds = [(kind_from_card(card), card.max_gpus_per_node) for card in cards]
    full = isinstance(outcome, Launched)
    for kind, most in sorted(kinds, key=lambda pair: (pair[0].engine_memory_bytes, pair[0].id)):
        if kind.id == asked.gpu.id or (full and kind.engine_memory_bytes <= asked.gpu.engine_memory_bytes):
            continue
        change = _with(
            replace(asked, gpu=kind, gpus_per_node=most),
            f"{asked.flags.tensor_parallel_size} × {kind.display_name}, not {asked.gpu.display_name}",
            gpu=kind.id,
        )
        if change is not None:
            return change
    return None
