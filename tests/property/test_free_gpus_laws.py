"""Laws of plans on clusters whose free GPUs lie scattered: a scheduler that knows nodes finds room for every pod."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import nodes
from tests.support.builders import make_document
from vlm_operator.api.validate import parse_resource
from vlm_operator.cluster.inventory import build_inventory, take_snapshot
from vlm_operator.planning import plan_deployment
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan

TRIED = settings(max_examples=60, deadline=None, derandomize=True)
OWNER = ("documents", "invoices")

H100_X4 = replace(nodes.H100_X8, gpus=4, cores=96, memory_gib=1024)

FreeGPUs = Sequence[tuple[nodes.Shape, int]]
scattered = st.lists(
    st.one_of(
        st.tuples(st.just(nodes.H100_X8), st.integers(0, 8)),
        st.tuples(st.just(H100_X4), st.integers(0, 4)),
        st.tuples(st.just(nodes.L40S_X4), st.integers(0, 4)),
    ),
    min_size=1,
    max_size=6,
)


def cluster(free: FreeGPUs) -> Inventory:
    """Return a node for each entry, with a pod of somebody else on all GPUs but the free ones."""
    some, pods = [], []
    for number, (shape, left) in enumerate(free):
        node = nodes.gpu_node(shape, f"node-{number}")
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        some.append(node)
        limits = {"nvidia.com/gpu": str(shape.gpus - left)}
        pods.append(
            {
                "metadata": {"name": "other", "namespace": "other"},
                "spec": {"nodeName": f"node-{number}", "containers": [{"resources": {"limits": limits}}]},
            }
        )
    return build_inventory(take_snapshot(some, pods), OWNER)


def plan(free: FreeGPUs, size: int | None = None, **spec: Any) -> Plan | NoFit:
    parsed = parse_resource(make_document(**spec)).spec
    return plan_deployment(parsed, cluster(free), tensor_parallel_size=size, simulate=False, suggest=False)


def schedule(free: Sequence[int], gpus: int, pods: int) -> bool:
    """Tell whether that many pods, placed one after the other on the first node with room, all find it."""
    left = list(free)
    for _ in range(pods):
        node = next((number for number, here in enumerate(left) if here >= gpus), None)
        if node is None:
            return False
        left[node] -= gpus
    return True


@given(free=scattered, replicas=st.integers(1, 8), size=st.sampled_from([None, 1, 2, 4, 8]))
@example(free=[(nodes.H100_X8, 3), (nodes.H100_X8, 1)], replicas=1, size=4)
@example(free=[(nodes.L40S_X4, 3), (nodes.L40S_X4, 3)], replicas=3, size=2)
@TRIED
def test_every_pod_of_a_plan_finds_free_gpus_on_one_node(free: FreeGPUs, replicas: int, size: int | None) -> None:
    verdict = plan(free, size, scaling={"minReplicas": replicas})
    if isinstance(verdict, Plan):
        here = [left for shape, left in free if nodes_product(shape) == verdict.gpu.product]
        assert schedule(here, verdict.gpus_per_replica, verdict.replicas)


@given(
    large=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    small=st.lists(st.integers(0, 4), max_size=3),
    replicas=st.integers(1, 6),
)
@example(large=[1, 1, 1, 1], small=[], replicas=1)
@example(large=[3], small=[2], replicas=2)
@TRIED
def test_a_size_that_fits_is_planned_exactly_where_the_pods_find_room(
    large: list[int], small: list[int], replicas: int
) -> None:
    free = [*((nodes.H100_X8, left) for left in large), *((H100_X4, left) for left in small)]
    verdict = plan(free, 2, scaling={"minReplicas": replicas})
    assert isinstance(verdict, Plan) == schedule([*large, *small], 2, replicas)
    if isinstance(verdict, NoFit):
        assert set(dict(verdict.by_reason)) == {"NotEnoughGPUs"}
        assert any(f"{sum(large) + sum(small)} GPUs are free" in miss.message for miss in verdict.nearest)


@given(free=scattered, most=st.sampled_from([1, 2, 4]))
@TRIED
def test_no_replica_has_more_gpus_than_it_may(free: FreeGPUs, most: int) -> None:
    verdict = plan(free, accelerators={"maxPerReplica": most, "maxNodesPerReplica": 1})
    assert isinstance(verdict, NoFit) or verdict.gpus_per_replica <= most


def nodes_product(shape: nodes.Shape) -> str:
    product: str = nodes.gpu_node(shape)["metadata"]["labels"]["nvidia.com/gpu.product"]
    return product
