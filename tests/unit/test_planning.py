"""Plans of known situations: what must fit, what must not, and why."""

from typing import Any

import pytest

from vlm_operator.api.validate import parse_resource
from vlm_operator.errors import InputError
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.inventory import Inventory, Resources, node_shape
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.units import GIB

QWEN_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN_72B = "Qwen/Qwen2.5-VL-72B-Instruct"
H100 = "NVIDIA-H100-80GB-HBM3"
H200 = "NVIDIA-H200"


def make_spec(model: str, size: tuple[int, int] = (1024, 1024), **fields: Any) -> dict[str, Any]:
    workload = {
        "images": {"sizes": [{"width": size[0], "height": size[1]}]},
        "text": {"promptTokens": {"p50": 300, "p99": 300}},
        "output": {"tokens": {"p50": 500, "max": 500}},
        "traffic": {"concurrentRequests": 8},
    }
    workload |= fields.pop("workload", {})
    return {"model": {"id": model}, "workload": workload} | fields


def plan(spec: dict[str, Any]) -> Plan | NoFit:
    document = {
        "apiVersion": "vlm-operator.dev/v1alpha1",
        "kind": "VLMDeployment",
        "metadata": {"name": "test"},
        "spec": spec,
    }
    return plan_deployment(parse_resource(document).spec, catalogue_inventory())


def plan_on(gpu: str, most: int, **fields: Any) -> Plan | NoFit:
    accelerators = {"allowed": [gpu], "maxPerReplica": most}
    return plan(make_spec(QWEN_72B, (3840, 2160), accelerators=accelerators, scaling={"maxReplicas": 1}, **fields))


def test_eight_4k_frames_at_once_on_the_72b_do_not_fit_on_two_h100() -> None:
    verdict = plan_on(H100, 2)
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "NoFit"
    assert any("4 × " in str(suggestion) for suggestion in verdict.suggestions), verdict.suggestions


@pytest.mark.parametrize(("gpu", "gpus"), [(H100, 4), (H200, 2)])
def test_eight_4k_frames_at_once_on_the_72b_fit_on_four_h100_or_two_h200(gpu: str, gpus: int) -> None:
    verdict = plan_on(gpu, gpus)
    assert isinstance(verdict, Plan), verdict
    assert verdict.gpus_per_replica == gpus
    assert verdict.concurrent_requests >= 8
    assert verdict.tokens.image_max == 10_549


@pytest.mark.parametrize("model", [QWEN_7B, "llava-hf/llava-1.5-7b-hf", "google/gemma-3-4b-it"])
@pytest.mark.parametrize("size", [(224, 224), (1024, 768), (4032, 3024), (300, 3000)])
@pytest.mark.parametrize("count", [1, 5])
def test_every_declared_request_is_accepted_by_the_plan(model: str, size: tuple[int, int], count: int) -> None:
    images = {"sizes": [{"width": size[0], "height": size[1]}], "perRequest": [{"count": count}]}
    verdict = plan(make_spec(model, workload={"images": images}))
    if isinstance(verdict, NoFit):
        assert "ContextTooLong" in dict(verdict.by_reason), verdict
        return
    image = verdict.tokens.images[0]
    assert count * image.prompt_tokens + 800 <= verdict.flags.max_model_len
    assert verdict.flags.limit_mm_per_prompt["image"]["count"] >= count
    assert verdict.flags.limit_mm_per_prompt["video"] == 0
    assert all(limit.needed <= limit.limit for limit in verdict.limits)
    assert verdict.memory.total_bytes == verdict.gpu.engine_memory_bytes
    assert verdict.memory.part("headroom").size_bytes >= 0


def test_a_quality_floor_caps_large_images_and_never_below_it() -> None:
    floor = 1_003_520
    verdict = plan(make_spec(QWEN_7B, (4032, 3024), quality={"minPixelsPerImage": floor}))
    assert isinstance(verdict, Plan)
    width, height = verdict.tokens.images[0].resized or (0, 0)
    assert width * height >= floor
    assert verdict.tokens.image_max < 15_552 / 10
    assert verdict.flags.mm_processor_kwargs["max_pixels"] == verdict.cap_value


