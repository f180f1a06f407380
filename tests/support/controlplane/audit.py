"""The API server's log of writes, as Python values."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PLANE_USERS = frozenset({"system:apiserver", "system:kwok", "system:kube-controller-manager", "system:kube-scheduler"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write that the API server answered."""

    at: datetime
    user: str
    user_agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status_code: int


def read_writes(log: Path, since: datetime | None = None, *, by_plane: bool = False) -> list[Write]:
    """Returns the writes in the log, oldest first.

    Args:
        log: the audit log; a file that is not there yet is an empty one.
        since: only writes received at or after this time, if given.
        by_plane: whether to include what the control plane's own parts wrote.
    """
    start = since or datetime.min.replace(tzinfo=UTC)
    writes = (_parse(event) for event in _events(log))
    return [one for one in writes if one.at >= start and (by_plane or one.user not in PLANE_USERS)]


def _events(log: Path) -> Iterator[dict[str, Any]]:
    if not log.exists():
        return
    for line in log.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # the last line may still be in the making
            yield json.loads(line)


def _parse(event: dict[str, Any]) -> Write:
    target = event.get("objectRef", {})
    return Write(
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        user=event["user"].get("username", ""),
        user_agent=event.get("userAgent", ""),
        verb=event["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status_code=event.get("responseStatus", {}).get("code", 0),
    )
