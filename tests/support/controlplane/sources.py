"""Which cluster to use: one that is there already, or else one of our own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.controlplane.build import build
from tests.support.controlplane.paths import kind_kubeconfig
from tests.support.controlplane.plane import ControlPlane, ControlPlaneError, Outside, Programs


@contextmanager
def use_best(nodes: Sequence[dict[str, Any]] = ()) -> Iterator[Outside]:
    """Yields the first of these that is there.

    1. the cluster of `VLM_TEST_KUBECONFIG`;
    2. etcd and kube-apiserver of `KUBEBUILDER_ASSETS`: an API server without controllers or nodes;
    3. the kind cluster of `make kind-up`;
    4. the Go build of tests/controlplane.

    Args:
        nodes: simulated nodes, created only in a control plane of our own.
    """
    if named := os.environ.get("VLM_TEST_KUBECONFIG"):
        yield _outside(Path(named))
    elif assets := os.environ.get("KUBEBUILDER_ASSETS"):
        _say("KUBEBUILDER_ASSETS has no controllers: tests that need pods or nodes are skipped")
        with ControlPlane.start(programs=Programs.from_assets(Path(assets))) as plane:
            yield plane
    elif (kind := _kind()) is not None:
        _say(f"using the kind cluster of make kind-up ({kind.kubeconfig})")
        yield kind
    else:
        with ControlPlane.start(nodes) as plane:
            yield plane


def _outside(kubeconfig: Path) -> Outside:
    found = shutil.which("kubectl")
    return Outside(kubeconfig=kubeconfig, kubectl_program=Path(found) if found else build().with_name("kubectl"))


def _kind() -> Outside | None:
    """Returns the kind cluster if a container engine runs and the cluster answers."""
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None or not kind_kubeconfig().exists():
        return None
    if subprocess.run([engine, "info"], check=False, capture_output=True).returncode != 0:
        return None
    cluster = _outside(kind_kubeconfig())
    try:
        cluster.kubectl("get", "--raw=/readyz", "--request-timeout=5s")
    except ControlPlaneError:
        return None
    return cluster


def _say(text: str) -> None:
    sys.stderr.write(f"[control plane] {text}\n")
