"""`python -m tests.support.demo [up|down]`: the product at work, on a control plane of its own.

Without an argument: a plan at once, then a real API server with simulated GPU nodes, the CRD, the operator
and the samples; it shows what `kubectl` and `vlmctl explain` say, and stops everything. `up` leaves it
running and prints the `export KUBECONFIG=...` to paste; `down` stops it. Progress goes to standard error,
what is shown to standard output.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.controlplane import ControlPlane, ControlPlaneError, Outside, wait_until
from tests.support.controlplane.build import BuildError, build
from tests.support.controlplane.paths import REPOSITORY, cache_folder
from tests.support.nodes import H100_X8, L4_X1, L40S_X4, cpu_node, gpu_node

SAMPLES = REPOSITORY / "manifests" / "samples"
CRDS = REPOSITORY / "crds"
FIRST_SAMPLE = SAMPLES / "invoices.yaml"
SETTLED_SECONDS = 180.0
STOP_SECONDS = 15.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo, or one half of it, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.demo", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["all", "up", "down"], default="all")
    action = parser.parse_args(arguments).action
    try:
        return {"all": run_all, "up": bring_up, "down": take_down}[action]()
    except (BuildError, ControlPlaneError, TimeoutError, subprocess.CalledProcessError) as error:
        tell(f"the demo failed: {error}")
        return 1
    except KeyboardInterrupt:
        tell("interrupted; everything that was started is stopped")
        return 130


def run_all() -> int:
    """Shows everything and leaves nothing behind."""
    show_plan()
    tell("the control plane's program (the first build takes several minutes and is kept)")
    build()
    tell("starting etcd, kube-apiserver, controllers, scheduler and simulated GPU nodes")
    with ControlPlane.start(demo_nodes()) as plane:
        install(plane)
        with operator_process(plane.kubeconfig, plane.folder / "operator.log"):
            apply_samples(plane)
            show(plane)
        tell("stopping everything")
    tell("done")
    return 0


def bring_up() -> int:
    """Starts everything and leaves it running."""
    show_plan()
    tell("starting the control plane (the first build takes several minutes and is kept)")
    plane = keep_plane()
    install(plane)
    if left_running() is None:
        process = start_operator(plane.kubeconfig, state_file().with_suffix(".log"))
        state_file().write_text(json.dumps({"operator": process.pid}))
    apply_samples(plane)
    show(plane)
    tell("it keeps running until: make demo-down")
    sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
    return 0


def take_down() -> int:
    """Stops what `up` left running."""
    process = left_running()
    if process is None:
        tell("no operator of the demo is running")
    else:
        os.kill(process, signal.SIGTERM)
        wait_until(lambda: left_running() is None, STOP_SECONDS, "the end of the operator")
    state_file().unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "tests.support.controlplane", "down"], cwd=REPOSITORY, check=False
    ).returncode


def demo_nodes() -> list[dict[str, Any]]:
    """Returns the cluster of the demo: big, middling and small GPUs, and a node without any."""
    return [*(gpu_node(shape) for shape in (H100_X8, L40S_X4, L4_X1)), cpu_node()]


def keep_plane() -> Outside:
    """Starts a control plane that outlives this process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as nodes:
        json.dump(demo_nodes(), nodes)
        nodes.flush()
        command = [sys.executable, "-m", "tests.support.controlplane", "up", "--nodes", nodes.name]
        done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return Outside(kubeconfig=Path(done.stdout.strip().splitlines()[-1]), kubectl_program=build().with_name("kubectl"))


def install(plane: Outside) -> None:
    """Applies the CRD and waits until the API server serves it."""
    tell("applying crds/")
    plane.kubectl("apply", "--server-side", f"--filename={CRDS}")
    plane.kubectl("wait", "--for=condition=Established", "crd/vlmdeployments.vlm-operator.dev", "--timeout=60s")


