"""Pods of a resource that names regions run there and nowhere else, and where regions are unknown that is said."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import nodes
from tests.support.builders import make_document
from vlm_operator.api.validate import parse_resource
from vlm_operator.cli import live
from vlm_operator.cli.inventory_file import parse_inventory
from vlm_operator.cli.main import main
from vlm_operator.cluster.inventory import build_inventory, idle_nodes, take_snapshot
from vlm_operator.cluster.placement import placement_of
from vlm_operator.controller.decide import Decision, decide
from vlm_operator.planning import catalogue_inventory, plan_deployment
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan

OWNER = ("documents", "invoices")
REGION = "topology.kubernetes.io/region"
IRELAND, FRANKFURT = "eu-west-1a", "eu-central-1b"


def node(shape: nodes.Shape, zone: str, name: str | None = None) -> dict[str, Any]:
    made = nodes.gpu_node(shape, name, zone=zone)
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def unlabelled(shape: nodes.Shape, name: str) -> dict[str, Any]:
    made = node(shape, IRELAND, name)
    del made["metadata"]["labels"][REGION]
    return made


def asking_for(*regions: str, **accelerators: Any) -> dict[str, Any]:
    return make_document(accelerators={**accelerators, "regions": list(regions)})


def found(document: dict[str, Any], *some: dict[str, Any]) -> Inventory:
    return build_inventory(take_snapshot(some, []), OWNER, placement_of(document))


def planned(document: dict[str, Any], inventory: Inventory) -> Plan | NoFit:
    return plan_deployment(parse_resource(document).spec, inventory, simulate=False)


def pod_of(decision: Decision) -> dict[str, Any]:
    (deployment,) = (one for one in decision.manifests or () if one["kind"] == "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def test_nodes_of_other_regions_are_left_out_with_the_reason() -> None:
    document = asking_for("eu-west-1", "eu-west-2")
    inventory = found(document, node(nodes.H100_X8, FRANKFURT), node(nodes.L40S_X4, IRELAND))
    assert [shape.gpu.id for shape in inventory.shapes] == ["l40s"]
    assert inventory.excluded == (
        (
            "NVIDIA-H100-80GB-HBM3",
            "the node is in region eu-central-1; accelerators.regions has eu-west-1, eu-west-2",
        ),
    )


def test_nodes_without_the_label_are_left_out_by_name() -> None:
    some = [unlabelled(nodes.L4_X1, f"rack-{number}") for number in range(7)]
    (excluded,) = found(asking_for("eu-west-1"), *some).excluded
    assert excluded[0] == "NVIDIA-L4"
    assert excluded[1].startswith("nodes rack-0, rack-1, rack-2, rack-3, rack-4 and 2 more: no label " + REGION)
    (single,) = found(asking_for("eu-west-1"), some[3]).excluded
    assert single[1].startswith("node rack-3: no label")


def test_without_regions_the_label_is_no_matter() -> None:
    some = [unlabelled(nodes.L4_X1, "rack"), node(nodes.H100_X8, FRANKFURT)]
    assert len(found(make_document(), *some).shapes) == 2


def test_gpus_of_other_regions_make_no_room_for_a_rollout() -> None:
    snapshot = take_snapshot([node(nodes.H100_X8, FRANKFURT), unlabelled(nodes.L4_X1, "rack")], [])
    assert idle_nodes(snapshot, placement_of(asking_for("eu-west-1"))) == {}


def test_the_pods_have_an_affinity_for_the_regions() -> None:
    document = asking_for("eu-west-1", "eu-west-2")
    pod = pod_of(decide(document, found(document, node(nodes.H100_X8, IRELAND)), None, {}))
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": REGION, "operator": "In", "values": ["eu-west-1", "eu-west-2"]}]}
    ]


def test_pods_without_regions_have_no_affinity() -> None:
    document = make_document()
    assert "affinity" not in pod_of(decide(document, found(document, node(nodes.H100_X8, IRELAND)), None, {}))


def test_the_catalogue_has_no_regions_and_the_plan_says_so() -> None:
    verdict = planned(asking_for("eu-west-1", inventory="Catalogue"), Inventory(shapes=(), source="cluster"))
    assert isinstance(verdict, Plan)
    assert any("the catalogue knows no regions" in reason and "eu-west-1" in reason for reason in verdict.reasons)


def test_an_inventory_file_has_no_regions_and_the_plan_says_so() -> None:
    verdict = planned(asking_for("eu-west-1"), parse_inventory("- {gpu: NVIDIA-L40S, gpusPerNode: 4, nodes: 2}", "it"))
    assert isinstance(verdict, Plan)
    assert any("the inventory file knows no regions" in reason for reason in verdict.reasons)


def test_what_is_known_is_not_called_unknown() -> None:
    document = asking_for("eu-west-1")
    here = planned(document, found(document, node(nodes.H100_X8, IRELAND)))
    anywhere = planned(make_document(), catalogue_inventory())
    assert isinstance(here, Plan)
    assert isinstance(anywhere, Plan)
    assert not any("region" in reason for reason in (*here.reasons, *anywhere.reasons))


def test_a_cluster_without_such_nodes_is_no_fit_that_says_why() -> None:
    document = asking_for("eu-west-1")
    verdict = planned(document, found(document, node(nodes.H100_X8, FRANKFURT), unlabelled(nodes.L4_X1, "rack-9")))
    assert isinstance(verdict, NoFit)
    assert verdict.reason == "NoGPUs"
    assert "eu-central-1" in verdict.message
    assert "rack-9" in verdict.message


def test_vlmctl_plans_on_the_same_nodes_of_the_cluster_as_the_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = take_snapshot([node(nodes.H100_X8, FRANKFURT), node(nodes.L40S_X4, IRELAND)], [])
    monkeypatch.setattr(live, "cluster_snapshot", lambda: snapshot)
    file = tmp_path / "invoices.yaml"
    for region, gpu in (("eu-central-1", "NVIDIA-H100-80GB-HBM3"), ("eu-west-1", "NVIDIA-L40S")):
        file.write_text(yaml.safe_dump(asking_for(region)))
        assert main(["plan", "-f", str(file), "--inventory", "cluster", "--no-simulation", "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["plan"]["accelerator"] == gpu


@pytest.mark.parametrize("most", [1, 16])
def test_a_replica_stays_on_one_node_however_many_it_may_have(most: int) -> None:
    document = make_document(accelerators={"maxNodesPerReplica": most})
    inventory = found(document, node(nodes.H100_X8, IRELAND))
    verdict = planned(document, inventory)
    assert verdict == planned(make_document(), inventory)
    assert isinstance(verdict, Plan)
    assert verdict.gpus_per_replica <= 8
