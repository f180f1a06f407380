"""What the engine refuses to start: sharding, context length, GPU (fact sheet 6 and 12)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, Final, Literal

from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.kept import kept
from vlm_operator.sizing.shape import ModelShape, Scheme, Weight, find_text_config, rope, text_model_type

EncoderMode = Literal["weights", "data"]

BF16_CAPABILITY: Final = (8, 0)
"""The engine runs bfloat16 on compute capability 8.0 and above; every plan renders ``--dtype bfloat16``."""

FP4_BITS: Final = 4
SMALLEST_REFINED_BLOCK: Final = 32
"""FP8 blocks of experts are refined down to this size and no further (``fused_moe/oracle/fp8.py:294-395``)."""

NO_INT8_CAPABILITY: Final = (10, 0)
"""From here on the engine's INT8 matrix products are refused (``cutlass_scaled_mm`` of SM100 and SM120)."""

LENGTH_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Keys of the text part whose smallest value is the context length (``config/model.py:2545-2684``)."""

DEFAULT_LENGTH: Final = 2048

UNSCALED_ROPE: Final = frozenset(
    {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", "mrope"}
)
"""Rope types whose factor does not lengthen the context: max_position_embeddings holds it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: its short name and a message with the numbers."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRefusal:
    """Why there is no context length: a CamelCase reason and a message."""

    reason: str
    message: str


@kept
def check_tensor_parallel(
    shape: ModelShape,
    tensor_parallel_size: int,
    encoder_mode: EncoderMode = "weights",
    *,
    expert_parallel: bool = False,
) -> tuple[Violation, ...]:
    """Return every rule that ``tensor_parallel_size`` breaks; empty means that the engine builds the model.

    Heads: ``config/model.py:1557-1565``. KV heads: one number divides the other (``M/qwen2.py:140-148``). MLP,
    experts, and padded vocabulary: ``distributed/utils.py:51``. Linear attention divides its heads
    (``qwen_gdn_linear_attn.py``). Expert parallelism keeps experts whole, so their width is free. The tower is
    split unless ``data`` mode is asked for and supported; serving the language model alone waives nothing.
    """
    text, size = shape.text, tensor_parallel_size
    rules = [
        ("attention_heads", "attention heads", text.heads),
        ("mlp_intermediate", "MLP width", text.dense_intermediate),
        ("shared_expert", "shared expert width", text.shared_intermediate),
        ("vocab", "padded vocabulary", text.padded_vocab),
        *(("linear_attn_heads", "linear attention heads", heads) for heads in text.linear_heads),
    ]
    if not expert_parallel:
        widths = {weight.columns for weight in text.weights if weight.part == "experts" and weight.split == "columns"}
        rules += [("moe_intermediate", "expert width", width) for width in sorted(widths)]
    found = _check_divides(size, *rules)
    keyed = {weight.kv_heads for weight in text.weights if weight.split == "kv"}
    found += _check_key_heads(size, "kv_heads", "KV heads", keyed)
    found += _check_quantised(shape.text.weights, size, _method(shape), expert_parallel=expert_parallel)
    if not (encoder_mode == "data" and shape.supports_encoder_data_parallel):
        found += _check_tower(shape, size)
    return tuple(found)


def describe_legal_sizes(shape: ModelShape) -> str:
    """Return which powers of two up to 32 the engine can split ``shape`` over, in words that end a refusal."""
    sizes = [2**power for power in range(6)]
    weights = [size for size in sizes if not check_tensor_parallel(shape, size, "weights")]
    data = [size for size in sizes if size not in weights and not check_tensor_parallel(shape, size, "data")]
    words = f"powers of two that work: {', '.join(map(str, weights)) or 'none'}"
    return f"{words}; with encoder mode data also {', '.join(map(str, data))}" if data else words


def _check_key_heads(size: int, rule: str, noun: str, numbers: set[int]) -> list[Violation]:
    """Check that ranks share key heads evenly, or hold copies of them evenly."""
    return [
        Violation(rule=rule, message=f"neither of {heads} {noun} and tensor parallel size {size} divides the other")
        for heads in sorted(numbers)
        if max(heads, size) % min(heads, size)
    ]


def _method(shape: ModelShape) -> str:
    return shape.quantisation.method if shape.quantisation else ""


