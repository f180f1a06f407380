"""Builds the control plane program from its Go modules, once, into the user's cache."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.controlplane.paths import SOURCES, cache_folder

PROGRAM = "controlplane"
_PROGRESS_SECONDS = 60


class BuildError(RuntimeError):
    """The program could not be built; the message says why and what to do."""


def build() -> Path:
    """Returns the built program, building it first where the cache has none for these sources.

    Beside it lies `kubectl`, a link to it that behaves as plain kubectl.
    """
    folder = cache_folder() / PROGRAM / _key()
    program = folder / PROGRAM
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not program.exists():
                _compile(program)
    return program


def _key() -> str:
    digest = hashlib.sha256(_go("env", "GOVERSION", "GOOS", "GOARCH").encode())
    for source in sorted([*SOURCES.glob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum"]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _go(*arguments: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise BuildError("go is not installed; the control plane is built from source: https://go.dev/dl")
    return subprocess.run([go, *arguments], cwd=SOURCES, check=True, capture_output=True, text=True).stdout


def _compile(program: Path) -> None:
    """Compiles to a temporary name and renames, so that a broken build never looks finished."""
    part = program.with_suffix(".part")
    command = [
        "go",
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        _linker_flags(),
        "-o",
        str(part),
        ".",
    ]
    _say(
        f"building etcd, kube-apiserver, controllers, scheduler, kubectl and kwok {_kubernetes_version()} "
        f"into {program.parent}: 5 to 8 minutes the first time, kept afterwards"
    )
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
    started = time.monotonic()
    with subprocess.Popen(command, cwd=SOURCES, env=environment) as compiler:
        code = _wait_and_say(compiler, started)
    if code != 0:
        raise BuildError(f"go build failed with code {code} in {SOURCES}; its messages are above")
    kubectl = program.with_name("kubectl")
    kubectl.unlink(missing_ok=True)
    kubectl.symlink_to(PROGRAM)
    part.rename(program)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _wait_and_say(compiler: subprocess.Popen[bytes], started: float) -> int:
    try:
        while True:
            try:
                return compiler.wait(_PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                _say(f"still building, {(time.monotonic() - started) / 60:.0f} min so far")
    except BaseException:
        compiler.terminate()
        raise


def _linker_flags() -> str:
    """Stamps the Kubernetes version: unstamped, the server calls itself v0.0.0 and clients misbehave."""
    version = _kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return "-s -w " + " ".join(f"-X {one}.{key}={value}" for one in packages for key, value in stamps.items())


def _kubernetes_version() -> str:
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{SOURCES / 'go.mod'} requires no k8s.io/kubernetes")
    return found.group(1)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lets one process build while others wait for the result."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is building the control plane; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    sys.stderr.write(f"[control plane] {text}\n")
    sys.stderr.flush()
