"""The control plane of tests/support/controlplane does what a cluster does, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import nodes
from tests.support.controlplane import ControlPlane, ControlPlaneError, Outside, wait_until
from tests.support.controlplane.build import build
from tests.support.controlplane.paths import REPOSITORY

OWNER = """
import sys, time
from tests.support.controlplane import ControlPlane
with ControlPlane.start() as plane:
    print(plane.folder, *(part.process.pid for part in plane.parts), flush=True)
    time.sleep(600)
"""


def deployment(name: str, *, replicas: int, gpus: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    container = {"name": "server", "image": "server", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {"containers": [container]},
            },
        },
    }


def pods_of(plane: Outside, namespace: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = plane.get("pods", f"--namespace={namespace}")["items"]
    return pods


def test_it_is_ready_within_seconds_and_says_its_version() -> None:
    build()  # the first run on a machine compiles; that is not what is timed here
    started = time.monotonic()
    with ControlPlane.start([nodes.gpu_node(nodes.H200_X8), nodes.gpu_node(nodes.A100_X8)]) as plane:
        assert time.monotonic() - started < 60, "idle it takes 4 s; the bound allows for a busy machine"
        assert "Server Version: v1." in plane.kubectl("version")


def test_its_nodes_carry_the_labels_of_gpu_feature_discovery(scheduling_plane: Outside) -> None:
    node = scheduling_plane.get("node", "h100-80gb-sxm-x8")

    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_deployment_that_fits_becomes_available(scheduling_plane: Outside, namespace: str) -> None:
    scheduling_plane.apply(deployment("fits", replicas=2, gpus=4), namespace=namespace)
    scheduling_plane.kubectl(
        "wait", "--for=condition=Available", "--timeout=30s", f"--namespace={namespace}", "deployment/fits"
    )

    placed = {pod["spec"]["nodeName"] for pod in pods_of(scheduling_plane, namespace)}
    assert placed <= {"h100-80gb-sxm-x8", "l40s-x4"}, "no other node has four GPUs"


def test_a_pod_that_asks_for_more_gpus_than_any_node_has_stays_pending(
    scheduling_plane: Outside, namespace: str
) -> None:
    scheduling_plane.apply(deployment("asks-too-much", replicas=1, gpus=16), namespace=namespace)

    def refused() -> str:
        for pod in pods_of(scheduling_plane, namespace):
            for condition in pod["status"].get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return str(condition["message"])
        return ""

    assert "Insufficient nvidia.com/gpu" in wait_until(refused, what="the scheduler's refusal")


def test_a_held_pod_is_scheduled_but_not_ready(scheduling_plane: Outside, namespace: str) -> None:
    held = deployment("held", replicas=1, gpus=1, annotations={"test.vlm-operator.dev/hold": "true"})
    scheduling_plane.apply(held, namespace=namespace)

    def placed() -> bool:
        pods = pods_of(scheduling_plane, namespace)
        return bool(pods) and bool(pods[0]["spec"].get("nodeName"))

    wait_until(placed, what="the held pod's placement")
    assert pods_of(scheduling_plane, namespace)[0]["status"]["phase"] == "Pending"


def test_a_pod_answers_at_the_address_a_test_chose(scheduling_plane: Outside, namespace: str) -> None:
    local = deployment("local", replicas=1, gpus=1, annotations={"test.vlm-operator.dev/pod-ip": "127.0.0.1"})
    scheduling_plane.apply(local, namespace=namespace)

    def address() -> str:
        return "".join(pod["status"].get("podIP", "") for pod in pods_of(scheduling_plane, namespace))

    assert wait_until(address, what="the pod's address") == "127.0.0.1"


def test_the_audit_log_shows_writes_and_not_reads(control_plane: Outside, namespace: str) -> None:
    if control_plane.audit_log is None:
        pytest.skip("this cluster's audit log is out of reach")
    before = datetime.now(UTC)
    control_plane.kubectl("create", "configmap", "written", f"--namespace={namespace}")
    control_plane.get("configmap", "written", f"--namespace={namespace}")

    seen = [(one.verb, one.name, one.status_code) for one in control_plane.writes(before) if one.namespace == namespace]
    assert seen == [("create", "written", 201)]


def test_rbac_is_on(control_plane: Outside, namespace: str) -> None:
    with pytest.raises(ControlPlaneError, match="forbidden"):
        control_plane.kubectl("get", "pods", f"--namespace={namespace}", "--as=somebody")


def test_two_run_side_by_side(own_control_plane: ControlPlane) -> None:
    with ControlPlane.start() as other:
        other.kubectl("create", "namespace", "only-here")
        with pytest.raises(ControlPlaneError, match="NotFound"):
            own_control_plane.get("namespace", "only-here")


def test_nothing_is_left_after_it_stops() -> None:
    with ControlPlane.start() as plane:
        processes = [part.process for part in plane.parts]

    assert not plane.folder.exists()
    assert all(process.poll() is not None for process in processes)


def test_nothing_is_left_when_its_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, *numbers = owner.stdout.readline().split()
        assert Path(folder).exists()
        os.kill(owner.pid, signal.SIGKILL)

    wait_until(lambda: not any(is_running(int(one)) for one in numbers), what="the end of the parts")
    wait_until(lambda: not Path(folder).exists(), what="the removal of the folder")


def is_running(process: int) -> bool:
    """Whether the process runs; one that has ended but that nobody has buried does not."""
    state = subprocess.run(
        ["/bin/ps", "-o", "stat=", "-p", str(process)], check=False, capture_output=True, text=True
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")
