"""What the engine makes of a parsed command line: the settings it runs with, or why it would not start.

Covers the checks that need no GPU and no weights: bounds of every flag, values of open choices, limits per modality,
context length, batch limits by GPU, dtype, quantization and tensor parallelism (fact sheet 1, 6 and 12; the engine's
``EngineArgs.create_engine_config``). What the engine refuses later, while it builds the model, is the business of
``sizing.legality``.
"""

import difflib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.catalogue.types import EngineCard, EngineFlag, ModelCard
from vlm_operator.engine.command_line import MODEL
from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.launch import default_batch
from vlm_operator.sizing.legality import LengthRefusal, derive_max_model_len
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.tokens.reading import merge

DEFAULT_LIMIT: Final = 999
"""Items of a modality that no limit names."""
MODALITIES: Final = ("image", "video", "audio")
_LIMIT_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "image": frozenset({"count", "width", "height"}),
    "video": frozenset({"count", "num_frames", "width", "height"}),
    "audio": frozenset({"count", "length"}),
}
_COMPARE: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}
_FROM_ZERO: Final = {"sse_keep_alive_interval": 2**31 - 1, "seed": 2**32 - 1}
"""Numbers without bounds of their own that the server (``cli_args.py:559``) or NumPy's generator refuses below zero."""
_QUANTIZATIONS: Final = {"awq": "auto_awq", "awq_marlin": "auto_awq", "gptq": "auto_gptq", "gptq_marlin": "auto_gptq"}
"""Names that the engine turns into its own."""
_NO_FLOAT16: Final = ("gemma2", "gemma3", "glm4")
"""Model types that the engine refuses in float16, for their numbers overflow (``config/model.py:2398``)."""
_DTYPES: Final = {"half": "float16", "float": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The settings that the engine runs with, defaults included. Lengths and limits in tokens or items."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    block_size: int
    dtype: str
    quantization: str | None
    tensor_parallel_size: int
    limits: Mapping[str, int]
    mm_processor_kwargs: Mapping[str, Any] | None
    mm_encoder_tp_mode: str
    mm_processor_cache_gb: float
    disable_chunked_mm_input: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRefusal:
    """Why the engine would not start: the flag's value, the limit and what would do."""

    message: str


class _Refused(Exception):  # noqa: N818 - an outcome inside this module
    pass


def resolve_config(
    values: Mapping[str, Any], engine: EngineCard, card: ModelCard, shape: ModelShape, gpu: GpuKind
) -> EngineConfig | ConfigRefusal:
    """Return what the engine makes of ``values`` (from ``parse_command_line``) for one model on one GPU kind."""
    broken = next(check_settings(values, engine), None)
    if broken is not None:
        return ConfigRefusal(message=broken[1])
    try:
        _check_together(values, card)
        return _resolve(values, card, shape, gpu, {flag.dest: flag.default for flag in engine.flags})
    except _Refused as refused:
        return ConfigRefusal(message=str(refused))


def check_settings(values: Mapping[str, Any], engine: EngineCard) -> Iterator[tuple[str, str]]:
    """Yield the dest and the reason of each setting that no model and no GPU would make the engine take."""
    for flag in engine.flags:
        message = _refuse_value(flag, values[flag.dest]) if values.get(flag.dest) is not None else ""
        if message:
            yield flag.dest, message
    if values.get("enable_auto_tool_choice") and not values.get("tool_call_parser"):
        yield "enable_auto_tool_choice", "--enable-auto-tool-choice needs --tool-call-parser"
    if values.get("enable_log_outputs") and not values.get("enable_log_requests"):
        yield "enable_log_outputs", "--enable-log-outputs needs --enable-log-requests"
    for dest, most in _FROM_ZERO.items():
        number = values.get(dest)
        if number is not None and not 0 <= number <= most:
            yield dest, f"--{dest.replace('_', '-')} is {number}, but must be from 0 to {most:,}"


def _refuse_value(flag: EngineFlag, value: Any) -> str:
    name = flag.names[0]
    if flag.known_values and value not in flag.known_values:
        near = difflib.get_close_matches(str(value), flag.known_values, n=1)
        question = f"; did you mean {near[0]}?" if near else ""
        return f"{name} is {value!r}, but must be one of {', '.join(flag.known_values)}{question}"
    if flag.kind == "json" and not _has_form(value, flag.default):
        form = "a list of texts" if isinstance(flag.default, list) else "an object"
        return f"{name} is {json.dumps(value)}, but must be {form} in JSON"
    for bound, limit in flag.bounds.items():
        compare, words = _COMPARE[bound]
        if isinstance(value, list):
            continue
        try:
            holds = compare(float(value), limit)
        except (TypeError, ValueError):
            holds = False
        if not holds:
            return f"{name} is {value}, but must be {words} {limit:g}"
    return ""


def _has_form(value: Any, default: Any) -> bool:
    """Return whether a JSON value is what its setting holds: a list of texts as the default is, else an object."""
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, dict)


def _check_together(values: Mapping[str, Any], card: ModelCard) -> None:
    """Refuse combinations that the engine refuses whatever the GPU."""
    if values[MODEL] is None:
        raise _Refused("no model is named; a flag that takes a list swallows a model that follows it: put it first")
    if values.get("mm_processor_device") == "cuda":
        raise _Refused("--mm-processor-device cuda is for servers of the encoder alone; leave it at auto")
    if not _experts(card.config):
        if values.get("enable_expert_parallel"):
            raise _Refused(f"--enable-expert-parallel needs a model with experts, and {card.id} has none")
        if values.get("data_parallel_rank") is not None:
            raise _Refused(
                f"--data-parallel-rank is for models with experts, and {card.id} has none; run more replicas instead"
            )


