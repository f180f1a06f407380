"""Attention weights by kind: grouped queries, latent (MLA), gated delta nets and short convolutions.

Sources: vLLM 0.33.0 ``M/qwen2.py``, ``M/deepseek_v2.py:DeepseekV2MLAAttention``,
``layers/mamba/gdn/qwen_gdn_linear_attn.py``, ``M/lfm2.py`` and ``layers/mamba/short_conv.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.sizing.shape.weight import Weight, table

_SELF: Final = "layers.{}.self_attn."


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Query heads, key/value heads and the width of one."""

    queries: int
    keys: int
    width: int


def grouped_query(
    text: Mapping[str, Any],
    layers: tuple[int, ...],
    heads: Heads,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    gated: bool = False,
    own_keys: tuple[int, ...] | None = None,
) -> tuple[Weight, ...]:
    """Return the projections of ``layers``; ``gated`` doubles the query's columns.

    ``own_keys`` are the layers that compute keys and values themselves (Gemma-4 shares them among the last).
    """
    hidden, width = int(text["hidden_size"]), heads.queries * heads.width
    query = Weight(
        part="attention",
        name=_SELF + "q_proj",
        rows=hidden,
        columns=width * (2 if gated else 1),
        split="columns",
        layers=layers,
        bias=qkv_bias,
    )
    output = Weight(part="attention", name=_SELF + "o_proj", rows=width, columns=hidden, split="rows", layers=layers)
    biases = (table("attention", _SELF + "o_proj.bias", hidden, layers),) if out_bias else ()
    keyed = layers if own_keys is None else own_keys
    return (query, output, *_keys_and_values(hidden, heads, keyed, bias=qkv_bias), *biases)


def _keys_and_values(hidden: int, heads: Heads, layers: tuple[int, ...], *, bias: bool) -> tuple[Weight, ...]:
    return tuple(
        Weight(
            part="attention",
            name=_SELF + name,
            rows=hidden,
            columns=heads.keys * heads.width,
            split="kv",
            kv_heads=heads.keys,
            layers=layers,
            bias=bias,
        )
        for name in ("k_proj", "v_proj")
    )


def latent(text: Mapping[str, Any], layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return multi-head latent attention: the down-projections are on every rank, the up-projections are split."""
    hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    nope, turned = int(text["qk_nope_head_dim"]), int(text["qk_rope_head_dim"])
    value, rank = int(text["v_head_dim"]), int(text["kv_lora_rank"])
    query_rank = int(text.get("q_lora_rank") or 0)
    queries = heads * (nope + turned)

    def weight(name: str, rows: int, columns: int) -> Weight:
        split = {"o_proj": "rows", "kv_a_proj_with_mqa": "whole", "q_a_proj": "whole"}.get(name, "columns")
        return Weight(
            part="attention",
            name=_SELF + name,
            rows=rows,
            columns=columns,
            split=split,  # type: ignore[arg-type]
            layers=layers,
        )

    found = [
        weight("kv_a_proj_with_mqa", hidden, rank + turned),
        weight("kv_b_proj", rank, heads * (nope + value)),
        weight("o_proj", heads * value, hidden),
        table("norms", _SELF + "kv_a_layernorm", rank, layers),
    ]
    if query_rank:
        found += [weight("q_a_proj", hidden, query_rank), weight("q_b_proj", query_rank, queries)]
        found.append(table("norms", _SELF + "q_a_layernorm", query_rank, layers))
    else:
        found.append(weight("q_proj", hidden, queries))
    return tuple(found)


def factorised(text: Mapping[str, Any], layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return Step-3's factorised attention (``M/step3_text.py``): a narrow query and one KV head on every rank."""
    hidden, head_dim = int(text["hidden_size"]), int(text["head_dim"])
    narrow, wide = int(text["share_q_dim"]), int(text["num_attention_heads"]) * head_dim
    whole, columns = narrow + 2 * head_dim, wide
    return (
        Weight(part="attention", name=_SELF + "qkv_proj", rows=hidden, columns=whole, layers=layers),
        Weight(part="attention", name=_SELF + "wq", rows=narrow, columns=columns, split="columns", layers=layers),
        Weight(part="attention", name=_SELF + "o_proj", rows=wide, columns=hidden, split="rows", layers=layers),
        table("norms", _SELF + "inter_norm", narrow, layers),
    )


def gated_delta_net(text: Mapping[str, Any], layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return the linear attention of Qwen3.5: two input projections, a convolution, decay and a gated norm."""
    hidden, kernel = int(text["hidden_size"]), int(text["linear_conv_kernel_dim"])
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    heads, value_dim = int(text["linear_num_value_heads"]), int(text["linear_value_head_dim"])
    values = heads * value_dim
    module = "layers.{}.linear_attn."
    columns = (("in_proj_qkv", 2 * keys + values), ("in_proj_z", values), ("in_proj_b", heads), ("in_proj_a", heads))
    found = [
        Weight(part="attention", name=module + name, rows=hidden, columns=count, split="columns", layers=layers)
        for name, count in columns
    ]
    found += [
        Weight(part="attention", name=module + "out_proj", rows=values, columns=hidden, split="rows", layers=layers),
        _split_table(module + "conv1d", kernel, 2 * keys + values, layers),
        replace(_split_table(module + "A_log", 1, heads, layers), element_bytes=4),
        _split_table(module + "dt_bias", 1, heads, layers),
        table("norms", module + "norm", value_dim, layers),
    ]
    return tuple(found)


def mamba2(text: Mapping[str, Any], layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return a Mamba-2 mixer (``layers/mamba/mamba_mixer2.py``): heads and groups are split."""
    hidden, heads = int(text["hidden_size"]), int(text["mamba_num_heads"])
    inner, states = heads * int(text["mamba_head_dim"]), 2 * int(text["n_groups"]) * int(text["ssm_state_size"])
    kernel, module = int(text.get("conv_kernel") or 4), "layers.{}.mixer."
    return (
        Weight(
            part="attention",
            name=module + "in_proj",
            rows=hidden,
            columns=2 * inner + states + heads,
            split="columns",
            layers=layers,
        ),
        Weight(part="attention", name=module + "out_proj", rows=inner, columns=hidden, split="rows", layers=layers),
        _split_table(module + "conv1d", kernel + 1, inner + states, layers),
        replace(_split_table(module + "A", 1, heads, layers), element_bytes=4),
        _split_table(module + "heads", 2, heads, layers),
        _split_table(module + "norm", 1, inner, layers),
    )


def short_convolution(text: Mapping[str, Any], layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return LFM2's gated short convolution: one projection in (three parts), one out and the kernel."""
    hidden, kernel = int(text["hidden_size"]), int(text.get("conv_L_cache") or 3)
    module, bias = "layers.{}.conv.", bool(text.get("conv_bias"))
    return (
        Weight(
            part="other",
            name=module + "in_proj",
            rows=hidden,
            columns=3 * hidden,
            split="columns",
            layers=layers,
            bias=bias,
        ),
        Weight(part="other", name=module + "out_proj", rows=hidden, columns=hidden, split="rows", layers=layers),
        _split_table(module + "conv", kernel, hidden, layers),
    )


def _split_table(name: str, rows: int, columns: int, layers: tuple[int, ...]) -> Weight:
    return Weight(part="attention", name=name, rows=rows, columns=columns, split="columns", layers=layers, linear=False)
