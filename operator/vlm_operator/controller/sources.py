"""Where the model of a resource is described: gathered before ``decide``, never on the event loop.

In: a VLMDeployment as the API server shows it. Out: a card from the hub or a ConfigMap, the reason why there is none,
or None where the catalogue has the model. What the hub said is remembered for a while, so that a burst of events asks
it once; while it cannot be reached, what it said before still holds. Called by ``reconcile``.
"""

import asyncio
import base64
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.api import names
from vlm_operator.api.spec import Model
from vlm_operator.api.validate import parse_resource
from vlm_operator.catalogue.types import ModelCard
from vlm_operator.cluster import kinds
from vlm_operator.cluster.client import ClusterClient
from vlm_operator.errors import ClusterError, InputError
from vlm_operator.hub.card import describe_model
from vlm_operator.hub.config_map import read_config_map
from vlm_operator.hub.settings import HubSettings
from vlm_operator.hub.source import choose_source, describe_from_hub
from vlm_operator.hub.types import SourceRefusal

Description = ModelCard | SourceRefusal | None

CARD_SECONDS: Final = 600.0
"""How long a branch or tag is taken to stand where it stood."""
REFUSAL_SECONDS: Final = 20.0
_MOST_REMEMBERED: Final = 64
_FORBIDDEN: Final = 403
_TOKEN: Final = re.compile("[!-~]+")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """What the hub said, until when that is not asked again, and the last card it gave."""

    answer: ModelCard | SourceRefusal
    until: float
    card: ModelCard | None


class ModelSources:
    """Describes models; holds nothing that another question to the hub would not give again."""

    def __init__(
        self,
        client: ClusterClient,
        settings: HubSettings,
        ask_hub: Callable[[str, str, HubSettings], ModelCard | SourceRefusal] = describe_from_hub,
    ) -> None:
        self._client = client
        self._settings = settings
        self._ask_hub = ask_hub
        self._remembered: OrderedDict[tuple[str, str, str], _Remembered] = OrderedDict()
        self._locks: dict[tuple[str, str, str], asyncio.Lock] = {}

    async def describe(self, document: Mapping[str, Any]) -> Description:
        """Return what is known of the model of a VLMDeployment; None also for a spec that cannot be read.

        Raises:
            ClusterError: the API server cannot be reached or fails.
        """
        try:
            model = parse_resource(document).spec.model
        except InputError:  # `decide` tells the user
            return None
        namespace, source = document["metadata"]["namespace"], choose_source(model)
        token = await self._token(model, namespace)
        # Pods need the secret whatever the source; only who asks the hub has to be able to read it.
        if isinstance(token, SourceRefusal) and (source == "Hub" or token.reason != names.REASON_SECRET_FORBIDDEN):
            return token
        match source:
            case "Catalogue":
                return None
            case "ConfigMap":
                return await self._from_config_map(model, namespace)
            case "Hub":
                return await self._from_hub(model, str(token))

    async def _from_config_map(self, model: Model, namespace: str) -> ModelCard | SourceRefusal:
        name = model.config_map_name or ""
        document = await self._client.get(kinds.CONFIG_MAP, namespace, name)
        if document is None:
            message = f"spec.model.configMapName: there is no ConfigMap {name!r} in namespace {namespace!r}; create it"
            return SourceRefusal(reason=names.REASON_CONFIG_MAP_NOT_FOUND, message=message)
        files = read_config_map(document)
        return files if isinstance(files, SourceRefusal) else describe_model(model.id, files)

    async def _token(self, model: Model, namespace: str) -> str | SourceRefusal:
        """Return the token that the spec names, empty where it names none: nobody reads with another's token."""
        reference = model.token_secret_ref
        if reference is None:
            return ""
        where = f"spec.model.tokenSecretRef: Secret {reference.name!r} in namespace {namespace!r}"
        try:
            secret = await self._client.get(kinds.SECRET, namespace, reference.name)
        except ClusterError as error:
            if error.status != _FORBIDDEN:
                raise
            message = f"{where} may not be read by the operator; set rbac.readSecrets in its chart"
            return SourceRefusal(reason=names.REASON_SECRET_FORBIDDEN, message=message)
        if secret is None:
            return _no_token(f"{where} does not exist; create it")
        value = (secret.get("data") or {}).get(reference.key)
        if value is None:
            return _no_token(f"{where} has no key {reference.key!r}; add it, or name another")
        token = base64.b64decode(value).decode("ascii", errors="replace").strip()
        if not _TOKEN.fullmatch(token):
            return _no_token(f"{where}: the value of {reference.key!r} is no token, which is one word")
        return token

    async def _from_hub(self, model: Model, token: str) -> ModelCard | SourceRefusal:
        key = (model.id, model.revision or "", token)
        async with self._locks.setdefault(key, asyncio.Lock()):
            now = asyncio.get_running_loop().time()
            before = self._remembered.get(key)
            if before is not None and now < before.until:
                return before.answer
            settings = self._settings.with_token(token)
            answer = await asyncio.to_thread(self._ask_hub, model.id, model.revision or "", settings)
            card = answer if isinstance(answer, ModelCard) else before.card if before else None
            if isinstance(answer, SourceRefusal) and answer.transient and card is not None:
                _logger.warning("%s; what it said before still holds", answer.message)
                answer = card
            self._remember(key, _Remembered(answer=answer, until=now + _seconds(answer), card=card))
            return answer

    def _remember(self, key: tuple[str, str, str], entry: _Remembered) -> None:
        self._remembered[key] = entry
        self._remembered.move_to_end(key)
        while len(self._remembered) > _MOST_REMEMBERED:
            forgotten, _ = self._remembered.popitem(last=False)
            self._locks.pop(forgotten, None)


def _seconds(answer: ModelCard | SourceRefusal) -> float:
    return CARD_SECONDS if isinstance(answer, ModelCard) else REFUSAL_SECONDS


def _no_token(message: str) -> SourceRefusal:
    return SourceRefusal(reason=names.REASON_SECRET_NOT_FOUND, message=message)
