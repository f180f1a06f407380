"""Core v1 Events about a resource, for ``kubectl describe``; the same news again raises a count."""

import hashlib
from datetime import datetime
from typing import Any, Final, Literal

from vlm_operator.api.names import API_VERSION, FIELD_MANAGER, KIND
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.cluster.kinds import EVENT
from vlm_operator.errors import ClusterError

EventType = Literal["Normal", "Warning"]

_CONFLICT: Final = 409
_NAMESPACE_ENDS: Final = "because it is being terminated"
"""How the API server words its refusal to create anything in a namespace that is being deleted."""
_LONGEST_MESSAGE: Final = 1000


async def post_event(
    client: ClusterClient,
    about: dict[str, Any],
    reason: str,
    message: str,
    now: datetime,
    event_type: EventType = "Normal",
) -> None:
    """Tell the readers of a VLMDeployment's Events something; ``reason`` is one CamelCase word."""
    event = event_document(about, reason, message, now, event_type)
    namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
    try:
        await client.create(EVENT, namespace, event)
    except ClusterError as error:
        if _NAMESPACE_ENDS in str(error):  # its objects go with it, and nobody reads their Events
            return
        if error.status != _CONFLICT:
            raise
        # The answer to the first patch tells the count, so that the operator needs no right to read Events.
        known = await client.merge(EVENT, namespace, name, {"lastTimestamp": event["lastTimestamp"]})
        await client.merge(EVENT, namespace, name, {"count": int(known.get("count") or 1) + 1})


def event_document(
    about: dict[str, Any], reason: str, message: str, now: datetime, event_type: EventType = "Normal"
) -> dict[str, Any]:
    """Return the Event; its name follows from what it says, so that saying it twice names the same Event."""
    metadata = about["metadata"]
    text = message[:_LONGEST_MESSAGE]
    identity = hashlib.sha256("\0".join((metadata["uid"], event_type, reason, text)).encode()).hexdigest()
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{identity[:16]}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": text,
        "type": event_type,
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
    }
