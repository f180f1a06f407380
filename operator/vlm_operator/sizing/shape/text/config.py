"""The language model's part of ``config.json``, with the class defaults that sparse files leave out."""

from collections.abc import Mapping
from typing import Any, Final

NESTED: Final = ("text_config", "llm_config", "language_config")

_GEMMA2: Final[Mapping[str, Any]] = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
}
_GLM4V: Final[Mapping[str, Any]] = {
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "vocab_size": 151552,
    "max_position_embeddings": 32768,
    "partial_rotary_factor": 0.5,
}
_MISTRAL: Final[Mapping[str, Any]] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
}
_QWEN3: Final[Mapping[str, Any]] = {
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
}

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "granite": {"max_position_embeddings": 2048, "tie_word_embeddings": False},
    "mistral": {**_MISTRAL, "sliding_window": 4096},
    "ministral3": {**_MISTRAL, "head_dim": 128, "max_position_embeddings": 262144},
    "gemma2": _GEMMA2,
    "gemma3_text": {
        **_GEMMA2,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
    },
    "gemma4_text": {
        "max_position_embeddings": 131072,
        "head_dim": 256,
        "global_head_dim": 512,
        "vocab_size": 262144,
        "tie_word_embeddings": True,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "gemma4_unified_text": {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 262144,
        "sliding_window": 1024,
        "use_bidirectional_attention": "vision",
    },
    "gemma3n_text": {
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "vocab_size": 262400,
        "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256,
        "max_position_embeddings": 32768,
        "altup_num_inputs": 4,
        "laurel_rank": 64,
        "tie_word_embeddings": True,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "num_kv_shared_layers": 15,
        "sliding_window": 512,
        "sliding_window_pattern": 5,
    },
    "qwen2": {"max_position_embeddings": 32768, "use_sliding_window": False},
    "qwen2_vl": {"max_position_embeddings": 32768, "use_sliding_window": False},
    "qwen2_5_vl": {"max_position_embeddings": 32768, "use_sliding_window": False},
    "qwen3": _QWEN3,
    "qwen3_moe": {**_QWEN3, "num_key_value_heads": 4},
    "qwen3_vl_text": {**_QWEN3, "max_position_embeddings": 128000},
    "qwen3_vl_moe_text": {**_QWEN3, "num_key_value_heads": 16, "max_position_embeddings": 128000},
    "qwen3_5_text": {"head_dim": 256, "max_position_embeddings": 32768},
    "qwen3_5_moe_text": {"head_dim": 256, "max_position_embeddings": 32768},
    "internlm2": {"max_position_embeddings": 2048},
    "llama4_text": {
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
    },
    "cohere2": {
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
    "cohere_compass_text": {
        "hidden_size": 8192,
        "intermediate_size": 22528,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "deepseek_v2": {"max_position_embeddings": 2048},
    "deepseek_v3": {"max_position_embeddings": 4096},
    "exaone4": {
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 102400,
        "max_position_embeddings": 2048,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
    "qwen2_5_omni_text": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
    },
    "glm4v_text": _GLM4V,
    "glm_ocr_text": _GLM4V,
    "glm4v_moe_text": {"max_position_embeddings": 131072, "attention_bias": True},
    "lfm2": {"max_position_embeddings": 128000, "tie_word_embeddings": True},
    "ernie4_5_vl_moe_text": {"max_position_embeddings": 131072, "tie_word_embeddings": True},
    "paddleocr_vl_text": {"max_position_embeddings": 131072, "head_dim": 128, "tie_word_embeddings": True},
    "phi3": {"max_position_embeddings": 4096},
    "molmo": {"max_position_embeddings": 4096},
    "molmo2": {
        **_QWEN3,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "max_position_embeddings": 36864,
        "use_qk_norm": True,
        "qk_norm_type": "qwen3",
    },
    "nemotron_h": {"max_position_embeddings": 4096, "tie_word_embeddings": False},
    "hunyuan_vl": {"max_position_embeddings": 2048},
    "dots_ocr": {"max_position_embeddings": 32768},
    "moondream3_text": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 51200,
        "max_position_embeddings": 4096,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    "chatglm": {"max_position_embeddings": 2048, "partial_rotary_factor": 0.5},
    "aria_text": {
        "hidden_size": 4096,
        "intermediate_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "moe_num_experts": 8,
        "moe_topk": 2,
        "moe_num_shared_experts": 2,
    },
}
"""Defaults of the transformers configuration classes (transformers 5.20), for keys that checkpoints omit."""

_BY_OUTER: Final[Mapping[str, str]] = {
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_5_vl",
    "gemma3": "gemma3_text",
    "aria_moe_lm": "aria_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_text",
    "gemma4_unified_text": "gemma4_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_omni_moe_text": "qwen3_moe",
    "llava_onevision2": "qwen3",
    "exaone4_5_text": "exaone4",
    "qwen2_5_omni": "qwen2_5_omni_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "glm_ocr": "glm_ocr_text",
    "lfm2_vl": "lfm2",
    "paddleocr_vl": "paddleocr_vl_text",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
    "cohere_compass": "cohere_compass_text",
    "deepseek_vl_v2": "deepseek_v2",
    "unlimited-ocr": "deepseek_v2",
    "kimi_k2": "deepseek_v3",
    "Keye": "qwen3",
    "KeyeVL1_5": "qwen3",
    "isaac": "qwen3",
    "phi4-siglip": "phi3",
    "step3_vl": "step3_text",
    "molmo2_text": "molmo2",
}
"""Model types that name the whole checkpoint, or a class that the engine runs as another one."""

_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "chatglm": {
        "num_layers": "num_hidden_layers",
        "ffn_hidden_size": "intermediate_size",
        "kv_channels": "head_dim",
        "padded_vocab_size": "vocab_size",
        "multi_query_group_num": "num_key_value_heads",
        "add_qkv_bias": "attention_bias",
        "seq_length": "max_position_embeddings",
    },
    "moondream3_text": {
        "dim": "hidden_size",
        "ff_dim": "intermediate_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "n_kv_heads": "num_key_value_heads",
        "max_context": "max_position_embeddings",
    },
}
"""Keys of files that call their sizes otherwise (``transformers_utils/configs/{chatglm,moondream3}.py``)."""

_MAY_BE_NULL: Final = frozenset({"sliding_window", "head_dim", "attention_chunk_size"})
"""Keys whose ``null`` says something: there is none, or it follows from others."""

_MINICPM: Final[Mapping[str, str]] = {"2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}


def thinker(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of ``config`` that reads: Qwen-Omni and Alpamayo keep one that speaks or drives beside it."""
    found = config.get("thinker_config") or config.get("vlm_config")
    return found if isinstance(found, Mapping) else config


def inner_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the nested text configuration as it stands, or ``config`` where the file is flat."""
    whole = thinker(config)
    if whole.get("model_type") == "moondream3":
        return {"model_type": "moondream3_text", **((whole.get("config") or {}).get("text") or {})}
    return next((whole[key] for key in NESTED if whole.get(key)), whole)


def find_text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of ``config`` with its class defaults filled in."""
    inner, model_type = inner_config(config), text_model_type(config)
    named = _OTHER_NAMES.get(model_type, {})
    given = {named.get(k, k): v for k, v in inner.items() if v is not None or k in _MAY_BE_NULL}
    own = DEFAULTS.get(str(inner.get("model_type")), {})
    return {**DEFAULTS.get(model_type, {}), **own, **given}


def text_model_type(config: Mapping[str, Any]) -> str:
    """Return the model type of the language model; MiniCPM-V names the whole, its version tells the part."""
    model_type = str(inner_config(config).get("model_type") or config.get("model_type") or "")
    if model_type in {"minicpmv", "minicpmo"}:
        return _MINICPM.get(str(config.get("version")), model_type)
    return _BY_OUTER.get(model_type, model_type)


def rope(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rope parameters of a text configuration, under either of their names."""
    found = text.get("rope_parameters") or text.get("rope_scaling") or {}
    inner = found.get("full_attention")
    return inner if isinstance(inner, Mapping) else found


def is_tied(config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    """Return whether the output matrix is the embedding: either file says so, or none does and the class does."""
    said = [part.get("tie_word_embeddings") for part in (inner_config(config), config)]
    if all(word is None for word in said):
        return bool(text.get("tie_word_embeddings", False))
    return any(said)
