"""A model that the catalogue does not have: described by a hub or by a ConfigMap, planned and kept running."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.controlplane import Outside, wait_until
from tests.support.hub import LocalHub, local_hub, qwen2_vl_tensors, real_files
from tests.support.operator import Place, install_definition, operator_running, sample
from vlm_operator.render.names import SPEC_DIGEST_ANNOTATION

AIN = "MBZUAI/AIN"
RIGHT = "hf_right"


@pytest.fixture
def place(scheduling_plane: Outside, namespace: str) -> Place:
    install_definition(scheduling_plane)
    return Place(scheduling_plane, namespace)


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as running:
        yield running


def config_map(files: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    data = {name: json.dumps(document) for name, document in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ain", **metadata}, "data": data}


def test_a_config_map_describes_the_model_and_its_change_is_a_change_of_mind(place: Place) -> None:
    files = real_files(AIN)
    with operator_running(place.plane.kubeconfig):
        place.apply(sample(model={"id": AIN, "source": "ConfigMap", "configMapName": "ain"}))
        place.wait_condition("sample", "Accepted", "False", "ConfigMapNotFound")
        assert place.children() == {}
        place.apply(config_map(files))
        place.wait_condition("sample", "Ready")
        before = _deployment(place)
        place.apply(config_map(files, annotations={"looked-at": "yes"}))
        place.wait_quiet()
        assert _deployment(place)["metadata"]["generation"] == before["metadata"]["generation"]
        config = {**files["config.json"], "num_hidden_layers": 14}
        place.apply(config_map({**files, "config.json": config}))
        wait_until(lambda: _spec_digest(place) != _spec_digest_of(before), 60, "another Deployment")
        place.wait_condition("sample", "Ready")
        after = _deployment(place)
        place.kubectl("delete", "configmap/ain")
        place.wait_condition("sample", "Accepted", "False", "ConfigMapNotFound")
        assert _deployment(place)["metadata"]["generation"] == after["metadata"]["generation"]


def test_a_config_map_of_another_namespace_says_nothing(place: Place) -> None:
    place.plane.apply(config_map(real_files(AIN)), namespace="default")
    try:
        with operator_running(place.plane.kubeconfig):
            place.apply(sample(model={"id": AIN, "source": "ConfigMap", "configMapName": "ain"}))
            place.wait_condition("sample", "Accepted", "False", "ConfigMapNotFound")
    finally:
        place.plane.kubectl("--namespace=default", "delete", "configmap/ain")


def test_a_gated_model_needs_the_token_of_its_secret(place: Place, hub: LocalHub, tmp_path: Path) -> None:
    files = real_files(AIN)
    model = hub.add(AIN, files, qwen2_vl_tensors(files["config.json"]), token=RIGHT, gated=True)
    with _operator(place, hub, tmp_path) as operator:
        place.apply(sample(model={"id": AIN}))
        place.wait_condition("sample", "Accepted", "False", "HubUnauthorized")
        place.apply(sample(model={"id": AIN, "tokenSecretRef": {"name": "hub"}}))
        place.wait_condition("sample", "Accepted", "False", "SecretNotFound")
        place.apply(_secret(RIGHT))
        place.kubectl("annotate", "vlmdeployment/sample", "looked-at=yes")  # else it is looked at again in a while
        place.wait_condition("sample", "Ready")
        (container,) = _deployment(place)["spec"]["template"]["spec"]["containers"]
        assert f"--revision {model.sha}" in " ".join(container["args"])
        assert RIGHT not in operator.log
        assert RIGHT not in json.dumps(place.find("vlmdeployment", "sample"))


def test_a_hub_that_is_away_stops_nothing_that_runs(place: Place, hub: LocalHub, tmp_path: Path) -> None:
    hub.add(AIN, real_files(AIN), qwen2_vl_tensors(real_files(AIN)["config.json"]))
    with _operator(place, hub, tmp_path / "first"):
        place.apply(sample(model={"id": AIN}))
        place.wait_condition("sample", "Ready")
        before = _deployment(place)
    hub.faults = {"/": [503] * 999}
    with _operator(place, hub, tmp_path / "second"):
        place.wait_condition("sample", "Accepted", "False", "HubFailed", timeout=180)
        place.wait_condition("sample", "Available")
        assert _deployment(place)["metadata"]["generation"] == before["metadata"]["generation"]
        hub.faults = {}
        place.wait_condition("sample", "Ready")
        assert _deployment(place)["metadata"]["generation"] == before["metadata"]["generation"]


def _operator(place: Place, hub: LocalHub, cache: Path, **env: str) -> Any:
    return operator_running(place.plane.kubeconfig, HF_ENDPOINT=hub.endpoint, XDG_CACHE_HOME=str(cache), **env)


def _secret(token: str) -> dict[str, Any]:
    data = {"token": base64.b64encode(token.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "data": data}


def _deployment(place: Place) -> dict[str, Any]:
    found = place.find("deployment", "sample")
    assert found is not None
    return found


def _spec_digest(place: Place) -> str:
    return _spec_digest_of(_deployment(place))


def _spec_digest_of(deployment: dict[str, Any]) -> str:
    return str(deployment["metadata"]["annotations"][SPEC_DIGEST_ANNOTATION])
