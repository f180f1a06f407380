"""What practice advises comes out of the numbers: change the numbers and the advice changes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.situations import declare, flags_of, gpu_of, pictures, plan
from vlm_operator.errors import InputError
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.inventory import Inventory, NodeShape, Resources
from vlm_operator.sizing.plan import NoFit, Plan

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN_8B = "Qwen/Qwen3-VL-8B-Instruct"
QWEN_72B = "Qwen/Qwen2.5-VL-72B-Instruct"
INTERN_78B = "OpenGVLab/InternVL3-78B"
H100, H200, B200 = "h100-80gb-sxm", "h200-sxm", "b200-sxm"
PAGES = pictures((2048, 1536), count=4)


def priced(**cents: float) -> Inventory:
    """Return whole nodes of these GPUs at these prices per GPU and hour; names with underscores."""
    kinds = (gpu_of(name.replace("_", "-"), hourly_cents=price) for name, price in cents.items())
    return Inventory(shapes=tuple(NodeShape(gpu=kind, gpus_per_node=8) for kind in kinds))


def quick(resource: Any, inventory: Inventory | None = None) -> Plan:
    """Return the plan by closed formulas."""
    verdict = plan_deployment(resource.spec, inventory or catalogue_inventory(), simulate=False)
    assert isinstance(verdict, Plan), verdict.message
    return verdict


def sure(resource: Any, inventory: Inventory | None = None) -> Plan:
    verdict = plan(resource, inventory)
    assert isinstance(verdict, Plan), verdict.message
    return verdict


@pytest.mark.parametrize(("model", "images"), [(QWEN_72B, pictures((1024, 1024), count=2)), (QWEN_8B, PAGES)])
def test_faster_memory_ranks_first_by_cost_per_image_where_its_price_allows_and_only_there(
    model: str, images: dict[str, Any]
) -> None:
    """Image-heavy work at a high rate: H200 and Blackwell against H100, at prices that favour each in turn."""
    busy = declare(model, images, workload={"traffic": {"requestsPerMinute": 600}})
    winners = set()
    for h100, h200, b200 in ((100, 100, 300), (100, 105, 150), (100, 160, 400), (40, 100, 400), (100, 95, 300)):
        prices = {"h100_80gb_sxm": h100, "h200_sxm": h200, "b200_sxm": b200}
        alone = {
            gpu: sure(busy, priced(**{gpu: price})).cents_per_thousand_images or 0.0 for gpu, price in prices.items()
        }
        best = sure(busy, priced(**prices))
        assert best.cents_per_thousand_images == pytest.approx(min(alone.values()))
        assert best.gpu.id.replace("-", "_") in {gpu for gpu, cents in alone.items() if cents == min(alone.values())}
        assert best.gpu.display_name in best.reasons[1].partition(";")[0]
        winners.add(best.gpu.id)
    assert winners == {H100, H200, B200}


def test_at_equal_prices_faster_memory_never_loses() -> None:
    equal = priced(h100_80gb_sxm=100, h200_sxm=100, b200_sxm=100)
    for model, images in ((QWEN_72B, pictures((1024, 1024), count=2)), (QWEN_8B, PAGES)):
        busy = declare(model, images, workload={"traffic": {"requestsPerMinute": 600}})
        assert sure(busy, equal).gpu.id == B200


@pytest.mark.parametrize(
    ("model", "images", "traffic"),
    [
        (QWEN_7B, pictures((1024, 1024)), {"concurrentRequests": 64}),
        (QWEN_7B, PAGES, {"requestsPerMinute": 240, "burstPercent": 200}),
        (INTERN_78B, pictures((1024, 1024), count=2), {"concurrentRequests": 16}),
        ("google/gemma-3-12b-it", pictures((800, 600)), {"requestsPerMinute": 120}),
    ],
)
def test_the_kv_cache_keeps_a_fifth_beyond_the_declared_peak(
    model: str, images: dict[str, Any], traffic: dict[str, int]
) -> None:
    planned = sure(declare(model, images, workload={"traffic": traffic}))
    cache = next(limit for limit in planned.limits if limit.name == "KV cache")
    assert cache.limit >= 1.2 * cache.needed
    assert any("20 % or more is kept in reserve" in reason for reason in planned.reasons)


def test_a_smaller_reserve_is_taken_only_where_nothing_else_fits_and_is_said() -> None:
    def one_card(running: int, cards: int) -> Plan | NoFit:
        node = NodeShape(gpu=gpu_of("l4"), gpus_per_node=cards, free_by_node=(Resources(gpus=cards),))
        resource = declare(QWEN_7B, pictures((1024, 1024)), running=running, accelerators={"maxPerReplica": 1})
        return plan_deployment(resource.spec, Inventory(shapes=(node,)), simulate=False, suggest=False)

    alone = one_card(1, 1)
    assert isinstance(alone, Plan)
    counts = range(2 * alone.concurrent_requests, 0, -1)
    most = next(running for running in counts if isinstance(one_card(running, 1), Plan))
    full = one_card(most, 1)
    assert isinstance(full, Plan)
    assert full.tight_kv_cache
    assert any("less than the usual reserve of 20 %" in reason for reason in full.reasons)
    roomy = one_card(most, 2)
    assert isinstance(roomy, Plan)
    assert (roomy.replicas, roomy.tight_kv_cache) == (2, False)


def test_prompts_are_always_computed_in_chunks() -> None:
    resource = declare(QWEN_7B, PAGES)
    planned = sure(resource)
    assert "--no-enable-chunked-prefill" not in flags_of(resource, planned)
    assert any(reason.startswith("prompts are computed in chunks: a step takes at most") for reason in planned.reasons)
    with pytest.raises(InputError, match="chunked prefill"):
        plan(declare(QWEN_7B, PAGES, engine={"extraArgs": ["--no-enable-chunked-prefill"]}))


def on_one_h100(step: int | None = None, **objectives: int) -> Plan | NoFit:
    """Return the plan for 32 streams of two images on a single H100, with steps or targets in milliseconds at p95."""
    spec: dict[str, Any] = {
        "accelerators": {"allowed": [H100], "maxPerReplica": 1},
        "scaling": {"maxReplicas": 1},
        "objectives": {name: {"percentile": 95, "milliseconds": value} for name, value in objectives.items()},
    }
    if step is not None:
        spec["engine"] = {"extraArgs": [f"--max-num-batched-tokens={step}"]}
    resource = declare(QWEN_7B, pictures((2048, 1536), count=2), running=32, **spec)
    return plan_deployment(resource.spec, catalogue_inventory(), suggest=False)


def test_steps_are_as_large_as_memory_allows_until_tpot_asks_for_smaller_ones() -> None:
    large, middle, small = (on_one_h100(step) for step in (8192, 2048, 512))
    assert isinstance(large, Plan)
    assert isinstance(middle, Plan)
    assert isinstance(small, Plan)
    tpots = [tried.latency.tpot.p95 for tried in (large, middle, small)]
    assert tpots == sorted(tpots, reverse=True)
    free = on_one_h100()
    assert isinstance(free, Plan)
    assert free.flags.max_num_batched_tokens == 8192
    target = round(500 * (tpots[1] + tpots[2]))  # between what steps of 2,048 and of 512 tokens reach
    assert isinstance(on_one_h100(8192, tpot=target), NoFit)
    paced = on_one_h100(tpot=target)
    assert isinstance(paced, Plan)
    assert paced.flags.max_num_batched_tokens == 512
    assert paced.latency.tpot.p95 <= target / 1000
    assert paced.hourly_cents == free.hourly_cents
    assert any("at most 512 tokens, since larger steps miss" in reason for reason in paced.reasons)


def test_steps_so_small_that_prompts_queue_are_not_taken_where_ttft_is_declared() -> None:
    large, small = on_one_h100(8192), on_one_h100(512)
    assert isinstance(large, Plan)
    assert isinstance(small, Plan)
    assert small.latency.ttft.p50 > 2 * large.latency.ttft.p50
    ttft, tpot = round(1200 * large.latency.ttft.p95), round(1100 * large.latency.tpot.p95)
    both = on_one_h100(ttft=ttft, tpot=tpot)
    assert isinstance(both, Plan)
    assert both.flags.max_num_batched_tokens > 512


def test_a_ttft_that_large_steps_miss_under_traffic_is_kept_by_smaller_ones() -> None:
    def served(target: int | None = None, step: int | None = None) -> Plan | NoFit:
        spec: dict[str, Any] = {"accelerators": {"allowed": [H100], "maxPerReplica": 4}, "scaling": {"maxReplicas": 1}}
        if target is not None:
            spec["objectives"] = {"ttft": {"percentile": 95, "milliseconds": target}}
        if step is not None:
            spec["engine"] = {"extraArgs": [f"--max-num-batched-tokens={step}"]}
        traffic = {"requestsPerMinute": 45}
        resource = declare(QWEN_72B, pictures((2048, 1536), count=2), workload={"traffic": traffic}, **spec)
        return plan_deployment(resource.spec, catalogue_inventory(), tensor_parallel_size=4, suggest=False)

    large, middle = served(step=8192), served(step=2048)
    assert isinstance(large, Plan)
    assert isinstance(middle, Plan)
    assert middle.latency.ttft.p95 < large.latency.ttft.p95
    target = round(500 * (middle.latency.ttft.p95 + large.latency.ttft.p95))
    kept = served(target)
    assert isinstance(kept, Plan)
    assert kept.flags.max_num_batched_tokens < 8192
    late = next(reason for reason in kept.reasons if reason.startswith("larger steps are late"))
    assert "TTFT p95" in late
    assert "steps of 8,192 tokens" in late


@settings(max_examples=10, deadline=None)
@given(
    repeats=st.lists(st.integers(0, 100), min_size=2, max_size=2).map(sorted),
    shared=st.integers(0, 300),
    rate=st.integers(10, 2000),
    model=st.sampled_from((QWEN_7B, QWEN_8B, "OpenGVLab/InternVL3-8B")),
)
def test_images_that_come_again_and_shared_prefixes_never_make_a_plan_dearer(
    repeats: list[int], shared: int, rate: int, model: str
) -> None:
    costs = []
    for repeat, prefix in zip(repeats, (0, shared), strict=True):
        workload = {
            "traffic": {"requestsPerMinute": rate},
            "text": {"promptTokens": {"p50": 300, "p99": 300}, "sharedPrefixTokens": prefix},
        }
        planned = quick(declare(model, {**PAGES, "repeatPercent": repeat}, workload=workload))
        costs.append(planned.hourly_cents or 0.0)
    assert costs[1] <= costs[0]


def test_what_caches_save_is_credited_and_said() -> None:
    icons = pictures((448, 448), count=8)  # 196 tokens each: the encoder's cache keeps dozens of them
    costs = []
    for repeat in (0, 50, 90):
        busy = declare(QWEN_8B, {**icons, "repeatPercent": repeat}, workload={"traffic": {"requestsPerMinute": 6000}})
        planned = sure(busy)
        costs.append(planned.hourly_cents or 0.0)
        said = [reason for reason in planned.reasons if f"{repeat} % of the images come again" in reason]
        assert len(said) == (repeat > 0)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


@pytest.mark.parametrize(
    ("model", "images", "gpu", "size", "mode"),
    [
        (QWEN_72B, pictures((1024, 1024)), H100, 4, "weights"),  # one image: ranks that share it answer first
        (QWEN_72B, pictures((1024, 1024), count=8), H100, 8, "data"),
        (INTERN_78B, pictures((1024, 1024), count=4), H100, 8, "data"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", pictures((1024, 1024)), H100, 2, "weights"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", pictures((1024, 1024)), "l40s", 4, "data"),  # all-reduce over PCIe
    ],
)
def test_whole_images_are_dealt_to_gpus_where_that_answers_sooner_and_shared_where_not(
    model: str, images: dict[str, Any], gpu: str, size: int, mode: str
) -> None:
    def encoded(forced: str | None) -> Plan:
        engine = {} if forced is None else {"engine": {"extraArgs": [f"--mm-encoder-tp-mode={forced}"]}}
        resource = declare(model, images, running=4, accelerators={"allowed": [gpu]}, **engine)
        verdict = plan_deployment(resource.spec, catalogue_inventory(), tensor_parallel_size=size, simulate=False)
        assert isinstance(verdict, Plan), verdict.message
        return verdict

    ttft = {forced: encoded(forced).latency.ttft.p95 for forced in ("weights", "data")}
    chosen = encoded(None)
    assert chosen.flags.encoder_parallel_mode == mode
    assert ttft[mode] < ttft["data" if mode == "weights" else "weights"]
    assert any("each GPU encodes whole images" in reason for reason in chosen.reasons) == (mode == "data")


@pytest.mark.parametrize("step", [8192, 2048, 512])
def test_the_formulas_that_prune_agree_with_the_trial_of_a_steady_loop(step: int) -> None:
    tried = on_one_h100(step)
    assert isinstance(tried, Plan)
    resource = declare(
        QWEN_7B,
        pictures((2048, 1536), count=2),
        running=32,
        accelerators={"allowed": [H100], "maxPerReplica": 1},
        scaling={"maxReplicas": 1},
        engine={"extraArgs": [f"--max-num-batched-tokens={step}"]},
    )
    reckoned = quick(resource)
    assert reckoned.latency.tpot.p50 == pytest.approx(tried.latency.tpot.p50, rel=0.15)
    assert reckoned.latency.request.p50 == pytest.approx(tried.latency.request.p50, rel=0.25)
