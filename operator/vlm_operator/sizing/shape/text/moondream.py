"""Moondream-3 beside its plain layers: biases, and scales of queries and values by position (tau).

Source: vLLM 0.33.0 ``M/moondream3.py``.
"""

from collections.abc import Mapping
from typing import Any

from vlm_operator.sizing.shape.text.experts import squared_mlp
from vlm_operator.sizing.shape.weight import Weight, table


def tau_and_biases(text: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Return the tau matrices, which are split by heads, and the biases of the last norm and of the output matrix."""
    hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    every, vocab = tuple(range(int(text["num_hidden_layers"]))), -(-int(text["vocab_size"]) // 64) * 64
    # One more row is the scale's own table.
    tau = [(f"layers.{{}}.self_attn.{name}", 3 * hidden) for name in ("tau_wq", "tau_wv")]
    return (
        *(
            Weight(part="attention", name=name, rows=rows, columns=heads, split="columns", layers=every, linear=False)
            for name, rows in (*tau, ("layers.{}.self_attn.tau_alpha", 1))
        ),
        table("norms", "norm.bias", hidden),
        Weight(part="lm_head", name="lm_head.bias", rows=1, columns=vocab, split="columns", linear=False),
    )


def biased_mlp(hidden: int, width: int, layers: tuple[int, ...]) -> tuple[Weight, ...]:
    """Return the MLP of the first layers: two matrices without a gate, and their biases."""
    bias = Weight(
        part="mlp",
        name="layers.{}.mlp.up_proj.bias",
        rows=1,
        columns=width,
        split="columns",
        layers=layers,
        linear=False,
    )
    matrices = squared_mlp(hidden, width, layers, "layers.{}.mlp.")
    return (*matrices, bias, table("mlp", "layers.{}.mlp.down_proj.bias", hidden, layers))
