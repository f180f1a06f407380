"""`python -m tests.support.controlplane build|up|down`: a control plane that outlives the command.

`up` prints the path of its kubeconfig on standard output, `down` ends it. Only one runs this way at a time.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.controlplane.build import BuildError, build
from tests.support.controlplane.paths import REPOSITORY, cache_folder
from tests.support.controlplane.plane import ControlPlane, ControlPlaneError, wait_until

_START_SECONDS = 120.0


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.controlplane", description=__doc__)
    parser.add_argument("action", choices=["build", "up", "down", "serve"])
    parser.add_argument("--nodes", type=Path, help="a JSON file with Node objects to create")
    chosen = parser.parse_args(arguments)
    try:
        return {"build": _build, "up": _up, "down": _down, "serve": _serve}[chosen.action](chosen.nodes)
    except (BuildError, ControlPlaneError, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _state() -> Path:
    folder = cache_folder() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "control-plane.json"


def _build(_: Path | None) -> int:
    sys.stdout.write(f"{build()}\n")
    return 0


def _up(nodes: Path | None) -> int:
    """Starts the keeper, a process of its own that owns the control plane, unless one runs."""
    build()
    if _running() is None:
        log = _state().with_suffix(".log")
        command = [sys.executable, "-m", "tests.support.controlplane", "serve"]
        command += [f"--nodes={nodes.resolve()}"] if nodes else []
        _state().unlink(missing_ok=True)
        with log.open("wb") as output:
            keeper = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(lambda: _running() or keeper.poll() is not None, _START_SECONDS, "the control plane")
        if _running() is None:
            raise ControlPlaneError(f"the control plane did not start:\n{log.read_text()}")
    sys.stdout.write(f"{json.loads(_state().read_text())['kubeconfig']}\n")
    return 0


def _down(_: Path | None) -> int:
    keeper = _running()
    if keeper is None:
        sys.stderr.write("no control plane is up\n")
        return 0
    os.kill(keeper, signal.SIGTERM)
    wait_until(lambda: not _state().exists(), 30.0, "the end of the control plane")
    return 0


def _serve(nodes: Path | None) -> int:
    """Owns a control plane until told to end it."""
    end = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, lambda *_: end.set())
    objects = json.loads(nodes.read_text()) if nodes else []
    with ControlPlane.start(objects) as plane:
        state = {
            "keeper": os.getpid(),
            "kubeconfig": str(plane.kubeconfig),
            "kubectl": str(plane.kubectl_program),
        }
        _state().with_suffix(".part").write_text(json.dumps(state))
        _state().with_suffix(".part").rename(_state())
        end.wait()
    _state().unlink(missing_ok=True)
    return 0


def _running() -> int | None:
    """Returns the keeper's process number if it and its control plane are alive."""
    try:
        state = json.loads(_state().read_text())
        os.kill(state["keeper"], 0)
    except (OSError, ValueError):
        return None
    keeper: int = state["keeper"]
    return keeper if Path(state["kubeconfig"]).exists() else None


if __name__ == "__main__":
    sys.exit(main())
