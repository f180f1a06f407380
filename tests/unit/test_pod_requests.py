"""What pods ask of their node, as the scheduler counts it."""

from typing import Any

import pytest

from vlm_operator.cluster.pod_requests import as_resources, pod_requests
from vlm_operator.sizing.inventory import Resources
from vlm_operator.units import GIB, MIB


def container(*, sidecar: bool = False, limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    found: dict[str, Any] = {"resources": {"requests": requests, "limits": limits or {}}}
    return found | {"restartPolicy": "Always"} if sidecar else found


@pytest.mark.parametrize(
    ("spec", "millicores", "memory"),
    [
        ({"containers": [container(cpu="500m", memory="1Gi"), container(cpu="1", memory="512Mi")]}, 1500, 1536 * MIB),
        ({"containers": [{}, {"resources": None}]}, 0, 0),
        ({"containers": [container(limits={"cpu": "2", "memory": "1Gi"})]}, 2000, GIB),
        ({"containers": [container(cpu="1", limits={"cpu": "4", "memory": "2Gi"})]}, 1000, 2 * GIB),
        ({"containers": [container(cpu="0.1234567")]}, 124, 0),
        ({"containers": [container(memory="1500m")]}, 0, 2),
        ({"initContainers": [container(cpu="3")], "containers": [container(cpu="1", memory="1Gi")]}, 3000, GIB),
        (
            {
                "initContainers": [container(cpu="3"), container(sidecar=True, cpu="1"), container(cpu="3")],
                "containers": [container(cpu="2")],
            },
            4000,
            0,
        ),
        (
            {"initContainers": [container(sidecar=True, cpu="1", memory="1Gi")], "containers": [container(cpu="2")]},
            3000,
            GIB,
        ),
        ({"containers": [container(cpu="2")], "overhead": {"cpu": "250m", "memory": "120Mi"}}, 2250, 120 * MIB),
        (
            {"containers": [container(cpu="2", memory="1Gi")], "resources": {"requests": {"cpu": "5"}}},
            5000,
            GIB,
        ),
    ],
)
def test_cores_and_memory_are_those_that_the_scheduler_reserves(
    spec: dict[str, Any], millicores: int, memory: int
) -> None:
    asked = pod_requests(spec)
    assert (asked["cpu"], asked["memory"]) == (millicores, memory)


def test_parts_of_a_core_are_no_core() -> None:
    asked = pod_requests({"containers": [container(cpu="2900m", memory="1Gi", limits={"nvidia.com/gpu": "2"})]})
    assert as_resources(asked) == Resources(gpus=2, cpu_cores=2, memory_bytes=GIB)
