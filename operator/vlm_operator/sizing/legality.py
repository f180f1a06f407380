"""What the engine refuses to start: sharding, context length, GPU (fact sheet 6 and 12)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from vlm_operator.sizing.inventory import GpuKind
from vlm_operator.sizing.shape import ModelShape, find_text_config
from vlm_operator.sizing.shape.text import rope, text_model_type

EncoderMode = Literal["weights", "data"]

BF16_CAPABILITY: Final = (8, 0)
"""The engine runs bfloat16 on compute capability 8.0 and above; every plan renders ``--dtype bfloat16``."""

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


def check_tensor_parallel(
    shape: ModelShape, tensor_parallel_size: int, encoder_mode: EncoderMode = "weights"
) -> tuple[Violation, ...]:
    """Return every rule that ``tensor_parallel_size`` breaks; empty means that the engine builds the model.

    Heads: ``config/model.py:1557-1565``. KV heads: one number divides the other (``M/qwen2.py:140-148``). MLP
    and padded vocabulary: ``distributed/utils.py:51``. Tower: split unless ``data`` mode is asked for and
    supported.
    """
    text, size = shape.text, tensor_parallel_size
    found = _check_divides(
        size,
        ("attention_heads", "attention heads", text.heads),
        ("mlp_intermediate", "MLP width", text.intermediate),
        ("vocab", "padded vocabulary", text.padded_vocab),
    )
    few, many = sorted((text.kv_heads, size))
    if many % few:
        message = f"neither of {text.kv_heads} KV heads and tensor parallel size {size} divides the other"
        found.append(Violation(rule="kv_heads", message=message))
    if encoder_mode == "data" and shape.supports_encoder_data_parallel:
        return tuple(found)
    if not shape.vision.replicates_odd_heads:
        found += _check_divides(size, ("vision_heads", "vision tower heads", shape.vision.heads))
    found += _check_divides(size, ("vision_mlp", "vision tower MLP width", shape.vision.intermediate))
    return tuple(found)


def check_gpu(shape: ModelShape, gpu: GpuKind) -> tuple[Violation, ...]:
    """Return why ``gpu`` cannot run the model at all; empty means that it can."""
    if gpu.vendor.lower() != "nvidia":
        message = f"{gpu.display_name} is no NVIDIA GPU; only NVIDIA GPUs can be sized"
        return (Violation(rule="UnsupportedVendor", message=message),)
    capability = gpu.compute_capability
    if capability is None:
        message = f"the compute capability of {gpu.display_name} is unknown; bfloat16 needs 8.0"
        return (Violation(rule="UnknownCapability", message=message),)
    if capability < BF16_CAPABILITY:
        message = (
            f"{gpu.display_name} has compute capability {capability[0]}.{capability[1]}; "
            f"{shape.architecture} is served in bfloat16, which needs 8.0"
        )
        return (Violation(rule="NoBF16", message=message),)
    return ()


def derive_max_model_len(config: Mapping[str, Any], requested: int | None = None) -> int | LengthRefusal:
    """Return the context length that the engine derives from ``config.json``, or grants to ``requested``.

    The smallest length key of the text configuration, times the rope factor where that type scales; a
    ``model_max_length`` inside the text configuration replaces the result, also upwards (fact sheet 12.9).
    ``None`` and -1 ask for the derived length; for longrope models that is the original one.
    """
    text = find_text_config(config)
    limit = _limit(config, text)
    if requested is None or requested == -1:
        original = rope(text).get("original_max_position_embeddings") or text.get("original_max_position_embeddings")
        return int(original) if _rope_type(text) in {"longrope", "su"} and original else limit
    if requested < 1:
        return LengthRefusal(reason="InvalidContext", message=f"max_model_len {requested} is below 1 token")
    if requested > limit:
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


def _check_divides(size: int, *rules: tuple[str, str, int]) -> list[Violation]:
    return [
        Violation(rule=rule, message=f"{number:,} {noun} cannot be split over tensor parallel size {size}")
        for rule, noun, number in rules
        if number % size
    ]
