"""A `devplug run` in a process of its own, on a node that is played here: what dies and runs out is real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from torture.catalogue import PATIENCE, BrokenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from devplug.kubelet.settings import KubeletSettings
    from devplug.web.client import Response

START_SECONDS: Final = 30.0
"""How long a process may take until it is registered: beside all the others, a start takes its time."""

END_SECONDS: Final = 15.0


def config_text(*resources: str) -> str:
    """Return a configuration with these resources, each as one line of YAML's flow form."""
    return "version: 1\nresources:\n" + "".join(f"- {one}\n" for one in resources)


def pod_of(name: str, resource_name: str, count: int = 1) -> Pod:
    """Return a pod whose one container asks for devices; its name is its UID."""
    return Pod(name, name, containers=(Container("main", {resource_name: count}),))


async def until(claim: Callable[[], object], seconds: float, story: Callable[[], str]) -> float:
    """Wait for what nothing announces; return the seconds. Raises `BrokenError` with `story()`."""
    started = time.monotonic()
    while not claim():
        if time.monotonic() - started > seconds * PATIENCE.get():
            raise BrokenError(story())
        await asyncio.sleep(0.002)
    return time.monotonic() - started


class Daemon:
    """One running process; lives as long as its node, at most."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None as long as it runs."""
        return self._process.poll()

    def said(self) -> str:
        """Return all that it has logged."""
        return self._output.read_text(errors="replace")

    async def says(self, words: str, seconds: float = START_SECONDS) -> None:
        """Wait until it has logged these words."""
        await until(
            lambda: words in self.said(), seconds, lambda: f"I10: it says no {words!r}: {self.said()}"
        )

    def last_words(self) -> str:
        """Return the end of what it has logged, for a story."""
        return self.said()[-1500:]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        self._process.send_signal(number)

    async def ended(self, seconds: float = END_SECONDS) -> tuple[int, float]:
        """Wait for its end; return the exit code, and how many seconds that took."""
        took = await until(
            lambda: self._process.poll() is not None,
            seconds,
            lambda: f"I4: the process did not end within {seconds:g} s: {self.last_words()}",
        )
        assert self._process.returncode is not None
        return self._process.returncode, took

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Ask it to end; return the exit code, and how many seconds that took."""
        self.send(number)
        return await self.ended()

    def kill(self) -> None:
        """End it without a chance to clean up. Safe to repeat."""
        self._process.kill()
        self._process.wait()


@dataclass(slots=True)
class Node:
    """A kubelet in this process, its folder, a configuration, and the daemons that were started on it."""

    root: Path
    kubelet: Kubelet
    started: list[Daemon] = field(default_factory=list)

    @property
    def plugin_dir(self) -> Path:
        """The folder with the sockets."""
        return self.kubelet.plugin_dir

    @property
    def file(self) -> Path:
        """The configuration."""
        return self.root / "devplug.yaml"

    def start(
        self,
        *options: str,
        plugin_dir: Path | None = None,
        variables: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        descriptors: int | None = None,
    ) -> Daemon:
        """Start one more daemon; it is killed when the node is left, if it still runs then.

        `prefix` is what runs its command, `descriptors` how many it may have open.
        """
        if descriptors is not None:
            prefix = ("prlimit", f"--nofile={descriptors}", *prefix)
        output = self.root / f"daemon-{len(self.started)}.log"
        words = [*prefix, sys.executable, "-m", "devplug", "run", "-c", str(self.file)]
        words += ["--kubelet-root", str(self.root), *options]
        if plugin_dir is not None:
            words += ["--plugin-dir", str(plugin_dir)]
        # In the group of this process, so that whoever ends that ends all.
        with output.open("wb") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(variables or {})
            )
        daemon = Daemon(process, output)
        self.started.append(daemon)
        return daemon

    def sockets(self) -> list[str]:
        """Return the names of the plugins' sockets."""
        return sorted(path.name for path in self.plugin_dir.glob("devplug-*.sock"))

    def remains(self) -> list[str]:
        """Return what is in the plugin folder that is not the kubelet's."""
        return sorted(path.name for path in self.plugin_dir.iterdir() if not path.name.startswith("kubelet"))

    def allocatable(self, resource_name: str) -> int:
        """Return how many healthy devices the kubelet believes in."""
        return self.kubelet.allocatable().get(resource_name, 0)

    async def until_listed(
        self, counts: Mapping[str, int], seconds: float = START_SECONDS, daemon: Daemon | None = None
    ) -> float:
        """Wait until the kubelet believes in these counts of healthy devices; return the seconds.

        Raises `BrokenError` also for a daemon that has ended.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()

        def is_so() -> bool:
            return all(self.allocatable(name) == count for name, count in counts.items())

        def story() -> str:
            words = daemon.last_words() if daemon else ""
            return f"I2: {dict(self.kubelet.allocatable())} after {seconds:g} s, not {counts}: {words}"

        while True:
            try:
                async with asyncio.timeout(0.5):
                    await self.kubelet.wait(is_so)
            except TimeoutError:
                if daemon is not None and daemon.exit_code is not None:
                    raise BrokenError(f"I4: it ended with {daemon.exit_code}: {story()}") from None
                if loop.time() - started > seconds:
                    raise BrokenError(story()) from None
            else:
                return loop.time() - started

    async def until_registered(self, daemon: Daemon, *names: str, seconds: float = START_SECONDS) -> None:
        """Wait until a daemon has told that these resources are registered: the kubelet knows it earlier."""
        wanted = [f"registered with the kubelet  resource_name={name} " for name in names]
        await until(
            lambda: all(one in daemon.said() for one in wanted) or daemon.exit_code is not None,
            seconds,
            lambda: f"I2: not registered within {seconds:g} s: {daemon.last_words()}",
        )
        if daemon.exit_code is not None:
            raise BrokenError(f"I4: it ended with {daemon.exit_code}: {daemon.last_words()}")

    def status_sockets(self) -> list[Path]:
        """Return the status sockets that are there, of dead processes too."""
        return sorted((self.plugin_dir / ".devplug").glob(".status-*.sock"))

    async def page(self, path: str, *, timeout_seconds: float = 10, socket: Path | None = None) -> Response:
        """Return a page of the one daemon's status socket, or of the one at `socket`."""
        (found,) = (socket,) if socket else self.status_sockets()
        return await get(UnixAddress(str(found)), path, timeout_seconds=timeout_seconds)

    async def status(self) -> dict[str, Any]:
        """Return what the one daemon tells of itself."""
        content: dict[str, Any] = json.loads((await self.page("/status")).body)
        return content


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without what the command reads, and with `variables`."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("DEVPLUG_", "NODE_NAME"))}
    return {**kept, **variables}


@asynccontextmanager
async def node(root: Path, config: str, settings: KubeletSettings | None = None) -> AsyncIterator[Node]:
    """Run a kubelet below `root`, with a configuration for daemons; all of those are dead when it is left."""
    played = Node(root, Kubelet.under(root, settings))
    played.file.write_text(config)
    try:
        async with played.kubelet.running():
            try:
                yield played
            finally:
                for daemon in played.started:
                    daemon.kill()
    finally:
        for daemon in played.started:
            daemon.kill()
