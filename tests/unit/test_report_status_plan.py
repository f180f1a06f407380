"""The numbers and words of status that come from a plan."""

import json
from dataclasses import replace

import pytest

from tests.support.builders import (
    make_alternative,
    make_flags,
    make_gpu,
    make_latency,
    make_memory,
    make_no_fit,
    make_plan,
    make_resource,
)
from tests.support.golden import assert_golden
from vlm_operator.api.status import VLMDeploymentStatus
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.report.status_plan import (
    canonical_digest,
    no_fit_status,
    plan_digest,
    plan_status,
    whole_mebibytes,
)
from vlm_operator.sizing.host import HostResources
from vlm_operator.sizing.inventory import Certainty
from vlm_operator.sizing.latency import Evidence
from vlm_operator.sizing.memory import MemoryBreakdown, MemoryPart
from vlm_operator.sizing.plan import Plan
from vlm_operator.units import GIB, MIB


def test_golden_of_a_plan() -> None:
    assert_golden("report/plan.json", json.dumps(plan_status(make_plan()), indent=2, ensure_ascii=False) + "\n")


def test_golden_of_a_model_that_fits_nowhere() -> None:
    assert_golden("report/no_fit.json", json.dumps(no_fit_status(make_no_fit()), indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("status", [plan_status(make_plan()), no_fit_status(make_no_fit())])
def test_status_is_what_the_contract_describes(status: dict[str, object]) -> None:
    VLMDeploymentStatus.model_validate_json(json.dumps(status))


@pytest.mark.parametrize("extra", [0, 1, MIB - 1, MIB // 2])
def test_memory_sums_to_what_the_engine_sees_in_whole_mebibytes(extra: int) -> None:
    total = 45457 * MIB + extra
    shares = whole_mebibytes(make_memory(total))
    assert sum(share["mebibytes"] for share in shares) == total // MIB
    assert all(isinstance(share["mebibytes"], int) for share in shares)


def test_only_headroom_takes_the_rounding() -> None:
    memory = make_memory()
    for part, share in zip(memory.parts[:-1], whole_mebibytes(memory), strict=False):
        assert abs(share["mebibytes"] - part.size_bytes / MIB) <= 0.5


def test_negative_headroom_is_reported_as_it_is() -> None:
    parts = (
        MemoryPart(name="weights", size_bytes=50 * GIB),
        MemoryPart(name="headroom", size_bytes=-6 * GIB),
    )
    shares = whole_mebibytes(MemoryBreakdown(parts=parts))
    assert [share["mebibytes"] for share in shares] == [50 * 1024, -6 * 1024]


def test_summary_is_what_kubectl_shows() -> None:
    plan = make_plan(gpus_per_replica=2, gpu=make_gpu(display_name="NVIDIA H100 80GB"), hourly_cents=420.0)
    assert plan_status(plan)["summary"] == {
        "accelerator": "2 x H100-80GB",
        "headroom": "2.2 GiB",
        "hourlyCost": "4.20",
        "imageTokens": "1260",
        "ready": "0/2",
        "reason": "Planned",
    }


def test_an_unknown_price_is_absent_and_shown_as_a_dash() -> None:
    status = plan_status(make_plan(hourly_cents=None, alternatives=(make_alternative(hourly_cents=None),)))
    assert "hourlyCostCents" not in status["estimate"]
    assert "hourlyCostCents" not in status["alternatives"][0]
    assert status["summary"]["hourlyCost"] == "-"


@pytest.mark.parametrize(
    ("hourly_cents", "images_per_hour", "cents"),
    [
        (172.0, 7200.0, 24),
        (70.0, 1000.0, 70),
        (0.7, 10.0, 70),
        (1.0, 1e6, 1),
        (98_000.0, 0.1, 980_000_000),
        (None, 7200.0, None),
        (172.0, None, None),
    ],
)
def test_the_price_of_1000_images_is_in_whole_cents_rounded_up(
    hourly_cents: float | None, images_per_hour: float | None, cents: int | None
) -> None:
    estimate = plan_status(make_plan(hourly_cents=hourly_cents, images_per_hour=images_per_hour))["estimate"]
    assert estimate.get("costCentsPerThousandImages") == cents


@pytest.mark.parametrize(
    ("traffic", "images_per_hour"), [({"requestsPerMinute": 30}, 3600.0), ({"concurrentRequests": 8}, None)]
)
def test_a_plan_knows_how_many_images_arrive_where_their_rate_is_declared(
    traffic: dict[str, int], images_per_hour: float | None
) -> None:
    images = {"sizes": [{"width": 640, "height": 480}], "perRequest": [{"count": 0}, {"count": 4}]}
    resource = make_resource(workload={"images": images, "traffic": traffic})
    plan = plan_deployment(resource.spec, catalogue_inventory(), simulate=False)
    assert isinstance(plan, Plan)
    assert plan.images_per_hour == images_per_hour


@pytest.mark.parametrize(
    ("model", "evidence", "word"),
    [
        ("estimated", "runs", "Calibrated"),
        ("estimated", "kernels", "Calibrated"),
        ("estimated", "datasheet", "Datasheet"),
        ("remembered", "runs", "Remembered"),
        ("remembered", "datasheet", "Remembered"),
    ],
)
def test_certainty_is_the_weakest_class_in_the_words_of_the_contract(
    model: Certainty, evidence: Evidence, word: str
) -> None:
    plan = make_plan(certainty=model, latency=replace(make_latency(), evidence=evidence))
    assert plan_status(plan)["estimate"]["certainty"] == word


def test_a_cap_in_pixels_is_named_as_such_and_another_by_its_own_name() -> None:
    assert plan_status(make_plan())["plan"]["maxPixels"] == 1_003_520
    tiles = plan_status(make_plan(cap_name="max_dynamic_patch", cap_value=6))["plan"]
    assert (tiles["capName"], tiles["capValue"]) == ("max_dynamic_patch", 6)
    assert "maxPixels" not in tiles
    assert "capName" not in plan_status(make_plan(cap_value=None))["plan"]


def test_at_most_five_alternatives_are_told() -> None:
    assert len(plan_status(make_plan(alternatives=(make_alternative(),) * 7))["alternatives"]) == 5


@pytest.mark.parametrize(
    "other",
    [
        make_plan(replicas=3),
        make_plan(gpus_per_replica=2),
        make_plan(engine_version="0.34.0"),
        make_plan(cap_value=501_760),
        make_plan(gpu=make_gpu(product="NVIDIA-L40")),
        make_plan(flags=make_flags(max_num_seqs=40)),
        make_plan(flags=make_flags(mm_processor_kwargs={"max_pixels": 1_003_520})),
        make_plan(flags=make_flags(limit_mm_per_prompt={"image": 4})),
        make_plan(flags=make_flags(hf_overrides={"a": 1})),
        make_plan(host=HostResources(cpu_cores=9, memory_bytes=32 * GIB, shared_memory_bytes=2 * GIB)),
    ],
)
def test_the_digest_changes_with_whatever_the_pods_are_made_of(other: Plan) -> None:
    assert plan_digest(other) != plan_digest(make_plan())


def test_the_digest_does_not_change_with_what_is_only_estimated_or_told() -> None:
    plan = make_plan()
    told = replace(plan, hourly_cents=1.0, alternatives=(), reasons=(), kv_cache_tokens=1, certainty="measured")
    assert plan_digest(told) == plan_digest(plan)
    assert plan_status(plan)["plan"]["digest"] == plan_digest(plan)


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_digest({"a": 1, "b": 2}) == canonical_digest({"b": 2, "a": 1})
