"""How many pods may be missing while a Deployment rolls out, so that no pod waits for room that never comes. Pure.

None, where there is room for a pod more than run now; the rollout then starts a new pod before an old one goes. That
helps only if each old pod that goes makes room for the next new one, or if there is room for all new ones. Elsewhere
old pods go first: as many as leave one pod fewer than now, or all of them where an old pod could stand in the way of
several new ones.
"""

from collections.abc import Sequence
from typing import Any

from vlm_operator.cluster.pod_requests import as_resources, pod_requests
from vlm_operator.sizing.inventory import Resources

Document = dict[str, Any]


def most_unavailable(deployment: Document, pod: Resources, replicas: int, idle: Sequence[Resources]) -> int:
    """Return ``maxUnavailable`` for a rollout; 0 stands for a surge of one pod.

    Args:
        deployment: What runs.
        pod: What a new pod asks for.
        replicas: How many of them there will be.
        idle: What no pod holds on the nodes that they may run on.
    """
    spec = deployment["spec"]
    old, running = as_resources(pod_requests(spec["template"]["spec"])), int(spec.get("replicas", 1))
    room, added = sum(node.count(pod) for node in idle), max(replicas - running, 0)
    if room >= replicas or (room > added and old.count(pod)):
        return 0
    if old.count(pod) or (old.gpus and pod.count(old)):
        return min(added + 1, replicas)
    return replicas
