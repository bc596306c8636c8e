"""The subjects of a measurement: a command, and the plugin that it starts, with a kubelet of its own.

Its process is looked at as the system sees it: start, stop, memory, processor time. The sample plugin in Go,
`sample.go`, is built where it is wanted with what Debian has of gRPC for Go.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.conformance.program import Program
from devplug.conformance.scripted_kubelet import scripted_kubelet
from devplug.conformance.times import FULL
from devplug.errors import PluginError
from devplug.kubelet_dir import KUBELET_PLUGIN_DIR
from devplug.linux.processes import filled, spawn, stat_fields, with_folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from devplug.conformance.scripted_kubelet import Client, ScriptedKubelet

STOP_SECONDS = 15

REGISTER_SECONDS = 30
LIST_SECONDS = 30
"""How long each thing is waited for before its figure is given up."""

DOWN_SECONDS = 0.5
"""How long the kubelet is away at a restart: long enough for a plugin to notice, far shorter than in life."""

NODES = 8
"""How many devices there are, but where many are asked for."""

SOURCE: Final = Path(__file__).with_name("sample.go")
PROGRAM: Final = SOURCE.parents[1] / "build" / "go" / "sample"
LIBRARIES: Final = Path("/usr/share/gocode")
"""Where Debian has the sources of Go's libraries."""

HOW: Final = "on Debian: apt-get install golang-go golang-google-grpc-dev"


class MissingError(Exception):
    """Something that was to be timed did not happen; the text says what."""


# ── processes ──


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a process went after SIGTERM."""

    seconds: float
    exit_code: int | None
    """None if it had to be killed."""


class Process(Program):
    """A running plugin; lives as long as its `running` block, at most."""

    def memory_bytes(self) -> tuple[int, int]:
        """Return what is resident, and its share where pages are shared (RSS, PSS)."""
        try:
            rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        except OSError as error:
            raise self._gone() from error
        sizes = {line.partition(":")[0]: line.split()[1] for line in rollup if line.endswith(" kB")}
        return int(sizes["Rss"]) * 1024, int(sizes["Pss"]) * 1024

    def threads(self) -> int:
        """Return the number of its threads."""
        return int(self._stat()[17])

    def processor_seconds(self) -> float:
        """Return the time that all its threads have had, in user and kernel mode.

        By its clock (clock_getcpuclockid(3)): the ticks of `stat` are longer than some of what is measured.
        """
        try:
            return time.clock_gettime(~self.pid << 3 | CPUCLOCK_SCHED)
        except OSError as error:
            raise self._gone() from error

    async def stopped(self) -> Stopped:
        """Send SIGTERM and wait for the end; after 15 s kill it, with all that it has started."""
        seconds = await self.stop(STOP_SECONDS)
        return Stopped(STOP_SECONDS, None) if seconds is None else Stopped(seconds, self.exit_code)

    def _stat(self) -> list[str]:
        try:
            return stat_fields(self.pid)
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> MissingError:
        return MissingError(f"the plugin is gone: {self.last_words()}")


@asynccontextmanager
async def running(command: Sequence[str], output: Path) -> AsyncIterator[Process]:
    """Run `command`, its output in a file; it is stopped when the block is left."""
    with output.open("wb") as log:
        started_at = time.monotonic()
        try:
            child = await spawn(command, log.fileno())
        except PluginError as error:
            raise MissingError(str(error)) from error
    process = Process(child, started_at, output)
    try:
        yield process
    finally:
        await process.stop(STOP_SECONDS)  # what it has started may not run into the next measurement


# ── subjects ──

CPUCLOCK_SCHED: Final = 2
"""Which of a process's clocks its identifier means (linux/posix-timers_types.h)."""

NODES_FILE: Final = """\
version: 1
resources:
  - name: bench.devplug.io/node
    discover:
      path: "{devices}/*"
"""
"""A configuration of our daemon, of one device for each node."""

COMMAND: Final = (
    str(Path(sys.executable).with_name("devplug")),
    *("run", "--config", "{config}", "--plugin-dir", "{dir}"),
)
"""Our daemon."""


