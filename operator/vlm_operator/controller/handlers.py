"""kopf event handlers that turn what happens on the cluster into keys of the queue.

Why this leaves no trace on the user's objects. kopf's create/update/resume handlers remember their
progress and the last handled state in annotations, and delete handlers, timers and daemons need a
finalizer. An *event* handler has none of this: kopf calls it for every watch event and for every object of
the first listing, and keeps nothing. What may fail and be repeated happens in our own queue instead, whose
memory is the process: after a restart, or a kill, the first listing names every object again, and
reconciling an object that is as it should be writes nothing.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from vlm_operator.api import names
from vlm_operator.cluster.inventory import GpuNode, read_node
from vlm_operator.cluster.kinds import CHILD_KINDS, CONFIG_MAP, NODE, POD, Kind
from vlm_operator.controller.queue import Key, WorkQueue
from vlm_operator.render.names import INSTANCE_LABEL, MANAGED_BY_LABEL, child_labels

NODE_SETTLING_SECONDS: Final = 0.5
"""Nodes come in bursts; one visit of every object after the last of them is enough."""

_MANAGED: Final = f"{MANAGED_BY_LABEL}={child_labels('')[MANAGED_BY_LABEL]}"


class EventRouter:
    """Knows which objects exist, and which of them an event concerns."""

    def __init__(self, queue: WorkQueue, forget_snapshot: Callable[[], None]) -> None:
        self._queue = queue
        self._forget_snapshot = forget_snapshot
        self._known: dict[Key, str | None] = {}
        self._nodes: dict[str, GpuNode] = {}
        self._settling: asyncio.TimerHandle | None = None

    def on_resource(self, event: Mapping[str, Any]) -> None:
        """Take note of a VLMDeployment; its key is visited, also to find that it is gone."""
        key = _key_of(event["object"])
        if event["type"] == "DELETED":
            self._known.pop(key, None)
            self._queue.forget(key)
        else:
            self._known[key] = _config_map_of(event["object"])
            self._queue.add(key)

    def on_child(self, event: Mapping[str, Any]) -> None:
        """Visit the VLMDeployment that a child or a pod belongs to."""
        metadata = event["object"]["metadata"]
        name = (metadata.get("labels") or {}).get(INSTANCE_LABEL)
        key = (metadata["namespace"], name or "")
        if key in self._known:
            self._queue.add(key)

    def on_config_map(self, event: Mapping[str, Any]) -> None:
        """Visit the VLMDeployments whose model a ConfigMap describes, also to find that it is gone."""
        namespace, name = _key_of(event["object"])
        for key, config_map in self._known.items():
            if config_map == name and key[0] == namespace:
                self._queue.add(key)

    def on_node(self, event: Mapping[str, Any]) -> None:
        """Visit everything when GPUs came, went or changed; heartbeats change nothing that counts."""
        name = event["object"]["metadata"]["name"]
        node = read_node(event["object"]) if event["type"] != "DELETED" else None
        if node == self._nodes.get(name):
            return
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(NODE_SETTLING_SECONDS, self._visit_all)

    def _visit_all(self) -> None:
        self._settling = None
        self._forget_snapshot()
        for key in sorted(self._known):
            self._queue.add(key)


def build_registry(
    router: EventRouter, settings: kopf.OperatorSettings, kubeconfig: str | None
) -> kopf.OperatorRegistry:
    """Return kopf's registry with our handlers, and let the API server select the children we manage."""
    registry = kopf.OperatorRegistry()
    login = kopf.login_via_client if kubeconfig else kopf.login_with_service_account
    kopf.on.login(registry=registry)(login)

    async def on_resource(event: Any, **_: Any) -> None:
        router.on_resource(event)

    async def on_child(event: Any, **_: Any) -> None:
        router.on_child(event)

    async def on_config_map(event: Any, **_: Any) -> None:
        router.on_config_map(event)

    async def on_node(event: Any, **_: Any) -> None:
        router.on_node(event)

    kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)(on_resource)
    kopf.on.event("v1", NODE.plural, registry=registry)(on_node)
    kopf.on.event("v1", CONFIG_MAP.plural, registry=registry)(on_config_map)
    for kind in (*CHILD_KINDS, POD):
        group, version = _split(kind)
        kopf.on.event(group, version, kind.plural, registry=registry)(on_child)
        settings.watching.label_selectors[group, version, kind.plural] = _MANAGED
    return registry


def _split(kind: Kind) -> tuple[str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version


def _config_map_of(document: Mapping[str, Any]) -> str | None:
    model = (document.get("spec") or {}).get("model")
    return model.get("configMapName") if isinstance(model, Mapping) else None


def _key_of(document: Mapping[str, Any]) -> Key:
    return document["metadata"]["namespace"], document["metadata"]["name"]
