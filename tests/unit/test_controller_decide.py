"""The running plan stays until the spec changes or its GPUs have left the cluster."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support import nodes
from tests.support.builders import make_document
from vlm_operator.cluster.inventory import build_inventory, take_snapshot
from vlm_operator.controller.decide import Decision, decide
from vlm_operator.controller.settings import LOG_LEVEL, NAMESPACES, WORKERS, read_options
from vlm_operator.errors import InputError, Problem
from vlm_operator.render.names import PLAN_DIGEST_ANNOTATION, SPEC_DIGEST_ANNOTATION
from vlm_operator.sizing.inventory import Inventory, Resources
from vlm_operator.sizing.plan import NoFit, Plan


def inventory(*shapes: nodes.Shape, free: int | None = None) -> Inventory:
    some = [nodes.gpu_node(shape) for shape in shapes]
    for node in some:
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    found = build_inventory(take_snapshot(some, []), ("documents", "invoices"))
    if free is None:
        return found
    return replace(found, shapes=tuple(replace(shape, free_by_node=(Resources(gpus=free),)) for shape in found.shapes))


def deployment_of(decision: Decision) -> dict[str, Any]:
    return next(one for one in decision.manifests or () if one["kind"] == "Deployment")


@pytest.fixture
def running() -> dict[str, Any]:
    decision = decide(make_document(), inventory(nodes.H100_X8), None, {})
    assert isinstance(decision.outcome, Plan)
    return deployment_of(decision)


def test_the_same_facts_give_the_same_manifests(running: dict[str, Any]) -> None:
    again = decide(make_document(), inventory(nodes.H100_X8), running, {})
    assert deployment_of(again) == running
    assert not again.keep_deployment


def test_a_cheaper_gpu_that_appears_moves_nothing(running: dict[str, Any]) -> None:
    again = decide(make_document(), inventory(*nodes.SHAPES), running, {})
    assert deployment_of(again) == running


def test_gpus_that_others_took_meanwhile_move_nothing(running: dict[str, Any]) -> None:
    again = decide(make_document(), inventory(nodes.H100_X8, free=0), running, {})
    assert deployment_of(again) == running


def test_a_plan_that_an_upgrade_would_change_leaves_the_deployment_alone(running: dict[str, Any]) -> None:
    running["metadata"]["annotations"][PLAN_DIGEST_ANNOTATION] = "made by another release"
    again = decide(make_document(), inventory(nodes.H100_X8), running, {})
    assert again.keep_deployment


def test_an_empty_inventory_leaves_the_deployment_alone(running: dict[str, Any]) -> None:
    again = decide(make_document(), inventory(), running, {})
    assert isinstance(again.outcome, NoFit)
    assert again.manifests is None


def test_a_gpu_kind_that_left_is_replaced(running: dict[str, Any]) -> None:
    again = decide(make_document(), inventory(nodes.A100_X8), running, {})
    assert not again.keep_deployment
    assert deployment_of(again) != running


def test_a_node_that_is_not_ready_for_a_moment_moves_nothing(running: dict[str, Any]) -> None:
    some = inventory(nodes.A100_X8)
    unready = replace(some, excluded=(("NVIDIA-H100-80GB-HBM3", "the node is not ready"),))
    assert decide(make_document(), unready, running, {}).keep_deployment


def test_a_changed_spec_is_planned_afresh(running: dict[str, Any]) -> None:
    changed = make_document(scaling={"minReplicas": 3})
    again = decide(changed, inventory(nodes.H100_X8), running, {})
    assert deployment_of(again)["spec"]["replicas"] == 3


def test_the_strategy_follows_free_gpus_when_a_rollout_starts_and_not_afterwards(
    running: dict[str, Any],
) -> None:
    changed = make_document(scaling={"minReplicas": 3})
    product = "NVIDIA-H100-80GB-HBM3"
    crowded = deployment_of(decide(changed, inventory(nodes.H100_X8), running, {product: (Resources(gpus=0),)}))
    roomy = deployment_of(decide(changed, inventory(nodes.H100_X8), running, {product: (Resources(gpus=8),)}))
    slow = {product: (Resources(gpus=8, cpu_cores=4),)}
    waiting = deployment_of(decide(changed, inventory(nodes.H100_X8), running, slow))
    strategies = [made["spec"]["strategy"]["rollingUpdate"] for made in (crowded, roomy, waiting)]
    one_less, as_many = ({"maxSurge": 0, "maxUnavailable": missing} for missing in (3, 2))  # one runs, of three
    assert strategies == [one_less, as_many, one_less]
    assert deployment_of(decide(changed, inventory(nodes.H100_X8), roomy, slow)) == roomy
    assert deployment_of(decide(changed, inventory(nodes.H100_X8), crowded, {})) == crowded


def test_a_pod_more_is_started_where_there_is_room_for_it(running: dict[str, Any]) -> None:
    changed = make_document(scaling={"maxReplicas": 5})
    product = "NVIDIA-H100-80GB-HBM3"
    again = decide(changed, inventory(nodes.H100_X8), running, {product: (Resources(gpus=8, cpu_cores=24),)})
    assert deployment_of(again)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_spec_that_cannot_be_read_is_a_problem() -> None:
    decision = decide(make_document(model={}), inventory(nodes.H100_X8), None, {})
    assert isinstance(decision.outcome, Problem)
    assert decision.manifests is None


def test_the_digest_is_of_the_spec_alone_as_the_user_wrote_it(running: dict[str, Any]) -> None:
    document = make_document()
    document["metadata"]["labels"] = {"some": "label"}
    document["status"] = {"some": "status"}
    again = deployment_of(decide(document, inventory(nodes.H100_X8), None, {}))
    suspended = deployment_of(decide(make_document(suspend=True), inventory(nodes.H100_X8), None, {}))
    written, same, other = (
        shown["metadata"]["annotations"][SPEC_DIGEST_ANNOTATION] for shown in (running, again, suspended)
    )
    assert written == same
    assert written != other


def test_the_environment_sets_the_options() -> None:
    options = read_options({NAMESPACES: "b, a,", WORKERS: "7", LOG_LEVEL: "debug", "KUBECONFIG": "/k"})
    assert (options.namespaces, options.workers, options.log_level, options.kubeconfig) == (
        ("a", "b"),
        7,
        "DEBUG",
        "/k",
    )
    with pytest.raises(InputError, match=r"LOUD.*WORKERS"):
        read_options({LOG_LEVEL: "loud", WORKERS: "0"})
