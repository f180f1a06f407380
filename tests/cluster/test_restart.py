"""An operator that is killed and started again touches no child."""

from tests.support.controlplane import Outside, wait_until
from tests.support.operator import Place, install_definition, operator_running, sample


def test_a_killed_operator_that_starts_again_touches_no_child(scheduling_plane: Outside, namespace: str) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace) as operator:
        place.apply(sample("one"), sample("two", scaling={"minReplicas": 2}))
        place.wait_condition("one", "Ready")
        place.wait_condition("two", "Ready")
        place.wait_quiet()
        operator.kill()
    before = place.children()
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace):
        # The new process has seen everything when it answers something that came after its start.
        place.apply(sample("canary"))
        place.wait_condition("canary", "Ready")
        place.wait_quiet()
        after = place.children()
    assert {key: after[key] for key in before} == before


def test_what_was_changed_while_the_operator_was_down_is_followed(scheduling_plane: Outside, namespace: str) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace) as operator:
        place.apply(sample())
        place.wait_condition("sample", "Ready")
        operator.kill()
    place.apply(sample(scaling={"minReplicas": 2}))
    place.kubectl("delete", "service/sample")
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace):
        place.wait_condition("sample", "Ready")
        wait_until(lambda: place.find("service", "sample"), what="the service")
        deployment = place.find("deployment", "sample")
        assert deployment is not None
        assert deployment["spec"]["replicas"] == 2


def test_a_term_signal_ends_it_at_once(scheduling_plane: Outside, namespace: str) -> None:
    install_definition(scheduling_plane)
    place = Place(scheduling_plane, namespace)
    with operator_running(scheduling_plane.kubeconfig, VLM_OPERATOR_NAMESPACES=namespace) as operator:
        place.apply(sample())
        place.wait_condition("sample", "Ready")
        operator.process.terminate()
        assert operator.process.wait(15) == 0