def test_without_a_floor_no_declared_image_is_made_smaller() -> None:
    verdict = plan(make_spec(QWEN_7B, (4032, 3024)))
    assert isinstance(verdict, Plan)
    assert verdict.tokens.images[0].tokens == 15_552


def test_a_dropped_architecture_is_refused_with_the_last_engine_that_had_it() -> None:
    verdict = plan(make_spec("meta-llama/Llama-3.2-11B-Vision-Instruct"))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "Unservable"
    assert "0.10.2" in verdict.message


def test_an_unknown_model_is_refused_with_the_nearest_names() -> None:
    verdict = plan(make_spec("Qwen/Qwen2.5-VL-7B"))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "UnknownModel"
    assert QWEN_7B in verdict.message


def test_an_unknown_gpu_is_an_input_error_at_its_field() -> None:
    with pytest.raises(InputError, match=r"accelerators\.allowed\[0\].*NVIDIA-H900"):
        plan(make_spec(QWEN_7B, accelerators={"allowed": ["NVIDIA-H900"]}))


def test_an_unknown_engine_version_is_refused() -> None:
    verdict = plan(make_spec(QWEN_7B, engine={"version": "0.10.2"}))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "Unservable"


def test_the_same_input_gives_the_same_plan() -> None:
    assert plan(make_spec(QWEN_7B)) == plan(make_spec(QWEN_7B))


def test_a_gpu_without_a_price_ranks_after_every_priced_one() -> None:
    unpriced = [shape.gpu.product for shape in catalogue_inventory().shapes if shape.gpu.hourly_cents is None]
    verdict = plan(make_spec(QWEN_7B, accelerators={"allowed": [*unpriced, H100]}))
    assert isinstance(verdict, Plan)
    assert verdict.gpu.product == H100


def test_more_traffic_never_costs_less() -> None:
    costs = []
    for concurrent in (1, 8, 64, 512):
        verdict = plan(make_spec(QWEN_7B, workload={"traffic": {"concurrentRequests": concurrent}}))
        assert isinstance(verdict, Plan)
        costs.append(verdict.hourly_cents or 0)
    assert costs == sorted(costs)


def test_a_price_limit_refuses_what_costs_more_and_says_what_would_do() -> None:
    verdict = plan(make_spec(QWEN_72B, accelerators={"maxHourlyCostCents": 10}))
    assert isinstance(verdict, NoFit)
    assert any("maxHourlyCostCents" in str(suggestion) for suggestion in verdict.suggestions)


def test_objectives_that_are_too_fast_are_refused_with_what_is_possible() -> None:
    verdict = plan(make_spec(QWEN_7B, objectives={"ttft": {"percentile": 95, "milliseconds": 1}}))
    assert isinstance(verdict, NoFit)
    assert "Latency" in dict(verdict.by_reason)
    assert any("objectives" in str(suggestion) for suggestion in verdict.suggestions)


def cluster_of(gpu: str, free_gpus: tuple[int, ...], **host: int) -> Inventory:
    """Return nodes of 8 GPUs and ``host``, of which so many GPUs are free and all of ``host``."""
    kind = next(shape.gpu for shape in catalogue_inventory().shapes if shape.gpu.product == gpu)
    free = [Resources(gpus=gpus, **host) for gpus in free_gpus]
    return Inventory(shapes=(node_shape(kind, [Resources(gpus=8, **host)], free),), source="cluster")


def plan_in(inventory: Inventory, spec: dict[str, Any]) -> Plan | NoFit:
    document = {"apiVersion": "vlm-operator.dev/v1alpha1", "kind": "VLMDeployment", "metadata": {"name": "test"}}
    return plan_deployment(parse_resource(document | {"spec": spec}).spec, inventory)