def apply_samples(plane: Outside) -> None:
    """Applies the samples and waits until each of them is ready, or said not to fit."""
    tell("applying manifests/samples/")
    plane.kubectl("apply", f"--filename={SAMPLES}")
    started = time.monotonic()
    seen: set[str] = set()

    def all_settled() -> bool:
        open_ones = 0
        for item in plane.get("vlmdeployments")["items"]:
            name, verdict = item["metadata"]["name"], settled(item)
            open_ones += not verdict
            if verdict and name not in seen:
                seen.add(name)
                tell(f"  {name}: {verdict} after {time.monotonic() - started:.1f} s")
        return not open_ones

    wait_until(all_settled, SETTLED_SECONDS, "every sample to be ready or refused")


def settled(item: dict[str, Any]) -> str:
    """Returns the last word on an object, nothing while there is none."""
    status = item.get("status", {})
    if status.get("observedGeneration") != item["metadata"]["generation"]:
        return ""
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    for kind, value in (("Ready", "True"), ("Sized", "False"), ("Accepted", "False")):
        if conditions.get(kind, {}).get("status") == value:
            return f"{kind}={value} ({conditions[kind].get('reason', '')})"
    return ""


def show_plan() -> None:
    """Prints what the planner says before anything runs."""
    tell(f"vlmctl plan -f {FIRST_SAMPLE.relative_to(REPOSITORY)}    (no cluster needed)")
    vlmctl("plan", "-f", str(FIRST_SAMPLE.relative_to(REPOSITORY)))


def show(plane: Outside) -> None:
    """Prints what kubectl and vlmctl say about the samples."""
    sys.stdout.flush()
    tell("kubectl get vlmdeployments")
    sys.stdout.write(plane.kubectl("get", "vlmdeployments").rstrip() + "\n")
    sys.stdout.flush()
    tell("kubectl get deployments,pods")
    sys.stdout.write(plane.kubectl("get", "deployments,pods").rstrip() + "\n")
    for name in ("invoices", "nofit"):
        tell(f"vlmctl explain {name}")
        vlmctl("explain", name, kubeconfig=plane.kubeconfig)


def vlmctl(*arguments: str, kubeconfig: Path | None = None) -> None:
    """Runs the command line as a user would; whatever it exits with, the demo goes on."""
    sys.stdout.flush()
    command = [sys.executable, "-m", "vlm_operator.cli.main", *arguments]
    subprocess.run(command, cwd=REPOSITORY, env=environment(kubeconfig), check=False)


def environment(kubeconfig: Path | None) -> dict[str, str]:
    """Returns this process's environment with the product on the path and no other cluster in reach."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "operator"), os.environ.get("PYTHONPATH", "")]))
    # No liveness port: nothing probes the operator here, and the port may be another process's.
    no_probe = {"VLM_OPERATOR_LIVENESS": ""}
    return {**os.environ, **no_probe, "PYTHONPATH": path, "KUBECONFIG": str(kubeconfig or os.devnull)}


def start_operator(kubeconfig: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Starts the operator in a session of its own; it writes to `log`."""
    tell("starting the operator")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "vlm_operator.controller"],
            cwd=REPOSITORY,
            env=environment(kubeconfig),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@contextmanager
def operator_process(kubeconfig: Path, log: Path) -> Iterator[None]:
    """Runs the operator for as long as the block lasts; its last words are told if the block fails."""
    process = start_operator(kubeconfig, log)
    try:
        yield
    except BaseException:
        tell("the operator's last words:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def left_running() -> int | None:
    """Returns the process number of the operator that `up` left, None where it is gone."""
    try:
        process: int = json.loads(state_file().read_text())["operator"]
        words = subprocess.run(
            ["ps", "-o", "stat=,args=", "-p", str(process)],  # noqa: S607 - wherever it is
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    except (OSError, ValueError, KeyError):
        return None
    return process if "vlm_operator.controller" in words and not words.startswith("Z") else None


def state_file() -> Path:
    """Returns where `up` leaves the operator's process number for `down`."""
    return cache_folder() / "demo" / "operator.json"


def tell(text: str) -> None:
    """Prints one line of progress."""
    sys.stderr.write(f"\n▸ {text}\n" if not text.startswith("  ") else f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
