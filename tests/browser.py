"""A headless Chromium, driven over its debugging pipe: it opens pages, presses keys and looks."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

_PATIENCE_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.02

_CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
needs_chromium: Final = pytest.mark.skipif(
    not _CHROMIUM, reason="there is no Chromium; apt-get install chromium"
)

_START: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)

_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",  # it does not start as root otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)

_KEYS: Final = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "Tab": 9} | {
    f"Arrow{way}": 37 + number for number, way in enumerate(("Left", "Up", "Right", "Down"))
}


class BrowserError(Exception):
    """What the page, or Chromium itself, says has gone wrong."""


class Browser:
    """One tab. `requests` are the addresses it asked for, `errors` what its console and its security said."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        with suppress(BrowserError, OSError):
            self.call("Browser.close")

    # ── messages ──

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do one command of the DevTools protocol; return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (answer := self._message()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_SECONDS
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise BrowserError("Chromium does not answer")
            if not (data := os.read(self._answers, 1 << 16)):
                raise BrowserError("Chromium has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Log.entryAdded" if told["entry"]["level"] in {"error", "warning"}:
                self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in {"error", "warning", "assert"}:
                self.errors.append(json.dumps(told["args"]))

    # ── what a person does ──

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **code)

    def type(self, text: str) -> None:
        for letter in text:
            self.press(letter)

    # ── what is there ──

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is, in values that JSON has."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str, *, seconds: float = _PATIENCE_SECONDS) -> None:
        """Return once an expression is true."""
        until = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > until:
                shown = self.value("document.body.innerText")
                raise BrowserError(
                    f"never true: {expression}\nthe page shows:\n{shown}\nerrors: {self.errors}"
                )
            select.select([self._answers], [], [], _LOOK_SECONDS)

    def names(self, role: str) -> list[str]:
        """Return the names of all elements of a role, as a screen reader is told them."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            node.get("name", {}).get("value", "")
            for node in nodes
            if not node.get("ignored") and node.get("role", {}).get("value") == role
        ]

    # ── how it looks ──

    def look(self, *, width: int = 1280, height: int = 800, is_dark: bool = False) -> None:
        """Have a window of this size, and a person's choice of scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> Path:
        """Write what is in the window as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return file


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with one empty tab, and its own folder; gone at the end of the block."""
    theirs, commands = _pipe()
    answers, ours = _pipe()
    with (
        TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [*_onto_3_and_4(theirs, ours), _CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}"],
            pass_fds=(theirs, ours),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder},
        ) as process,
    ):
        os.close(theirs)
        os.close(ours)
        one = Browser(commands, answers)
        try:
            one.attach()
            yield one
        finally:
            one.close()
            os.close(commands)
            os.close(answers)
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


def _onto_3_and_4(commands: int, answers: int) -> list[str]:
    """Return what starts a program with these as its descriptors 3 and 4, where Chromium has its pipe."""
    return [sys.executable, "-c", _START, str(commands), str(answers)]


def _pipe() -> tuple[int, int]:
    """Return a pipe whose ends are not 3 or 4 themselves, onto which they will be put."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
