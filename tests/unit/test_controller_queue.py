"""The queue coalesces, never works on a key twice at once, and comes back after a failure."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from vlm_operator.controller import queue as queue_module
from vlm_operator.controller.queue import Key, WorkQueue
from vlm_operator.errors import ClusterError

A: Key = ("documents", "a")
B: Key = ("documents", "b")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "REST_SECONDS", 0.001)
    monkeypatch.setattr(queue_module, "FIRST_BACKOFF_SECONDS", 0.001)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - plain counters cannot be awaited
            await asyncio.sleep(0.001)


def run(visit: Callable[[Key], Awaitable[float | None]], use: Callable[[WorkQueue], Awaitable[None]]) -> None:
    async def main() -> None:
        queue = WorkQueue(visit, workers=4)
        queue.start()
        try:
            await use(queue)
        finally:
            await queue.stop()

    asyncio.run(main())


def test_many_events_before_a_visit_make_one_visit() -> None:
    visits: Counter[Key] = Counter()

    async def visit(key: Key) -> None:
        visits[key] += 1

    async def use(queue: WorkQueue) -> None:
        for _ in range(100):
            queue.add(A)
            queue.add(B)
        await until(lambda: visits.total() == 2)
        await asyncio.sleep(0.02)
        assert visits == {A: 1, B: 1}

    run(visit, use)


def test_events_during_a_visit_make_one_more_and_never_two_at_once() -> None:
    running: Counter[Key] = Counter()
    visits: Counter[Key] = Counter()
    release = asyncio.Event()

    async def visit(key: Key) -> None:
        running[key] += 1
        assert running[key] == 1
        visits[key] += 1
        await release.wait()
        running[key] -= 1

    async def use(queue: WorkQueue) -> None:
        queue.add(A)
        await until(lambda: visits[A] == 1)
        for _ in range(100):
            queue.add(A)
        queue.add(B)
        await until(lambda: visits[B] == 1)
        assert visits[A] == 1
        release.set()
        await until(lambda: visits[A] == 2)
        await asyncio.sleep(0.02)
        assert visits == {A: 2, B: 1}

    run(visit, use)


@pytest.mark.parametrize("error", [ClusterError("refused"), RuntimeError("a bug")])
def test_a_visit_that_fails_is_repeated_until_it_succeeds(error: Exception) -> None:
    visits: Counter[Key] = Counter()

    async def visit(key: Key) -> None:
        visits[key] += 1
        if visits[key] < 4:
            raise error

    async def use(queue: WorkQueue) -> None:
        queue.add(A)
        await until(lambda: visits[A] == 4)
        await asyncio.sleep(0.05)
        assert visits[A] == 4

    run(visit, use)


def test_a_visit_may_ask_for_another_and_forgetting_takes_the_wish_back() -> None:
    visits: Counter[Key] = Counter()

    async def visit(key: Key) -> float:
        visits[key] += 1
        return 0.01 if key == A else 3600

    async def use(queue: WorkQueue) -> None:
        queue.add(A)
        queue.add(B)
        await until(lambda: visits[A] == 3)
        assert visits[B] == 1
        await until(lambda: B in queue._timers)
        queue.forget(B)
        assert B not in queue._timers

    run(visit, use)
