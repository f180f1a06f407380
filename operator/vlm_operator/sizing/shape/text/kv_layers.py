"""From a text configuration to what each layer keeps of a request.

Sources: vLLM 0.33.0 ``M/*.py`` (the ``Attention`` that each model builds), ``layers/mamba/mamba_utils.py``, and the
transformers 5.20 configuration classes for the kinds of layers that a file leaves out.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_operator.sizing.shape.kv_layers import AttentionKind, AttentionLayers, KVLayers, StateLayers
from vlm_operator.sizing.shape.text.config import find_text_config, text_model_type

_LETTERS: Final = {
    "M": "mamba",
    "*": "full_attention",
    "-": "mlp",
    "E": "experts",
    "mamba": "mamba",
    "attention": "full_attention",
    "full_attention": "full_attention",
    "mlp": "mlp",
    "moe": "experts",
}
_READS_STATE_TYPES: Final = frozenset(
    {
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Nano_VL_V2",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
"""Architectures whose file says of which type the states are (``models/config.py:MODELS_CONFIG_MAP``)."""

KEEP_NOTHING: Final = frozenset({"mlp", "experts"})
"""Kinds of layers that keep nothing of a request."""

_KV_HEADS: Final = ("num_key_value_heads", "num_attention_groups", "num_kv_heads", "n_head_kv", "multi_query_group_num")


def read_kv_layers(config: Mapping[str, Any]) -> tuple[KVLayers, ...]:
    """Return what the layers of ``config`` keep, layers that are alike together, in the order of their first.

    Layers that read the keys of an earlier one keep nothing (Gemma-3n, Gemma-4).

    Raises:
        KeyError: A size is neither given nor has a class default.
    """
    text, model_type = {**find_text_config(config), **_state_types(config)}, text_model_type(config)
    kinds = layer_kinds(model_type, text)
    mixed = len(set(kinds)) > 1
    found: dict[KVLayers, int] = {}
    for kind in kinds[: len(kinds) - int(text.get("num_kv_shared_layers") or 0)]:
        if kind in KEEP_NOTHING:
            continue
        read_state = _STATES.get(kind)
        one = read_state(text) if read_state else _read_attention(model_type, text, kind, mixed=mixed)
        found[one] = found.get(one, 0) + 1
    return tuple(replace(one, layers=count) for one, count in found.items())


def _state_types(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what replaces a file's types of states: nothing where the engine looks at them.

    It does so for few architectures by name; the states of all others are of the model's type.
    """
    named = config.get("architectures")
    if not named or _READS_STATE_TYPES.intersection(named):
        return {}
    return {"mamba_ssm_dtype": "auto", "mamba_ssm_cache_dtype": "auto"}


