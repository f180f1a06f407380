"""What the API server shows of the children becomes an Observation; Events say a thing once."""

from datetime import UTC, datetime
from typing import Any

from tests.support.builders import make_document
from vlm_operator.cluster.events import event_document
from vlm_operator.cluster.observe import observe
from vlm_operator.report.observation import Observation


def pod(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pod"}, "status": {"containerStatuses": list(containers), **status}}


def look(*pods: dict[str, Any]) -> Observation:
    return observe("invoices", {"metadata": {}, "spec": {"replicas": 1}}, None, pods)


def test_nothing_there_is_nothing_seen() -> None:
    seen = observe("invoices", None, None, [])
    assert not seen.deployment_present
    assert seen.waiting == seen.terminated == ()
    assert seen.selector == "app.kubernetes.io/instance=invoices,app.kubernetes.io/name=vlm-server"


def test_the_deployment_gives_the_counts_and_whether_it_was_observed() -> None:
    deployment = {
        "metadata": {"generation": 2, "annotations": {"vlm-operator.dev/plan-digest": "abc"}},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "readyReplicas": 2, "availableReplicas": 1, "updatedReplicas": 3},
    }
    seen = observe("invoices", deployment, {"metadata": {"name": "invoices"}}, [], "no")
    assert seen.deployment_present
    assert not seen.generation_observed
    assert (seen.desired_replicas, seen.ready_replicas, seen.available_replicas) == (3, 2, 1)
    assert (seen.updated_replicas, seen.plan_digest, seen.service_name) == (3, "abc", "invoices")
    assert seen.apply_error == "no"


def test_a_container_that_waits_after_a_crash_shows_both() -> None:
    seen = look(
        pod(
            {
                "name": "engine",
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            }
        )
    )
    assert [(one.reason, one.restarts) for one in seen.waiting] == [("CrashLoopBackOff", 4)]
    assert [(one.reason, one.restarts) for one in seen.terminated] == [("OOMKilled", 4)]


def test_a_container_that_runs_again_still_shows_how_it_ended() -> None:
    last = {"terminated": {"exitCode": 1}}
    seen = look(pod({"name": "engine", "restartCount": 1, "state": {"running": {}}, "lastState": last}))
    assert [one.reason for one in seen.terminated] == ["ExitCode1"]


def test_an_init_container_that_is_done_is_no_trouble() -> None:
    done = {"name": "fetch", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    seen = look(pod(initContainerStatuses=[done]))
    assert seen.terminated == ()


def test_a_pod_without_a_node_says_why_and_one_that_is_going_says_nothing() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    waiting = pod(conditions=[condition])
    assert look(waiting).unschedulable_message == "0/3 nodes"
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert look(waiting).unschedulable_message == ""


def test_the_same_news_has_the_same_name_and_other_news_another() -> None:
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    one = event_document(make_document(), "Planned", "two replicas", first)
    again = event_document(make_document(), "Planned", "two replicas", later)
    other = event_document(make_document(), "Planned", "three replicas", later)
    assert one["metadata"] == again["metadata"]
    assert one["metadata"] != other["metadata"]
    assert one["involvedObject"]["uid"] == make_document()["metadata"]["uid"]
    assert again["lastTimestamp"] == "2026-01-02T00:00:00Z"
