"""Laws of the conditions, then the reasons one by one."""

import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.builders import make_no_fit, make_plan
from vlm_operator.api import names
from vlm_operator.api.status import VLMDeploymentStatus
from vlm_operator.errors import Problem
from vlm_operator.report.conditions import Outcome, build_status, conjunction
from vlm_operator.report.observation import NOTHING_OBSERVED, Observation, PodTrouble
from vlm_operator.report.status_plan import plan_digest
from vlm_operator.report.verdict import Verdict

NOW = "2026-11-29T12:00:00Z"
LATER = "2026-11-29T12:05:00Z"
PROBLEM = Problem(path="spec.model.id", message='"x" is not in the catalogue')
SERVING = Observation(
    deployment_present=True,
    desired_replicas=2,
    ready_replicas=2,
    available_replicas=2,
    service_name="invoices",
    selector="app.kubernetes.io/instance=invoices",
    plan_digest=plan_digest(make_plan()),
)
LOADING = replace(SERVING, ready_replicas=0, available_replicas=0)
CRASHED = PodTrouble(pod="invoices-a", reason="OOMKilled", message="", restarts=3)


@dataclass(frozen=True)
class Identity:
    name: str = "invoices"
    namespace: str = "documents"
    generation: int = 3


def status_of(
    outcome: Outcome | None = None,
    observation: Observation = SERVING,
    *,
    previous: list[dict[str, Any]] | None = None,
    now: str = NOW,
    suspended: bool = False,
) -> dict[str, Any]:
    return build_status(Identity(), outcome or make_plan(), observation, previous or [], now, suspended=suspended)


def conditions(*arguments: Any, **named: Any) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in status_of(*arguments, **named)["conditions"]}


OUTCOMES: list[Outcome] = [
    make_plan(),
    make_no_fit(),
    make_no_fit(reason=names.REASON_NO_GPUS),
    make_no_fit(reason=names.REASON_UNSERVABLE),
    PROBLEM,
]
OBSERVATIONS = [
    NOTHING_OBSERVED,
    LOADING,
    SERVING,
    replace(LOADING, terminated=(CRASHED,)),
    replace(LOADING, unschedulable_message="0/3 nodes are available"),
    replace(SERVING, apply_error="forbidden"),
    replace(SERVING, plan_digest="of another plan"),
]


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize(("outcome", "observation"), list(itertools.product(OUTCOMES, OBSERVATIONS)))
def test_ready_is_the_conjunction_of_the_others(outcome: Outcome, observation: Observation, *, suspended: bool) -> None:
    found = conditions(outcome, observation, suspended=suspended)
    assert tuple(found) == names.CONDITION_TYPES
    ready = found.pop(names.READY)
    holds = all(condition["status"] == "True" for condition in found.values())
    assert ready["status"] == ("True" if holds else "False")
    assert ready["reason"] in {condition["reason"] for condition in found.values()}
    assert all(condition["message"] for condition in found.values())


@pytest.mark.parametrize(("outcome", "observation"), list(itertools.product(OUTCOMES, OBSERVATIONS)))
def test_status_is_what_the_contract_describes(outcome: Outcome, observation: Observation) -> None:
    VLMDeploymentStatus.model_validate_json(json.dumps(status_of(outcome, observation)))


@pytest.mark.parametrize(("outcome", "observation"), list(itertools.product(OUTCOMES, OBSERVATIONS)))
def test_an_unchanged_resource_gets_an_unchanged_status(outcome: Outcome, observation: Observation) -> None:
    before = status_of(outcome, observation)
    after = status_of(outcome, observation, previous=before["conditions"], now=LATER)
    assert json.dumps(after) == json.dumps(before)


def test_the_transition_time_moves_with_the_status_and_not_with_the_message() -> None:
    before = status_of(observation=LOADING)["conditions"]
    loading = replace(LOADING, available_replicas=1)
    still = conditions(observation=loading, previous=before, now=LATER)[names.AVAILABLE]
    assert still["lastTransitionTime"] == NOW
    assert still["message"] != conditions(observation=LOADING)[names.AVAILABLE]["message"]
    assert conditions(previous=before, now=LATER)[names.AVAILABLE]["lastTransitionTime"] == LATER


def test_serving() -> None:
    status = status_of()
    assert status["summary"]["reason"] == names.REASON_SERVING
    assert status["summary"]["ready"] == "2/2"
    assert status["endpoint"] == "http://invoices.documents.svc:8000/v1"
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (2, 2, 3)


def test_no_endpoint_is_told_before_there_is_a_service() -> None:
    assert "endpoint" not in status_of(observation=NOTHING_OBSERVED)


