"""Where the control plane's files lie: sources in the repository, everything else in the user's cache."""

import os
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "controlplane"
REPOSITORY = SOURCES.parents[1]
STAGES = Path(__file__).with_name("stages.yaml")
AUDIT_POLICY = Path(__file__).with_name("audit-policy.yaml")


def cache_folder() -> Path:
    """Returns this project's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vlm-operator"


def kind_kubeconfig() -> Path:
    """Returns where `make kind-up` leaves the address of its cluster."""
    return cache_folder() / "kind" / "kubeconfig"
