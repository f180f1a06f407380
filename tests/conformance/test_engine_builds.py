"""Rows of engine_builds.jsonl: what the engine's own model classes hold and keep, exact.

Each row is one configuration that the engine built for rank 0 without storage. Sizes are small where a configuration
was made up for the row: what is compared is which matrices there are, which of them ranks share, and what each layer
keeps of a request.
"""

from collections import Counter
from typing import Any

import pytest

from tests.conformance.vectors import check_count, read_rows, vectors_folder
from vlm_operator.sizing.shape import AttentionLayers, ModelShape, StateLayers, read_shape
from vlm_operator.sizing.weights import weights_per_rank

ROWS = 100
BFLOAT16 = 2


def test_every_build_is_the_engines(pytestconfig: pytest.Config) -> None:
    run = 0
    wrong: list[tuple[object, ...]] = []
    for row in read_rows(vectors_folder(pytestconfig), "engine_builds.jsonl"):
        run += 1
        shape = read_shape(row["architecture"], row["config"])
        case = (row["architecture"], row["tensor_parallel_size"], row["encoder_mode"])
        if not isinstance(shape, ModelShape):
            wrong.append((*case, shape.message))
            continue
        wrong += [(*case, *found) for found in _differences(shape, row)]
    assert wrong == []
    check_count(pytestconfig, run, ROWS)


def _differences(shape: ModelShape, row: dict[str, Any]) -> list[tuple[str, object, object]]:
    got = weights_per_rank(shape, row["tensor_parallel_size"], row["encoder_mode"])
    pairs: tuple[tuple[str, object, object], ...] = (
        ("language_model", row["bytes"]["language_model"], got.parameter_bytes - got.encoder - got.audio),
        ("vision", row["bytes"]["vision"], got.encoder),
        ("audio", row["bytes"]["audio"], got.audio),
        ("data mode", row["supports_encoder_data_parallel"], shape.supports_encoder_data_parallel),
        ("layers", Counter({tuple(kept): count for *kept, count in row["layers"]}), _layers(shape, row)),
    )
    return [pair for pair in pairs if pair[1] != pair[2]]


def _layers(shape: ModelShape, row: dict[str, Any]) -> Counter[tuple[object, ...]]:
    """Return how many layers keep (kind, heads, width, reach) of a token, or a state of so many bytes."""
    size = row["tensor_parallel_size"]
    found: Counter[tuple[object, ...]] = Counter()
    for kept in shape.text.kv_layers:
        if isinstance(kept, AttentionLayers):
            found[kept.kind, kept.heads_on(size), kept.key_dim, kept.reach] += kept.layers
        if isinstance(kept, StateLayers):
            found["MambaSpec", kept.bytes_on(size, BFLOAT16)] += kept.layers
    return found
