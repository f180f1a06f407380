"""One reading of nodes and pods, shared by visits that come close together."""

import asyncio
from typing import Final

from vlm_operator.cluster.client import ClusterClient
from vlm_operator.cluster.inventory import ClusterSnapshot, read_snapshot

MAX_AGE_SECONDS: Final = 2.0


class SnapshotCache:
    """Keeps the last snapshot for a moment; ``forget`` makes the next reader take a new one."""

    def __init__(self, client: ClusterClient, *, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        self._client = client
        self._max_age_seconds = max_age_seconds
        self._lock = asyncio.Lock()
        self._snapshot: ClusterSnapshot | None = None
        self._taken_at = 0.0

    def forget(self) -> None:
        """Let the next reader take a new snapshot."""
        self._snapshot = None

    async def read(self) -> ClusterSnapshot:
        """Return a snapshot that is at most ``max_age_seconds`` old."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            snapshot = self._snapshot
            if snapshot is None or now - self._taken_at > self._max_age_seconds:
                snapshot = await read_snapshot(self._client)
                self._snapshot, self._taken_at = snapshot, now
            return snapshot
