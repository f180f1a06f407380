"""The operator needs no right that its chart does not give it."""

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.support.controlplane import Outside, wait_until
from tests.support.helm import CHART, helm_path, render_chart
from tests.support.hub import local_hub, qwen2_vl_tensors, real_files
from tests.support.operator import Place, install_definition, operator_running, sample

AIN = "MBZUAI/AIN"
KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@pytest.fixture
def operator_kubeconfig(scheduling_plane: Outside, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig with a token of the ServiceAccount of the chart."""
    rendered = render_chart(helm_path(), CHART, namespace=namespace)
    documents = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] in KINDS]
    scheduling_plane.apply(*documents)
    account = next(one for one in documents if one["kind"] == "ServiceAccount")["metadata"]["name"]
    token = scheduling_plane.kubectl("create", "token", account, f"--namespace={namespace}").strip()
    view = json.loads(scheduling_plane.kubectl("config", "view", "--raw", "--flatten", "--output=json"))
    view["users"] = [{"name": "operator", "user": {"token": token}}]
    view["contexts"] = [{"name": "operator", "context": {"cluster": view["clusters"][0]["name"], "user": "operator"}}]
    view["current-context"] = "operator"
    path = tmp_path / "operator.kubeconfig"
    path.write_text(json.dumps(view))
    return path


def test_the_rights_of_the_chart_are_enough(
    scheduling_plane: Outside, namespace: str, operator_kubeconfig: Path
) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(operator_kubeconfig) as operator:
        place.apply(sample(scaling={"minReplicas": 2}))
        place.wait_condition("sample", "Ready")
        for times in (1, 2):
            place.kubectl("scale", "deployment/sample", "--replicas=0")
            wait_until(partial(_has_told, place, times), what="the Event")
        place.wait_condition("sample", "Ready")
        place.apply(sample(scaling={"minReplicas": 1}))
        wait_until(lambda: place.find("poddisruptionbudget", "sample") is None, what="the budget's end")
        place.kubectl("delete", "vlmdeployment/sample")
        wait_until(lambda: not place.children(), 60, "the end of every child")
        assert "orbidden" not in operator.log
        assert [one for one in place.plane.writes() if one.namespace == namespace and one.status_code == 403] == []


def test_the_rights_of_the_chart_are_enough_to_read_models(
    scheduling_plane: Outside, namespace: str, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    install_definition(scheduling_plane)
    place, files = Place(scheduling_plane, namespace), real_files(AIN)
    data = {name: json.dumps(document) for name, document in files.items()}
    place.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ain"}, "data": data})
    place.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "hf_x"}})
    with local_hub() as hub:
        hub.add(AIN, files, qwen2_vl_tensors(files["config.json"]), token="hf_x")  # noqa: S106 - no secret
        env = {"HF_ENDPOINT": hub.endpoint, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        with operator_running(operator_kubeconfig, **env) as operator:
            place.apply(sample(name="mapped", model={"id": AIN, "source": "ConfigMap", "configMapName": "ain"}))
            place.apply(sample(name="gated", model={"id": AIN, "tokenSecretRef": {"name": "hub"}}))
            place.wait_condition("mapped", "Ready")
            place.wait_condition("gated", "Ready")
            assert "orbidden" not in operator.log


def _has_told(place: Place, times: int) -> bool:
    """Tell whether the operator said as often that it put something back."""
    return sum(int(one["count"]) for one in place.events("DriftRestored")) == times
