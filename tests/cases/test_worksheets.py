"""Sheets that planners use: their arithmetic from the product's own functions, and where a plan says something else.

The tables in ``docs/concepts/worksheets.md`` are made here; UPDATE_GOLDENS=1 writes them anew.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import situations
from tests.cases.situations import declare, pictures, plan, rule_of, shape_of
from vlm_operator.catalogue.load import find_model
from vlm_operator.sizing.kv_cache import kv_bytes_per_token
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.tokens.rule_of_thumb import estimate_tiles
from vlm_operator.sizing.tokens.types import ImageTokens
from vlm_operator.sizing.weights import weights_per_rank
from vlm_operator.units import GIB

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "worksheets.md"
LLAVA = "llava-hf/llava-v1.6-mistral-7b-hf"
LLAMA_11B = "meta-llama/Llama-3.2-11B-Vision-Instruct"
QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN_72B = "Qwen/Qwen2.5-VL-72B-Instruct"
H100 = "h100-80gb-sxm"
CARDS = {24: "l4", 48: "l40s", 80: H100}
CAP = 1280 * 28 * 28
PHOTOGRAPH, FRAME_4K = (4032, 3024), (3840, 2160)
FAMILIES = (
    QWEN_7B,
    "Qwen/Qwen3-VL-8B-Instruct",
    "OpenGVLab/InternVL3-8B",
    "google/gemma-3-12b-it",
    "llava-hf/llava-1.5-7b-hf",
    "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
    "HuggingFaceM4/Idefics3-8B-Llama3",
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"


def check_page(name: str, written: str) -> None:
    """Hold a table of the page against ``written``, or write it."""
    block = re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
    if os.environ.get("UPDATE_GOLDENS"):
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(block.sub(lambda found: found[1] + written + found[3], text), encoding="utf-8")
    found = block.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2] == written


def tokens_of(model: str, size: tuple[int, int], **kwargs: Any) -> int:
    counted = rule_of(model, **kwargs).count_image(*size)
    assert isinstance(counted, ImageTokens)
    return counted.embed_tokens


def fits(verdict: Plan | NoFit) -> Plan:
    assert isinstance(verdict, Plan), verdict.message
    return verdict


def of_lengths(prompt: int, output: int) -> dict[str, Any]:
    return {
        "text": {"promptTokens": {"p50": prompt, "p99": prompt}},
        "output": {"tokens": {"p50": output, "max": output}},
    }


def peak_requests(planned: Plan) -> int:
    """Return how many requests of the 99th percentile the KV cache of one replica holds."""
    cache = next(limit for limit in planned.limits if limit.name == "KV cache")
    return cache.limit // planned.tokens.request_p99


def test_64_streams_of_an_11b_model_take_34_gib_on_the_sheet_and_one_gpu_in_the_plan() -> None:
    weights = 2 * 11_000_000_000
    per_token = kv_bytes_per_token(shape_of(LLAVA), 1, "fp8")
    stream = (2048 + 300) * per_token
    assert per_token == 2 * 32 * 8 * 128
    assert weights / GIB == pytest.approx(20.49, abs=0.005)
    assert stream / GIB == pytest.approx(0.143, abs=0.0005)
    assert 64 * stream / GIB == pytest.approx(9.17, abs=0.005)
    assert 1.15 * (weights + 64 * stream) / GIB == pytest.approx(34.11, abs=0.01)
    asked: dict[str, Any] = {
        "running": 64,
        "workload": of_lengths(1, 300),
        "quality": {"allowedKVCacheDtypes": ["fp8"]},
        "accelerators": {"allowed": [H100]},
    }
    planned = fits(plan(declare(LLAVA, pictures((540, 340)), **asked)))
    assert (planned.replicas, planned.gpus_per_replica) == (1, 1)
    assert planned.flags.kv_cache_dtype == "fp8"
    assert peak_requests(planned) >= 1.2 * 64
    refused = plan(declare(LLAMA_11B, pictures((560, 560)), **asked))
    assert isinstance(refused, NoFit)
    assert (refused.reason, "0.10.2" in refused.message) == ("Unservable", True)
    ours = planned.tokens.request_p99 * per_token
    rows = [
        ("weights", gib(weights), gib(weights_per_rank(shape_of(LLAVA), 1).total)),
        ("KV cache per token", f"{2 * 32 * 8 * 128:,} B", f"{kv_bytes_per_token(shape_of(LLAVA), 1, 'fp8'):,} B"),
        ("tokens of a stream", f"{2048 + 300:,}", f"{planned.tokens.request_p99:,}"),
        ("KV cache of a stream", f"{stream / GIB:.3f} GiB", f"{ours / GIB:.3f} GiB"),
        ("KV cache of 64 streams", gib(64 * stream), gib(64 * ours)),
        ("with 15 % on top", gib(1.15 * (weights + 64 * stream)), "each part by itself"),
        ("80 GB cards", "1", str(planned.gpus_per_replica * planned.replicas)),
    ]
    check_page("streams", table(("", "sheet, 11B", f"plan, {LLAVA.partition('/')[2]}"), rows))


def test_four_photographs_of_32_requests_take_107_gib_uncapped_and_a_tenth_under_a_cap() -> None:
    per_token = kv_bytes_per_token(shape_of(QWEN_7B), 1)
    full, capped = (4 * tokens_of(QWEN_7B, PHOTOGRAPH, **kwargs) + 300 + 512 for kwargs in ({}, {"max_pixels": CAP}))
    assert 32 * full * per_token / GIB == pytest.approx(107.7, abs=0.05)
    assert 32 * capped * per_token / GIB == pytest.approx(9.8, abs=0.05)
    plans = [
        fits(
            plan(
                declare(
                    QWEN_7B,
                    pictures(PHOTOGRAPH, count=4),
                    running=32,
                    workload=of_lengths(300, 512),
                    quality=quality,
                    accelerators={"allowed": [H100], "maxPerReplica": 1},
                )
            )
        )
        for quality in ({}, {"minImageTokens": tokens_of(QWEN_7B, PHOTOGRAPH, max_pixels=CAP)})
    ]
    whole, cut = plans
    assert whole.tokens.image_max == tokens_of(QWEN_7B, PHOTOGRAPH)
    assert cut.tokens.image_max == tokens_of(QWEN_7B, PHOTOGRAPH, max_pixels=CAP)
    assert whole.replicas > cut.replicas == 1
    rows = [
        ("tokens of a photograph", *(f"{p.tokens.image_max:,}" for p in plans)),
        ("tokens of a request, sheet", f"{full:,}", f"{capped:,}"),
        ("tokens of a request, plan", *(f"{p.tokens.request_max:,}" for p in plans)),
        ("KV cache of 32 requests, sheet", *(f"{32 * tokens * per_token / GIB:.1f} GiB" for tokens in (full, capped))),
        ("KV cache of 32 requests, plan", *(gib(32 * p.tokens.request_max * per_token) for p in plans)),
        ("replicas on single H100 80GB, plan", *(str(p.replicas) for p in plans)),
    ]
    check_page("photographs", table(("", "uncapped", "capped at 1280·28·28"), rows))


def test_a_flat_reserve_promises_more_kv_cache_than_a_card_has() -> None:
    weights = 2 * (find_model(QWEN_7B).parameters or 0)
    sheet = {card: 0.92 * card - weights / GIB - 1.5 for card in CARDS}
    assert weights / GIB == pytest.approx(15.45, abs=0.005)
    assert sheet[24] == pytest.approx(5.13, abs=0.01)
    rows = []
    for card, gpu in CARDS.items():
        limits = {"allowed": [gpu], "maxPerReplica": 1}
        planned = fits(plan(declare(QWEN_7B, pictures((1024, 1024)), accelerators=limits, scaling={"maxReplicas": 1})))
        cache = planned.memory.part("KV cache").size_bytes / GIB
        seen = situations.gpu_of(gpu).engine_memory_bytes / GIB
        assert cache < sheet[card]
        assert seen < card
        shares = (f"{0.92 * card:.2f}", f"{seen:.1f}", f"{sheet[card]:.2f}", f"{cache:.1f}")
        rows.append((planned.gpu.display_name, *(f"{share} GiB" for share in shares)))
    check_page("cards", table(("", "0.92 × card", "seen by the engine", "KV cache, sheet", "KV cache, plan"), rows))


def test_the_72b_on_two_80_gb_cards_holds_two_4k_frames_on_the_sheet_only() -> None:
    weights = 2 * (find_model(QWEN_72B).parameters or 0)
    left = 2 * (0.92 * 80 - 1.5) - weights / GIB
    per_frame = tokens_of(QWEN_72B, FRAME_4K) * kv_bytes_per_token(shape_of(QWEN_72B), 1) / GIB
    assert int(left / per_frame) == 2
    verdicts = [
        plan(
            declare(
                QWEN_72B,
                pictures(FRAME_4K),
                running=2,
                accelerators={"allowed": [H100], "maxPerReplica": most},
                scaling={"maxReplicas": 1},
            )
        )
        for most in (2, 8)
    ]
    refused, planned = verdicts
    assert isinstance(refused, NoFit)
    two = next(miss for miss in refused.nearest if miss.gpus_per_replica == 2)
    assert re.search(r"weights 68\.\d GiB per GPU leave \d\.\d GiB for KV cache", two.message)
    assert fits(planned).gpus_per_replica == 4
    rows = [
        ("left by the sheet on two cards", f"{left:.1f} GiB"),
        ("KV cache of a 4K frame", f"{per_frame:.1f} GiB"),
        ("frames at once, sheet", f"{left / per_frame:.1f}"),
        ("two cards, plan", two.message.partition(": ")[2]),
        ("cards, plan", str(fits(planned).gpus_per_replica)),
    ]
    check_page("rig", table(("", ""), rows))


def test_the_tile_rule_counts_several_times_what_families_count() -> None:
    guess = estimate_tiles(1536, 1024)
    assert guess == (12, 9024)
    exact = {model: tokens_of(model, (1536, 1024)) for model in FAMILIES}
    assert all(tokens < guess.tokens for tokens in exact.values())
    assert len(set(exact.values())) >= len(FAMILIES) - 1
    rows = [("rule of thumb", f"{guess.tokens:,}", "")]
    rows += [(model, f"{tokens:,}", f"{guess.tokens / tokens:.1f} ×") for model, tokens in exact.items()]
    check_page("tiles", table(("1536 × 1024", "tokens", "rule / exact"), rows))
