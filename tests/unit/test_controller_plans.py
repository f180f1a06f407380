"""A question that was answered is not asked again, and a slow answer keeps nobody waiting but who asked."""

import asyncio
import copy
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support import nodes
from tests.support.builders import make_document, make_no_fit
from tests.support.hub import real_files
from vlm_operator.api.spec import VLMDeploymentSpec
from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cluster import kinds
from vlm_operator.cluster.inventory import build_inventory, take_snapshot
from vlm_operator.cluster.snapshot import SnapshotCache
from vlm_operator.controller.plans import KeptPlans
from vlm_operator.controller.reconcile import NO_FIT_RECHECK_SECONDS, Reconciler
from vlm_operator.controller.sources import ModelSources
from vlm_operator.errors import InputError
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.types import ModelFiles
from vlm_operator.planning import plan_deployment
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit, Plan

if TYPE_CHECKING:
    from vlm_operator.cluster.client import ClusterClient

KEY = ("documents", "invoices")
LONG_SECONDS = 30.0


def h100_node(gpus_of_others: int = 0) -> list[dict[str, Any]]:
    """Return a node, and a pod of somebody else on that many of its GPUs."""
    node = nodes.gpu_node(nodes.H100_X8, "a")
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    limits = {"nvidia.com/gpu": str(gpus_of_others)}
    pod = {
        "metadata": {"name": "other", "namespace": "other"},
        "spec": {"nodeName": "a", "containers": [{"resources": {"limits": limits}}]},
    }
    return [node, pod]


def inventory(gpus_of_others: int = 0) -> Inventory:
    node, pod = h100_node(gpus_of_others)
    return build_inventory(take_snapshot([node], [pod]), KEY)


def spec(**fields: Any) -> VLMDeploymentSpec:
    return parse_resource(make_document(**fields)).spec


def card(**config: Any) -> ModelCard:
    files = ModelFiles(documents=real_files("MBZUAI/AIN"), origin="hub", revision="0" * 40)
    found = describe_model("MBZUAI/AIN", files)
    assert isinstance(found, ModelCard)
    return found.model_copy(update={"config": {**found.config, **config}})


