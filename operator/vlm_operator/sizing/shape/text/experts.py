"""Which layers are dense, which have experts, and the weights of both.

Sources: vLLM 0.33.0 ``M/qwen3_moe.py``, ``M/qwen3_next.py``, ``M/deepseek_v2.py``, ``M/glm4_moe.py``,
``M/llama4.py``, ``M/gemma4.py``, ``M/aria.py``, ``M/nemotron_h.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_operator.sizing.shape.text.kv_layers import layer_kinds
from vlm_operator.sizing.shape.weight import Weight, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture of a model: ``layers`` have it, the others are dense unless ``beside_dense``.

    Attributes:
        visited: Routed experts of one token.
        router_extra: Elements of the router besides its matrix: a correction bias, scales, a shared gate.
        router_bytes: Bytes of a router element where it is not the checkpoint's (0).
        extra_bytes: Bytes of an element beside its matrix where it is not the checkpoint's (0).
        block: Module of a layer that holds experts and router.
        shared_name: Module of the shared expert in it.
        gated: Whether an expert has a gate; otherwise it squares its activation (Nemotron-H).
        latent: Width in which the routed experts work where it is not the model's, 0 otherwise (Nemotron-H).
        image_width: Width of as many experts again that image tokens visit instead (ERNIE), 0 without them.
    """

    number: int
    visited: int
    width: int
    shared_width: int
    layers: tuple[int, ...]
    router_extra: int = 0
    router_bytes: int = 0
    extra_bytes: int = 0
    image_width: int = 0
    gated: bool = True
    latent: int = 0
    block: str = "mlp"
    shared_name: str = "shared_experts"
    beside_dense: bool = False


NO_EXPERTS: Final = Experts(number=0, visited=0, width=0, shared_width=0, layers=())
"""The mixture of a dense model."""


def read_experts(model_type: str, text: Mapping[str, Any]) -> Experts:
    """Return the mixture of experts of a text configuration, ``NO_EXPERTS`` for a dense model."""
    reader = _READERS.get(model_type)
    return (reader(text) if reader else None) or NO_EXPERTS


def squared_mlp(hidden: int, width: int, layers: tuple[int, ...], module: str) -> tuple[Weight, ...]:
    """Return an MLP that squares its activation instead of gating it."""
    return tuple(part for part in dense_mlp(hidden, width, layers, module) if not part.name.endswith("gate_proj"))


def dense_mlp(hidden: int, width: int, layers: tuple[int, ...], module: str = "layers.{}.mlp.") -> tuple[Weight, ...]:
    """Return a gated MLP: gate and up are split by columns, down by rows."""
    return (
        *(
            Weight(part="mlp", name=module + name, rows=hidden, columns=width, split="columns", layers=layers)
            for name in ("gate_proj", "up_proj")
        ),
        Weight(part="mlp", name=module + "down_proj", rows=width, columns=hidden, split="rows", layers=layers),
    )


def expert_weights(hidden: int, experts: Experts) -> tuple[Weight, ...]:
    """Return router, routed and shared experts."""
    if not experts.number:
        return ()
    found = [*_routed(hidden, experts), *_router(hidden, experts)]
    if experts.shared_width:
        shared = f"layers.{{}}.{experts.block}.{experts.shared_name}."
        found += (dense_mlp if experts.gated else squared_mlp)(hidden, experts.shared_width, experts.layers, shared)
    return (*found, *_latent_projections(hidden, experts))


def _routed(hidden: int, experts: Experts) -> tuple[Weight, ...]:
    inner = experts.latent or hidden
    module = "layers.{}.experts.0." if experts.beside_dense else f"layers.{{}}.{experts.block}.experts.0."
    return tuple(
        Weight(
            part="experts",
            name=module + name,
            rows=rows,
            columns=columns,
            split="rows" if name == "down_proj" else "columns",
            layers=experts.layers,
            experts=experts.number,
        )
        for width in (experts.width, experts.image_width)
        if width
        for name, rows, columns in (
            *((("gate_proj", inner, width),) if experts.gated else ()),
            ("up_proj", inner, width),
            ("down_proj", width, inner),
        )
    )


