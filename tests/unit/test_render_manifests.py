"""Laws of the children, and how they look."""

import json
import re
from typing import Any

import pytest

from tests.support.builders import MODEL_ID, make_flags, make_memory, make_plan, make_resource
from tests.support.golden import assert_golden
from vlm_operator.errors import RenderError
from vlm_operator.render.manifests import dump_manifests, render_manifests
from vlm_operator.render.names import service_name
from vlm_operator.sizing.memory import MemoryBreakdown, MemoryPart
from vlm_operator.sizing.plan import Plan
from vlm_operator.units import GIB, parse_quantity

CACHE = {"id": MODEL_ID, "storage": {"cache": {"storageClassName": "fast", "accessMode": "ReadWriteMany"}}}
CLAIM = {"id": MODEL_ID, "storage": {"persistentVolumeClaim": {"claimName": "weights"}}}
NAMES = ["invoices", "vllm", "vllm-port", "serve-vllm", "serve-serve-vllm", "vllmish", "7b", "serve-7b", "a"]


def render(
    name: str = "invoices", plan: Plan | None = None, *, max_unavailable: int = 1, **spec: Any
) -> dict[str, dict[str, Any]]:
    resource = make_resource(name, **spec)
    made = render_manifests(
        resource, plan or make_plan(), spec_digest="5bec", plan_digest="91a4", max_unavailable=max_unavailable
    )
    kinds = [manifest["kind"] for manifest in made]
    assert len(kinds) == len(set(kinds))
    return {manifest["kind"]: manifest for manifest in made}


def pod(**arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = render(**arguments)["Deployment"]["spec"]["template"]
    return found


def engine(**arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(**arguments)["spec"]["containers"][0]
    return found


def environment(**arguments: Any) -> dict[str, Any]:
    variables = engine(**arguments)["env"]
    assert len({variable["name"] for variable in variables}) == len(variables)
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def golden(name: str, plan: Plan, **spec: Any) -> None:
    made = render_manifests(make_resource(**spec), plan, spec_digest="5bec", plan_digest="91a4")
    assert_golden(f"render/{name}.yaml", dump_manifests(made))


def test_golden_of_two_replicas_from_the_hub() -> None:
    golden("hub", make_plan())


def test_golden_of_everything_that_the_spec_can_ask_for() -> None:
    flags = make_flags(
        tensor_parallel_size=2, encoder_parallel_mode="data", kv_cache_dtype="fp8", trust_remote_code=True
    )
    golden(
        "everything",
        make_plan(gpus_per_replica=2, replicas=1, flags=flags),
        model={
            **CACHE,
            "tokenSecretRef": {"name": "hub", "key": "token"},
            "trustRemoteCode": True,
        },
        accelerators={"regions": ["eu-west-1", "eu-west-2"]},
        engine={"image": "registry.example/vllm:1", "env": [{"name": "HF_HOME", "value": "/cache/other"}]},
        podTemplate={
            "labels": {"team": "billing"},
            "annotations": {"note": 'quoted "text": {braces}'},
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}],
            "priorityClassName": "high",
            "serviceAccountName": "mine",
            "imagePullSecrets": [{"name": "registry"}],
            "runtimeClassName": "nvidia",
        },
    )


def test_golden_of_weights_on_a_claim() -> None:
    golden("claim", make_plan(replicas=1), model=CLAIM)


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (json.dumps(render(model=CACHE)) for _ in range(2))
    assert first == second


def test_nothing_of_the_operator_or_of_the_digests_is_in_the_pod_template() -> None:
    text = json.dumps(pod())
    assert "5bec" not in text
    assert "91a4" not in text
    assert "app.kubernetes.io/version" not in text


def test_every_child_is_owned_and_blocks_its_owner() -> None:
    for manifest in render(model=CACHE).values():
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert owner["controller"]
        assert owner["blockOwnerDeletion"]
        assert owner["uid"]


@pytest.mark.parametrize("name", NAMES)
def test_a_service_never_leads_to_settings_of_the_engine(name: str) -> None:
    service = service_name(name)
    variable = service.upper().replace("-", "_") + "_PORT"
    assert not variable.startswith("VLLM_")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", service)
    assert pod(name=name)["spec"]["enableServiceLinks"] is False


