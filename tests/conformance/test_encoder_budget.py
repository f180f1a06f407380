"""Rows of encoder_budget.jsonl: limits, budget, items and refusals, exact, every row.

Part A gives the tokens of an item. In part B images are counted by the model's own rule, and videos where the product
counts them (Qwen3-VL's took the image's pixels in these runs, so its own figure is taken); other videos have the tokens
that the row states or that another row of the architecture does.
"""

import json
import re
from functools import cache
from typing import Any

import pytest

from tests.conformance.test_flag_cases import resolve
from tests.conformance.vectors import check_count, read_rows, vectors_folder
from vlm_operator.catalogue.load import find_model
from vlm_operator.engine.config import EngineConfig
from vlm_operator.sizing.encoder_budget import (
    EncoderRefusal,
    encoder_budget,
    encoder_items,
    encoder_tokens,
    profiled_modality,
    whole_prompts,
)
from vlm_operator.sizing.tokens import ImageTokens, ServerSettings, TokenRefusal, bind_rule
from vlm_operator.sizing.tokens.video import VideoRule, bind_video_rule

FLOOR = 638
"""Rows that the repository's own copy must reach, so that a broken reader cannot pass."""

Row = dict[str, Any]


def test_every_budget_is_the_engines(pytestconfig: pytest.Config) -> None:
    rows = list(read_rows(vectors_folder(pytestconfig), "encoder_budget.jsonl"))
    stated = _stated_videos(rows)
    wrong = [(row, difference) for row in rows for difference in _differences(row, stated)]
    assert wrong == []
    check_count(pytestconfig, len(rows), FLOOR)


def _stated_videos(rows: list[Row]) -> dict[str, int]:
    """Return the tokens of a video that accepted rows state, by architecture."""
    found = {}
    for row in rows:
        video = (row.get("max_tokens_per_item") or {}).get("video")
        if row["part"] == "B" and video:
            found[find_model(row["model"]).architecture] = video
    return found


def _differences(row: Row, stated: dict[str, int]) -> list[tuple[Any, ...]]:
    limits = _active_limits(row)
    items = _items(row, {name for name, limit in limits.items() if limit}, stated)
    if isinstance(items, TokenRefusal):
        return [("ok", True, items.message)] if row["ok"] else []
    chunked = not row.get("disable_chunked_mm_input")
    tokens = encoder_tokens(items, row["max_num_batched_tokens"], chunked=chunked)
    if isinstance(tokens, EncoderRefusal) or not row["ok"]:
        return [("ok", row["ok"], tokens)] if row["ok"] == isinstance(tokens, EncoderRefusal) else []
    figures = {
        "active_limits": limits,
        "encoder_compute_budget": tokens,
        "encoder_cache_size": tokens,
        "max_tokens_per_item": items,
        **_counted(row, items, limits, tokens),
    }
    found = [(name, row[name], got) for name, got in figures.items() if row[name] != got]
    return found + _images_alone(row, items, limits)


def _active_limits(row: Row) -> dict[str, int]:
    """Return the items that a prompt may carry: what the flag says, within what the model takes."""
    modalities = {"image": row.get("model_supported_images") or 999, "video": 999}
    if "language_model_only" in row.get("note", ""):
        return dict.fromkeys(modalities, 0)
    asked = _asked_limits(json.dumps(row["limit_mm_per_prompt"]))
    return {name: min(asked[name], most) for name, most in modalities.items()}


@cache
def _asked_limits(given: str) -> dict[str, int]:
    outcome = resolve(json.dumps(["Qwen/Qwen2.5-VL-7B-Instruct", "--limit-mm-per-prompt", given]))
    assert isinstance(outcome, EngineConfig), outcome
    return dict(outcome.limits)


