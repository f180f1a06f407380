"""How many pods may be missing while a Deployment rolls out, so that no pod waits for room that never comes. Pure.

No fewer than run now, where there is room for what the rollout starts before an old pod goes, and each old pod that
goes makes room for the next new one (or there is room for all new ones). Elsewhere one pod less than run now; and none
at all where an old pod could stand in the way of several new ones.
"""

from collections.abc import Sequence
from typing import Any

from vlm_operator.cluster.pod_requests import as_resources, pod_requests
from vlm_operator.sizing.inventory import Resources

Document = dict[str, Any]


def most_unavailable(deployment: Document, pod: Resources, replicas: int, idle: Sequence[Resources]) -> int:
    """Return ``maxUnavailable`` of ``replicas`` for a rollout; 0 has to come with a surge of one pod.

    Args:
        deployment: What runs.
        pod: What a new pod asks for.
        replicas: How many of them there will be.
        idle: What no pod holds on the nodes that they may run on.
    """
    spec = deployment["spec"]
    old = as_resources(pod_requests(spec["template"]["spec"]))
    added = max(replicas - int(spec.get("replicas", 1)), 0)
    room = sum(node.count(pod) for node in idle)
    no_larger = old.count(pod) > 0
    if room >= replicas or (room >= max(added, 1) and no_larger):
        return added
    no_smaller = old.gpus > 0 and pod.count(old) > 0
    return min(added + 1, replicas) if no_larger or no_smaller else replicas
