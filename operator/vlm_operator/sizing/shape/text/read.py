"""From a text configuration to the language model's shape: one table of families, one reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.sizing.shape.quantisation import apply_quantisation
from vlm_operator.sizing.shape.text import attention as kinds
from vlm_operator.sizing.shape.text.config import find_text_config, is_tied, rope, text_model_type
from vlm_operator.sizing.shape.text.experts import Experts, dense_mlp, expert_weights, read_experts, squared_mlp
from vlm_operator.sizing.shape.text.gemma3n import residual_streams
from vlm_operator.sizing.shape.text.kv_layers import (
    KEEP_NOTHING,
    count_kv_heads,
    has_mixers,
    is_latent,
    layer_kinds,
    read_head_dim,
    read_kv_layers,
    wide_head,
)
from vlm_operator.sizing.shape.text.moondream import biased_mlp, tau_and_biases
from vlm_operator.sizing.shape.types import Quantisation, TextShape
from vlm_operator.sizing.shape.weight import Weight, table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """What tells one family of language models from another.

    Attributes:
        bias: Whether query, key and value always have biases; otherwise ``attention_bias`` tells.
        qk_norm: Whether queries and keys are normalised per head.
        norms: Norms of the hidden width in a layer.
        gated: Whether a gate beside the query scales the attention's output (Qwen3.5).
    """

    bias: bool = False
    qk_norm: bool = False
    norms: int = 2
    gated: bool = False


FAMILIES: Final[Mapping[str, _Family]] = {
    "llama": _Family(),
    "mistral": _Family(),
    "ministral3": _Family(),
    "granite": _Family(),
    "internlm2": _Family(),
    "cohere2": _Family(norms=1),
    "cohere_compass_text": _Family(norms=1),
    "gemma2": _Family(norms=4),
    "gemma3_text": _Family(norms=4, qk_norm=True),
    "gemma3n_text": _Family(norms=4, qk_norm=True),
    "gemma4_text": _Family(norms=4, qk_norm=True),
    "qwen2": _Family(bias=True),
    "qwen2_vl": _Family(bias=True),
    "qwen2_5_vl": _Family(bias=True),
    "qwen2_5_omni_text": _Family(bias=True),
    "dots_ocr": _Family(bias=True),
    "exaone4": _Family(qk_norm=True),
    "qwen3": _Family(qk_norm=True),
    "qwen3_moe": _Family(qk_norm=True),
    "qwen3_vl_text": _Family(qk_norm=True),
    "qwen3_vl_moe_text": _Family(qk_norm=True),
    "qwen3_5_text": _Family(qk_norm=True, gated=True),
    "qwen3_5_moe_text": _Family(qk_norm=True, gated=True),
    "hunyuan_vl": _Family(qk_norm=True),
    "llama4_text": _Family(),
    "phi3": _Family(),
    "phi3_v": _Family(),
    "phi4mm": _Family(),
    "molmo": _Family(),
    "molmo2": _Family(qk_norm=True),
    "deepseek_v2": _Family(),
    "deepseek_v3": _Family(),
    "glm4v_text": _Family(norms=4),
    "glm_ocr_text": _Family(norms=4),
    "glm4v_moe_text": _Family(),
    "paddleocr_vl_text": _Family(),
    "ernie4_5_vl_moe_text": _Family(),
    "lfm2": _Family(qk_norm=True),
    "nemotron_h": _Family(norms=1),
    "step3_text": _Family(),
    "moondream3_text": _Family(norms=2),
    "chatglm": _Family(),
    "aria_text": _Family(),
}
"""Language models whose every weight is known."""

_MOLMO_EXTRA_ROWS: Final = 128
_BIASED_OUTPUTS: Final = frozenset({"llama", "granite", "cohere2", "cohere_compass_text", "moondream3_text"})
_TWO_TABLES: Final = frozenset({"gemma3_text", "gemma3n_text", "gemma4_text"})


def read_text(config: Mapping[str, Any], dtype_bytes: int, quantisation: Quantisation | None = None) -> TextShape:
    """Return the language model of ``config``.

    Raises:
        KeyError: A size is neither given nor has a class default, or the model type is unknown.
    """
    text, model_type = find_text_config(config), text_model_type(config)
    family, heads = FAMILIES[model_type], _every_head(text)
    experts = read_experts(model_type, text)
    dense, layers = _dense_width(model_type, text, experts), int(text["num_hidden_layers"])
    tied = is_tied(config, text)
    weights = (*_vocabulary(model_type, text, tied=tied), *_layers(model_type, text, heads, experts))
    return TextShape(
        layers=layers,
        hidden=int(text["hidden_size"]),
        intermediate=max(dense, experts.visited * experts.width + experts.shared_width),
        heads=heads.queries,
        kv_heads=heads.keys,
        head_dim=heads.width,
        vocab=int(text["vocab_size"]),
        tied=tied,
        max_positions=_positions(text),
        kv_layers=read_kv_layers(config),
        qkv_bias=_has_bias(text, family),
        qk_norm=family.qk_norm,
        rotary_elements=_rotary_elements(model_type, text, heads.width),
        mrope="mrope_section" in rope(text),
        dtype_bytes=dtype_bytes,
        weights=apply_quantisation(weights, quantisation),
        latent_attention=is_latent(text),
        dense_intermediate=dense,
        expert_intermediate=experts.width,
        shared_intermediate=experts.shared_width,
        experts=experts.number,
        experts_per_token=experts.visited,
        linear_heads=_linear_heads(model_type, text),
        per_layer_inputs=int(text.get("hidden_size_per_layer_input") or 0) * layers,
    )


def _every_head(text: Mapping[str, Any]) -> kinds.Heads:
    return kinds.Heads(queries=int(text["num_attention_heads"]), keys=count_kv_heads(text), width=read_head_dim(text))


def _positions(text: Mapping[str, Any]) -> int:
    return int(text.get("max_position_embeddings") or text["max_position_embedding"])


def _linear_heads(model_type: str, text: Mapping[str, Any]) -> tuple[int, ...]:
    if has_mixers(text):
        groups = int(text["n_groups"])
        # A single group is held by every rank.
        return (int(text["mamba_num_heads"]), *((groups,) if groups > 1 else ()))
    if "linear_attention" not in layer_kinds(model_type, text):
        return ()
    return int(text["linear_num_key_heads"]), int(text["linear_num_value_heads"])


def _vocabulary(model_type: str, text: Mapping[str, Any], *, tied: bool) -> tuple[Weight, ...]:
    hidden, vocab = int(text["hidden_size"]), _pad(int(text["vocab_size"]))
    embedding = Weight(part="embedding", name="embed_tokens", rows=hidden, columns=vocab, split="columns", linear=False)
    found = [embedding]
    if model_type == "phi3_v":
        # The engine builds the embedding a second time beside the image projection (fact sheet 12.12).
        found.append(embedding)
    if model_type in {"molmo", "molmo2"}:
        extra = Weight(
            part="embedding",
            name="embed_tokens.new",
            rows=hidden,
            columns=_MOLMO_EXTRA_ROWS,
            split="columns",
            linear=False,
        )
        found.append(extra)
    per_layer = int(text.get("hidden_size_per_layer_input") or 0)
    if per_layer:
        rows = _pad(int(text.get("vocab_size_per_layer_input") or text["vocab_size"]))
        width = per_layer * int(text["num_hidden_layers"])
        found.append(
            Weight(
                part="embedding",
                name="embed_tokens_per_layer",
                rows=width,
                columns=rows,
                split="columns",
                linear=False,
            )
        )
    if not tied:
        found.append(Weight(part="lm_head", name="lm_head", rows=hidden, columns=vocab, split="columns", linear=False))
    return tuple(found)


def _pad(vocab: int) -> int:
    return -(-vocab // 64) * 64


def _layers(model_type: str, text: Mapping[str, Any], heads: kinds.Heads, experts: Experts) -> tuple[Weight, ...]:
    family = FAMILIES[model_type]
    return (
        *_attention(model_type, text, family, heads),
        *_mlp(model_type, text, experts),
        *_norms(model_type, text, family, experts, heads.width),
    )


def _has_bias(text: Mapping[str, Any], family: _Family) -> bool:
    return family.bias or bool(text.get("attention_bias") or text.get("qkv_bias"))


def _attention(model_type: str, text: Mapping[str, Any], family: _Family, heads: kinds.Heads) -> tuple[Weight, ...]:
    every = tuple(range(int(text["num_hidden_layers"])))
    if is_latent(text):
        return kinds.latent(text, every)
    if text.get("share_q_dim"):
        return kinds.factorised(text, every)
    kinds_of_layers = layer_kinds(model_type, text)
    of_kind = {kind: tuple(i for i in every if kinds_of_layers[i] == kind) for kind in dict.fromkeys(kinds_of_layers)}
    if model_type == "gemma4_text":
        return _gemma4_attention(text, of_kind, heads)
    linear, conv = of_kind.pop("linear_attention", ()), of_kind.pop("conv", ())
    mamba = of_kind.pop("mamba", ())
    for kind in KEEP_NOTHING:
        of_kind.pop(kind, None)
    softmax = tuple(sorted(i for layers in of_kind.values() for i in layers))
    found = kinds.grouped_query(
        text,
        softmax,
        heads,
        qkv_bias=_has_bias(text, family),
        out_bias=bool(text.get("attention_bias")) and model_type in _BIASED_OUTPUTS,
        gated=family.gated and bool(text.get("attn_output_gate", True)),
        own_keys=tuple(i for i in softmax if i < len(every) - int(text.get("num_kv_shared_layers") or 0)),
    )
    if linear:
        found += kinds.gated_delta_net(text, linear)
    if mamba:
        found += kinds.mamba2(text, mamba)
    if conv:
        found += kinds.short_convolution(text, conv)
    return found


def _gemma4_attention(
    text: Mapping[str, Any], of_kind: Mapping[str, tuple[int, ...]], heads: kinds.Heads
) -> tuple[Weight, ...]:
    """Full layers have wider heads and their own number of KV heads; the last layers share earlier keys.

    Where the checkpoint keeps keys and values equal the engine allocates both (fact sheet 12.12).
    """
    own = int(text["num_hidden_layers"]) - int(text.get("num_kv_shared_layers") or 0)
    found: tuple[Weight, ...] = ()
    for kind, layers in of_kind.items():
        full = kind == "full_attention"
        kv_heads, width = wide_head(text, heads.keys) if full else (heads.keys, heads.width)
        found += kinds.grouped_query(
            text,
            layers,
            kinds.Heads(queries=heads.queries, keys=kv_heads, width=width),
            own_keys=tuple(i for i in layers if i < own),
        )
    return found


def _dense_width(model_type: str, text: Mapping[str, Any], experts: Experts) -> int:
    if not experts.beside_dense and len(experts.layers) == int(text["num_hidden_layers"]):
        return 0
    if has_mixers(text) and "mlp" not in layer_kinds(model_type, text):
        return 0
    if model_type == "llama4_text":
        return int(text["intermediate_size_mlp"])
    width = max(_widths(text))
    if model_type == "molmo":
        return width // 2
    if model_type == "lfm2" and text.get("block_auto_adjust_ff_dim", True):
        adjusted = int(float(text.get("block_ffn_dim_multiplier") or 1.0) * (2 * width // 3))
        step = int(text.get("block_multiple_of") or 256)
        return -(-adjusted // step) * step
    return width


def _widths(text: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the MLP's width in every layer, which Gemma-3n lists one by one."""
    given = text["intermediate_size"]
    return tuple(map(int, given)) if isinstance(given, list) else (int(given),) * int(text["num_hidden_layers"])


