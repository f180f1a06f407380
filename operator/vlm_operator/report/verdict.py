"""One condition before it becomes an entry of status: what holds, why, in one sentence."""

from dataclasses import dataclass
from typing import Final, Literal

REASON_PENDING: Final = "Pending"
"""Reason: an earlier condition must hold before this one can be judged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of a condition, its CamelCase reason and a message for people."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def pending(message: str) -> Verdict:
    """Return the verdict of a condition that cannot be judged yet."""
    return Verdict("Unknown", REASON_PENDING, message)
