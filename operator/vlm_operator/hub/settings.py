"""How to reach a model hub. Made by ``cli`` and ``controller`` from their environment."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

DEFAULT_ENDPOINT: Final = "https://huggingface.co"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Which hub, as whom, and how patiently.

    Attributes:
        endpoint: Address of the hub, no slash at its end.
        token: Access token; empty for public models.
        request_seconds: How long one request may wait for the next bytes.
        model_seconds: How long all requests for one model may take together.
        attempts: How often a request is made that times out or that the hub answers with a server error.
        first_wait_seconds: Pause before the second attempt; each further pause is twice as long.
        cache_folder: Where what was read of a commit is kept; None keeps nothing.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str = field(default="", repr=False)
    request_seconds: float = 10.0
    model_seconds: float = 60.0
    attempts: int = 3
    first_wait_seconds: float = 0.5
    cache_folder: Path | None = None

    def with_token(self, token: str) -> "HubSettings":
        """Return the same with another token."""
        return replace(self, token=token)


def settings_from(environment: Mapping[str, str] = os.environ) -> HubSettings:
    """Return what the environment says: HF_ENDPOINT, HF_TOKEN and the user's cache folder."""
    home = environment.get("XDG_CACHE_HOME") or (f"{environment['HOME']}/.cache" if environment.get("HOME") else "")
    return HubSettings(
        endpoint=(environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/"),
        token=environment.get("HF_TOKEN", ""),
        cache_folder=Path(home or tempfile.gettempdir()) / "vlm-operator" / "models",
    )
