"""Starting, using and ending a control plane."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tests.support.controlplane import parts as lines
from tests.support.controlplane.audit import Write, read_writes
from tests.support.controlplane.build import build
from tests.support.controlplane.paths import STAGES
from tests.support.controlplane.processes import Part, following, start_part, stop_parts

_ATTEMPTS = 3
_READY_SECONDS = 60.0
Answer = TypeVar("Answer")


class ControlPlaneError(RuntimeError):
    """A control plane did not do what it was asked; the message ends with the part's own words."""


def wait_until(condition: Callable[[], Answer], timeout: float = 30.0, what: str = "") -> Answer:
    """Returns the condition's first true answer.

    Args:
        condition: asked again and again, without side effects.
        timeout: seconds after which to give up.
        what: what is waited for, for the message.

    Raises:
        TimeoutError: the condition stayed false; the message carries its last answer.
    """
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what or 'condition'} did not come true in {timeout:g} s; last: {answer!r}")
        time.sleep(0.1)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of a control plane; `parts` gives the words that start each of them."""

    parts: dict[str, list[str]]
    kubectl: Path
    make_signing_key: list[str]

    @property
    def has_controllers(self) -> bool:
        """Whether Deployments get pods and pods get nodes."""
        return "kwok" in self.parts

    @classmethod
    def built(cls) -> "Programs":
        """Returns the parts of the Go program of tests/controlplane, building it if need be."""
        program = build()
        names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
        return cls(
            parts={name: [str(program), name] for name in names},
            kubectl=program.with_name("kubectl"),
            make_signing_key=[str(program), "signing-key"],
        )

    @classmethod
    def from_assets(cls, folder: Path) -> "Programs":
        """Returns etcd and kube-apiserver of a KUBEBUILDER_ASSETS folder: no controllers, no nodes."""
        return cls(
            parts={name: following([str(folder / name)]) for name in ("etcd", "kube-apiserver")},
            kubectl=folder / "kubectl",
            make_signing_key=["openssl", "ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A cluster that somebody else runs: reached, never started or ended."""

    kubeconfig: Path
    kubectl_program: Path
    has_controllers: bool = True
    has_simulated_nodes: bool = False
    audit_log: Path | None = None

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - subprocess's word
        """Runs kubectl against this cluster, and no other, and returns what it printed.

        Raises:
            ControlPlaneError: kubectl failed; the message is its own.
        """
        done = subprocess.run(
            [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=input or "",
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Returns kubectl's environment: without the user's cluster and without the user's preferences."""
        kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        return {**kept, "KUBERC": "off"}

    def get(self, *arguments: str) -> dict[str, Any]:
        """Runs `kubectl get` and returns the object, or the list."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return answer

    def apply(self, *documents: dict[str, Any], namespace: str | None = None) -> None:
        """Applies documents, server side."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        place = [f"--namespace={namespace}"] if namespace else []
        self.kubectl("apply", "--server-side", *place, "--filename=-", input=json.dumps(items))

    def add_nodes(self, nodes: Sequence[dict[str, Any]]) -> None:
        """Creates nodes and waits until all of them are ready."""
        if not nodes:
            return
        self.apply(*nodes)
        self.kubectl(
            "wait",
            "--for=condition=Ready",
            "--timeout=30s",
            *(f"node/{one['metadata']['name']}" for one in nodes),
        )

    def writes(self, since: datetime | None = None, *, by_plane: bool = False) -> list[Write]:
        """Returns what was written through the API, oldest first, without the plane's own parts.

        Args:
            since: only writes from this time on, if given.
            by_plane: whether to include what controllers, scheduler and kwok wrote.
        """
        if self.audit_log is None:
            raise ControlPlaneError("this cluster's audit log is out of reach")
        return read_writes(self.audit_log, since, by_plane=by_plane)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane(Outside):
    """A control plane of our own, alive until `stop` or until this process ends, whichever comes first."""

    folder: Path
    parts: list[Part]

    @classmethod
    @contextmanager
    def start(
        cls,
        nodes: Sequence[dict[str, Any]] = (),
        *,
        stages: Path = STAGES,
        programs: Programs | None = None,
    ) -> Iterator["ControlPlane"]:
        """Starts a control plane for the length of a `with` block.

        Args:
            nodes: Node objects to create, see tests/support/nodes.py.
            stages: how kwok plays nodes and pods.
            programs: what to run; by default the built Go program.
        """
        plane = cls.launch(nodes, stages=stages, programs=programs)
        try:
            yield plane
        finally:
            plane.stop()

    @classmethod
    def launch(
        cls,
        nodes: Sequence[dict[str, Any]] = (),
        *,
        stages: Path = STAGES,
        programs: Programs | None = None,
    ) -> "ControlPlane":
        """Starts a control plane that the caller must `stop`; see `start` for the arguments."""
        programs = programs or Programs.built()
        for attempt in range(_ATTEMPTS):
            try:
                plane = cls._launch_once(programs, stages)
                break
            except ControlPlaneError:  # somebody took a free port between our look and our listening
                if attempt == _ATTEMPTS - 1:
                    raise
        try:
            plane.add_nodes(nodes)
        except BaseException:
            plane.stop()
            raise
        return plane

    @classmethod
    def _launch_once(cls, programs: Programs, stages: Path) -> "ControlPlane":
        layout = lines.new_layout(Path(tempfile.mkdtemp(prefix="vlm-control-plane-")))
        running: list[Part] = []
        plane = cls(
            kubeconfig=layout.kubeconfig(),
            kubectl_program=programs.kubectl,
            has_controllers=programs.has_controllers,
            has_simulated_nodes=programs.has_controllers,
            audit_log=layout.audit_log,
            folder=layout.folder,
            parts=running,
        )
        try:
            plane._start_server(programs, layout)
            if programs.has_controllers:
                plane._start_controllers(programs, layout, stages)
        except BaseException:
            plane.stop()
            raise
        return plane

    def _start_server(self, programs: Programs, layout: lines.Layout) -> None:
        subprocess.run([*programs.make_signing_key, str(layout.signing_key)], check=True, capture_output=True)
        lines.write_tokens(layout)
        self._run(programs, "etcd", lines.etcd_flags(layout))
        self._run(programs, "kube-apiserver", lines.apiserver_flags(layout))
        self._wait(
            layout.certificate.with_suffix(".key").exists,  # the last to be written
            "the API server's certificate",
        )
        lines.write_kubeconfigs(layout)
        self._wait(lambda: self._answers("get", "--raw=/readyz"), "the API server")

    def _start_controllers(self, programs: Programs, layout: lines.Layout, stages: Path) -> None:
        self._run(programs, "kube-controller-manager", lines.controller_manager_flags(layout))
        self._run(programs, "kube-scheduler", lines.scheduler_flags(layout))
        self._run(programs, "kwok", lines.kwok_flags(layout, stages))
        self._wait(lambda: self._answers("get", "serviceaccount", "default"), "the controllers")

    def _run(self, programs: Programs, name: str, flags: list[str]) -> None:
        command = [*programs.parts[name], *flags]
        self.parts.append(start_part(name, command, self.folder, removes_folder=name == "etcd"))

    def _answers(self, *arguments: str) -> bool:
        try:
            self.kubectl(*arguments, "--request-timeout=2s")
        except ControlPlaneError:
            return False
        return True

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def alive_and_true() -> bool:
            for part in self.parts:
                if part.process.poll() is not None:
                    raise ControlPlaneError(f"{part.name} ended while waiting for {what}:\n{part.log_tail()}")
            return condition()

        try:
            wait_until(alive_and_true, _READY_SECONDS, what)
        except TimeoutError as error:
            tails = "\n".join(f"--- {part.name}\n{part.log_tail(5)}" for part in self.parts)
            raise ControlPlaneError(f"{error}\n{tails}") from error

    def _environment(self) -> dict[str, str]:
        """Returns kubectl's environment; what it caches about this server goes when the server goes."""
        return {**Outside._environment(self), "KUBECACHEDIR": str(self.folder / "kubectl-cache")}

    def stop(self) -> None:
        """Ends every part and removes the folder."""
        stop_parts(self.parts)
        shutil.rmtree(self.folder, ignore_errors=True)
