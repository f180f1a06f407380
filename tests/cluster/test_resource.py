"""A real API server takes the CRD, explains it, accepts every sample and refuses what the models refuse."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.controlplane import ControlPlaneError, Outside, wait_until
from tests.unit.test_api_refusals import REFUSALS, valid_document, with_value

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/vlm-operator.dev_vlmdeployments.yaml"
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))
CRD_NAME = "crd/vlmdeployments.vlm-operator.dev"
NOT_OURS = {"another kind", "another version", "metadata that is a list", "a spec that is text"}
"""Refused by the API server before it looks at the CRD, in its own words."""
EMPTY = {"an empty field", "an empty value"}
"""Refused by server-side apply only; elsewhere null is pruned before anyone can see it."""


@pytest.fixture(scope="module")
def cluster(control_plane: Outside) -> Outside:
    """The shared cluster with the CRD of this tree."""
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", CRD_NAME, "--timeout=60s")
    wait_until(lambda: is_published(control_plane), 60, "the schema in the API server's OpenAPI document")
    return control_plane


def is_published(cluster: Outside) -> bool:
    """A definition is established a moment before its schema is published, which kubectl explains from."""
    try:
        cluster.kubectl("explain", "vlmdeployment.spec")
    except ControlPlaneError:
        return False
    return True


def create(cluster: Outside, namespace: str, document: Any, *arguments: str) -> str:
    return cluster.kubectl("create", "-n", namespace, "-f", "-", *arguments, input=json.dumps(document))


def refusal(cluster: Outside, namespace: str, document: Any) -> str:
    with pytest.raises(ControlPlaneError) as caught:
        create(cluster, namespace, document, "--dry-run=server")
    return str(caught.value)


def test_the_schema_is_structural_and_served(cluster: Outside) -> None:
    conditions = {c["type"]: c["status"] for c in cluster.get(CRD_NAME)["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_the_stored_definition_is_the_one_that_was_sent(cluster: Outside) -> None:
    sent = yaml.safe_load(CRD.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]
    assert cluster.get(CRD_NAME)["spec"]["versions"][0]["schema"] == sent


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("vlmdeployment.spec", "What to serve, what arrives"),
        ("vlmd.spec.workload.images.sizes.width", "width is the image's width in pixels"),
        ("vlmdeployment.status.conditions", "conditions are Accepted"),
    ],
)
def test_kubectl_explains_fields(cluster: Outside, path: str, words: str) -> None:
    assert words in cluster.kubectl("explain", path)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_accepted_and_stored_as_written(cluster: Outside, namespace: str, sample: Path) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", str(sample))
    written = yaml.safe_load(sample.read_text(encoding="utf-8"))
    assert cluster.get("vlmd", sample.stem, "-n", namespace)["spec"] == written["spec"]


@pytest.mark.parametrize("case", [case for case in REFUSALS if case not in NOT_OURS | EMPTY])
def test_what_the_models_refuse_the_api_server_refuses_at_the_same_field(
    cluster: Outside, namespace: str, case: str
) -> None:
    at, value, path, _ = REFUSALS[case]
    assert path in refusal(cluster, namespace, with_value(at, value))


@pytest.mark.parametrize("case", sorted(EMPTY))
def test_server_side_apply_refuses_null(cluster: Outside, namespace: str, case: str) -> None:
    at, value, path, _ = REFUSALS[case]
    with pytest.raises(ControlPlaneError, match=path):
        cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", input=json.dumps(with_value(at, value)))


def test_a_typo_is_refused_by_strict_validation(cluster: Outside, namespace: str) -> None:
    message = refusal(cluster, namespace, with_value("spec.model.revison", "main"))
    assert 'unknown field "spec.model.revison"' in message


def test_the_message_of_a_rule_says_what_to_do(cluster: Outside, namespace: str) -> None:
    message = refusal(cluster, namespace, with_value("spec.workload.traffic", {}))
    assert "set exactly one of requestsPerMinute and concurrentRequests" in message


def test_a_wrong_change_is_refused_and_the_object_stays(cluster: Outside, namespace: str) -> None:
    create(cluster, namespace, valid_document())
    patch = json.dumps({"spec": {"scaling": {"minReplicas": 3, "maxReplicas": 1}}})
    with pytest.raises(ControlPlaneError, match=r"spec\.scaling\.minReplicas"):
        cluster.kubectl("patch", "vlmd", "invoices", "-n", namespace, "--type=merge", "-p", patch)
    assert cluster.get("vlmd", "invoices", "-n", namespace)["spec"] == valid_document()["spec"]


def test_scale_sets_the_fewest_replicas_also_where_none_were_written(cluster: Outside, namespace: str) -> None:
    create(cluster, namespace, valid_document())
    cluster.kubectl("scale", "vlmd", "invoices", "-n", namespace, "--replicas=2")
    assert cluster.get("vlmd", "invoices", "-n", namespace)["spec"]["scaling"] == {"minReplicas": 2}


def test_the_columns_show_the_status(cluster: Outside, namespace: str) -> None:
    create(cluster, namespace, valid_document())
    cluster.kubectl(
        "patch", "vlmd", "invoices", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": STATUS}),
    )  # fmt: skip
    header, row = cluster.kubectl("get", "vlmd", "-n", namespace, "-o", "wide").splitlines()
    assert " ".join(header.split()[:9]) == "NAME MODEL GPU REPLICAS MAX-LEN IMG-TOKENS COST/H READY REASON"
    assert " ".join(header.split()[9:]) == "AGE TP MAX-PIXELS HEADROOM TTFT"
    for words in ("2 x H100-80GB", "1/1", "32768", "1369", "4.20", "True", "Serving", "12 GiB", "850"):
        assert words in row


def test_a_status_with_a_condition_twice_is_refused(cluster: Outside, namespace: str) -> None:
    create(cluster, namespace, valid_document())
    status = copy.deepcopy(STATUS)
    status["conditions"] *= 2
    with pytest.raises(ControlPlaneError, match="Duplicate value"):
        cluster.kubectl(
            "patch", "vlmd", "invoices", "-n", namespace, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip


STATUS: dict[str, Any] = {
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "1 of 1 replicas serve",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "replicas": 1,
    "plan": {"maxModelLen": 32768, "tensorParallelSize": 2, "maxPixels": 1003520},
    "estimate": {"ttftMilliseconds": {"p50": 400, "p95": 850, "p99": 900}},
    "summary": {
        "accelerator": "2 x H100-80GB",
        "hourlyCost": "4.20",
        "imageTokens": "1369",
        "headroom": "12 GiB",
        "ready": "1/1",
        "reason": "Serving",
    },
}
