"""Rows of max_model_len.jsonl: the derived context length, exact.

Left out, with the reason: two checkpoints whose processor or config class stopped the engine before it looked at
the length (the rows were run without their real tokenizer and remote code).
"""

from typing import Any

import pytest

from tests.conformance.model_shapes import change_config, model_configs
from tests.conformance.vectors import check_count, read_rows, vectors_folder
from vlm_operator.sizing.legality import derive_max_model_len

ROWS = 118
OTHER_FAILURES = frozenset({"moonshotai/Kimi-K2.5", "tencent/HunyuanOCR"})


def test_every_length_is_the_engines(pytestconfig: pytest.Config) -> None:
    folder = vectors_folder(pytestconfig)
    run = 0
    wrong = []
    for row in read_rows(folder, "max_model_len.jsonl"):
        card = model_configs(folder).get(row["model"])
        if row["model"] in OTHER_FAILURES:
            continue
        run += 1
        got = None if card is None else _derive(card["config"], row)
        length = got if isinstance(got, int) else None
        if length != (row["max_model_len"] if row["ok"] else None):
            wrong.append((row["model"], row["note"], row.get("max_model_len"), got))
    assert wrong == []
    check_count(pytestconfig, run, ROWS)


def _derive(config: dict[str, Any], row: dict[str, Any]) -> object:
    flags = row["flags"]
    return derive_max_model_len(
        _config(change_config(config, row.get("config_changes") or ()), row),
        flags.get("max_model_len"),
        allow_longer=(row.get("env") or {}).get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1",
        disable_sliding_window=bool(flags.get("disable_sliding_window")),
    )


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