def _router(hidden: int, experts: Experts) -> tuple[Weight, ...]:
    matrix = Weight(
        part="router",
        name="layers.{}.mlp.gate",
        rows=hidden,
        columns=experts.number * (2 if experts.image_width else 1),
        layers=experts.layers,
        element_bytes=experts.router_bytes,
    )
    if not experts.router_extra:
        return (matrix,)
    extra = table("router", "layers.{}.mlp.gate.extra", experts.router_extra, experts.layers)
    return matrix, replace(extra, element_bytes=experts.extra_bytes)


def _latent_projections(hidden: int, experts: Experts) -> tuple[Weight, ...]:
    """Return the linears into and out of the experts' own width, which every rank holds."""
    if not experts.latent:
        return ()
    sides = (("fc1_latent_proj", hidden, experts.latent), ("fc2_latent_proj", experts.latent, hidden))
    return tuple(
        Weight(
            part="mlp", name=f"layers.{{}}.{experts.block}.{name}", rows=rows, columns=columns, layers=experts.layers
        )
        for name, rows, columns in sides
    )


def _qwen(text: Mapping[str, Any]) -> Experts:
    count, step = int(text["num_hidden_layers"]), int(text.get("decoder_sparse_step") or 1)
    dense = set(text.get("mlp_only_layers") or ())
    shared = int(text.get("shared_expert_intermediate_size") or 0)
    return Experts(
        number=int(text["num_experts"]),
        visited=int(text.get("num_experts_per_tok") or 8),
        width=int(text["moe_intermediate_size"]),
        shared_width=shared,
        layers=tuple(i for i in range(count) if i not in dense and (i + 1) % step == 0),
        router_extra=int(text["hidden_size"]) if shared else 0,
        shared_name="shared_expert",
    )


def _deepseek(text: Mapping[str, Any]) -> Experts | None:
    if not text.get("n_routed_experts"):
        return None
    number, width = int(text["n_routed_experts"]), int(text["moe_intermediate_size"])
    first, frequency = int(text.get("first_k_dense_replace") or 0), int(text.get("moe_layer_freq") or 1)
    corrected = text.get("topk_method") == "noaux_tc"
    return Experts(
        number=number,
        visited=int(text["num_experts_per_tok"]),
        width=width,
        shared_width=int(text.get("n_shared_experts") or 0) * width,
        layers=tuple(i for i in range(first, int(text["num_hidden_layers"])) if i % frequency == 0),
        router_extra=number if corrected else 0,
        extra_bytes=4,
    )


def _glm(text: Mapping[str, Any]) -> Experts:
    # The engine keeps GLM's router in float32, with a correction bias.
    number, width = int(text["n_routed_experts"]), int(text["moe_intermediate_size"])
    return Experts(
        number=number,
        visited=int(text["num_experts_per_tok"]),
        width=width,
        shared_width=int(text.get("n_shared_experts") or 0) * width,
        layers=tuple(range(int(text.get("first_k_dense_replace") or 1), int(text["num_hidden_layers"]))),
        router_extra=number,
        router_bytes=4,
        extra_bytes=4,
    )


def _llama4(text: Mapping[str, Any]) -> Experts:
    count, step = int(text["num_hidden_layers"]), int(text.get("interleave_moe_layer_step") or 1)
    width = int(text["intermediate_size"])
    listed = text.get("moe_layers") or tuple(range(step - 1, count, step))
    return Experts(
        number=int(text["num_local_experts"]),
        visited=int(text.get("num_experts_per_tok") or 1),
        width=width,
        shared_width=width,
        layers=tuple(listed),
        block="feed_forward",
        shared_name="shared_expert",
    )