def _mlp(model_type: str, text: Mapping[str, Any], experts: Experts) -> tuple[Weight, ...]:
    if has_mixers(text):
        return (*_squared_mlp(text), *expert_weights(int(text["hidden_size"]), experts))
    every, hidden = range(int(text["num_hidden_layers"])), int(text["hidden_size"])
    sparse = () if experts.beside_dense else experts.layers
    dense = tuple(i for i in every if i not in sparse)
    width = _dense_width(model_type, text, experts)
    shared = int(text.get("num_kv_shared_layers") or 0) if text.get("use_double_wide_mlp") else 0
    doubled = tuple(i for i in dense if i >= len(every) - shared)
    block = "feed_forward" if model_type in {"llama4_text", "lfm2"} else "mlp"
    found: tuple[Weight, ...] = ()
    listed = _widths(text) if isinstance(text.get("intermediate_size"), list) else (width,) * len(every)
    widths = [wide * (2 if i in doubled else 1) for i, wide in enumerate(listed)]
    for wide in dict.fromkeys(widths[i] for i in dense):
        alike = tuple(i for i in dense if widths[i] == wide)
        biased = model_type == "moondream3_text"
        found += biased_mlp(hidden, wide, alike) if biased else dense_mlp(hidden, wide, alike, f"layers.{{}}.{block}.")
    found += expert_weights(hidden, experts)
    if model_type == "gemma3n_text":
        found += residual_streams(text)
    if model_type == "moondream3_text":
        found += tau_and_biases(text)
    return found + _per_layer_inputs(text)