def _check_tower(shape: ModelShape, size: int) -> list[Violation]:
    vision = shape.vision
    odd = bool(vision.split_heads and vision.heads % size)
    if odd and vision.odd_heads == "replicate_tower":
        return []
    found = []
    if odd and vision.odd_heads == "refuse":
        found += _check_divides(size, ("vision_heads", "vision tower heads", vision.heads))
    heard = {weight.kv_heads for weight in vision.weights if weight.part == "audio" and weight.split == "kv"}
    found += _check_divides(size, *(("audio_heads", "audio encoder heads", heads) for heads in sorted(heard)))
    keyed = {weight.kv_heads for weight in vision.weights if weight.part == "vision_tower" and weight.split == "kv"}
    found += _check_key_heads(size, "vision_kv_heads", "key heads of the vision tower", keyed)
    matrices = [weight for weight in vision.weights if ".attn." not in weight.name]
    for part, rule, noun in (
        ("vision_tower", "vision_mlp", "vision tower MLP"),
        ("projector", "projector", "projector"),
    ):
        cut = {_cut_side(weight) for weight in matrices if weight.part == part and weight.split in {"rows", "columns"}}
        found += _check_divides(size, *((rule, f"{noun} width", side) for side in sorted(cut)))
    return found + _check_quantised(vision.weights, size, _method(shape))


def _cut_side(weight: Weight) -> int:
    return weight.rows if weight.split == "rows" else weight.columns


def _check_quantised(
    weights: tuple[Weight, ...], size: int, method: str, *, expert_parallel: bool = False
) -> list[Violation]:
    """Check that each rank's slice of a quantised matrix is whole groups or blocks.

    Groups run along the input (``auto_awq.py:818-824``); FP8 blocks also along the output of fused matrices
    (``fp8_utils.py:1318-1350``). Experts in FP8 blocks may be refined to smaller ones (fact sheet 12.3).
    """
    found: dict[str, Violation] = {}
    for weight in weights:
        if weight.scheme is None or (weight.part == "experts" and expert_parallel):
            continue
        violation = _check_slice(weight, weight.scheme, size, method)
        if violation is not None:
            found.setdefault(violation.rule, violation)
    return list(found.values())