class Engine:
    """Counts the questions; its answer tells which one it is the answer to."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, _spec: VLMDeploymentSpec, _inventory: Inventory, _card: ModelCard | None) -> NoFit:
        self.asked += 1
        return make_no_fit(candidates=self.asked)


def test_the_same_question_is_asked_once() -> None:
    engine = Engine()
    plans = KeptPlans(engine)
    first = plans.plan(spec(), inventory(), card())
    assert plans.plan(spec(), inventory(), card()) is first
    assert engine.asked == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((spec(suspend=True), inventory(), card()), id="the spec"),
        pytest.param((spec(), inventory(1), card()), id="a GPU that somebody took"),
        pytest.param(
            (spec(), replace(inventory(), excluded=(("L4", "it is cordoned"),)), card()), id="a node left out"
        ),
        pytest.param((spec(), inventory(), card(vocab_size=1)), id="the model's files"),
        pytest.param((spec(), inventory(), card().model_copy(update={"revision": "1" * 40})), id="their commit"),
        pytest.param((spec(), inventory(), None), id="the catalogue's model"),
    ],
)
def test_whatever_the_answer_depends_on_makes_another_question(
    other: tuple[VLMDeploymentSpec, Inventory, ModelCard | None],
) -> None:
    engine = Engine()
    plans = KeptPlans(engine)
    assert plans.plan(spec(), inventory(), card()) != plans.plan(*other)
    assert engine.asked == 2


def test_only_so_many_answers_are_kept_and_the_ones_asked_for_stay() -> None:
    engine = Engine()
    plans = KeptPlans(engine, most=2)
    for prompt in (1, 2, 1, 3, 1):
        plans.plan(spec(scaling={"minReplicas": prompt}), inventory(), None)
    assert engine.asked == 3
    plans.plan(spec(scaling={"minReplicas": 2}), inventory(), None)
    assert engine.asked == 4


def test_a_kept_answer_is_the_engine_s_and_wrong_input_is_refused_each_time() -> None:
    plans = KeptPlans()
    for _ in range(2):
        assert plans.plan(spec(), inventory(), None) == plan_deployment(spec(), inventory())
        with pytest.raises(InputError, match="NVIDIA-H900"):
            plans.plan(spec(accelerators={"allowed": ["NVIDIA-H900"]}), inventory(), None)


class ApiServer:
    """Keeps objects as an API server does, as far as one visit can tell; ``writes`` counts."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.node, self.pod = h100_node()
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in documents}
        self.writes = 0

    async def get(self, kind: kinds.Kind, _namespace: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.objects.get((kind.name, name)))

    async def list(self, kind: kinds.Kind, namespace: str | None = None, **_: str) -> list[dict[str, Any]]:
        if kind == kinds.NODE:
            return [self.node]
        return [] if namespace else [self.pod]

    async def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        self.objects[document["kind"], document["metadata"]["name"]] = document
        return document

    async def apply_status(self, document: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        self.objects[document["kind"], document["metadata"]["name"]]["status"] = document["status"]
        return document

    async def create(self, _kind: kinds.Kind, _namespace: str, document: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        return document


def reconciler(server: ApiServer, plans: KeptPlans) -> Reconciler:
    client = cast("ClusterClient", server)
    return Reconciler(client, SnapshotCache(client, max_age_seconds=0), ModelSources(client, HubSettings()), plans)


def test_visits_of_an_unchanged_resource_ask_nothing_and_write_nothing() -> None:
    questions: list[Inventory] = []

    def ask(asked: VLMDeploymentSpec, where: Inventory, model: ModelCard | None) -> Plan | NoFit:
        questions.append(where)
        return plan_deployment(asked, where, model, simulate=False)

    async def visits() -> None:
        server = ApiServer(make_document())
        visitor = reconciler(server, KeptPlans(ask))
        assert await visitor.visit(KEY) is None
        await visitor.visit(KEY)
        written, asked = server.writes, len(questions)
        assert written
        for _ in range(3):
            await visitor.visit(KEY)
        assert (server.writes, len(questions)) == (written, asked)
        server.node["metadata"]["labels"]["nvidia.com/gpu.memory"] = "80000"
        await visitor.visit(KEY)
        assert len(questions) > asked

    asyncio.run(visits())


def test_the_event_loop_answers_while_a_plan_is_worked_out() -> None:
    heard: list[bool] = []

    async def visit() -> float | None:
        loop, answered = asyncio.get_running_loop(), threading.Event()

        def ask_slowly(_spec: VLMDeploymentSpec, _inventory: Inventory, _card: ModelCard | None) -> NoFit:
            loop.call_soon_threadsafe(answered.set)
            heard.append(answered.wait(LONG_SECONDS))
            return make_no_fit()

        return await reconciler(ApiServer(make_document()), KeptPlans(ask_slowly)).visit(KEY)

    assert asyncio.run(visit()) == NO_FIT_RECHECK_SECONDS
    assert heard == [True]


def test_plans_are_worked_out_one_after_the_other() -> None:
    running, most = [0], [0]

    def ask(_spec: VLMDeploymentSpec, _inventory: Inventory, _card: ModelCard | None) -> NoFit:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.02)
        running[0] -= 1
        return make_no_fit()

    async def loop() -> None:
        documents = [make_document(f"number-{number}", scaling={"minReplicas": number}) for number in range(1, 6)]
        visitor = reconciler(ApiServer(*documents), KeptPlans(ask))
        await asyncio.gather(*(visitor.visit((KEY[0], document["metadata"]["name"])) for document in documents))

    asyncio.run(loop())
    assert most == [1]
