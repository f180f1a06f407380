"""From the command line to a live cluster; only this module of ``cli`` loads the Kubernetes client."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from vlm_operator.cluster.client import ClusterClient, cluster_client
from vlm_operator.cluster.inventory import ClusterSnapshot, read_snapshot
from vlm_operator.cluster.kinds import CONFIG_MAP, VLM_DEPLOYMENT
from vlm_operator.errors import ClusterError

_T = TypeVar("_T")


def cluster_snapshot() -> ClusterSnapshot:
    """Return the GPU nodes of the cluster that the kubeconfig leads to, and who holds their GPUs."""
    return _ask(read_snapshot)


def live_object(namespace: str, name: str) -> dict[str, Any] | None:
    """Return the VLMDeployment as the API server shows it; None where there is none."""
    return _ask(lambda client: client.get(VLM_DEPLOYMENT, namespace, name))


def live_config_map(namespace: str, name: str) -> dict[str, Any] | None:
    """Return a ConfigMap as the API server shows it; None where there is none."""
    return _ask(lambda client: client.get(CONFIG_MAP, namespace, name))


def _ask(question: Callable[[ClusterClient], Awaitable[_T]]) -> _T:
    async def within() -> _T:
        async with cluster_client(_kubeconfig()) as client:
            return await question(client)

    return asyncio.run(within())


def _kubeconfig() -> str:
    """Return the file that kubectl would read."""
    named = [file for file in os.environ.get("KUBECONFIG", "").split(os.pathsep) if file]
    file = named[0] if named else str(Path.home() / ".kube" / "config")
    if not Path(file).is_file():
        raise ClusterError(f"there is no kubeconfig {file}; name one with KUBECONFIG")
    return file
