"""The API server in seven verbs on plain dicts; the only module that knows the Kubernetes client.

In: the kinds of ``kinds.py`` and documents. Out: documents as the API server shows them. Whatever goes wrong
becomes a ``ClusterError`` here, once. Called by the rest of ``cluster`` and by ``controller.reconcile``.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration

from vlm_operator.api.names import FIELD_MANAGER
from vlm_operator.cluster.kinds import Kind, kind_of
from vlm_operator.errors import ClusterError

Document = dict[str, Any]

REQUEST_TIMEOUT_SECONDS: Final = 30
_PAGE_SIZE: Final = 500
_NOT_FOUND: Final = 404
_GONE: Final = 410
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"


class ClusterClient:
    """Reads and writes objects; every write is a server-side apply by one field manager, or a delete."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Document | None:
        """Return the object, or None where there is none."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Document]:
        """Return every object that the selectors match; from all namespaces where None is named."""
        query = {"limit": _PAGE_SIZE, "labelSelector": labels, "fieldSelector": fields}
        found: list[Document] = []
        token = ""
        while True:
            page = await self._request("GET", kind.path(namespace), query={**query, "continue": token})
            found += page.get("items") or []
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return found

    async def apply(self, document: Document) -> Document:
        """Apply a manifest on the server and return what it became."""
        return await self._apply(document, "")

    async def apply_status(self, document: Document) -> Document:
        """Apply the ``status`` of a document; nothing else of it is read by the server."""
        return await self._apply(document, "/status")

    async def _apply(self, document: Document, subresource: str) -> Document:
        metadata = document["metadata"]
        path = kind_of(document).path(metadata["namespace"], metadata["name"]) + subresource
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, query=query, body=document, content_type=_APPLY)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this ``uid``; one that is gone already is fine."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", kind.path(namespace, name), body=body)
        except ClusterError as error:
            if error.status not in {_NOT_FOUND, _GONE}:
                raise

    async def create(self, kind: Kind, namespace: str, document: Document) -> Document:
        """Create an object."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("POST", kind.path(namespace), query=query, body=document)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document:
        """Merge a patch into an object."""
        query = {"fieldManager": FIELD_MANAGER}
        path = kind.path(namespace, name)
        return await self._request("PATCH", path, query=query, body=patch, content_type=_MERGE)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Document | None = None,
        content_type: str = "application/json",
    ) -> Document:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._api.configuration.host + path
        if parameters := {key: value for key, value in (query or {}).items() if value != ""}:
            url += "?" + urlencode(parameters)
        try:
            response = await self._api.call_api(method, url, headers, body, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            raw: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (ApiException, aiohttp.ClientError, OSError) as error:
            raise ClusterError(f"{method} {path}: {str(error) or 'timed out'}") from error
        return _decode(method, path, response.status, raw)


def _decode(method: str, path: str, status: int, raw: bytes) -> Document:
    try:
        answer: Document = json.loads(raw)
    except ValueError:
        text = raw.decode(errors="replace")[:200]
        raise ClusterError(f"{method} {path}: {status} {text}", status=status) from None
    if not 200 <= status < 300:
        message = f"{method} {path}: {answer.get('message') or status}"
        raise ClusterError(message, status=status, reason=str(answer.get("reason") or ""))
    return answer


@asynccontextmanager
async def cluster_client(kubeconfig: str | None = None) -> AsyncIterator[ClusterClient]:
    """Yield a client for a kubeconfig file, or for the pod's own ServiceAccount where none is named.

    Raises:
        ClusterError: neither of them can be read.
    """
    configuration = Configuration()
    configuration.client_go_retries = False
    try:
        if kubeconfig:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                kubeconfig, client_configuration=configuration
            )
        else:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"no way to the API server: {error}") from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        # What a file that is no kubeconfig makes the client's loader trip over.
        raise ClusterError(f"{kubeconfig} is not a kubeconfig; name one with KUBECONFIG") from error
    async with ApiClient(configuration) as api:
        yield ClusterClient(api)
