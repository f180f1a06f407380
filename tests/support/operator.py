"""The operator as a real process, for tests and the demo; and a namespace as its tests look at it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from tests.support.controlplane import Outside, Write, wait_until
from vlm_operator.api.names import API_VERSION, GROUP, KIND, PLURAL

_ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCES: Final = _ROOT / "operator"
_DEFINITION: Final = _ROOT / "crds" / "vlm-operator.dev_vlmdeployments.yaml"
_STOP_SECONDS: Final = 20
_EPOCH: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RunningOperator:
    """One operator process; ``log`` is everything it said."""

    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        """Return what the operator has logged so far."""
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """End the process as ``kill -9`` does, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask the process to end, as a kubelet does, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode


@contextmanager
def operator_running(kubeconfig: Path, **env: str) -> Iterator[RunningOperator]:
    """Run the operator for the length of a ``with`` block.

    Args:
        kubeconfig: How it reaches the API server.
        env: Its settings, see ``vlm_operator.controller.settings``.

    Raises:
        AssertionError: it ended by itself.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VLM_OPERATOR_")}
    environment |= {
        "KUBECONFIG": str(kubeconfig),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_SOURCES), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "VLM_OPERATOR_LIVENESS": "",
        **env,
    }
    with tempfile.TemporaryDirectory(prefix="vlm-operator-") as folder:
        log_file = Path(folder) / "operator.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "vlm_operator.controller"],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        operator = RunningOperator(process, log_file)
        try:
            yield operator
            if process.poll() not in {None, 0, -signal.SIGKILL}:
                raise AssertionError(f"the operator ended by itself:\n{operator.log[-4000:]}")
        finally:
            operator.stop()


def install_definition(plane: Outside) -> None:
    """Install the VLMDeployment definition and wait until it is served."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={_DEFINITION}")
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{PLURAL}.{GROUP}")


def sample(name: str = "sample", **spec: Any) -> dict[str, Any]:
    """Return a small VLMDeployment; ``spec`` replaces whole fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "model": {"id": "Qwen/Qwen2.5-VL-3B-Instruct"},
            "workload": {
                "images": {"sizes": [{"width": 1280, "height": 960}]},
                "traffic": {"concurrentRequests": 4},
            },
            "accelerators": {"allowed": ["h100-80gb-sxm"]},
            **spec,
        },
    }


@dataclass(frozen=True, slots=True)
class Place:
    """One namespace of a cluster, as the tests look at it."""

    plane: Outside
    namespace: str

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply documents in the namespace."""
        self.plane.apply(*documents, namespace=self.namespace)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace."""
        return self.plane.kubectl(f"--namespace={self.namespace}", *arguments)

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None."""
        items = self.items(kind, f"--field-selector=metadata.name={name}")
        return items[0] if items else None

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        found: list[dict[str, Any]] = self.plane.get(kind, f"--namespace={self.namespace}", *arguments)["items"]
        return found

    def condition(self, name: str, condition: str) -> tuple[str, str]:
        """Return the status and reason of a condition, of today's generation."""
        document = self.find("vlmdeployment", name) or {}
        for one in document.get("status", {}).get("conditions", ()):
            if one["type"] == condition and one["observedGeneration"] == document["metadata"]["generation"]:
                return one["status"], one["reason"]
        return "Unknown", ""

    def wait_condition(
        self, name: str, condition: str, status: str = "True", reason: str = "", timeout: float = 60
    ) -> None:
        """Wait until a condition is as asked."""

        def reached() -> bool:
            found = self.condition(name, condition)
            return found[0] == status and reason in {"", found[1]}

        try:
            wait_until(reached, timeout)
        except TimeoutError:
            status_now = (self.find("vlmdeployment", name) or {}).get("status")
            raise AssertionError(f"{name}: {condition} never became {status} {reason}: {status_now}") from None

    def children(self) -> dict[str, tuple[str, Any]]:
        """Return uid and resource version of everything the operator manages here, without the pods."""
        kinds = "deployment,service,serviceaccount,poddisruptionbudget,persistentvolumeclaim"
        found = self.items(kinds, "--selector=app.kubernetes.io/managed-by=vlm-operator")
        return {
            f"{one['kind']}/{one['metadata']['name']}": (
                one["metadata"]["uid"],
                one["metadata"]["resourceVersion"],
            )
            for one in found
        }

    def events(self, reason: str) -> list[dict[str, Any]]:
        """Return the operator's Events with a reason."""
        return [one for one in self.items("events") if one["reason"] == reason]

    def writes(self, since: datetime) -> list[Write]:
        """Return what others than the control plane and kubectl wrote here."""
        return [
            one
            for one in self.plane.writes(since)
            if one.namespace == self.namespace and not one.user_agent.startswith("kubectl")
        ]

    def wait_quiet(self, seconds: float = 3.0, timeout: float = 90.0) -> datetime:
        """Wait until the operator wrote nothing for a while; return since when."""

        def quiet() -> datetime | None:
            last = max((one.at for one in self.writes(_EPOCH)), default=_EPOCH)
            return datetime.now(UTC) if datetime.now(UTC) - last > timedelta(seconds=seconds) else None

        return cast("datetime", wait_until(quiet, timeout, "silence"))