def _items(row: Row, active: set[str], stated: dict[str, int]) -> dict[str, int] | TokenRefusal:
    if row["part"] == "A":
        given = {"image": row.get("image_tokens"), "video": row.get("video_tokens")}
        return {name: tokens for name, tokens in given.items() if tokens and name in active}
    card = find_model(row["model"])
    settings = ServerSettings(
        mm_processor_kwargs=row["mm_processor_kwargs"] or {}, hf_overrides=row.get("hf_overrides") or {}
    )
    image = _image_tokens(row, settings)
    if isinstance(image, TokenRefusal):
        return image
    found = {"image": image} if "image" in active else {}
    if "video" in active:
        rule = bind_video_rule(card.architecture, card.config, card.processor, settings, card.id)
        told = (row.get("max_tokens_per_item") or {}).get("video") or stated[card.architecture]
        # A video of Qwen3-VL is counted as a whole, and the rows' is none that its files ask for.
        if isinstance(rule, VideoRule) and not rule.shape.whole:
            told = rule.maximum(row["max_model_len"]).engine_tokens
        found["video"] = told
    return found


def _image_tokens(row: Row, settings: ServerSettings) -> int | TokenRefusal:
    card = find_model(row["model"])
    rule = bind_rule(card.architecture, card.config, card.processor, settings, card.id)
    if isinstance(rule, TokenRefusal) and rule.reason == "UnknownSetting":
        # The engine swallows a misspelt setting; the product refuses it and the rows have the shipped maximum.
        rule = bind_rule(card.architecture, card.config, card.processor, ServerSettings(), card.id)
    if isinstance(rule, TokenRefusal):
        return rule
    most, hint = rule.maximum(), row["limit_mm_per_prompt"].get("image")
    if not isinstance(hint, dict) or not rule.hint_lowers_budget:
        return most.engine_tokens
    smaller = (min(most.dummy_size[0], hint["width"]), min(most.dummy_size[1], hint["height"]))
    counted = rule.count_image(*smaller)
    return counted.embed_tokens if isinstance(counted, ImageTokens) else counted


def _counted(row: Row, items: dict[str, int], limits: dict[str, int], tokens: int) -> dict[str, Any]:
    """Return the items of a prompt and of a batch, and the batch that the engine profiles with."""
    budgets = {
        name: encoder_items(
            tokens,
            tokens_per_item=most,
            limit=limits[name],
            max_model_len=row["max_model_len"],
            max_num_seqs=_sequences(row, most),
        )
        for name, most in items.items()
    }
    largest = profiled_modality(items)
    count = budgets[largest].items_per_batch if largest else 0
    return {
        "items_per_prompt": {name: budget.items_per_prompt for name, budget in budgets.items()},
        "items_per_batch": {name: budget.items_per_batch for name, budget in budgets.items()},
        "profiled": {"modality": largest, "items": count, "tokens": count * items[largest]} if largest else None,
    }


def _sequences(row: Row, tokens_per_item: int) -> int:
    if row.get("enable_chunked_prefill", True):
        return int(row["max_num_seqs"])
    return whole_prompts(row["max_num_seqs"], row["max_num_batched_tokens"], tokens_per_item)


def _images_alone(row: Row, items: dict[str, int], limits: dict[str, int]) -> list[tuple[Any, ...]]:
    """Compare a server that takes images alone with the planner's one step from flags to budget."""
    if set(items) != {"image"}:
        return []
    budget = encoder_budget(
        max_num_batched_tokens=row["max_num_batched_tokens"],
        max_tokens_per_item=items["image"],
        chunked=not row.get("disable_chunked_mm_input"),
        limit=limits["image"],
        max_model_len=row["max_model_len"],
        max_num_seqs=_sequences(row, items["image"]),
    )
    if isinstance(budget, EncoderRefusal):
        return [("ok", True, budget.message)]
    wanted = (row["encoder_cache_size"], row["items_per_prompt"]["image"], row["items_per_batch"]["image"])
    got = (budget.tokens, budget.items_per_prompt, budget.items_per_batch)
    return [] if got == wanted else [("images alone", wanted, got)]


def test_a_prefix_lm_image_has_to_fit_into_one_step() -> None:
    refused = encoder_tokens({"image": 256}, 128, chunked=False)
    assert isinstance(refused, EncoderRefusal)
    assert re.search("image of 256 .* at least 256", refused.message)
    refused = encoder_tokens({"image": 280, "video": 2496}, 2048, chunked=False)
    assert isinstance(refused, EncoderRefusal)
    assert re.search("video of 2,496 .* at least 2,496", refused.message)