def many_file(count: int) -> str:
    """Return a configuration of one resource with so many devices."""
    return f"""\
version: 1
resources:
  - name: bench.devplug.io/many
    discover:
      path: /dev/null
    share:
      replicas: {count}
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plugin under test: how to start it, and where its devices are."""

    name: str
    command: tuple[str, ...]
    """With `{dir}` for the plugin folder and `{devices}` for the folder of its devices."""
    file: str = ""
    """A configuration for it, written before it starts; `{config}` is its path, `{devices}` works in it."""
    device_count: int = NODES
    """How many devices it lists, at least, when all is well."""
    default_dir: bool = False
    """Whether it has the plugin folder compiled in and runs where that is ours."""

    def watches_devices(self) -> bool:
        """Whether the command can be told where devices come and go."""
        return "{devices}" in "".join((*self.command, self.file))


@dataclass(slots=True)
class Plugin:
    """A started subject, with the kubelet that it talks to."""

    subject: Subject
    process: Process
    kubelet: ScriptedKubelet
    folder: Path
    devices: Path
    started_to_registered: float = 0
    registered_to_listed: float = 0

    async def registered(self) -> Client:
        """Wait for a registration since the kubelet's last start, and for the plugin behind it to answer."""
        await self._wait(lambda: self.kubelet.client is not None, REGISTER_SECONDS, "Register")
        assert self.kubelet.client is not None
        return self.kubelet.client

    async def listed(self, claim: Callable[[Client], bool], what: str) -> float:
        """Wait for a list that makes `claim` true; return when it came."""

        def is_listed() -> bool:
            client = self.kubelet.client
            return client is not None and bool(client.lists) and claim(client)

        await self._wait(is_listed, LIST_SECONDS, what)
        assert self.kubelet.client is not None
        return self.kubelet.client.lists[-1][0]

    async def fully_listed(self) -> float:
        """Wait until the kubelet has all devices; return when it had them."""
        count = self.subject.device_count
        return await self.listed(lambda client: len(client.devices) >= count, f"list of {count} devices")

    async def restart_kubelet(self) -> float:
        """Have the kubelet go away and come back; return when kubelet.sock was there again."""
        return await self.kubelet.restart(down_seconds=DOWN_SECONDS)

    async def _wait(self, claim: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait as long as the plugin's process runs; raises `MissingError`."""
        child = self.process.child
        await self.kubelet.until(lambda: claim() or child.returncode is not None, seconds)
        if claim():
            return
        if child.returncode is not None:
            raise MissingError(f"it ended with code {child.returncode} before {what}")
        failures = [attempt.failure for attempt in self.kubelet.attempts if attempt.failure]
        raise MissingError(f"no {what} within {seconds:g} s" + (f" ({failures[-1]})" if failures else ""))


def plug(path: Path) -> None:
    """Make a device node like /dev/null, or a link to it where that is not allowed."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


@asynccontextmanager
async def started(subject: Subject) -> AsyncIterator[Plugin]:
    """Start a subject in folders of its own and wait for its first full list; it is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:  # short: it holds sockets
        root = Path(name)
        folder, devices = root / "plugins", root / "devices"
        folder.mkdir()
        devices.mkdir()
        for number in range(NODES):
            plug(devices / f"node{number}")
        places = {"{dir}": str(folder), "{devices}": str(devices), "{config}": str(root / "config.yaml")}
        (root / "config.yaml").write_text(filled(subject.file, places))
        command = [filled(word, places) for word in subject.command]
        if subject.default_dir:
            command = with_folders(command, {KUBELET_PLUGIN_DIR: folder})
        async with scripted_kubelet(folder, FULL.dial_seconds) as kubelet:
            await kubelet.start()
            async with running(command, root / "output") as process:
                kubelet.notify_at_end(process.child)
                plugin = Plugin(subject, process, kubelet, folder, devices)
                try:
                    client = await plugin.registered()
                    listed_at = await plugin.fully_listed()
                except MissingError as error:
                    raise MissingError(f"{error}; its last words: {process.last_words()}") from None
                plugin.started_to_registered = client.registered_at - process.started_at
                plugin.registered_to_listed = listed_at - client.registered_at
                yield plugin


# ── the sample in Go ──


def built() -> Path:
    """Return the program, built anew if its text is newer; raises `MissingError` where it cannot be built."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return PROGRAM
    if shutil.which("go") is None or not (LIBRARIES / "src/google.golang.org/grpc").is_dir():
        raise MissingError(f"there is no gRPC for Go; {HOW}")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": str(LIBRARIES), "CGO_ENABLED": "0"}
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(PROGRAM), str(SOURCE)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise MissingError(f"{SOURCE.name} was not built: {made.stderr.strip()}")
    return PROGRAM