def layer_kinds(model_type: str, text: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kind of every layer under the names of transformers, and ``mamba``, ``mlp`` and ``experts``.

    Nemotron-H writes a letter or a word for each: M is a mixer, * attention, - an MLP, E experts (one a layer).
    """
    if has_mixers(text):
        return tuple(_LETTERS[word] for word in text.get("layers_block_type") or text["hybrid_override_pattern"])
    if text.get("layer_types"):
        return tuple(map(str, text["layer_types"]))
    every = range(int(text["num_hidden_layers"]))
    if model_type == "llama4_text":
        rotated = text.get("no_rope_layers") or [(i + 1) % int(text["no_rope_layer_interval"]) for i in every]
        return tuple("chunked_attention" if rotated[i] else "full_attention" for i in every)
    if text.get("linear_num_value_heads"):
        interval = int(text.get("full_attention_interval") or 4)
        return tuple("linear_attention" if (i + 1) % interval else "full_attention" for i in every)
    period = int(text.get("_sliding_window_pattern") or text.get("sliding_window_pattern") or 1)
    return tuple("sliding_attention" if (i + 1) % period else "full_attention" for i in every)


def has_mixers(text: Mapping[str, Any]) -> bool:
    """Return whether it is a Nemotron-H, whose layers are a mixer, attention, an MLP or experts each."""
    return bool(text.get("hybrid_override_pattern") or text.get("layers_block_type"))


def count_kv_heads(text: Mapping[str, Any]) -> int:
    """Return the key/value heads under any of their names (``transformers_utils/config.py:56``)."""
    if text.get("share_q_dim"):  # Step-3 keeps one head, whatever its queries are
        return 1
    return int(next((text[name] for name in _KV_HEADS if text.get(name)), None) or text["num_attention_heads"])


def read_head_dim(text: Mapping[str, Any]) -> int:
    """Return the width of one head (``transformers_utils/model_arch_config_convertor.py:91-118``)."""
    return int(text.get("head_dim") or int(text["hidden_size"]) // int(text["num_attention_heads"]))


def is_latent(text: Mapping[str, Any]) -> bool:
    """Return whether keys and values are kept as one latent (MLA)."""
    return bool(text.get("kv_lora_rank")) and text.get("use_mla", True) is not False


def wide_head(text: Mapping[str, Any], kv_heads: int) -> tuple[int, int]:
    """Return the (KV heads, head width) of Gemma-4's full layers, which differ from those of its windows."""
    return int(text.get("num_global_key_value_heads") or kv_heads), int(text["global_head_dim"])


def _read_attention(model_type: str, text: Mapping[str, Any], kind: str, *, mixed: bool) -> AttentionLayers:
    if is_latent(text):
        width = int(text["kv_lora_rank"]) + int(text["qk_rope_head_dim"])
        return AttentionLayers(kind="MLAAttentionSpec", layers=0, kv_heads=1, key_dim=width, value_dim=0)
    heads, width = count_kv_heads(text), read_head_dim(text)
    if model_type == "gemma4_text" and kind == "full_attention":
        heads, width = wide_head(text, heads)
    spec, reach = _reach(text, kind, mixed=mixed)
    return AttentionLayers(kind=spec, layers=0, kv_heads=heads, key_dim=width, value_dim=width, reach=reach)


def _reach(text: Mapping[str, Any], kind: str, *, mixed: bool) -> tuple[AttentionKind, int]:
    """Return how far a layer of ``kind`` looks back.

    A model whose layers are all of one kind has its window on every layer, whatever the kind is called; where kinds
    are mixed the window belongs to those that are called so (``engine/arg_utils.py``, ``Attention.__init__``).
    """
    if kind == "chunked_attention" and text.get("attention_chunk_size"):
        return "ChunkedLocalAttentionSpec", int(text["attention_chunk_size"])
    window = 0 if text.get("use_sliding_window") is False else int(text.get("sliding_window") or 0)
    if window and (kind == "sliding_attention" or not mixed):
        return "SlidingWindowSpec", window
    # Unlimited-OCR drops old answers only: a request of any length is admitted as if it kept all.
    return ("RSWASpec" if text.get("sliding_window_size") else "FullAttentionSpec"), 0


def _read_delta_net(text: Mapping[str, Any]) -> StateLayers:
    key_dim, value_dim = int(text["linear_key_head_dim"]), int(text["linear_value_head_dim"])
    keys, values = int(text["linear_num_key_heads"]) * key_dim, int(text["linear_num_value_heads"]) * value_dim
    return StateLayers(
        kernel="gated_delta_net",
        layers=0,
        head_dim=key_dim,
        conv_rows=int(text["linear_conv_kernel_dim"]) - 1,
        conv_columns=2 * keys + values,
        recurrent=values * key_dim,
        recurrent_bytes=_state_bytes(text.get("mamba_ssm_dtype")),
    )


def _read_mamba2(text: Mapping[str, Any]) -> StateLayers:
    inner, state = int(text["mamba_num_heads"]) * int(text["mamba_head_dim"]), int(text["ssm_state_size"])
    return StateLayers(
        kernel="mamba2",
        layers=0,
        conv_rows=int(text.get("conv_kernel") or 4) - 1,
        conv_columns=inner,
        group_columns=2 * state,
        groups=int(text["n_groups"]),
        recurrent=inner * state,
        recurrent_bytes=_state_bytes(text.get("mamba_ssm_cache_dtype") or "float32"),
    )


def _read_short_convolution(text: Mapping[str, Any]) -> StateLayers:
    width = int(text.get("conv_dim") or text["hidden_size"])
    rows = int(text.get("conv_L_cache") or 3) - 1
    return StateLayers(kernel="short_conv", layers=0, conv_rows=rows, conv_columns=width)


def _state_bytes(dtype: object) -> int:
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(str(dtype), 0)


_STATES: Final[Mapping[str, Callable[[Mapping[str, Any]], StateLayers]]] = {
    "linear_attention": _read_delta_net,
    "mamba": _read_mamba2,
    "conv": _read_short_convolution,
}
