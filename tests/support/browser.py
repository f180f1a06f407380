"""A real Chromium without a window, spoken to through its debugging protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import websocket

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING: Final = "no Chromium on the path; Debian: apt install chromium, macOS: VLM_TEST_BROWSER=path"
START_SECONDS: Final = 60


def find_browser() -> str | None:
    """Return the browser: that of ``VLM_TEST_BROWSER``, or the first Chromium on the path."""
    named = os.environ.get("VLM_TEST_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(slots=True)
class Page:
    """One tab. ``requests`` are the addresses it asked for, ``complaints`` what it wrote to its console."""

    socket: websocket.WebSocket
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _last: int = 0
    _loaded: bool = False

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result; what happens meanwhile is noted."""
        self._last += 1
        self.socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self._last:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(self, url: str, *, width: int = 1200, height: int = 900, media: str = "", scheme: str = "light") -> None:
        """Load ``url`` in a window of ``width`` x ``height`` pixels; ``media`` is ``print`` or nothing."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.requests.clear()
        self.complaints.clear()
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._note(json.loads(self.socket.recv()))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, full: bool = True) -> bytes:
        """Return the page, or what is in the window of it, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        return base64.b64decode(shot["data"])

    def pdf(self) -> bytes:
        """Return the page as it would be printed on A4."""
        sheet = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(sheet["data"])

    def accessible_names(self, role: str) -> list[str]:
        """Return the names that a screen reader says of everything with ``role``."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [node.get("name", {}).get("value", "") for node in nodes if node.get("role", {}).get("value") == role]

    def _note(self, message: Mapping[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(parameters))
            case _:
                pass


@contextmanager
def browser_page(browser: str) -> Iterator[Page]:
    """Start ``browser`` with a profile of its own and yield a tab; both end with the block."""
    with tempfile.TemporaryDirectory(prefix="vlm-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                browser, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-sandbox",
                "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--disable-background-networking", "--remote-allow-origins=*", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            socket = websocket.create_connection(_tab(process, Path(profile)), timeout=60)
            try:
                yield Page(socket)
            finally:
                socket.close()
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()


def _tab(process: "subprocess.Popen[bytes]", profile: Path) -> str:
    """Return the address of the first tab, as soon as the browser is there."""
    port_file = profile / "DevToolsActivePort"
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"the browser ended with status {process.returncode}"
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        if len(lines) == 2:
            return _first_page(f"127.0.0.1:{lines[0]}", lines[1])
        time.sleep(0.05)
    raise AssertionError(f"the browser did not start within {START_SECONDS} s")


def _first_page(address: str, path: str) -> str:
    socket = websocket.create_connection(f"ws://{address}{path}", timeout=60)
    try:
        socket.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
        while True:
            message = json.loads(socket.recv())
            if message.get("id") == 1:
                return f"ws://{address}/devtools/page/{message['result']['targetId']}"
    finally:
        socket.close()