def _squared_mlp(text: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Return Nemotron-H's MLPs, which square the activation instead of gating it, where the pattern has them."""
    layers = tuple(i for i, kind in enumerate(layer_kinds("nemotron_h", text)) if kind == "mlp")
    if not layers:
        return ()
    return squared_mlp(int(text["hidden_size"]), int(text["intermediate_size"]), layers, "layers.{}.mixer.")


def _per_layer_inputs(text: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Return Gemma-4's per-layer inputs: one split projection of all layers, then a gate and a projection each."""
    width, hidden = int(text.get("hidden_size_per_layer_input") or 0), int(text["hidden_size"])
    if not width:
        return ()
    layers = tuple(range(int(text["num_hidden_layers"])))
    return (
        Weight(
            part="other",
            name="per_layer_model_projection",
            rows=hidden,
            columns=width * len(layers),
            split="columns",
        ),
        Weight(part="other", name="layers.{}.per_layer_projection", rows=width, columns=hidden, layers=layers),
        Weight(part="router", name="layers.{}.per_layer_input_gate", rows=hidden, columns=width, layers=layers),
        table("norms", "layers.{}.post_per_layer_input_norm", hidden, layers),
        table("norms", "per_layer_projection_norm", width),
    )


def _norms(
    model_type: str, text: Mapping[str, Any], family: _Family, experts: Experts, head_dim: int
) -> tuple[Weight, ...]:
    hidden, every = int(text["hidden_size"]), tuple(range(int(text["num_hidden_layers"])))
    # Gemma-4 norms the dense MLP and the experts beside it apart.
    count = family.norms + (3 if experts.beside_dense else 0)
    found = [table("norms", "layers.{}.norms", count * hidden, every), table("norms", "norm", hidden)]
    if not family.qk_norm or is_latent(text):
        return tuple(found)
    own = len(every) - int(text.get("num_kv_shared_layers") or 0)
    for layer, kind in enumerate(layer_kinds(model_type, text)):
        if kind in {"linear_attention", "conv"}:
            continue
        wide = model_type == "gemma4_text" and kind == "full_attention"
        width = int(text["global_head_dim"]) if wide else head_dim
        found.append(table("norms", "layers.{}.self_attn.norms", width * (2 if layer < own else 1), (layer,)))
    return tuple(found)


def _rotary_elements(model_type: str, text: Mapping[str, Any], head_dim: int) -> int:
    """Return the elements of all rotary tables (fact sheet 12.1).

    Plain M-RoPE builds four times the positions and the interleaved form (Qwen3-VL) one; linear scaling
    multiplies them by its factor; longrope holds the original positions beside the long ones; Gemma 3 and 4 turn
    their window layers by an unscaled table of their own.
    """
    rows, parameters = _positions(text), rope(text)
    kind = parameters.get("rope_type") or parameters.get("type")
    wide = int(text["global_head_dim"]) if model_type == "gemma4_text" else head_dim
    if is_latent(text):
        wide = int(text["qk_rope_head_dim"])
    elif kind != "proportional":
        wide = int(wide * float(parameters.get("partial_rotary_factor") or text.get("partial_rotary_factor") or 1))
    full = rows
    if kind == "linear":
        full = int(rows * float(parameters["factor"]))
    elif kind in {"longrope", "su"}:
        full = rows + int(text.get("original_max_position_embeddings") or 0)
    elif "mrope_section" in parameters and not parameters.get("mrope_interleaved"):
        full = 4 * rows
    return full * wide + (rows * head_dim if model_type in _TWO_TABLES else 0)
