"""Rows of weights.jsonl: parameters, split and bytes per rank within 0.5 %; quantised rows are not built."""

from typing import Any

import pytest

from tests.conformance.model_shapes import model_configs, shape_of
from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.sizing.shape import ModelShape
from vlm_operator.sizing.weights import count_parameters, weights_per_rank

TOLERANCE = 0.005
FLOOR = 20
PARTS = ("embedding", "lm_head", "attention", "mlp", "norms", "vision_tower", "projector")


def test_every_row_within_half_a_per_cent(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "weights.jsonl"):
        shape = shape_of(folder, row["model"])
        if shape is None or row["quantization"] is not None:
            continue
        run += 1
        wrong += _split_differences(shape, row) + _rank_differences(shape, row)
    assert wrong == []
    assert run >= FLOOR or pytestconfig.getoption("vectors")


def test_published_parameter_totals(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    wrong = []
    for model, card in model_configs(folder).items():
        shape = shape_of(folder, model)
        if shape is not None and card["params_total"] and _far(count_parameters(shape).total, card["params_total"]):
            wrong.append((model, card["params_total"], count_parameters(shape).total))
    assert wrong == []


def test_rank_bytes_of_a_published_start_up_log(pytestconfig: pytest.Config) -> None:
    # "Model loading took 34.43 GiB": Qwen2.5-VL-72B, one of four ranks.
    shape = shape_of(vectors_folder(pytestconfig), "Qwen/Qwen2.5-VL-72B-Instruct")
    assert shape is not None
    assert weights_per_rank(shape, 4).total / 2**30 == pytest.approx(34.43, rel=TOLERANCE)


def _far(got: int, expected: int) -> bool:
    return abs(got - expected) > TOLERANCE * expected


def _split_differences(shape: ModelShape, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    count = count_parameters(shape)
    split = row["vllm_split_tp1"]
    figures = [(part, split.get(part, 0), getattr(count, part)) for part in PARTS]
    figures.append(("params_total", row["params_total"], count.total))
    return [(row["model"], *figure) for figure in figures if _far(figure[2], figure[1])]


def _rank_differences(shape: ModelShape, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    wrong: list[tuple[Any, ...]] = []
    for mode in ("weights", "data"):
        ranks = row["bytes_per_rank"].get(mode)
        if not isinstance(ranks, dict):
            continue
        for size, rank in ranks.items():
            if rank is None:
                continue
            got = weights_per_rank(shape, int(size), "data" if mode == "data" else "weights")
            pairs = [("params", got.parameter_bytes), ("load_bytes", got.total)]
            wrong += [(row["model"], mode, size, n, rank[n], v) for n, v in pairs if _far(v, rank[n])]
            parts = rank["by_component"].items()
            wrong += [(row["model"], mode, size, n, v, getattr(got, n)) for n, v in parts if _far(getattr(got, n), v)]
    return wrong