def _experts(config: Mapping[str, Any]) -> bool:
    parts = [config, *(config[key] for key in ("text_config", "llm_config", "language_config") if config.get(key))]
    keys = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return any(part.get(key) for part in parts for key in keys)


def _resolve(
    values: Mapping[str, Any], card: ModelCard, shape: ModelShape, gpu: GpuKind, defaults: Mapping[str, Any]
) -> EngineConfig:
    def value(dest: str) -> Any:
        given = values.get(dest)
        return defaults[dest] if given is None else given

    config = merge(card.config, value("hf_overrides") if isinstance(value("hf_overrides"), dict) else {})
    length = derive_max_model_len(config, values.get("max_model_len"))
    if isinstance(length, LengthRefusal):
        raise _Refused(length.message)
    size = value("tensor_parallel_size")
    if shape.text.heads % size:
        raise _Refused(f"{shape.text.heads} attention heads cannot be split over --tensor-parallel-size {size}")
    tokens, seqs = _batch_limits(values, gpu, length)
    data_mode = value("mm_encoder_tp_mode") == "data" and shape.supports_encoder_data_parallel
    return EngineConfig(
        max_model_len=length,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        gpu_memory_utilization=value("gpu_memory_utilization"),
        kv_cache_dtype=value("kv_cache_dtype"),
        block_size=value("block_size") or 16,
        dtype=_dtype(value("dtype"), card, gpu),
        quantization=_quantization(values.get("quantization"), config),
        tensor_parallel_size=size,
        limits=_limits(values.get("limit_mm_per_prompt")),
        mm_processor_kwargs=values.get("mm_processor_kwargs"),
        mm_encoder_tp_mode="data" if data_mode else "weights",
        mm_processor_cache_gb=float(value("mm_processor_cache_gb")),
        disable_chunked_mm_input=bool(values.get("disable_chunked_mm_input")) or shape.prefix_lm,
    )


def _batch_limits(values: Mapping[str, Any], gpu: GpuKind, length: int) -> tuple[int, int]:
    """Return batched tokens and sequences; what is not given follows the GPU (``engine/arg_utils.py:2940-3039``)."""
    chunked = values.get("enable_chunked_prefill") is not False
    tokens, seqs = default_batch(gpu)
    if not chunked:
        tokens = max(length, tokens)
    given_tokens, given_seqs = values.get("max_num_batched_tokens"), values.get("max_num_seqs")
    seqs = given_seqs if given_seqs is not None else seqs
    tokens = given_tokens if given_tokens is not None else min(tokens, seqs * length)
    if given_seqs is None:
        seqs = min(seqs, tokens)
    if tokens < length and not chunked:
        raise _Refused(
            f"--max-num-batched-tokens {tokens:,} is below the context of {length:,} tokens, which without chunked "
            "prefill has to fit into one step; raise it or lower --max-model-len"
        )
    if tokens < seqs:
        raise _Refused(f"--max-num-batched-tokens {tokens:,} is below --max-num-seqs {seqs:,}; raise it")
    return tokens, seqs


def _dtype(asked: str, card: ModelCard, gpu: GpuKind) -> str:
    text = next((card.config[key] for key in ("text_config", "llm_config") if card.config.get(key)), card.config)
    kinds = f"{card.config.get('model_type', '')} {text.get('model_type', '')}"
    dtype = _DTYPES.get(asked, asked)
    if dtype == "auto":
        stored = str(
            card.config.get("torch_dtype") or card.config.get("dtype") or text.get("torch_dtype") or "bfloat16"
        )
        dtype = "float16" if stored == "float16" or (gpu.compute_capability or (8, 0)) < (8, 0) else "bfloat16"
    if dtype == "float16" and any(kind in kinds.split() for kind in _NO_FLOAT16):
        raise _Refused(f"--dtype float16 overflows in {card.id}; use bfloat16, which needs compute capability 8.0")
    return dtype


def _quantization(asked: str | None, config: Mapping[str, Any]) -> str | None:
    stored = config.get("quantization_config") or {}
    name = asked or stored.get("quant_method")
    return None if name is None else _QUANTIZATIONS.get(name, name)


def _limits(given: Any) -> dict[str, int]:
    """Return the limit of each modality; a name that the engine does not know is ignored by it."""
    if given is not None and not isinstance(given, dict):
        raise _Refused(f'--limit-mm-per-prompt is {given!r}, but must be an object such as {{"image": 4, "video": 0}}')
    counts = dict(_limit(modality, entry) for modality, entry in (given or {}).items())
    return {modality: counts.get(modality, DEFAULT_LIMIT) for modality in MODALITIES}


def _limit(modality: str, entry: Any) -> tuple[str, int]:
    count = entry
    if isinstance(entry, dict):
        count = entry.get("count", DEFAULT_LIMIT)
        strange = sorted(set(entry) - _LIMIT_OPTIONS.get(modality, set(entry)))
        if strange:
            raise _Refused(f"--limit-mm-per-prompt: {modality} has no option {strange[0]}; drop it")
    if isinstance(count, str) and count.isdecimal():
        count = int(count)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise _Refused(f"--limit-mm-per-prompt: {modality} is {count!r}, but must be a whole number from 0")
    return modality, count
