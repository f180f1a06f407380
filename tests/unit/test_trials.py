"""Plans under simulated traffic: what the closed formulas let pass and a trial does not."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from tests.unit.test_planning import H100, QWEN_7B, make_spec
from vlm_operator.api.validate import parse_resource
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing import trial
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.sizing.traffic import Randomness, TrafficResult, TrafficRun, simulate
from vlm_operator.sizing.traffic.simulate import RequestSeconds

BURSTS = {"requestsPerMinute": 120, "burstPercent": 300}
PHOTOGRAPHS = {"sizes": [{"width": 4032, "height": 3024}], "perRequest": [{"count": 1}, {"count": 4}]}


def plan(spec: dict[str, Any], *, simulate: bool = True, suggest: bool = True) -> Plan | NoFit:
    head = {"apiVersion": "vlm-operator.dev/v1alpha1", "kind": "VLMDeployment", "metadata": {"name": "any"}}
    return plan_deployment(
        parse_resource({**head, "spec": spec}).spec, catalogue_inventory(), simulate=simulate, suggest=suggest
    )


def spec_of(traffic: dict[str, int], **fields: Any) -> dict[str, Any]:
    workload = {"images": PHOTOGRAPHS, "traffic": traffic} | fields.pop("workload", {})
    quality = {"minPixelsPerImage": 1_003_520}
    return make_spec(QWEN_7B, workload=workload, quality=quality, **fields)


def test_bursts_that_the_formulas_do_not_see_cost_more() -> None:
    objectives = {"ttft": {"percentile": 95, "milliseconds": 3000}}
    steady, tried = (plan(spec_of(traffic, objectives=objectives)) for traffic in ({"requestsPerMinute": 120}, BURSTS))
    quick = plan(spec_of(BURSTS, objectives=objectives), simulate=False)
    assert isinstance(quick, Plan)
    assert isinstance(steady, Plan)
    assert isinstance(tried, Plan)
    assert quick.traffic is None
    assert tried.traffic is not None
    assert tried.traffic.sustainable
    assert tried.latency.ttft.p95 <= 3.0
    assert (tried.hourly_cents or 0) >= (steady.hourly_cents or 0)


@pytest.mark.parametrize("milliseconds", [5000, 8000])
def test_what_the_formulas_refuse_narrowly_is_tried(milliseconds: int) -> None:
    """Of the large prompts few meet a long queue, and the formulas take all of them to."""
    traffic = {"requestsPerMinute": 120, "burstPercent": 200}
    spec = spec_of(traffic, objectives={"ttft": {"percentile": 95, "milliseconds": milliseconds}})
    quick, tried = plan(spec, simulate=False), plan(spec)
    assert isinstance(quick, Plan)
    assert isinstance(tried, Plan)
    assert (tried.hourly_cents or 0) < (quick.hourly_cents or 0)


def test_a_spare_replica_is_paid_for_and_carries_no_load() -> None:
    spec = spec_of({"requestsPerMinute": 300}, accelerators={"allowed": ["l40s"]})
    enough, safe = plan(spec), plan({**spec, "scaling": {"spareReplicas": 1}})
    assert isinstance(enough, Plan)
    assert isinstance(safe, Plan)
    assert safe.replicas == enough.replicas + 1
    assert (safe.latency, safe.traffic) == (enough.latency, enough.traffic)
    assert safe.hourly_cents == pytest.approx((enough.hourly_cents or 0) * safe.replicas / enough.replicas)
    assert f"the traffic needs {enough.replicas} of {safe.replicas} replicas: 1 may fail" in safe.reasons


def test_spare_replicas_count_towards_the_limits() -> None:
    spec = spec_of({"requestsPerMinute": 300}, accelerators={"allowed": ["l40s"], "maxPerReplica": 1})
    enough = plan(spec)
    assert isinstance(enough, Plan)
    fits = plan({**spec, "scaling": {"spareReplicas": 2, "maxReplicas": enough.replicas + 2}})
    assert isinstance(fits, Plan)
    crowded = plan({**spec, "scaling": {"spareReplicas": 2, "maxReplicas": enough.replicas + 1}}, suggest=False)
    assert isinstance(crowded, NoFit) or crowded.tight_kv_cache


def test_what_a_trial_rejects_is_named_with_its_figure() -> None:
    spec = spec_of(BURSTS, objectives={"ttft": {"percentile": 95, "milliseconds": 3000}})
    tried = plan(spec)
    assert isinstance(tried, Plan)
    missed = [other.message for other in tried.alternatives if not other.fits]
    assert any("in simulated traffic" in message or "TTFT p95" in message for message in missed), missed


def test_a_replica_that_would_fall_behind_is_no_plan() -> None:
    accelerators = {"allowed": ["l4"], "maxPerReplica": 1}
    spec = spec_of({"requestsPerMinute": 600}, accelerators=accelerators, scaling={"maxReplicas": 1})
    verdict = plan(spec)
    assert isinstance(verdict, NoFit)
    assert {"Throughput"} & set(dict(verdict.by_reason))


@pytest.mark.parametrize(("gpu", "rate", "milliseconds"), [("l40s", 1200, 2000), ("a100-80gb-sxm", 2400, 1000)])
def test_one_replica_less_than_planned_does_not_hold(gpu: str, rate: int, milliseconds: int) -> None:
    """From eight replicas on, more are added several at a time."""
    images = {"sizes": [{"width": 2016, "height": 1512}], "perRequest": [{"count": 2}]}
    spec = spec_of(
        {"requestsPerMinute": rate},
        workload={"images": images},
        objectives={"ttft": {"percentile": 95, "milliseconds": milliseconds}},
        accelerators={"allowed": [gpu], "maxPerReplica": 1},
    )
    enough = plan(spec)
    assert isinstance(enough, Plan)
    assert enough.replicas > 8
    fewer = plan({**spec, "scaling": {"maxReplicas": enough.replicas - 1}}, suggest=False)
    assert isinstance(fewer, NoFit) or fewer.tight_kv_cache


def test_plans_that_were_too_many_to_try_are_not_called_misfits() -> None:
    spec = spec_of(BURSTS, objectives={"ttft": {"percentile": 95, "milliseconds": 3000}})
    with mock.patch.object(trial, "simulate", overloaded):
        verdict = plan(spec, suggest=False)
    assert isinstance(verdict, NoFit)
    assert {"Throughput", "NotTried"} <= set(dict(verdict.by_reason))


def overloaded(run: TrafficRun, costs: RequestSeconds, generator: Randomness) -> TrafficResult:
    return replace(simulate(run, costs, generator), sustainable=False)


def test_images_in_preparation_decide_the_cores() -> None:
    cores = []
    for rate in (6, 120, 600):
        verdict = plan(spec_of({"requestsPerMinute": rate}, accelerators={"allowed": [H100]}))
        assert isinstance(verdict, Plan)
        cores.append(verdict.host.cpu_cores / verdict.gpus_per_replica)
    assert cores == sorted(cores)
    assert cores[0] < cores[-1]


@pytest.mark.parametrize("repeats", [0, 50, 100])
def test_repeated_images_and_shared_prefixes_never_cost_more(repeats: int) -> None:
    images = {**PHOTOGRAPHS, "repeatPercent": repeats}
    text = {"promptTokens": {"p50": 300, "p99": 300}, "sharedPrefixTokens": 3 * repeats}
    fresh, repeated = (
        plan(spec_of({"requestsPerMinute": 300}, workload=workload))
        for workload in ({}, {"images": images, "text": text})
    )
    assert isinstance(fresh, Plan)
    assert isinstance(repeated, Plan)
    assert (repeated.hourly_cents or 0) <= (fresh.hourly_cents or 0)
    assert repeated.latency.ttft.p50 <= fresh.latency.ttft.p50 * 1.05 or repeated.gpu != fresh.gpu


def test_a_closed_loop_never_has_more_sequences_than_clients() -> None:
    verdict = plan(spec_of({"concurrentRequests": 8}))
    assert isinstance(verdict, Plan)
    assert verdict.flags.max_num_seqs == 8


def test_the_kv_cache_keeps_a_reserve_or_says_that_it_cannot() -> None:
    roomy = plan(spec_of({"concurrentRequests": 64}))
    assert isinstance(roomy, Plan)
    assert not roomy.tight_kv_cache
    cache = next(limit for limit in roomy.limits if limit.name == "KV cache")
    assert cache.limit >= 1.2 * cache.needed
    held = roomy.limits[-1].limit // roomy.tokens.request_p99
    limits = {"allowed": [roomy.gpu.id], "maxPerReplica": roomy.gpus_per_replica}
    full = plan(spec_of({"concurrentRequests": held * roomy.replicas}, accelerators=limits, scaling={"maxReplicas": 1}))
    assert isinstance(full, NoFit) or full.tight_kv_cache
    if isinstance(full, Plan):
        assert any("reserve" in reason for reason in full.reasons)
