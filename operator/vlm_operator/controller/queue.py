"""A work queue that coalesces: a key waits at most once, and is worked on by one worker at a time.

Events only say *that* something about a key may have changed, so any number of them makes one visit; an
event during a visit makes one more afterwards. A visit that fails is repeated with exponential backoff.
Fed by ``handlers``; the work itself is ``reconcile``. Nothing of the queue is stored: after a restart the
first listing fills it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from vlm_operator.errors import ClusterError

Key = tuple[str, str]
Visit = Callable[[Key], Awaitable[float | None]]
"""Work on a key; a number asks for another visit after as many seconds."""

REST_SECONDS: Final = 0.1
"""A visit's own writes come back as events; one visit after the last of them is enough."""
FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 60.0

_logger = logging.getLogger(__name__)


class WorkQueue:
    """Keys to visit. All methods belong to one event loop."""

    def __init__(self, visit: Visit, *, workers: int) -> None:
        self._visit = visit
        self._worker_count = workers
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._running: set[Key] = set()
        self._dirty: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, key: Key) -> None:
        """Ask for a visit as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._running:
            self._dirty.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: Key, seconds: float) -> None:
        """Ask for a visit after some time; one that is asked for sooner replaces it."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a key, because its object is gone."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._worker_count)]

    async def stop(self) -> None:
        """Stop the workers; a visit that is under way is broken off, which every later visit can repair."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._running.add(key)
            seconds = await self._attempt(key)
            asyncio.get_running_loop().call_later(REST_SECONDS, self._finish, key, seconds)

    def _finish(self, key: Key, seconds: float | None) -> None:
        self._running.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)
        elif seconds is not None:
            self.add_later(key, seconds)

    async def _attempt(self, key: Key) -> float | None:
        """Visit a key and return after how long to come back; a worker survives whatever happens."""
        try:
            seconds = await self._visit(key)
        except ClusterError as error:
            _logger.warning("%s/%s: %s", *key, error)
        except Exception:
            _logger.exception("%s/%s: the visit failed", *key)
        else:
            self._failures.pop(key, None)
            return seconds
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(failures, 16), LONGEST_BACKOFF_SECONDS))
