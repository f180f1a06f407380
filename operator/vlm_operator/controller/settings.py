"""What the operator's environment says, and what kopf is told. Called by ``__main__`` and ``handlers``."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import kopf

from vlm_operator.errors import InputError, Problem

NAMESPACES: Final = "VLM_OPERATOR_NAMESPACES"
LOG_LEVEL: Final = "VLM_OPERATOR_LOG_LEVEL"
WORKERS: Final = "VLM_OPERATOR_WORKERS"
LIVENESS: Final = "VLM_OPERATOR_LIVENESS"

DEFAULT_LIVENESS: Final = "http://0.0.0.0:8080/healthz"
DEFAULT_WORKERS: Final = 4
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_SERVER_TIMEOUT_SECONDS: Final = 5 * 60
_REQUEST_TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """How this process runs.

    ``namespaces`` empty means the whole cluster; ``kubeconfig`` None means the pod's own ServiceAccount; an
    empty ``liveness_url`` means that no liveness endpoint is opened.
    """

    namespaces: tuple[str, ...] = ()
    kubeconfig: str | None = None
    log_level: str = "INFO"
    workers: int = DEFAULT_WORKERS
    liveness_url: str = DEFAULT_LIVENESS


def read_options(environment: Mapping[str, str] = os.environ) -> OperatorOptions:
    """Return the options that the environment sets.

    Raises:
        InputError: a variable has a value that means nothing.
    """
    problems: list[Problem] = []
    level = (environment.get(LOG_LEVEL) or "INFO").upper()
    if level not in _LEVELS:
        problems.append(Problem(path=LOG_LEVEL, message=f"{level!r} is not one of {', '.join(_LEVELS)}"))
    workers = environment.get(WORKERS) or str(DEFAULT_WORKERS)
    if not workers.isdecimal() or not int(workers):
        problems.append(Problem(path=WORKERS, message=f"{workers!r} is not a whole number above 0"))
    if problems:
        raise InputError(problems)
    return OperatorOptions(
        namespaces=tuple(sorted(filter(None, map(str.strip, environment.get(NAMESPACES, "").split(","))))),
        kubeconfig=environment.get("KUBECONFIG") or None,
        log_level=level,
        workers=int(workers),
        liveness_url=environment.get(LIVENESS, DEFAULT_LIVENESS),
    )


def configure_kopf(settings: kopf.OperatorSettings) -> None:
    """Tell kopf to post nothing, and to notice a dead connection by itself.

    Without both watch timeouts a connection that a middlebox dropped silently stays open for ever, and the
    operator hears nothing. The client's limit is the longer one, so that the server normally ends the stream.
    """
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.networking.request_timeout = _REQUEST_TIMEOUT_SECONDS
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = _SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = _SERVER_TIMEOUT_SECONDS + 30
    settings.watching.connect_timeout = 10


def configure_logging(level: str) -> None:
    """Log to stderr; kopf's own line per handled event is left out unless everything is asked for."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if level != "DEBUG":
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    for noisy in ("asyncio", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