def _ernie(text: Mapping[str, Any]) -> Experts:
    # The engine keeps ERNIE's routers in float32, each with a correction bias.
    widths, numbers = text["moe_intermediate_size"], text["moe_num_experts"]
    number = int(numbers[0] if isinstance(numbers, list) else numbers)
    count, kinds = int(text["num_hidden_layers"]), text.get("mlp_layer_types")
    first = text.get("moe_layer_start_index", 1)
    start = int(first[0] if isinstance(first, list) else first)
    return Experts(
        number=number,
        visited=int(text.get("moe_k") or 6),
        width=int(widths[0]),
        shared_width=int(text.get("moe_num_shared_experts") or 0) * int(widths[0]),
        layers=tuple(i for i in range(count) if (kinds[i] == "sparse" if kinds else i >= start)),
        router_extra=2 * number,
        router_bytes=4,
        image_width=int(widths[1]),
    )


def _step3(text: Mapping[str, Any]) -> Experts:
    listed = text.get("moe_layers_enum")
    layers = [int(part) for part in listed.split(",")] if listed else range(4, 60)
    return Experts(
        number=int(text["moe_num_experts"]),
        visited=int(text["moe_top_k"]),
        width=int(text["moe_intermediate_size"]),
        shared_width=int(text["share_expert_dim"]),
        layers=tuple(i for i in layers if i < int(text["num_hidden_layers"])),
        block="moe",
        shared_name="share_expert",
    )


def _moondream(text: Mapping[str, Any]) -> Experts:
    given = text.get("moe") or {}
    number = int(given.get("n_experts", 64))
    return Experts(
        number=number,
        visited=int(given.get("n_experts_per_tok", 8)),
        width=int(given.get("expert_inner_dim", 1024)),
        shared_width=0,
        layers=tuple(range(int(given.get("start_layer", 4)), int(text["num_hidden_layers"]))),
        router_extra=number,
    )


def _nemotron_h(text: Mapping[str, Any]) -> Experts | None:
    # The engine keeps the router in float32, with a correction bias.
    layers = tuple(i for i, kind in enumerate(layer_kinds("nemotron_h", text)) if kind == "experts")
    if not layers:
        return None
    number = int(text["n_routed_experts"])
    shared = int(text.get("n_shared_experts") or 0)
    return Experts(
        number=number,
        visited=int(text["num_experts_per_tok"]),
        width=int(text["moe_intermediate_size"]),
        shared_width=shared * int(text["moe_shared_expert_intermediate_size"]) if shared else 0,
        layers=layers,
        router_extra=number,
        router_bytes=4,
        extra_bytes=4,
        gated=False,
        latent=int(text.get("moe_latent_size") or 0),
        block="mixer",
    )


def _aria(text: Mapping[str, Any]) -> Experts:
    width = int(text["intermediate_size"])
    return Experts(
        number=int(text["moe_num_experts"]),
        visited=int(text["moe_topk"]),
        width=width,
        shared_width=int(text["moe_num_shared_experts"]) * width,
        layers=tuple(range(int(text["num_hidden_layers"]))),
    )


def _gemma4(text: Mapping[str, Any]) -> Experts | None:
    if not text.get("enable_moe_block"):
        return None
    number = int(text["num_experts"])
    return Experts(
        number=number,
        visited=int(text["top_k_experts"]),
        width=int(text.get("moe_intermediate_size") or text["expert_intermediate_size"]),
        shared_width=0,
        layers=tuple(range(int(text["num_hidden_layers"]))),
        router_extra=int(text["hidden_size"]) + number,
        beside_dense=True,
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Experts | None]]] = {
    "qwen3_moe": _qwen,
    "qwen3_vl_moe_text": _qwen,
    "qwen3_5_moe_text": _qwen,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "glm4v_moe_text": _glm,
    "llama4_text": _llama4,
    "ernie4_5_vl_moe_text": _ernie,
    "step3_text": _step3,
    "aria_text": _aria,
    "moondream3_text": _moondream,
    "nemotron_h": _nemotron_h,
    "gemma4_text": _gemma4,
}
