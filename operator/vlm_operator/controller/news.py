"""What a change of the Ready condition tells the readers of Events; pure, called by ``reconcile``."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vlm_operator.api import names

_EXPECTED: Final = frozenset({names.REASON_SERVING, names.REASON_LOADING, names.REASON_SUSPENDED, names.REASON_APPLIED})
"""Reasons of a healthy life; every other one is a warning."""


def ready_news(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> tuple[str, str, bool] | None:
    """Return (reason, message, is a warning) if Ready has a new status or reason, else None."""
    old, new = _ready(before), _ready(after)
    if new is None or (old is not None and _verdict(old) == _verdict(new)):
        return None
    return new["reason"], new.get("message") or new["reason"], new["reason"] not in _EXPECTED


def _ready(conditions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((condition for condition in conditions if condition["type"] == names.READY), None)


def _verdict(condition: Mapping[str, Any]) -> tuple[str, str]:
    return condition["status"], condition["reason"]
