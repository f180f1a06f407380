"""``python -m vlm_operator.controller``: the operator as a process, cluster-wide or in some namespaces.

Settings come from the environment, see ``settings``. SIGTERM stops it; killing it harder loses nothing.
"""

import asyncio
import sys

import kopf

from vlm_operator.cluster.client import cluster_client
from vlm_operator.cluster.snapshot import SnapshotCache
from vlm_operator.controller.handlers import EventRouter, build_registry
from vlm_operator.controller.plans import KeptPlans
from vlm_operator.controller.queue import WorkQueue
from vlm_operator.controller.reconcile import Reconciler
from vlm_operator.controller.settings import (
    OperatorOptions,
    configure_kopf,
    configure_logging,
    read_options,
)
from vlm_operator.controller.sources import ModelSources
from vlm_operator.errors import VlmOperatorError
from vlm_operator.hub.settings import settings_from


async def run(options: OperatorOptions) -> None:
    """Run until a signal arrives."""
    settings = kopf.OperatorSettings()
    configure_kopf(settings)
    async with cluster_client(options.kubeconfig) as client:
        snapshots = SnapshotCache(client)
        reconciler = Reconciler(client, snapshots, ModelSources(client, settings_from()), KeptPlans())
        queue = WorkQueue(reconciler.visit, workers=options.workers)
        registry = build_registry(EventRouter(queue, snapshots.forget), settings, options.kubeconfig)
        queue.start()
        try:
            await kopf.operator(
                registry=registry,
                settings=settings,
                clusterwide=not options.namespaces,
                namespaces=options.namespaces,
                standalone=True,
                liveness_endpoint=options.liveness_url or None,
            )
        finally:
            await queue.stop()


def main() -> int:
    """Return the exit code of the process."""
    try:
        options = read_options()
        configure_logging(options.log_level)
        asyncio.run(run(options))
    except VlmOperatorError as error:
        sys.stderr.write(f"vlm-operator: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
