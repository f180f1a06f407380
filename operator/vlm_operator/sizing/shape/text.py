"""The language model's sizes, with the class defaults that sparse ``config.json`` files leave out."""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sizing.shape.types import TextShape

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "mistral": {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096},
    "gemma3_text": {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "sliding_window_pattern": 6,
    },
    "qwen2": {"max_position_embeddings": 32768},
    "qwen3": {"max_position_embeddings": 32768, "head_dim": 128},
    "qwen3_vl_text": {"max_position_embeddings": 128000, "head_dim": 128},
    "internlm2": {"max_position_embeddings": 2048},
}
"""Defaults of the transformers configuration classes (transformers 5.20), for keys that checkpoints omit."""

_BIASED: Final = frozenset({"qwen2", "qwen2_vl", "qwen2_5_vl"})
_NORMED: Final = frozenset({"qwen3", "qwen3_vl_text", "gemma3_text"})


def find_text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of ``config`` with its class defaults filled in."""
    inner = config.get("text_config") or config.get("llm_config") or config
    model_type = text_model_type(config)
    return {
        **DEFAULTS.get(model_type, {}),
        **{k: v for k, v in inner.items() if v is not None or k == "sliding_window"},
    }


def text_model_type(config: Mapping[str, Any]) -> str:
    """Return the model type of the language model; MiniCPM-V names the whole, its version tells the part."""
    inner = config.get("text_config") or config.get("llm_config") or config
    model_type = str(inner.get("model_type") or config.get("model_type") or "")
    if model_type == "minicpmv":
        return "qwen3" if str(config.get("version")) == "4.5" else "qwen2"
    return {"gemma3": "gemma3_text", "qwen3_vl": "qwen3_vl_text"}.get(model_type, model_type)


def read_text(config: Mapping[str, Any], dtype_bytes: int) -> TextShape:
    """Return the language model of ``config``.

    Raises:
        KeyError: A size is neither given nor has a class default.
    """
    text = find_text_config(config)
    model_type = text_model_type(config)
    heads = int(text["num_attention_heads"])
    layers = int(text["num_hidden_layers"])
    window_layers = _count_window_layers(text, layers)
    gemma = model_type == "gemma3_text"
    return TextShape(
        layers=layers,
        hidden=int(text["hidden_size"]),
        intermediate=int(text["intermediate_size"]),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or text["hidden_size"] // heads),
        vocab=int(text["vocab_size"]),
        tied=_is_tied(config, text, gemma=gemma),
        max_positions=int(text["max_position_embeddings"]),
        window_layers=window_layers,
        window=int(text["sliding_window"]) if window_layers else 0,
        qkv_bias=model_type in _BIASED or bool(text.get("attention_bias")),
        qk_norm=model_type in _NORMED,
        norms_per_layer=4 if gemma else 2,
        rotary_tables=_rotary_tables(text, window_layers, layers),
        mrope="mrope_section" in rope(text),
        dtype_bytes=dtype_bytes,
    )


def rope(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rope parameters of a text configuration, under either of their names."""
    found = text.get("rope_parameters") or text.get("rope_scaling") or {}
    inner = found.get("full_attention")
    return inner if isinstance(inner, Mapping) else found


def _is_tied(config: Mapping[str, Any], text: Mapping[str, Any], *, gemma: bool) -> bool:
    # A nested text part that says nothing follows the outer file; Gemma ties by class default.
    for part in (config, text):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    return gemma


def _count_window_layers(text: Mapping[str, Any], layers: int) -> int:
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return 0
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "sliding_attention" for kind in kinds)
    pattern = text.get("_sliding_window_pattern") or text.get("sliding_window_pattern")
    if pattern:
        return layers - layers // int(pattern)
    return layers if text.get("model_type") == "mistral" else 0


def _rotary_tables(text: Mapping[str, Any], window_layers: int, layers: int) -> tuple[int, ...]:
    """Return the rows of each rotary table (fact sheet 12.1).

    Plain M-RoPE builds four times the positions and the interleaved form (Qwen3-VL) one; linear scaling
    multiplies them by its factor; models that mix window and full layers hold an unscaled table for the
    window layers too.
    """
    rows = int(text["max_position_embeddings"])
    parameters = rope(text)
    full = rows
    if (parameters.get("rope_type") or parameters.get("type")) == "linear":
        full = int(rows * float(parameters["factor"]))
    elif "mrope_section" in parameters and not parameters.get("mrope_interleaved"):
        full = 4 * rows
    return (full, rows) if 0 < window_layers < layers else (full,)
