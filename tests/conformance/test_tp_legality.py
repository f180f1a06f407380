"""Rows of tp_legality.jsonl: the verdict is equal and a refusal names a rule that the engine breaks on."""

from typing import Any, Literal

import pytest

from tests.conformance.model_shapes import shape_of
from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import ModelShape

FLOOR = 450
MODES: tuple[Literal["weights", "data"], ...] = ("weights", "data")


def test_every_verdict_is_the_engines(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "tp_legality.jsonl"):
        shape = shape_of(folder, row["model"])
        if shape is None:
            continue
        for mode in MODES:
            verdict = row.get(f"mm_encoder_tp_{mode}")
            if isinstance(verdict, dict):
                run += 1
                wrong += _differences(shape, row, mode, verdict)
    assert wrong == []
    assert run >= FLOOR or pytestconfig.getoption("vectors")


def _differences(
    shape: ModelShape, row: dict[str, Any], mode: Literal["weights", "data"], verdict: dict[str, Any]
) -> list[tuple[Any, ...]]:
    broken = {violation.rule for violation in check_tensor_parallel(shape, row["tp"], mode)}
    name = (row["model"], row["tp"], mode)
    if bool(broken) == verdict["legal"]:
        return [(*name, verdict["legal"], broken)]
    written = {reason["rule"] for reason in verdict["reasons"]}
    # The rows do not always list all reasons, so one shared rule is enough.
    return [(*name, written, broken)] if written and not written & broken else []
