"""Laws of plans on clusters whose room lies scattered: a scheduler that knows nodes finds room for every pod."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import nodes
from tests.support.builders import make_document
from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue.load import find_gpu
from vlm_operator.cluster.inventory import build_inventory, take_snapshot
from vlm_operator.planning import plan_deployment
from vlm_operator.sizing.inventory import Inventory, Resources, kind_from_card, node_shape
from vlm_operator.sizing.plan import NoFit, Plan
from vlm_operator.units import GIB, MIB

TRIED = settings(max_examples=60, deadline=None, derandomize=True)
OWNER = ("documents", "invoices")
H100 = kind_from_card(find_gpu("h100-80gb-sxm"))
H100_X4 = replace(nodes.H100_X8, gpus=4, cores=96, memory_gib=1024)

Free = Sequence[tuple[nodes.Shape, int, int]]
"""Nodes, how many of their GPUs are free, and how many of their cores."""


def amounts(most_gpus: int) -> st.SearchStrategy[Resources]:
    return st.builds(
        Resources,
        gpus=st.integers(0, most_gpus),
        cpu_cores=st.one_of(st.none(), st.integers(0, 64)),
        memory_bytes=st.one_of(st.none(), st.integers(0, 512).map(lambda gib: gib * GIB)),
    )


pods = st.builds(Resources, gpus=st.integers(1, 8), cpu_cores=st.integers(1, 24), memory_bytes=st.integers(1, 64 * GIB))
scattered = st.lists(
    st.one_of(
        st.tuples(st.just(nodes.H100_X8), st.integers(0, 8), st.integers(0, 60)),
        st.tuples(st.just(H100_X4), st.integers(0, 4), st.integers(0, 60)),
        st.tuples(st.just(nodes.L40S_X4), st.integers(0, 4), st.integers(0, 47)),
    ),
    min_size=1,
    max_size=6,
)


def cluster(free: Free) -> Inventory:
    """Return a node for each entry, with a pod of somebody else on all GPUs and cores but the free ones."""
    some, others = [], []
    for number, (shape, gpus, cores) in enumerate(free):
        node = nodes.gpu_node(shape, f"node-{number}")
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        some.append(node)
        limits = {"nvidia.com/gpu": str(shape.gpus - gpus), "cpu": str(shape.cores - 1 - cores)}
        others.append(
            {
                "metadata": {"name": "other", "namespace": "other"},
                "spec": {"nodeName": f"node-{number}", "containers": [{"resources": {"limits": limits}}]},
            }
        )
    return build_inventory(take_snapshot(some, others), OWNER)


def plan(free: Free, size: int | None = None, **spec: Any) -> Plan | NoFit:
    parsed = parse_resource(make_document(**spec)).spec
    return plan_deployment(parsed, cluster(free), tensor_parallel_size=size, simulate=False, suggest=False)


def take(free: int | None, asked: int | None) -> int | None:
    return None if free is None else free - (asked or 0)


def schedule(free: Sequence[Resources], pod: Resources, most: int) -> int:
    """Return how many of ``most`` pods, placed one after the other on the first node with room, find it."""
    left = [[node.gpus, node.cpu_cores, node.memory_bytes] for node in free]
    asked = [pod.gpus, pod.cpu_cores, pod.memory_bytes]
    for placed in range(most):
        after = ([take(have, wanted) for have, wanted in zip(node, asked, strict=True)] for node in left)
        found = next((place for place, node in enumerate(after) if all(x is None or x >= 0 for x in node)), None)
        if found is None:
            return placed
        left[found] = [take(have, wanted) for have, wanted in zip(left[found], asked, strict=True)]
    return most


@given(free=st.lists(amounts(8), min_size=1, max_size=6), pod=pods)
@example(free=[Resources(gpus=8, cpu_cores=32, memory_bytes=GIB * 512)], pod=Resources(gpus=1, cpu_cores=12))
@TRIED
def test_there_is_room_for_exactly_as_many_pods_as_a_scheduler_places(free: list[Resources], pod: Resources) -> None:
    shape = node_shape(H100, [Resources(gpus=8)], free)
    assert shape.room_for(pod) == schedule(free, pod, 100)


@given(whole=st.lists(amounts(8), min_size=1, max_size=4), gpus=st.integers(1, 8), least=st.integers(1, 20))
@TRIED
def test_pods_with_a_fair_share_of_cores_fill_every_node_whose_share_is_enough(
    whole: list[Resources], gpus: int, least: int
) -> None:
    whole = [replace(node, memory_bytes=None) for node in whole]
    cores = node_shape(H100, whole, whole).fair_cores(gpus, least)
    for node in whole:
        if node.cpu_cores is None or node.gpus < gpus:
            continue
        assert cores is not None
        assert cores >= least
        if node.cpu_cores * gpus // node.gpus >= least:
            assert node.count(Resources(gpus=gpus, cpu_cores=cores)) == node.gpus // gpus


@given(free=scattered, replicas=st.integers(1, 8), size=st.sampled_from([None, 1, 2, 4, 8]))
@example(free=[(nodes.H100_X8, 3, 60), (nodes.H100_X8, 1, 60)], replicas=1, size=4)
@example(free=[(nodes.L40S_X4, 3, 40), (nodes.L40S_X4, 3, 40)], replicas=3, size=2)
@example(free=[(nodes.H100_X8, 8, 32)], replicas=8, size=1)
@TRIED
def test_every_pod_of_a_plan_finds_room_on_one_node(free: Free, replicas: int, size: int | None) -> None:
    verdict = plan(free, size, scaling={"minReplicas": replicas})
    if isinstance(verdict, Plan):
        here = [
            Resources(gpus=gpus, cpu_cores=cores, memory_bytes=int(shape.memory_gib * 1024 * 0.95) * MIB)
            for shape, gpus, cores in free
            if nodes_product(shape) == verdict.gpu.product
        ]
        pod = verdict.host.pod(verdict.gpus_per_replica)
        assert schedule(here, pod, verdict.replicas) == verdict.replicas


@given(
    large=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 60)), min_size=1, max_size=4),
    small=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=3),
    replicas=st.integers(1, 6),
)
@example(large=[(1, 60)] * 4, small=[], replicas=1)
@example(large=[(3, 60)], small=[(2, 60)], replicas=2)
@example(large=[(8, 16)], small=[], replicas=3)
@TRIED
def test_a_size_that_fits_is_planned_exactly_where_the_pods_find_room(
    large: list[tuple[int, int]], small: list[tuple[int, int]], replicas: int
) -> None:
    free = [*((nodes.H100_X8, *left) for left in large), *((H100_X4, *left) for left in small)]
    usual = plan([(nodes.H100_X8, 8, 191)] * 6, 2, scaling={"minReplicas": replicas})
    assert isinstance(usual, Plan)
    verdict = plan(free, 2, scaling={"minReplicas": replicas})
    gpus = sum(left for left, _ in (*large, *small))
    here = [Resources(gpus=left, cpu_cores=cores) for left, cores in (*large, *small)]
    pod = Resources(gpus=2, cpu_cores=usual.host.cpu_cores)
    assert isinstance(verdict, Plan) == (schedule(here, pod, replicas) == replicas)
    if isinstance(verdict, NoFit):
        scarce = schedule(here, Resources(gpus=2), replicas) < replicas
        assert set(dict(verdict.by_reason)) == {"NotEnoughGPUs" if scarce else "HostTooSmall"}
        words = f"nodes have {gpus} GPU" if scarce else f"of {pod.cpu_cores} CPU cores each; nodes have "
        assert any(words in miss.message for miss in verdict.nearest)


@given(free=scattered, most=st.sampled_from([1, 2, 4]))
@TRIED
def test_no_replica_has_more_gpus_than_it_may(free: Free, most: int) -> None:
    verdict = plan(free, accelerators={"maxPerReplica": most, "maxNodesPerReplica": 1})
    assert isinstance(verdict, NoFit) or verdict.gpus_per_replica <= most


def nodes_product(shape: nodes.Shape) -> str:
    product: str = nodes.gpu_node(shape)["metadata"]["labels"]["nvidia.com/gpu.product"]
    return product
