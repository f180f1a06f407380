"""Writes requirements/*.txt: every package, transitive ones included, at one version with its hashes.

Run by `make lock` after a change of dependencies in pyproject.toml, the only place that names them. The lock
files hold no index or mirror address, so that each user's own pip settings apply.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "requirements"
PIP_TOOLS = "pip-tools==7.6.2"
HEADER = "# Made by `make lock` from pyproject.toml: {what}. Do not edit.\n"


def main() -> int:
    """Locks the runtime first; the developer's set then agrees with it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    runtime: list[str] = project["project"]["dependencies"]
    groups: dict[str, list[Any]] = project["dependency-groups"]
    development = [*runtime, *project["build-system"]["requires"], *expand(groups, "dev")]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        compiler = install_compiler(Path(scratch))
        lock(compiler, runtime, "operator.txt", what="the runtime alone", constraint=None)
        lock(compiler, development, "dev.txt", what="all of make setup", constraint="operator.txt")
    return 0


def expand(groups: dict[str, list[Any]], name: str) -> list[str]:
    """Returns a dependency group's requirements, those of the groups it includes among them."""
    found: list[str] = []
    for entry in groups[name]:
        found += [entry] if isinstance(entry, str) else expand(groups, entry["include-group"])
    return found


def install_compiler(scratch: Path) -> Path:
    """Installs pip-tools where it disturbs nothing and returns its program."""
    venv.create(scratch / "venv", with_pip=True)
    programs = scratch / "venv" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", PIP_TOOLS], check=True)  # noqa: S603 - fixed words
    return programs / "pip-compile"


def lock(compiler: Path, requirements: list[str], name: str, *, what: str, constraint: str | None) -> None:
    """Writes one lock file; versions it already has are kept where they still satisfy the requirements."""
    source = "\n".join([*requirements, *([f"-c {FOLDER / constraint}"] if constraint else [])])
    command = [str(compiler), "-", "--quiet", f"--output-file={name}", "--generate-hashes", "--allow-unsafe"]
    command += ["--strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += ["--no-emit-trusted-host", "--no-emit-find-links"]
    local_wheels = {"PIP_FIND_LINKS", "PIP_NO_INDEX"}  # would lock to this machine's wheels
    environment = {key: value for key, value in os.environ.items() if key not in local_wheels}
    subprocess.run(command, input=source, text=True, cwd=FOLDER, env=environment, check=True)  # noqa: S603
    path = FOLDER / name
    path.write_text(HEADER.format(what=what) + path.read_text())


if __name__ == "__main__":
    sys.exit(main())