def test_a_replica_is_never_spread_over_two_nodes() -> None:
    frames = make_spec(QWEN_72B, (3840, 2160))
    split = plan_in(cluster_of(H100, (2, 2)), frames)
    assert isinstance(split, NoFit)
    assert "NotEnoughGPUs" in dict(split.by_reason)
    assert isinstance(plan_in(cluster_of(H100, (0, 4)), frames), Plan)


def test_a_pod_that_no_node_can_hold_is_not_planned() -> None:
    small = plan_in(cluster_of(H100, (8,), memory_bytes=8 * GIB), make_spec(QWEN_7B))
    assert isinstance(small, NoFit)
    assert "HostTooSmall" in dict(small.by_reason)
    assert "of host memory; the nearest node offers 8.0 GiB of host memory to pods; take larger" in small.message
    slow = plan_in(cluster_of(H100, (8,), cpu_cores=4), make_spec(QWEN_7B))
    assert isinstance(slow, NoFit)
    assert "a pod needs 5 CPU cores; the nearest node offers 4 CPU cores" in slow.message


def test_replicas_that_share_a_node_share_its_cores() -> None:
    """Eight GPUs and 40 cores: each of eight replicas has the least that it needs, and a single one no more."""
    node = cluster_of(H100, (8,), cpu_cores=40)
    for replicas in (1, 8):
        scaling = {"minReplicas": replicas}
        verdict = plan_in(node, make_spec(QWEN_7B, scaling=scaling, accelerators={"maxPerReplica": 1}))
        assert isinstance(verdict, Plan)
        assert (verdict.replicas, verdict.host.cpu_cores) == (replicas, 5)


def test_replicas_beyond_the_cores_of_a_node_are_not_planned() -> None:
    """Eight GPUs and 32 cores: a pod takes 5 at least, so GPUs are left over that nothing can feed."""
    node, limits = cluster_of(H100, (8,), cpu_cores=32), {"maxPerReplica": 1}
    assert isinstance(plan_in(node, make_spec(QWEN_7B, scaling={"minReplicas": 6}, accelerators=limits)), Plan)
    verdict = plan_in(node, make_spec(QWEN_7B, scaling={"minReplicas": 7}, accelerators=limits))
    assert isinstance(verdict, NoFit)
    words = "7 replicas are needed of 5 CPU cores each; nodes have 32 CPU cores free beside free GPUs, room for 6 where"
    assert words in verdict.message


def test_the_catalogue_is_planned_with_where_the_object_asks_for_it() -> None:
    spec = make_spec(QWEN_7B, accelerators={"inventory": "Catalogue"})
    assert isinstance(plan_in(Inventory(shapes=(), source="cluster"), spec), Plan)


def test_an_empty_cluster_says_what_is_missing() -> None:
    verdict = plan_in(Inventory(shapes=(), source="cluster"), make_spec(QWEN_7B))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "NoGPUs"
    assert "GPU feature discovery" in verdict.message


def test_as_many_replicas_as_the_user_asks_for_are_planned() -> None:
    verdict = plan(make_spec(QWEN_7B, scaling={"minReplicas": 100}))
    assert isinstance(verdict, Plan)
    assert verdict.replicas == 100


@pytest.mark.parametrize(
    ("model", "jurisdiction", "reason"),
    [
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "DE", "LicenceExcluded"),
        ("baidu/Unlimited-OCR", "US", "LicenceUnknown"),
    ],
)
def test_a_licence_that_excludes_or_is_unknown_is_refused(model: str, jurisdiction: str, reason: str) -> None:
    verdict = plan(make_spec(model, compliance={"jurisdiction": jurisdiction}))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == reason
    assert jurisdiction in verdict.message


def test_a_licence_that_grants_rights_changes_nothing() -> None:
    with_rule = plan(make_spec(QWEN_7B, compliance={"jurisdiction": "DE"}))
    assert with_rule == plan(make_spec(QWEN_7B))


