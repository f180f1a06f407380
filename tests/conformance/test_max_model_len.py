"""Rows of max_model_len.jsonl: the derived context length, exact.

Left out, with the reason: rows whose environment raises the limit and rows that disable sliding windows (the
planner never sets either); checkpoints whose config.json has no length and whose class is not built;
checkpoints whose processor or config class stops the engine before it looks at the length.
"""

from typing import Any

import pytest

from tests.conformance.model_shapes import model_configs, shape_of
from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.sizing.legality import derive_max_model_len

FLOOR = 90
LENGTH_KEYS = {"max_position_embeddings", "max_seq_len", "model_max_length"}
OTHER_FAILURES = frozenset({"moonshotai/Kimi-K2.5", "tencent/HunyuanOCR"})


def test_every_length_is_the_engines(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "max_model_len.jsonl"):
        card = model_configs(folder).get(row["model"])
        unset = row.get("env") or "disable_sliding_window" in row["flags"]
        if card is None or unset or row["model"] in OTHER_FAILURES:
            continue
        config = _config(card["config"], row)
        if shape_of(folder, row["model"]) is None and not LENGTH_KEYS & config["text_config"].keys():
            continue
        run += 1
        got = derive_max_model_len(config, row["flags"].get("max_model_len"))
        length = got if isinstance(got, int) else None
        if length != (row["max_model_len"] if row["ok"] else None):
            wrong.append((row["model"], row["note"], row.get("max_model_len"), got))
    assert wrong == []
    assert run >= FLOOR or pytestconfig.getoption("vectors")


def _config(config: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as the row was run with it: rope and overrides land in the text part."""
    nested = next((name for name in ("text_config", "llm_config", "language_config") if name in config), None)
    inner = dict(config[nested]) if nested else dict(config)
    if any("rope" in change for change in row.get("config_changes", ())) and not inner.get("rope_scaling"):
        inner["rope_scaling"] = row["rope"][0]
    overrides = row["flags"].get("hf_overrides", {})
    inner.update(overrides.get("text_config", {}))
    outer = {**config, **{key: value for key, value in overrides.items() if key != "text_config"}}
    return {**outer, "text_config": inner}
