"""Child processes that end with their owner, however the owner ends."""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# For a program that does not follow its owner by itself: runs it, and ends it, and what it left, when our
# standard input closes. Ends as well when the program does.
_FOLLOWER = """
{ "$@"; kill -9 0; } &
cat > /dev/null
if [ -n "$VLM_REMOVE_WITH_OWNER" ]; then
    sleep 1
    rm -rf "$VLM_REMOVE_WITH_OWNER" || rm -rf "$VLM_REMOVE_WITH_OWNER"
fi
kill -9 0
"""


def following(command: list[str]) -> list[str]:
    """Returns a command that runs another one and ends with its owner."""
    return ["/bin/sh", "-c", _FOLLOWER, "follower", *command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One running part of the control plane and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def log_tail(self, lines: int = 15) -> str:
        """Returns the end of what the part has printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start_part(name: str, command: list[str], folder: Path, *, removes_folder: bool = False) -> Part:
    """Starts one part.

    Its standard input is a pipe that only this process can write to and never does: the program ends when
    that pipe closes, which the kernel sees to even when this process is killed. A session of its own keeps
    a Ctrl-C in the terminal from reaching it before its owner has decided what to do.

    Args:
        name: the part's name, also of its log.
        command: program and flags.
        folder: the control plane's folder.
        removes_folder: whether this part removes the folder if its owner dies without doing so.
    """
    environment = {
        **os.environ,
        "HOME": str(folder),
        "KWOK_WORKDIR": str(folder / "kwok"),
        "VLM_FOLLOW_OWNER": "yes",
        "VLM_REMOVE_WITH_OWNER": str(folder) if removes_folder else "",
    }
    environment.pop("KUBECONFIG", None)
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    return Part(name=name, process=process, log=log)


def stop_parts(parts: list[Part]) -> None:
    """Kills the parts, the last started first: their data is thrown away, so nothing is worth a farewell."""
    for part in reversed(parts):
        with suppress(ProcessLookupError):
            os.killpg(part.process.pid, signal.SIGKILL)
    for part in parts:
        part.process.wait()
        if part.process.stdin is not None:
            part.process.stdin.close()