def test_a_floor_in_tokens_is_kept_like_one_in_pixels() -> None:
    verdict = plan(make_spec(QWEN_7B, (3840, 2160), quality={"minPixelsPerImage": 100_000, "minImageTokens": 2_000}))
    assert isinstance(verdict, Plan), verdict
    assert 2_000 <= verdict.tokens.image_max < 10_549


def test_a_model_known_by_its_class_defaults_alone_is_counted_and_not_sized() -> None:
    verdict = plan(make_spec("OpenGVLab/InternVL3-8B-hf"))
    assert isinstance(verdict, NoFit)
    assert "defaults of its class" in verdict.message


def test_a_checkpoint_in_another_format_is_served_only_where_its_format_is_admitted() -> None:
    small = {"allowed": [H100], "maxPerReplica": 1}
    assert isinstance(plan(make_spec(QWEN_72B, accelerators=small)), NoFit)
    verdict = plan(make_spec(QWEN_72B, accelerators=small, quality={"allowedQuantizations": ["none", "awq"]}))
    assert isinstance(verdict, Plan)
    assert (verdict.model_id, verdict.quantisation) == (f"{QWEN_72B}-AWQ", "awq")
    assert any("-AWQ" in reason for reason in verdict.reasons)


def test_the_declared_checkpoint_is_kept_where_another_format_saves_nothing() -> None:
    quality = {"allowedQuantizations": ["none", "awq"], "allowedKVCacheDtypes": ["auto", "fp8"]}
    verdict = plan(make_spec(QWEN_7B, accelerators={"allowed": [H200]}, quality=quality))
    assert isinstance(verdict, Plan)
    assert (verdict.model_id, verdict.flags.kv_cache_dtype) == (QWEN_7B, "auto")


def test_weights_on_a_volume_are_never_replaced_by_another_checkpoint() -> None:
    model = {"id": QWEN_72B, "storage": {"persistentVolumeClaim": {"claimName": "weights"}}}
    verdict = plan(make_spec(QWEN_72B, quality={"allowedQuantizations": ["awq"]}) | {"model": model})
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "QuantizationNotAllowed"


def test_an_fp8_kv_cache_is_taken_where_it_saves_replicas() -> None:
    workload = {"traffic": {"concurrentRequests": 200}}
    accelerators = {"allowed": ["l40s"], "maxPerReplica": 1}
    plain = plan(make_spec(QWEN_7B, (2048, 2048), workload=workload, accelerators=accelerators))
    quality = {"allowedKVCacheDtypes": ["auto", "fp8"]}
    small = plan(make_spec(QWEN_7B, (2048, 2048), workload=workload, accelerators=accelerators, quality=quality))
    assert isinstance(plain, Plan)
    assert isinstance(small, Plan)
    assert small.replicas < plain.replicas
    assert small.flags.kv_cache_dtype == "fp8"


def test_a_format_that_nobody_published_is_refused_with_those_that_exist() -> None:
    verdict = plan(make_spec(QWEN_7B, quality={"allowedQuantizations": ["nvfp4"]}))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "QuantizationNotAllowed"
    assert f"{QWEN_7B}-AWQ (awq)" in verdict.message


def test_advice_names_the_published_checkpoint_that_would_fit() -> None:
    verdict = plan(make_spec(QWEN_72B, accelerators={"allowed": [H100], "maxPerReplica": 1}))
    assert isinstance(verdict, NoFit)
    assert any(
        change.changes == {"quality.allowedQuantizations": ("none", "awq")} and "AWQ" in change.words
        for change in verdict.suggestions
    )


def test_the_others_show_each_gpu_kind_once() -> None:
    verdict = plan(make_spec(QWEN_7B))
    assert isinstance(verdict, Plan)
    kinds = [other.gpu for other in verdict.alternatives]
    assert len(kinds) == len(set(kinds))
    assert verdict.gpu.display_name not in {other.gpu for other in verdict.alternatives if other.fits}
