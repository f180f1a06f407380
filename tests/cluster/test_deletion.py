"""Deleting works from every state, with the operator there and gone."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.controlplane import Outside, wait_until
from tests.support.operator import Place, install_definition, operator_running, sample


def reach_nothing(place: Place) -> None:
    del place


def reach_ready(place: Place) -> None:
    place.wait_condition("sample", "Ready")


def reach_unsized(place: Place) -> None:
    place.wait_condition("sample", "Sized", "False")


def reach_refused(place: Place) -> None:
    place.wait_condition("sample", "Accepted", "False")


STATES: dict[str, tuple[dict[str, Any], Callable[[Place], None]]] = {
    "just created": ({}, reach_nothing),
    "ready": ({}, reach_ready),
    "unsized": ({"accelerators": {"allowed": ["h200-sxm"]}}, reach_unsized),
    "refused": ({"model": {"id": "nobody/knows-this"}}, reach_refused),
}


@pytest.mark.parametrize("operator_stays", [True, False], ids=["operator there", "operator gone"])
@pytest.mark.parametrize("state", STATES)
def test_deleting_takes_everything_away(
    scheduling_plane: Outside, namespace: str, state: str, *, operator_stays: bool
) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    spec, reach = STATES[state]
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace) as operator:
        place.apply(sample(**spec))
        reach(place)
        if not operator_stays:
            operator.kill()
        place.kubectl("delete", "vlmdeployment/sample", "--timeout=30s")
        wait_until(lambda: not place.children(), 60, "the end of every child")
        wait_until(lambda: not place.items("pods"), 60, "the end of every pod")


def test_an_object_that_comes_back_at_once_gets_children_of_its_own(scheduling_plane: Outside, namespace: str) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace):
        place.apply(sample())
        place.wait_condition("sample", "Ready")
        first = place.children()["Deployment/sample"][0]
        place.kubectl("delete", "vlmdeployment/sample", "--wait=false")
        place.apply(sample())
        wait_until(lambda: place.children().get("Deployment/sample", (first,))[0] != first, 60, "a new Deployment")
        place.wait_condition("sample", "Ready")
