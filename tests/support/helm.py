"""Helm for the tests, built from its Go module; no registry ships it as a package.

Usage: python -m tests.support.helm path|lint|template

The version is the one in ``tests/helm/go.mod``. The program is kept under the user's cache folder by the
hash of ``go.mod`` and ``go.sum``, so that it is built once (a minute or two with an empty build cache).
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = ROOT / "tests" / "helm"
CHART: Final = ROOT / "charts" / "vlm-operator"
_PACKAGE: Final = "helm.sh/helm/v4/cmd/helm"


def helm_path() -> Path:
    """Return the path of helm, building it if this version was not built yet."""
    digest = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "vlm-operator" / "helm" / digest / "helm"
    if not program.exists():
        _build(program)
    return program


def run_helm(program: Path, *arguments: str) -> str:
    """Run helm away from the user's own settings and return what it printed.

    Raises:
        subprocess.CalledProcessError: helm failed; its words are in ``stderr``.
    """
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "HELM_CACHE_HOME": home,
            "HELM_CONFIG_HOME": home,
            "HELM_DATA_HOME": home,
            "KUBECONFIG": str(Path(home) / "no-cluster"),
        }
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def render_chart(program: Path, chart: Path, *arguments: str, namespace: str = "vlm-operator-system") -> str:
    """Return ``helm template`` of ``chart`` as release ``vlm-operator``."""
    return run_helm(program, "template", "vlm-operator", str(chart), "--namespace", namespace, *arguments)


def lint_chart(program: Path, chart: Path, *arguments: str) -> str:
    """Return what ``helm lint --strict`` says of ``chart``."""
    return run_helm(program, "lint", "--strict", str(chart), *arguments)


def _build(program: Path) -> None:
    """Build into a file of this process's own, then move it: two test runs may build at once."""
    sys.stderr.write(f"building helm into {program.parent} (once; a minute or two)\n")
    program.parent.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_name(f"helm.{os.getpid()}")
    command = ["go", "build", "-trimpath", "-o", str(unfinished), _PACKAGE]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    try:
        subprocess.run(command, cwd=MODULE, check=True, env=environment, stdout=sys.stderr)
        unfinished.replace(program)
    finally:
        unfinished.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Answer the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.helm")
    parser.add_argument("action", choices=("path", "lint", "template"))
    action = parser.parse_args(arguments).action
    program = helm_path()
    try:
        answers = {
            "path": lambda: f"{program}\n",
            "lint": lambda: lint_chart(program, CHART),
            "template": lambda: lint_chart(program, CHART) and render_chart(program, CHART),
        }
        sys.stdout.write(answers[action]())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error.stdout}{error.stderr}")
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
