"""A model's description is gathered beside the event loop, remembered for a while, and refused with a reason."""

import asyncio
import base64
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.builders import make_document
from tests.support.hub import real_files
from vlm_operator.api import names
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cluster.kinds import Kind
from vlm_operator.controller import sources
from vlm_operator.controller.decide import decide
from vlm_operator.controller.sources import Description, ModelSources
from vlm_operator.errors import ClusterError
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.types import ModelFiles, SourceRefusal
from vlm_operator.sizing.inventory import Inventory
from vlm_operator.sizing.plan import NoFit

if TYPE_CHECKING:
    from vlm_operator.cluster.client import ClusterClient

AIN = "MBZUAI/AIN"
RIGHT, OPERATORS_OWN = "hf_right", "hf_operators_own"
AWAY = SourceRefusal(reason=names.REASON_HUB_UNREACHABLE, message="away", transient=True)


class Cluster:
    """An API server that has these objects, by kind and name."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = objects
        self.forbidden: set[str] = set()

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        if kind.name in self.forbidden:
            raise ClusterError(f"GET {kind.plural}: forbidden", status=403)
        return self.objects.get(f"{kind.name}_{namespace}_{name}")


class Hub:
    """A hub that answers from a list, the last of it for ever."""

    def __init__(self, *answers: ModelCard | SourceRefusal) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, model_id: str, revision: str, settings: HubSettings) -> ModelCard | SourceRefusal:
        self.asked.append((model_id, revision, settings.token))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def card() -> ModelCard:
    found = describe_model(AIN, ModelFiles(documents=real_files(AIN), origin="hub", revision="0" * 40))
    assert isinstance(found, ModelCard)
    return found


def document(**model: Any) -> dict[str, Any]:
    return make_document(model={"id": AIN, **model})


def with_hub(hub: Any, **objects: dict[str, Any]) -> ModelSources:
    client = cast("ClusterClient", Cluster(**objects))
    return ModelSources(client, HubSettings(token=OPERATORS_OWN), hub)


def describe(one: ModelSources, asked: Mapping[str, Any], times: int = 1) -> list[Description]:
    async def all_of_them() -> list[Description]:
        return [await one.describe(asked) for _ in range(times)]

    return asyncio.run(all_of_them())


def refusal_of(found: Description) -> SourceRefusal:
    assert isinstance(found, SourceRefusal), found
    return found


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


@pytest.mark.parametrize("source", [{}, {"source": "Catalogue"}])
def test_the_catalogue_needs_no_gathering(source: dict[str, str]) -> None:
    hub = Hub(AWAY)
    assert describe(with_hub(hub), make_document(model={"id": "Qwen/Qwen2.5-VL-3B-Instruct", **source})) == [None]
    assert hub.asked == []


def test_a_model_of_the_catalogue_can_be_asked_of_the_hub() -> None:
    hub = Hub(card())
    describe(with_hub(hub), make_document(model={"id": "Qwen/Qwen2.5-VL-3B-Instruct", "source": "Hub"}))
    assert hub.asked == [("Qwen/Qwen2.5-VL-3B-Instruct", "", "")]


def test_a_spec_that_cannot_be_read_is_left_to_the_decision() -> None:
    assert describe(with_hub(Hub(AWAY)), document(source="Elsewhere")) == [None]


def test_a_burst_of_events_asks_the_hub_once() -> None:
    hub = Hub(card())

    async def burst() -> list[Description]:
        one = with_hub(hub)
        return await asyncio.gather(*(one.describe(document(revision="v1")) for _ in range(9)))

    assert asyncio.run(burst()) == [card()] * 9
    assert hub.asked == [(AIN, "v1", "")]


def test_a_refusal_is_not_asked_for_again_at_once() -> None:
    hub = Hub(AWAY, card())
    assert describe(with_hub(hub), document(), times=2) == [AWAY, AWAY]
    assert len(hub.asked) == 1


def test_what_the_hub_said_holds_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CARD_SECONDS", 0.0)
    hub = Hub(card(), AWAY)
    assert describe(with_hub(hub), document(), times=3) == [card()] * 3
    assert len(hub.asked) == 3


def test_what_the_hub_takes_back_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CARD_SECONDS", 0.0)
    gone = SourceRefusal(reason=names.REASON_MODEL_NOT_FOUND, message="gone")
    assert describe(with_hub(Hub(card(), gone)), document(), times=2) == [card(), gone]


def test_a_hub_that_is_silent_holds_nobody_up() -> None:
    answered = threading.Event()

    def silent(_id: str, _revision: str, _settings: HubSettings) -> SourceRefusal:
        assert answered.wait(20)
        return AWAY

    async def meanwhile() -> Description:
        waiting = asyncio.create_task(with_hub(silent).describe(document()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        answered.set()
        return await waiting

    assert asyncio.run(meanwhile()) == AWAY


def test_the_token_is_that_of_the_secret_and_never_the_operators_own() -> None:
    hub = Hub(card())
    one = with_hub(hub, Secret_documents_hub=secret(token=f"{RIGHT}\n", other="x"))
    describe(one, document(tokenSecretRef={"name": "hub"}))
    describe(one, document())
    assert [token for _, _, token in hub.asked] == [RIGHT, ""]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"name": "missing"}, "does not exist"),
        ({"name": "hub", "key": "missing"}, "no key 'missing'"),
        ({"name": "broken"}, "is no token"),
    ],
)
def test_a_token_that_is_not_there_is_told_by_its_place(reference: dict[str, str], words: str) -> None:
    hub = Hub(card())
    no_word = secret(token="two\nlines")  # noqa: S106 - no secret
    objects = {"Secret_documents_hub": secret(token=RIGHT), "Secret_documents_broken": no_word}
    (found,) = describe(with_hub(hub, **objects), document(tokenSecretRef=reference))
    assert refusal_of(found).reason == names.REASON_SECRET_NOT_FOUND
    assert words in refusal_of(found).message
    assert repr(reference["name"]) in refusal_of(found).message
    assert hub.asked == []


def test_a_right_that_the_operator_lacks_is_named() -> None:
    cluster = Cluster()
    cluster.forbidden = {"Secret"}
    one = ModelSources(cast("ClusterClient", cluster), HubSettings(), Hub(card()))
    (found,) = describe(one, document(tokenSecretRef={"name": "hub"}))
    assert "rbac.readSecrets" in refusal_of(found).message
    known = {"id": "Qwen/Qwen2.5-VL-3B-Instruct", "tokenSecretRef": {"name": "hub"}}
    assert describe(one, make_document(model=known)) == [None]


def test_pods_are_not_made_without_the_secret_that_they_need() -> None:
    known = {"id": "Qwen/Qwen2.5-VL-3B-Instruct", "tokenSecretRef": {"name": "hub"}}
    (found,) = describe(with_hub(Hub(AWAY)), make_document(model=known))
    assert refusal_of(found).reason == names.REASON_SECRET_NOT_FOUND
    objects = {"Secret_documents_hub": secret(token=RIGHT)}
    assert describe(with_hub(Hub(AWAY), **objects), make_document(model=known)) == [None]


def test_a_config_map_is_that_of_the_same_namespace() -> None:
    asked = document(source="ConfigMap", configMapName="ain")
    data = {name: str(text) for name, text in {"config.json": "{}"}.items()}
    (missing,) = describe(with_hub(Hub(AWAY), ConfigMap_default_ain={"data": data}), asked)
    assert refusal_of(missing).reason == names.REASON_CONFIG_MAP_NOT_FOUND
    assert "'documents'" in refusal_of(missing).message
    here = {"metadata": {"name": "ain"}, "data": data}
    (found,) = describe(with_hub(Hub(AWAY), ConfigMap_documents_ain=here), asked)
    assert refusal_of(found).reason == names.REASON_MODEL_FILES_INVALID


def test_a_refusal_leaves_the_children_alone() -> None:
    decision = decide(document(), Inventory(shapes=(), source="cluster"), None, {}, AWAY)
    assert isinstance(decision.outcome, NoFit)
    assert (decision.outcome.reason, decision.outcome.message) == (AWAY.reason, AWAY.message)
    assert decision.manifests is None
