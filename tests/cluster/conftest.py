"""Fixtures for tests against a real API server. The server is shared; every test has its own namespace."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import nodes
from tests.support.controlplane import ControlPlane, Outside, use_best

# A fresh server is ready in seconds; the first run on a machine also builds it.
BUILD_SECONDS = 1800


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Outside]:
    """The cluster all tests share: the best one there is, see tests/support/controlplane/sources.py."""
    with use_best([nodes.gpu_node(nodes.H100_X8), nodes.gpu_node(nodes.L40S_X4), nodes.gpu_node(nodes.L4_X1)]) as plane:
        yield plane


@pytest.fixture
def scheduling_plane(control_plane: Outside) -> Outside:
    """The shared cluster, where it has simulated GPU nodes and controllers."""
    if not control_plane.has_simulated_nodes:
        pytest.skip("needs simulated GPU nodes, which only a control plane of our own has")
    return control_plane


@pytest.fixture
def kubeconfig(control_plane: Outside) -> Path:
    """The shared cluster's kubeconfig, of a user who may do everything."""
    return control_plane.kubeconfig


@pytest.fixture
def namespace(control_plane: Outside) -> Iterator[str]:
    """A namespace for one test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def own_control_plane() -> Iterator[ControlPlane]:
    """A control plane for one test alone, for those that change what all share."""
    with ControlPlane.start() as plane:
        yield plane


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder, and gives the first of them time to build the server."""
    here = Path(__file__).parent
    own = [item for item in items if here in item.path.parents]
    for item in own:
        item.add_marker("cluster")
    if own:
        own[0].add_marker(pytest.mark.timeout(BUILD_SECONDS))
