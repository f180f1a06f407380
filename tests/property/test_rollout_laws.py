"""A rollout ends, whatever the scheduler and the Deployment controller choose, wherever the new pods fit at all."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from vlm_operator.controller.rollout import most_unavailable
from vlm_operator.sizing.inventory import Resources
from vlm_operator.units import GIB

amounts = st.builds(
    Resources,
    gpus=st.integers(0, 8),
    cpu_cores=st.integers(0, 32),
    memory_bytes=st.integers(0, 64).map(lambda gib: gib * GIB),
)
pods = st.builds(
    Resources,
    gpus=st.integers(1, 4),
    cpu_cores=st.integers(1, 12),
    memory_bytes=st.integers(1, 24).map(lambda gib: gib * GIB),
)


def take(node: Resources, pod: Resources, times: int = 1) -> Resources:
    return Resources(
        gpus=node.gpus - times * pod.gpus,
        cpu_cores=(node.cpu_cores or 0) - times * (pod.cpu_cores or 0),
        memory_bytes=(node.memory_bytes or 0) - times * (pod.memory_bytes or 0),
    )


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Nodes, and on which of them old and new pods run; ``chance`` chooses wherever Kubernetes might."""

    free: list[Resources]
    old: Resources
    new: Resources
    chance: Random
    ready: list[int] = field(default_factory=list)
    starting: list[int] = field(default_factory=list)
    renewed: list[int] = field(default_factory=list)

    def place(self, pod: Resources) -> int | None:
        room = [number for number, node in enumerate(self.free) if node.count(pod)]
        if not room:
            return None
        number = self.chance.choice(room)
        self.free[number] = take(self.free[number], pod)
        return number

    def start(self, pods: list[int], pod: Resources, count: int) -> None:
        found = [number for _ in range(count) if (number := self.place(pod)) is not None]
        pods += found

    def stop_old(self, pods: list[int], count: int) -> None:
        for _ in range(min(count, len(pods))):
            number = pods.pop(self.chance.randrange(len(pods)))
            self.free[number] = take(self.free[number], self.old, -1)

    def roll(self, replicas: int, missing: int) -> bool:
        """Tell whether all new pods run in the end, and never fewer pods than ``replicas - missing`` on the way.

        As ``deployment/sync.go`` and ``rolling.go`` do it: the old ReplicaSet is first scaled to the new number, then
        the new one is filled up, old pods that are not ready go first, and ready ones as far as ``missing`` allows.
        """
        surge, least = 0 if missing else 1, min(replicas - missing, len(self.ready))
        wanted = replicas
        self.stop_old(self.ready, len(self.ready) - replicas)
        self.start(self.starting, self.old, replicas - len(self.ready))
        while True:
            before = (wanted, len(self.ready), len(self.renewed))
            asked = min(replicas, replicas + surge - wanted)
            self.start(self.renewed, self.new, asked - len(self.renewed))
            waiting = asked - len(self.renewed)
            spare = wanted + asked - (replicas - missing) - waiting
            unready = min(wanted - len(self.ready), max(spare, 0))
            self.stop_old(self.starting, unready - (wanted - len(self.ready) - len(self.starting)))
            wanted -= unready
            going = max(min(len(self.ready) + len(self.renewed) - (replicas - missing), len(self.ready)), 0)
            self.stop_old(self.ready, going)
            wanted -= going
            if len(self.ready) + len(self.renewed) < least:
                return False
            if (wanted, len(self.ready), len(self.renewed)) == before:
                if not self.starting:
                    return wanted == 0 and len(self.renewed) == replicas
                self.ready, self.starting = self.ready + self.starting, []


@given(
    free=st.lists(amounts, min_size=1, max_size=5),
    old=pods,
    new=pods,
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 999),
)
@example(free=[Resources(gpus=4, cpu_cores=32, memory_bytes=GIB)], old=Resources(gpus=4, cpu_cores=8, memory_bytes=1),
         new=Resources(gpus=1, cpu_cores=5, memory_bytes=1), counts=(1, 4), seed=1)  # fmt: skip
@example(free=[Resources(gpus=2, cpu_cores=32, memory_bytes=GIB)] * 2,
         old=Resources(gpus=1, cpu_cores=5, memory_bytes=1), new=Resources(gpus=2, cpu_cores=6, memory_bytes=1),
         counts=(2, 2), seed=1)  # fmt: skip
@example(free=[Resources(gpus=4, cpu_cores=32, memory_bytes=GIB)], old=Resources(gpus=2, cpu_cores=6, memory_bytes=1),
         new=Resources(gpus=1, cpu_cores=5, memory_bytes=1), counts=(1, 2), seed=1)  # fmt: skip
@settings(max_examples=1000, deadline=None, derandomize=True)
def test_a_rollout_ends_wherever_the_new_pods_fit_without_the_old_ones(
    free: list[Resources], old: Resources, new: Resources, counts: tuple[int, int], seed: int
) -> None:
    room = sum(node.count(new) for node in free)
    assume(room)
    replicas = min(counts[1], room)
    chance = Random(seed)  # noqa: S311 - no secret
    cluster = Cluster(free=list(free), old=old, new=new, chance=chance)
    cluster.start(cluster.ready, old, counts[0])
    running = len(cluster.ready)
    missing = most_unavailable(deployment(old, running), new, replicas, cluster.free)
    assert 0 <= missing <= replicas
    assert cluster.roll(replicas, missing)


def deployment(pod: Resources, replicas: int) -> dict[str, object]:
    asked = {"nvidia.com/gpu": str(pod.gpus), "cpu": str(pod.cpu_cores), "memory": str(pod.memory_bytes)}
    containers = [{"name": "engine", "resources": {"requests": asked}}]
    return {"spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}}
