"""Rows of weights.jsonl: parameters, split and bytes per rank within 0.5 %."""

from typing import Any

import pytest

from tests.conformance.model_shapes import model_configs, read_card, shape_of
from tests.conformance.vectors import DATA, check_count, read_rows, vectors_folder
from vlm_operator.sizing.shape import ModelShape, ShapeRefusal
from vlm_operator.sizing.weights import count_parameters, count_stored_elements, weights_per_rank

TOLERANCE = 0.005
ROWS = 80
PARTS = (
    "embedding",
    "lm_head",
    "attention",
    "mlp",
    "experts",
    "router",
    "norms",
    "other",
    "audio",
    "vision_tower",
    "projector",
)
MODES: tuple[str, ...] = ("weights", "data", "ep")


def test_every_row_within_half_a_per_cent(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong: list[tuple[Any, ...]] = []
    for row in read_rows(folder, "weights.jsonl"):
        run += 1
        shape = shape_of(folder, row["model"])
        wrong += [(row["model"], "no shape")] if shape is None else _differences(shape, row)
    assert wrong == []
    check_count(pytestconfig, run, ROWS)


REFUSED = {
    "meta-llama/Llama-3.2-11B-Vision-Instruct": "the engine removed mllama",
    "meta-llama/Llama-3.2-90B-Vision-Instruct": "the engine removed mllama",
    "CohereLabs/aya-vision-8b": "the engine removed Aya",
    "CohereLabs/aya-vision-32b": "the engine removed Aya",
    "stepfun-ai/Step-3.7-Flash": "the engine serves no such architecture",
    "MiniMaxAI/MiniMax-M3": "the engine serves no such architecture",
    "moonshotai/Kimi-K3": "no formula for its delta attention and its residual blocks",
}
"""Cards without a shape, and why."""


def test_every_card_has_a_shape_or_is_refused_by_name(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    cards = {model: read_card(folder, model) for model in model_configs(folder)}
    refused = {model for model, found in cards.items() if isinstance(found, ShapeRefusal)}
    assert refused == REFUSED.keys() or pytestconfig.getoption("vectors")
    assert all(found.message for found in cards.values() if isinstance(found, ShapeRefusal))


def test_published_parameter_totals(pytestconfig: pytest.Config) -> None:
    # What the engine leaves out (a tower's last layer, a pooling head) is in the rows above.
    folder = vectors_folder(pytestconfig)
    rows = (*read_rows(DATA, "weights.jsonl"), *read_rows(folder, "weights.jsonl"))
    left_out = {row["model"]: row["vllm_minus_params_total"] or 0 for row in rows}
    wrong = []
    for model, card in model_configs(folder).items():
        shape = shape_of(folder, model)
        published = card.get("params_total")
        if shape is None or not published:
            continue
        expected = published + left_out.get(model, 0)
        if not any(_far(total, expected) is False for total in _totals(shape, card["config"])):
            wrong.append((model, published, sorted(_totals(shape, card["config"]))))
    assert wrong == []


def test_rank_bytes_of_a_published_start_up_log(pytestconfig: pytest.Config) -> None:
    # "Model loading took 34.43 GiB": Qwen2.5-VL-72B, one of four ranks.
    shape = shape_of(vectors_folder(pytestconfig), "Qwen/Qwen2.5-VL-72B-Instruct")
    assert shape is not None
    assert weights_per_rank(shape, 4).total / 2**30 == pytest.approx(34.43, rel=TOLERANCE)


def _far(got: int, expected: int) -> bool:
    return abs(got - expected) > TOLERANCE * expected


def _differences(shape: ModelShape, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    stored, split = count_stored_elements(shape), row["vllm_split_tp1"]
    wrong: list[tuple[Any, ...]] = [
        (row["model"], part, split.get(part, 0), getattr(stored, part))
        for part in PARTS
        if _far(getattr(stored, part), split.get(part, 0))
    ]
    for mode in MODES:
        ranks = row["bytes_per_rank"].get(mode)
        for size, rank in ranks.items() if isinstance(ranks, dict) else ():
            if rank is not None:
                wrong += [
                    (row["model"], mode, size, *found) for found in _rank_differences(shape, mode, int(size), rank)
                ]
    return wrong


def _rank_differences(shape: ModelShape, mode: str, size: int, rank: dict[str, Any]) -> list[tuple[str, int, int]]:
    got = weights_per_rank(shape, size, "data" if mode == "data" else "weights", expert_parallel=mode == "ep")
    pairs = [("params", rank["params"], got.parameter_bytes), ("load_bytes", rank["load_bytes"], got.total)]
    pairs += [(part, rank["by_component"].get(part, 0), getattr(got, part)) for part in PARTS]
    return [pair for pair in pairs if _far(pair[2], pair[1])]


def _totals(shape: ModelShape, config: dict[str, Any]) -> set[int]:
    """Return what a hub page may count: also scales, adapters, a tied output matrix, layers that predict ahead."""
    count = count_parameters(shape)
    totals = {count.total}
    scales = 0
    for weight in shape.text.weights:
        if weight.scheme is not None:
            plain = weight.scheme.container_bits // weight.scheme.bits
            copies = len(weight.layers) * weight.experts
            packed = copies * weight.rows * weight.columns // plain
            scales += weight.measure(1, 2)[0] - packed - (copies * weight.columns if weight.bias else 0)
    totals.add(count.total + scales)
    adapters = sum(int((config.get(name) or {}).get("r") or 0) for name in ("vision_lora", "speech_lora"))
    if adapters:
        totals |= {total + adapters * _adapter_width(shape) for total in totals}
    if shape.text.tied:
        totals |= {total + count.embedding for total in totals}
    ahead = int((config.get("text_config") or {}).get("mtp_num_hidden_layers") or 0)
    if ahead:
        per_layer = (count.attention + count.mlp + count.experts + count.router) // shape.text.layers
        totals |= {total + ahead * per_layer + 2 * shape.text.hidden**2 for total in totals}
    return totals


def _adapter_width(shape: ModelShape) -> int:
    """Return the parameters of one rank of adapters on the four fused matrices of every layer."""
    text = shape.text
    queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
    attention = (text.hidden + queries + 2 * keys) + (queries + text.hidden)
    return text.layers * (attention + 2 * text.hidden + 3 * text.intermediate)