@pytest.mark.parametrize(
    ("outcome", "observation", "condition", "reason"),
    [
        (PROBLEM, NOTHING_OBSERVED, names.ACCEPTED, names.REASON_INVALID_SPEC),
        (make_no_fit(reason="UnknownModel"), NOTHING_OBSERVED, names.ACCEPTED, names.REASON_UNKNOWN_MODEL),
        (make_no_fit(reason="Unservable"), NOTHING_OBSERVED, names.ACCEPTED, names.REASON_UNSERVABLE),
        (make_no_fit(), NOTHING_OBSERVED, names.SIZED, names.REASON_NO_FIT),
        (make_no_fit(reason="NoGPUs"), NOTHING_OBSERVED, names.SIZED, names.REASON_NO_GPUS),
        (make_plan(), replace(SERVING, apply_error="denied"), names.APPLIED, names.REASON_APPLY_FAILED),
        (make_plan(), LOADING, names.AVAILABLE, names.REASON_LOADING),
        (make_plan(), replace(LOADING, terminated=(CRASHED,)), names.AVAILABLE, names.REASON_HOST_OOM),
        (
            make_plan(),
            replace(LOADING, terminated=(replace(CRASHED, reason="Error"),)),
            names.AVAILABLE,
            names.REASON_CRASHING,
        ),
        (
            make_plan(),
            replace(LOADING, unschedulable_message="no"),
            names.AVAILABLE,
            names.REASON_UNSCHEDULABLE,
        ),
    ],
)
def test_what_does_not_hold_is_ready_s_reason(
    outcome: Outcome, observation: Observation, condition: str, reason: str
) -> None:
    found = conditions(outcome, observation)
    assert (found[condition]["status"], found[condition]["reason"]) == ("False", reason)
    assert found[names.READY]["reason"] == reason
    assert found[names.READY]["message"] == found[condition]["message"]
    assert status_of(outcome, observation)["summary"]["reason"] == reason


def test_a_spec_that_is_refused_is_not_sized() -> None:
    assert conditions(PROBLEM, NOTHING_OBSERVED)[names.SIZED]["status"] == "Unknown"
    assert conditions(PROBLEM, NOTHING_OBSERVED)[names.ACCEPTED]["message"].startswith("spec.model.id: ")


def test_what_would_fit_is_in_the_message() -> None:
    assert "accelerators.maxPerReplica: 4" in conditions(make_no_fit(), NOTHING_OBSERVED)[names.SIZED]["message"]


def test_no_plan_is_told_where_nothing_fits() -> None:
    status = status_of(make_no_fit(), NOTHING_OBSERVED)
    assert "plan" not in status
    assert status["noFit"]["reason"] == names.REASON_NO_FIT
    assert status["summary"]["ready"] == "-"


def test_suspended_is_not_ready_and_says_how_to_serve() -> None:
    stopped = replace(SERVING, desired_replicas=0, ready_replicas=0, available_replicas=0)
    found = conditions(observation=stopped, suspended=True)[names.AVAILABLE]
    assert (found["status"], found["reason"]) == ("False", names.REASON_SUSPENDED)
    assert "set it to false" in found["message"]


def test_pulling_and_creating_is_loading_and_a_bad_image_is_crashing() -> None:
    creating = replace(LOADING, waiting=(PodTrouble(pod="a", reason="ContainerCreating"),))
    assert conditions(observation=creating)[names.AVAILABLE]["reason"] == names.REASON_LOADING
    unpulled = replace(LOADING, waiting=(PodTrouble(pod="a", reason="ImagePullBackOff", message="not found"),))
    found = conditions(observation=unpulled)[names.AVAILABLE]
    assert found["reason"] == names.REASON_CRASHING
    assert "ImagePullBackOff: not found" in found["message"]


def test_the_order_in_which_pods_are_listed_changes_nothing() -> None:
    troubles = [replace(CRASHED, pod=pod, restarts=n) for pod, n in (("a", 1), ("b", 4), ("c", 4))]
    messages = {
        conditions(observation=replace(LOADING, terminated=tuple(order)))[names.AVAILABLE]["message"]
        for order in itertools.permutations(troubles)
    }
    assert len(messages) == 1
    assert "pod b: OOMKilled after 4 restarts" in messages.pop()


def test_a_failure_stands_before_what_is_only_unknown() -> None:
    verdicts = [Verdict("Unknown", "Pending", "later"), Verdict("False", "NoFit", "too large")]
    assert conjunction(verdicts) == Verdict("False", "NoFit", "too large")


def test_a_deployment_that_is_kept_is_applied_and_says_so() -> None:
    found = conditions(observation=replace(SERVING, plan_digest="of another plan"))
    assert found[names.READY]["status"] == "True"
    assert "stays" in found[names.APPLIED]["message"]