def test_two_resources_never_share_a_service() -> None:
    assert len({service_name(name) for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", ["a" * 64, "vllm-" + "a" * 55, "with.dots"])
def test_a_name_that_gives_no_service_is_refused_with_the_next_step(name: str) -> None:
    with pytest.raises(RenderError, match="choose a shorter"):
        service_name(name)


def test_the_selector_holds_nothing_but_the_name() -> None:
    one = render(plan=make_plan(replicas=1), model=CLAIM, podTemplate={"labels": {"team": "billing"}})
    other = render(model=CACHE)
    assert one["Deployment"]["spec"]["selector"] == other["Deployment"]["spec"]["selector"]
    assert one["Service"]["spec"]["selector"] == other["Deployment"]["spec"]["selector"]["matchLabels"]


def test_users_labels_cannot_take_pods_out_of_the_selector() -> None:
    template = pod(podTemplate={"labels": {"app.kubernetes.io/instance": "other", "team": "billing"}})
    assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "invoices"
    assert template["metadata"]["labels"]["team"] == "billing"


def test_labels_of_the_resource_are_not_copied() -> None:
    assert "annotations" not in pod()["metadata"]


@pytest.mark.parametrize(("missing", "surge"), [(0, 1), (1, 0), (3, 0)])
def test_a_pod_more_is_started_only_where_none_may_be_missing(missing: int, surge: int) -> None:
    rolling = render(max_unavailable=missing)["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (surge, missing)


def test_suspending_takes_the_replicas_and_changes_nothing_of_the_pods() -> None:
    assert render(suspend=True)["Deployment"]["spec"]["replicas"] == 0
    assert pod(suspend=True) == pod()


def test_a_disruption_budget_is_made_for_more_than_one_replica() -> None:
    assert "PodDisruptionBudget" in render()
    assert "PodDisruptionBudget" not in render(plan=make_plan(replicas=1))


def test_the_pod_lives_until_its_requests_are_answered() -> None:
    args = engine()["args"]
    shutdown = int(args[args.index("--shutdown-timeout") + 1])
    pre_stop = engine()["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod()["spec"]["terminationGracePeriodSeconds"] >= pre_stop + shutdown + 15


def test_larger_weights_get_more_time_to_start() -> None:
    def seconds(weights_gib: int) -> int:
        parts = (MemoryPart(name="weights", size_bytes=weights_gib * GIB), *make_memory().parts[-1:])
        probe = engine(plan=make_plan(memory=MemoryBreakdown(parts=parts)))["startupProbe"]
        return int(probe["periodSeconds"] * probe["failureThreshold"])

    assert seconds(15) >= 15 * GIB / 50e6
    assert seconds(70) >= 70 * GIB / 50e6
    assert seconds(70) > seconds(15)


def test_the_engine_waits_as_long_for_itself_as_its_probe() -> None:
    probe = engine()["startupProbe"]
    seconds = probe["periodSeconds"] * probe["failureThreshold"]
    assert int(environment()["VLLM_ENGINE_READY_TIMEOUT_S"]) == seconds
    assert render()["Deployment"]["spec"]["progressDeadlineSeconds"] > seconds


def test_the_memory_limit_is_the_plans_and_has_room_for_the_shared_memory() -> None:
    limit = parse_quantity(engine()["resources"]["limits"]["memory"])
    assert limit == make_plan().host.memory_bytes
    (shared,) = (volume for volume in pod()["spec"]["volumes"] if volume["name"] == "shared-memory")
    assert limit > parse_quantity(shared["emptyDir"]["sizeLimit"])


def test_the_container_has_no_rights_and_writes_only_to_volumes() -> None:
    container, spec = engine(model=CLAIM), pod(model=CLAIM)["spec"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert {"/tmp", "/dev/shm", "/cache"} == mounted  # noqa: S108 - paths inside the container
    assert all(environment()[name].startswith("/cache") for name in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT"))


def test_every_mount_has_its_volume() -> None:
    for model in (CACHE, CLAIM):
        mounts = {mount["name"] for mount in engine(model=model)["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod(model=model)["spec"]["volumes"]}


def test_the_plans_gpu_stands_over_a_selector_of_the_users() -> None:
    template = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A10", "pool": "gpu"}}
    selector = pod(podTemplate=template)["spec"]["nodeSelector"]
    assert selector == {"nvidia.com/gpu.product": "NVIDIA-L40S", "pool": "gpu"}


def test_the_users_variable_replaces_ours_and_stands_last() -> None:
    variables = engine(engine={"env": [{"name": "HF_HOME", "value": "/elsewhere"}]})["env"]
    assert variables[-1] == {"name": "HF_HOME", "value": "/elsewhere"}
    assert sum(variable["name"] == "HF_HOME" for variable in variables) == 1


def test_the_hubs_token_comes_from_the_secret() -> None:
    found = environment(model={"id": MODEL_ID, "tokenSecretRef": {"name": "hub"}})["HF_TOKEN"]
    assert found == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_a_cache_without_a_size_holds_the_weights_and_a_quarter_more() -> None:
    claim = render(model=CACHE)["PersistentVolumeClaim"]["spec"]
    assert parse_quantity(claim["resources"]["requests"]["storage"]) >= make_memory().part("weights").size_bytes * 1.25
    assert claim["accessModes"] == ["ReadWriteMany"]


def test_a_service_account_of_the_users_is_used_and_none_is_made() -> None:
    template = {"serviceAccountName": "mine"}
    assert "ServiceAccount" not in render(podTemplate=template)
    assert pod(podTemplate=template)["spec"]["serviceAccountName"] == "mine"
    assert render("default")["ServiceAccount"]["metadata"]["name"] != "default"


def test_text_cannot_break_out_of_its_place() -> None:
    note = 'a: b\n- "c"\t{{ x }} # \u2028 é'
    assert pod(podTemplate={"annotations": {"note": note}})["metadata"]["annotations"]["note"] == note
