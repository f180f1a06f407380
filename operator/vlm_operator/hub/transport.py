"""Requests to the hub: retried with growing pauses, bounded in time and bytes.

Addresses, headers, proxies and the session are those of ``huggingface_hub``. Whatever goes wrong is a
``RefusedError``. Called by ``client``; safe to use from several threads.
"""

import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

import httpx2
from huggingface_hub import HfApi, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from vlm_operator.hub.refusals import (
    refuse_file,
    refuse_large,
    refuse_late,
    refuse_range,
    refuse_status,
    refuse_unreachable,
)
from vlm_operator.hub.settings import HubSettings

_T = TypeVar("_T")

_AGENT: Final = "vlm-operator"
_COMMIT: Final = re.compile("[0-9a-f]{40,64}")
_PARTIAL: Final = 206
_RETRIED: Final = frozenset({408, 500, 502, 503, 504})


class _StatusError(Exception):
    """An answer of 400 or above."""

    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code
        super().__init__(str(status))


class Transport:
    """Reads the files of one model; all its requests share one deadline."""

    def __init__(self, settings: HubSettings, model_id: str) -> None:
        self.model_id = model_id
        self._settings = settings
        self._token: str | bool = settings.token or False
        self._headers = {"User-Agent": _AGENT}
        if settings.token:
            self._headers["Authorization"] = f"Bearer {settings.token}"
        self._deadline = time.monotonic() + settings.model_seconds

    def resolve(self, revision: str) -> tuple[str, frozenset[str]]:
        """Return the commit of a revision (empty: the main branch) and the names of its files."""

        def ask() -> tuple[str, frozenset[str]]:
            api = HfApi(endpoint=self._settings.endpoint, token=self._token, library_name=_AGENT)
            info = api.model_info(self.model_id, revision=revision or None, timeout=self._settings.request_seconds)
            return info.sha or "", frozenset(entry.rfilename for entry in info.siblings or ())

        commit, names = self._persist(f"revision {revision!r} of it" if revision else "such model", ask)
        if not _COMMIT.fullmatch(commit):
            raise refuse_file(self.model_id, "the hub's answer", "names no commit")
        return commit, names

    def read(self, commit: str, name: str, *, most_bytes: int) -> bytes:
        """Return a whole small file."""
        found = self._persist(f"file {name}", lambda: self._get(commit, name, most_bytes + 1))
        if len(found) > most_bytes:
            raise refuse_large(self.model_id, name, most_bytes)
        return found

    def read_range(self, commit: str, name: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to ``end`` of a file, fewer where it ends before."""
        return self._persist(f"file {name}", lambda: self._get(commit, name, end - start, start))

    def _get(self, commit: str, name: str, most_bytes: int, start: int | None = None) -> bytes:
        """Return at most ``most_bytes`` of a file, from ``start`` where one is named, whatever the hub would send."""
        headers = dict(self._headers)
        if start is not None:
            # A compressed part of a file could not be counted in the file's own bytes.
            headers |= {"Range": f"bytes={start}-{start + most_bytes - 1}", "Accept-Encoding": "identity"}
        url = hf_hub_url(self.model_id, name, revision=commit, endpoint=self._settings.endpoint)
        with get_session().stream("GET", url, headers=headers, timeout=self._settings.request_seconds) as response:
            if response.is_error:
                raise _StatusError(response.status_code, response.headers.get("X-Error-Code", ""))
            if start and response.status_code != _PARTIAL:
                raise refuse_range(self.model_id, name)
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                self._check_deadline()
                if len(body) >= most_bytes:
                    break
            return bytes(body[:most_bytes])

    def _persist(self, what: str, ask: Callable[[], _T]) -> _T:
        """Return what ``ask`` does; a timeout or a server's error is tried again."""
        settings, wait = self._settings, self._settings.first_wait_seconds
        for attempt in range(1, settings.attempts + 1):
            self._check_deadline()
            try:
                return self._once(ask)
            except httpx2.TimeoutException:
                refused = refuse_late(self.model_id, settings.endpoint, settings.request_seconds)
            except _StatusError as error:
                refused = refuse_status(self.model_id, what, error.status, error.code, with_token=bool(self._token))
                if error.status not in _RETRIED:
                    raise refused from None
            except (httpx2.ConnectError, OfflineModeIsEnabled) as error:
                raise refuse_unreachable(self.model_id, settings.endpoint, str(error) or "no connection") from None
            except httpx2.HTTPError as error:
                refused = refuse_unreachable(self.model_id, settings.endpoint, str(error) or type(error).__name__)
            if attempt < settings.attempts:
                time.sleep(min(wait, max(0.0, self._deadline - time.monotonic())))
                wait *= 2
        raise refused

    def _once(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except HfHubHTTPError as error:
            raise _StatusError(error.response.status_code, error.response.headers.get("X-Error-Code", "")) from None
        except (HFValidationError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise refuse_file(self.model_id, "the address", f"cannot be used: {error}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise refuse_file(self.model_id, "the hub's answer", f"is not what a hub sends: {error}") from None

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise refuse_late(self.model_id, self._settings.endpoint, self._settings.model_seconds)
