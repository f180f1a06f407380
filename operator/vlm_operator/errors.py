"""Every exception of the product, in one tree.

::

    VlmOperatorError
    ├── InputError        what the user wrote cannot be used; carries every problem, not only the first
    ├── CatalogueError    our own data is wrong or lacks an entry
    ├── RenderError       a template or flag list came out unusable
    ├── ClusterError      the API server refused or could not be reached
    └── HubError          the model hub did not answer a command (the operator tells it as a condition instead)

An outcome that can be expected (a plan that does not fit, an image that the engine refuses) is a value,
not an exception: see ``sizing.plan.NoFit`` and ``sizing.tokens.TokenRefusal``.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class VlmOperatorError(Exception):
    """Base of all errors that the product raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where it is and what would be accepted."""

    path: str
    message: str
    line: int | None = None


class InputError(VlmOperatorError):
    """What the user wrote cannot be used; ``problems`` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in self.problems))


class CatalogueError(VlmOperatorError):
    """A catalogue file is invalid, or an entry was asked for that does not exist."""


class RenderError(VlmOperatorError):
    """A manifest could not be rendered into a valid object."""


class HubError(VlmOperatorError):
    """The model hub did not answer."""


class ClusterError(VlmOperatorError):
    """The API server refused a request or could not be reached."""

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)