def _check_slice(weight: Weight, scheme: Scheme, size: int, method: str) -> Violation | None:
    if weight.split == "kv":
        side = weight.columns * max(1, weight.kv_heads // size) // weight.kv_heads
        whole = True
    else:
        whole = _cut_side(weight) % size == 0
        side = _cut_side(weight) // size
    blocked = scheme.group_columns > 1
    group = scheme.group_rows if weight.split == "rows" else scheme.group_columns
    if scheme.bits == FP4_BITS and weight.part == "experts":
        return None  # The engine allocates whole groups and drops the rest.
    if weight.split == "whole" or group <= 1 or (whole and side % group == 0):
        return None
    if blocked and weight.split == "rows" and size == 1:
        return None
    hidden = weight.columns if weight.split == "rows" else weight.rows
    if blocked and weight.part == "experts" and whole and gcd(group, side, hidden) >= SMALLEST_REFINED_BLOCK:
        return None
    kind = "block" if blocked else "group"
    module = {"attention": "attn", "experts": "moe"}.get(weight.part, weight.part)
    number = f"{_cut_side(weight):,}/{size}" if weight.split != "kv" else f"{side:,}"
    message = (
        f"{weight.name.rsplit('.', 1)[-1]} of {number} per rank is no multiple of the quantisation {kind} of {group}"
    )
    return Violation(rule=f"{method}_{kind}_{module}", message=message)


def check_gpu(shape: ModelShape, gpu: GpuKind) -> tuple[Violation, ...]:
    """Return why ``gpu`` cannot run the model at all; empty means that it can."""
    if gpu.vendor.lower() != "nvidia":
        message = (
            f"{gpu.display_name} is no NVIDIA GPU; how the engine runs on others is not known: choose one of NVIDIA's"
        )
        return (Violation(rule="UnsupportedVendor", message=message),)
    capability = gpu.compute_capability
    if capability is None:
        message = (
            f"the compute capability of {gpu.display_name} is unknown; bfloat16 needs {_dotted(BF16_CAPABILITY)}: "
            "name the GPU by its catalogue id"
        )
        return (Violation(rule="UnknownCapability", message=message),)
    return check_capability(shape, capability, gpu.display_name)


def check_capability(shape: ModelShape, capability: tuple[int, int], name: str = "the GPU") -> tuple[Violation, ...]:
    """Return why a GPU of this compute capability cannot run the model's number formats.

    bfloat16 is what every plan serves plain weights in. Each method has its own minimum (``get_min_capability``);
    INT8 products have no kernel from 10.0 on. FP8 below 8.9 and FP4 below 10.0 are no violations where the
    method falls back to compressed weights alone (Marlin): see ``runs_natively``.
    """
    has = f"{name} has compute capability {_dotted(capability)}"
    newer = "choose a newer GPU (vlmctl catalogue gpus)"
    found = []
    if capability < BF16_CAPABILITY:
        message = (
            f"{has}; {shape.architecture} is served in bfloat16, which needs {_dotted(BF16_CAPABILITY)}, and whether "
            f"float16 holds its values is not known: {newer}"
        )
        found.append(Violation(rule="NoBF16", message=message))
    stored = shape.quantisation
    if stored is None:
        return tuple(found)
    if capability < stored.min_capability:
        needs = f"{stored.method} with {stored.scheme.bits}-bit weights needs {_dotted(stored.min_capability)}"
        message = f"{has}; {needs}: {newer}, or a checkpoint in another format"
        found.append(Violation(rule="QuantisationCapability", message=message))
    if stored.integer_activations and capability >= NO_INT8_CAPABILITY:
        message = f"{has}; INT8 products have no kernel from {_dotted(NO_INT8_CAPABILITY)} on: use an FP8 checkpoint"
        found.append(Violation(rule="NoINT8", message=message))
    return tuple(found)


def check_encoder_mode(shape: ModelShape, mode: EncoderMode) -> tuple[Violation, ...]:
    """Return why ``--mm-encoder-tp-mode`` does nothing: the engine warns and splits weights (fact sheet 6.2)."""
    if mode == "weights" or shape.supports_encoder_data_parallel:
        return ()
    message = (
        f"the engine cannot share out the images of {shape.architecture}; it splits the tower's weights: drop data"
    )
    return (Violation(rule="EncoderMode", message=message),)


def runs_natively(shape: ModelShape, capability: tuple[int, int]) -> bool:
    """Return whether products run in the checkpoint's own format; otherwise weights are widened before use."""
    return shape.quantisation is None or capability >= shape.quantisation.native_capability


def derive_max_model_len(
    config: Mapping[str, Any],
    requested: int | None = None,
    *,
    allow_longer: bool = False,
    disable_sliding_window: bool = False,
) -> int | LengthRefusal:
    """Return the context length that the engine derives from ``config.json``, or grants to ``requested``.

    The smallest length key of the text configuration, times the rope factor where that type scales; a
    ``model_max_length`` inside the text configuration replaces the result, also upwards (fact sheet 12.9).
    ``None`` and -1 ask for the derived length; for longrope models that is the original one. ``allow_longer``
    is ``VLLM_ALLOW_LONG_MAX_MODEL_LEN=1``; without sliding windows the window is the longest context.
    """
    text = find_text_config(config)
    limit = _limit(config, text)
    if disable_sliding_window and text.get("sliding_window"):
        limit = min(limit, int(text["sliding_window"]))
    if requested is None or requested == -1:
        original = rope(text).get("original_max_position_embeddings") or text.get("original_max_position_embeddings")
        return int(original) if _rope_type(text) in {"longrope", "su"} and original else limit
    if requested < 1:
        return LengthRefusal(reason="InvalidContext", message=f"max_model_len {requested} is below 1 token")
    if requested > limit and not allow_longer:
        message = f"max_model_len {requested:,} is above the {limit:,} tokens that the checkpoint allows"
        return LengthRefusal(reason="ContextTooLong", message=message)
    return requested


def _limit(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    if text.get("model_max_length"):
        return int(text["model_max_length"])
    limit = min((int(text[key]) for key in LENGTH_KEYS if text.get(key)), default=DEFAULT_LENGTH)
    kind = _rope_type(text)
    if kind in UNSCALED_ROPE or "gemma3" in text_model_type(config):
        return limit
    return int(limit * float(rope(text).get("factor", 1.0)))


def _rope_type(text: Mapping[str, Any]) -> str:
    parameters = rope(text)
    return str(parameters.get("rope_type") or parameters.get("type") or "default")


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _check_divides(size: int, *rules: tuple[str, str, int]) -> list[Violation]:
    return [
        Violation(rule=rule, message=f"{number:,} {noun} cannot be split over tensor parallel size {size}")
        for rule, noun, number in rules
        if number % size
    ]
