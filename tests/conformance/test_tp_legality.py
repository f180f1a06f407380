"""Rows of tp_legality.jsonl: the verdict is equal and a refusal names a rule that the engine breaks on."""

from typing import Any, Literal

import pytest

from tests.conformance.model_shapes import shape_of
from tests.conformance.vectors import check_count, read_rows, vectors_folder
from vlm_operator.sizing.legality import check_tensor_parallel
from vlm_operator.sizing.shape import ModelShape

VERDICTS = 2255
MODES: dict[str, tuple[Literal["weights", "data"], bool]] = {
    "mm_encoder_tp_weights": ("weights", False),
    "mm_encoder_tp_data": ("data", False),
    "language_model_only": ("weights", False),
    "expert_parallel": ("weights", True),
}
"""Encoder mode and expert parallelism of each verdict; serving the language model alone waives nothing."""


def test_every_verdict_is_the_engines(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong: list[tuple[Any, ...]] = []
    for row in read_rows(folder, "tp_legality.jsonl"):
        shape = shape_of(folder, row["model"])
        for name in MODES:
            verdict = row.get(name)
            if isinstance(verdict, dict):
                run += 1
                wrong += [(row["model"], "no shape")] if shape is None else _differences(shape, row, name)
    assert wrong == []
    check_count(pytestconfig, run, VERDICTS)


def _differences(shape: ModelShape, row: dict[str, Any], name: str) -> list[tuple[Any, ...]]:
    mode, expert_parallel = MODES[name]
    verdict = row[name]
    violations = check_tensor_parallel(shape, row["tp"], mode, expert_parallel=expert_parallel)
    broken = {violation.rule for violation in violations}
    case = (row["model"], row["tp"], name)
    if bool(broken) == verdict["legal"]:
        return [(*case, verdict["legal"], broken)]
    written = {reason["rule"] for reason in verdict["reasons"]}
    # The rows do not always list all reasons, so one shared rule is enough.
    return [(*case, written, broken)] if written and not written & broken else []
