"""The chart as Helm renders it, and the install manifest that is made of it."""

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.helm import CHART, ROOT, helm_path, lint_chart, render_chart
from vlm_operator.api import names
from vlm_operator.cluster import kinds
from vlm_operator.controller.settings import DEFAULT_LIVENESS

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build Helm

CRD = yaml.safe_load((ROOT / "crds/vlm-operator.dev_vlmdeployments.yaml").read_text(encoding="utf-8"))
READ = {"get", "list", "watch"}


@pytest.fixture(scope="module")
def helm() -> Path:
    return helm_path()


def objects(helm: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    documents = list(filter(None, yaml.safe_load_all(render_chart(helm, CHART, *arguments))))
    found = {document["kind"]: document for document in documents}
    assert len(found) == len(documents)
    return found


def rules(helm: Path, *arguments: str) -> dict[str, set[str]]:
    """Return the verbs by ``group/resource``."""
    granted: dict[str, set[str]] = {}
    for rule in objects(helm, *arguments)["ClusterRole"]["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return granted


def operator_pod(helm: Path, *arguments: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects(helm, *arguments)["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_lint_finds_nothing(helm: Path) -> None:
    assert "0 chart(s) failed" in lint_chart(helm, CHART)


def test_the_chart_makes_these_objects_and_no_others(helm: Path) -> None:
    assert set(objects(helm)) == {
        "ServiceAccount",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
    }


def test_the_definition_is_the_generated_one_and_outlives_the_release(helm: Path) -> None:
    definition = objects(helm)["CustomResourceDefinition"]
    assert definition["spec"] == CRD["spec"]
    assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_definition_can_be_left_to_somebody_else(helm: Path) -> None:
    assert "CustomResourceDefinition" not in objects(helm, "--set", "crds.install=false")


def test_the_definition_can_go_with_the_release(helm: Path) -> None:
    definition = objects(helm, "--set", "crds.keep=false")["CustomResourceDefinition"]
    assert "helm.sh/resource-policy" not in definition["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    "setting", ["replicas=2", "image.tags=x", "unknown=1", "image.digest=abc", "image.pullPolicy=Sometimes"]
)
def test_a_value_that_means_nothing_is_refused(helm: Path, setting: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        render_chart(helm, CHART, "--set", setting)
    assert setting.partition("=")[0].split(".")[-1] in refusal.value.stderr


def test_every_child_kind_can_be_read_created_and_patched(helm: Path) -> None:
    for kind in kinds.CHILD_KINDS:
        group = kind.api_version.rpartition("/")[0]
        assert rules(helm)[f"{group}/{kind.plural}"] >= READ | {"create", "patch"}


def test_rights_are_the_calls_that_are_made(helm: Path) -> None:
    granted = rules(helm)
    assert granted[f"{names.GROUP}/{names.PLURAL}"] == READ
    assert granted[f"{names.GROUP}/{names.PLURAL}/status"] == {"get", "patch"}
    assert granted["/pods"] == granted["/nodes"] == READ
    assert granted["/events"] == {"create", "patch"}
    assert not any("*" in {*verbs, *resource.split("/")} for resource, verbs in granted.items())
    assert granted["/configmaps"] == READ
    assert granted["/secrets"] == {"get"}
    assert [resource for resource, verbs in granted.items() if "delete" in verbs] == ["policy/poddisruptionbudgets"]


def test_the_right_to_read_a_token_can_be_withheld(helm: Path) -> None:
    assert not any("secrets" in resource for resource in rules(helm, "--set", "rbac.readSecrets=false"))


def test_the_role_is_bound_to_the_account_that_the_operator_runs_as(helm: Path) -> None:
    made = objects(helm, "--set", "serviceAccount.name=mine")
    (subject,) = made["ClusterRoleBinding"]["subjects"]
    assert subject["name"] == made["ServiceAccount"]["metadata"]["name"] == "mine"
    assert made["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_the_operator_has_no_rights_on_its_node(helm: Path) -> None:
    spec = operator_pod(helm)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_probes_ask_where_the_operator_answers(helm: Path) -> None:
    (container,) = operator_pod(helm)["containers"]
    address = urlsplit(DEFAULT_LIVENESS)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container[probe]["httpGet"]
        assert (ports[request["port"]], request["path"]) == (address.port, address.path)


def test_a_digest_stands_over_the_tag(helm: Path) -> None:
    digest = "sha256:" + "0" * 64
    (container,) = operator_pod(helm, "--set", f"image.digest={digest}", "--set", "image.tag=x")["containers"]
    assert container["image"].endswith(f"@{digest}")


def test_one_operator_acts_at_a_time(helm: Path) -> None:
    spec = objects(helm)["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_install_manifest_is_what_the_chart_renders(helm: Path) -> None:
    installed = (ROOT / "manifests/install.yaml").read_text(encoding="utf-8")
    assert installed.endswith(render_chart(helm, CHART))
    namespace = next(yaml.safe_load_all(installed))
    assert namespace["kind"] == "Namespace"
    assert all(
        document["metadata"].get("namespace", namespace["metadata"]["name"]) == namespace["metadata"]["name"]
        for document in yaml.safe_load_all(installed)
    )
