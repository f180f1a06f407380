"""What the user applies becomes what runs, and what changes is followed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import nodes
from tests.support.controlplane import ControlPlane, Outside, wait_until
from tests.support.operator import Place, install_definition, operator_running, sample

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "manifests" / "samples").glob("*.yaml"))


@pytest.fixture
def place(scheduling_plane: Outside, namespace: str) -> Iterator[Place]:
    install_definition(scheduling_plane)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace):
        yield Place(scheduling_plane, namespace)


def test_a_sample_becomes_a_deployment_that_serves(place: Place) -> None:
    place.apply(sample())
    place.wait_condition("sample", "Ready")
    deployment = place.find("deployment", "sample")
    assert deployment is not None
    assert deployment["status"]["availableReplicas"] == deployment["spec"]["replicas"]
    assert place.find("service", "sample") is not None


def test_nothing_of_the_operator_is_written_into_what_the_user_owns(place: Place) -> None:
    place.apply(sample())
    place.wait_condition("sample", "Ready")
    document = place.find("vlmdeployment", "sample")
    assert document is not None
    assert "annotations" not in document["metadata"]
    assert "finalizers" not in document["metadata"]
    assert document["metadata"]["generation"] == 1


def test_a_changed_spec_is_planned_again(place: Place) -> None:
    place.apply(sample())
    place.wait_condition("sample", "Ready")
    place.apply(sample(scaling={"minReplicas": 2}))
    place.wait_condition("sample", "Ready")
    deployment = place.find("deployment", "sample")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 2
    assert place.find("poddisruptionbudget", "sample") is not None


def test_a_disruption_budget_goes_with_the_second_replica(place: Place) -> None:
    place.apply(sample(scaling={"minReplicas": 2}))
    place.wait_condition("sample", "Ready")
    place.apply(sample(scaling={"minReplicas": 1}))
    wait_until(lambda: place.find("poddisruptionbudget", "sample") is None, what="the budget's end")


@pytest.mark.parametrize("kind", ["deployment", "service", "serviceaccount"])
def test_a_deleted_child_comes_back(place: Place, kind: str) -> None:
    place.apply(sample())
    place.wait_condition("sample", "Ready")
    before = next(one for one in place.children() if one.lower().startswith(kind + "/"))
    uid = place.children()[before][0]
    place.kubectl("delete", kind, before.split("/")[1])
    wait_until(lambda: place.children().get(before, (uid,))[0] != uid, what=f"a new {kind}")
    place.wait_condition("sample", "Ready")


def test_drift_in_a_child_is_put_back_once_and_an_event_says_so(place: Place) -> None:
    place.apply(sample())
    place.wait_condition("sample", "Ready")
    before = place.find("deployment", "sample")
    assert before is not None
    place.kubectl("scale", "deployment/sample", "--replicas=0")
    wait_until(lambda: place.events("DriftRestored"), what="the Event")
    place.wait_condition("sample", "Ready")
    place.wait_quiet()
    after = place.find("deployment", "sample")
    assert after is not None
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 2
    assert [one["count"] for one in place.events("DriftRestored")] == [1]


def test_a_model_that_nobody_knows_is_a_condition(place: Place) -> None:
    place.apply(sample(model={"id": "nobody/knows-this"}))
    place.wait_condition("sample", "Accepted", "False")
    assert place.condition("sample", "Ready")[0] == "False"
    assert place.children() == {}


def test_a_plan_waits_for_gpus_and_is_made_when_a_node_brings_them(place: Place) -> None:
    place.apply(sample(accelerators={"allowed": ["h200-sxm"]}))
    place.wait_condition("sample", "Sized", "False")
    assert place.find("deployment", "sample") is None
    place.plane.add_nodes([nodes.gpu_node(nodes.H200_X8, name="late")])
    try:
        place.wait_condition("sample", "Ready")
    finally:
        place.plane.kubectl("delete", "node", "late")


def test_a_running_deployment_is_left_alone_when_its_node_goes(place: Place) -> None:
    place.plane.add_nodes([nodes.gpu_node(nodes.A100_X8, name="leaving")])
    place.apply(sample(accelerators={"allowed": ["a100-80gb-sxm"]}))
    place.wait_condition("sample", "Ready")
    before = place.children()
    place.plane.kubectl("delete", "node", "leaving")
    place.wait_condition("sample", "Sized", "False")
    deployment = place.find("deployment", "sample")
    assert deployment is not None
    assert deployment["metadata"]["uid"] == before["Deployment/sample"][0]
    assert deployment["metadata"]["generation"] == 1


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: str(file.stem))
def test_every_sample_runs(place: Place, file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        document["metadata"].pop("namespace", None)
        place.apply(document)
        name = document["metadata"]["name"]
        if file.stem == "nofit":
            place.wait_condition(name, "Sized", "False")
        else:
            place.wait_condition(name, "Ready")
        place.kubectl("delete", "vlmdeployment", name)


def test_a_child_of_somebody_else_is_not_taken_over(place: Place) -> None:
    place.kubectl("create", "service", "clusterip", "sample", "--tcp=80:80")
    place.apply(sample())
    place.wait_condition("sample", "Applied", "False", "ApplyFailed")
    service = place.find("service", "sample")
    assert service is not None
    assert "ownerReferences" not in service["metadata"]


def test_pods_run_in_the_regions_that_are_named_and_nowhere_else(own_control_plane: ControlPlane) -> None:
    install_definition(own_control_plane)
    zones = {"ireland": "eu-west-1a", "frankfurt": "eu-central-1b"}
    own_control_plane.add_nodes([nodes.gpu_node(nodes.H100_X8, name, zone=zone) for name, zone in zones.items()])
    place = Place(own_control_plane, "default")
    h100 = {"allowed": ["h100-80gb-sxm"]}
    with operator_running(own_control_plane.kubeconfig):
        place.apply(
            sample("stays", accelerators={**h100, "regions": ["eu-central-1"]}, scaling={"minReplicas": 5}),
            sample("elsewhere", accelerators={**h100, "regions": ["us-east-1"]}),
        )
        place.wait_condition("stays", "Ready")
        place.wait_condition("elsewhere", "Sized", "False", "NoGPUs")
        assert {pod["spec"]["nodeName"] for pod in place.items("pods")} == {"frankfurt"}
        document = place.find("vlmdeployment", "elsewhere")
        assert document is not None
        assert "the node is in region eu-west-1; accelerators.regions has us-east-1" in str(document["status"])
        since = place.wait_quiet()
        place.wait_quiet()
        assert place.writes(since) == []


def test_fifty_objects_converge(own_control_plane: ControlPlane) -> None:
    install_definition(own_control_plane)
    own_control_plane.add_nodes([nodes.gpu_node(nodes.H100_X8, name=f"node-{i}") for i in range(8)])
    place = Place(own_control_plane, "default")
    with operator_running(own_control_plane.kubeconfig):
        place.apply(*(sample(f"sample-{i}") for i in range(50)))

        def ready() -> bool:
            documents = place.items("vlmdeployment")
            return len(documents) == 50 and all(_is_ready(one) for one in documents)

        wait_until(ready, 120, "fifty ready objects")
        since = place.wait_quiet()
        place.wait_quiet()
        assert place.writes(since) == []


def _is_ready(document: dict[str, object]) -> bool:
    status = document.get("status")
    conditions = status["conditions"] if isinstance(status, dict) else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
