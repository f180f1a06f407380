"""Rows of encoder_budget.jsonl: budget, items and refusals, exact, from the row's tokens per item.

Image-only rows go through ``encoder_budget``, rows with a video through its parts: the planner always renders
``video: 0``. The rows without chunked prefill need one more rule that the planner never meets (it never turns
chunked prefill off) and are left out.
"""

from typing import Any

import pytest

from tests.conformance.vectors import read_rows, vectors_folder
from vlm_operator.sizing.memory import EncoderRefusal, encoder_budget, encoder_items, encoder_tokens

FLOOR = 500


def test_every_budget_is_the_engines(pytestconfig: pytest.Config) -> None:
    run = 0
    wrong = []
    for row in read_rows(vectors_folder(pytestconfig), "encoder_budget.jsonl"):
        if not row.get("enable_chunked_prefill", True) or _items(row) is None:
            continue
        run += 1
        differences = [(name, want, got) for name, want, got in _figures(row) if want != got]
        wrong += [(row, difference) for difference in differences]
    assert wrong == []
    assert run >= FLOOR or pytestconfig.getoption("vectors")


def _modalities(row: dict[str, Any], items: dict[str, int]) -> list[tuple[str, Any, Any]]:
    budgets = {
        name: encoder_items(
            row["encoder_compute_budget"],
            tokens_per_item=tokens,
            limit=row["active_limits"][name],
            max_model_len=row["max_model_len"],
            max_num_seqs=row["max_num_seqs"],
        )
        for name, tokens in items.items()
    }
    return [
        ("items_per_prompt", row["items_per_prompt"], {name: b.items_per_prompt for name, b in budgets.items()}),
        ("items_per_batch", row["items_per_batch"], {name: b.items_per_batch for name, b in budgets.items()}),
    ]


def _items(row: dict[str, Any]) -> dict[str, int] | None:
    """Return the tokens per item; a refused row gives them in part A only."""
    if row["ok"]:
        return {name: tokens for name, tokens in row["max_tokens_per_item"].items() if tokens}
    limits = row["limit_mm_per_prompt"] or {}
    given = {"image": row.get("image_tokens"), "video": row.get("video_tokens")}
    items = {name: tokens for name, tokens in given.items() if tokens and _count(limits.get(name, 999))}
    return items or None


def _count(limit: Any) -> int:
    return int(limit.get("count", 999)) if isinstance(limit, dict) else int(limit)


def _figures(row: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    items = _items(row) or {}
    chunked = not row.get("disable_chunked_mm_input")
    tokens = encoder_tokens(items, row["max_num_batched_tokens"], chunked=chunked)
    if not row["ok"]:
        return [("ok", False, not isinstance(tokens, EncoderRefusal))]
    figures = [
        ("compute", row["encoder_compute_budget"], tokens),
        ("cache", row["encoder_cache_size"], tokens),
    ]
    if set(items) != {"image"}:
        return figures + _modalities(row, items)
    budget = encoder_budget(
        max_num_batched_tokens=row["max_num_batched_tokens"],
        max_tokens_per_item=items["image"],
        chunked=chunked,
        limit=row["active_limits"]["image"],
        max_model_len=row["max_model_len"],
        max_num_seqs=row["max_num_seqs"],
    )
    if isinstance(budget, EncoderRefusal):
        return [("ok", True, False)]
    profiled = {
        "modality": "image",
        "items": budget.items_per_batch,
        "tokens": budget.items_per_batch * items["image"],
    }
    return [
        *figures,
        ("items_per_prompt", row["items_per_prompt"]["image"], budget.items_per_prompt),
        ("items_per_batch", row["items_per_batch"]["image"], budget.items_per_batch),
        ("profiled", row["profiled"], profiled),
    ]
