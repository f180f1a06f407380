"""Once everything is as it should be, the operator writes nothing."""

from datetime import UTC, datetime, timedelta

from tests.support.controlplane import Outside, wait_until
from tests.support.operator import Place, install_definition, operator_running, sample

WINDOW = timedelta(seconds=10)


def test_nothing_is_written_once_everything_is_as_it_should_be(scheduling_plane: Outside, namespace: str) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace):
        place.apply(
            sample("fine"),
            sample("two", scaling={"minReplicas": 2}),
            sample("unknown", model={"id": "nobody/knows-this"}),
            sample("too-large", accelerators={"allowed": ["h200-sxm"]}),
        )
        place.wait_condition("fine", "Ready")
        place.wait_condition("two", "Ready")
        place.wait_condition("unknown", "Accepted", "False")
        place.wait_condition("too-large", "Sized", "False")
        since = place.wait_quiet()
        before = place.children()
        # Touching a child, a node and a resource makes the operator look; it must find nothing to do.
        place.kubectl("annotate", "deployment/fine", "somebody=looked")
        place.kubectl("label", "vlmdeployment/two", "somebody=looked")
        wait_until(lambda: datetime.now(UTC) > since + WINDOW, 60, "the window's end")
        assert place.writes(since) == []
        after = place.children()
        assert {k: v for k, v in after.items() if k != "Deployment/fine"} == {
            k: v for k, v in before.items() if k != "Deployment/fine"
        }
