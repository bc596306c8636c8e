"""The container runtime: the programs of this machine that run for containers of mapped images.

`ContainerRuntime` is what a node's agent asks of it; `ProcessRuntime` starts and ends the programs, and none
of them outlives the sandbox.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from devplug.errors import KubeletError, PluginError
from devplug.k8s.objects import Object, text
from devplug.k8s.podaccount import PodAccess
from devplug.kubelet_dir import CDI_DIR_VARIABLE
from devplug.linux.notifier import within
from devplug.linux.processes import (
    SIGKILL,
    SIGTERM,
    can_mount,
    filled,
    program_environment,
    signal_group,
    spawn,
    with_folders,
)
from devplug.sandbox.nodes.containercommand import (
    expanded,
    host_paths,
    mapped,
    variables_of,
    words_of,
)
from devplug.sandbox.nodes.containerlogs import Logs
from devplug.sandbox.nodes.reaper import Reaper
from devplug.sandbox.sandboxdir import NodeDir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from devplug.kubelet.pods import ContainerConfig
    from devplug.sandbox.nodes.containerlogs import LogFile

logger = logging.getLogger(__name__)

END_GRACE_SECONDS: Final = 5.0
"""How long programs have to end when the sandbox does."""

_LAST_WORDS_SECONDS: Final = 1.0
"""How long is read what a program has printed, after its end: who has left its group may go on to print."""

_OUTPUT_BYTES: Final = 10 * 1024
"""Of a command's output, as much as the kubelet keeps of a probe's (prober.go maxRespBodyLength)."""

LISTEN_VARIABLE: Final = "DEVPLUG_LISTEN"
_OWN_ADDRESS: Final = re.compile(r"^(--listen=):(?=[0-9]+$)")
"""How devplug's programs are told a port on all addresses."""

_SIGNALLED: Final = 128
"""What is added to a signal's number in the exit code of a container, as shells do."""


# ── What an agent asks for, and gets back ──


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One start of one container."""

    pod: Object
    node_name: str
    plugin_dir: Path
    """The folder of the node's plugins, which is `/var/lib/kubelet/device-plugins` to the container."""
    container: Object
    """The container of the pod's spec."""
    restart_count: int
    config: ContainerConfig
    """What plugins give it, and what the kubelet adds."""
    address: str = ""
    """The pod's address on this machine: its programs listen there; empty for none."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one container's process, however it came about."""

    pod_uid: str
    container: str
    exit_code: int
    finished: datetime


class ContainerRuntime(Protocol):
    """Runs containers whose image stands for a program. One serves all nodes; it tells of every `Ended`."""

    def maps(self, image: str) -> bool:
        """Whether containers of this image run; all others are running in name only."""

    async def start(self, order: StartOrder) -> None:
        """Start a container. Raises `DevplugError` or `OSError` if it cannot be started."""

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        """Stop a container and return once it is gone and reported; one that does not run is no error."""

    async def execute(self, pod_uid: str, container: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a command in a container; return its exit code and output. Raises `DevplugError`."""


# ── Programs of this machine ──


@dataclass(eq=False, slots=True)
class _Printed(asyncio.Protocol):
    """The end of a program's pipe at which we read."""

    log: LogFile
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no process has the other end any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""

    def data_received(self, data: bytes) -> None:
        """Write down what was printed."""
        self.log.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note the end."""
        self.ended.set()


@dataclass(eq=False, slots=True)
class _Run:
    """One run of one container; lives until its process and its output have ended."""

    pod_uid: str
    container: str
    child: asyncio.subprocess.Process
    printed: _Printed
    transport: asyncio.BaseTransport
    environment: Mapping[str, str]
    folders: Mapping[str, Path]
    """The folders that it has mounted, by path."""
    kills_at: float = 0.0
    """When all that is left is killed, in the loop's time; not later than the program's own end at first."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class ProcessRuntime:
    """Runs the program of each container whose image is mapped to one; one for all nodes.

    `run` must run, and when it is cancelled all programs end with it; `start` and `stop` work as long as it
    does. `on_ended` is called once for each container that was started, but not for those that end with the
    sandbox. `logs` has the logs.
    """

    def __init__(
        self,
        images: Mapping[str, Sequence[str]],
        folder: Path,
        on_ended: Callable[[Ended], None],
        access_of: Callable[[Object], PodAccess] = lambda _: PodAccess(),
    ) -> None:
        """Run the commands of `images`, by name; `folder` is for logs.

        `access_of` returns how the programs of a pod find the API server.
        """
        self._images = dict(images)
        self._on_ended = on_ended
        self._access_of = access_of
        self._runs: dict[tuple[str, str], _Run] = {}
        self._is_running = asyncio.Event()
        self._ending = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._warden: Reaper
        self.logs = Logs(folder, self.maps)

    async def run(self) -> None:
        """Be there for all that is to be started, until cancelled; then end what runs."""
        async with Reaper.watching() as self._warden, asyncio.TaskGroup() as self._tasks:
            self._is_running.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._ending.set()
                await self._end_all()

    def maps(self, image: str) -> bool:
        """Whether a program runs for this image."""
        return mapped(image, self._images) is not None

    async def start(self, order: StartOrder) -> None:
        """Start a container's program.

        Raises `PluginError` if it cannot be, and its log says so too; `KubeletError` when the sandbox ends.
        """
        await self._is_running.wait()
        if self._ending.is_set():
            raise _coming_down()
        pod_uid, container = text(order.pod, "metadata", "uid"), text(order.container, "name")
        await self.stop(pod_uid, container, 0)
        log = self.logs.begin(order.pod, container, order.restart_count)
        printed = _Printed(log)
        reader, writer = os.pipe()
        transport = await _reading(reader, printed)
        try:
            access = self._access_of(order.pod)
            environment = self._environment_of(order, access.variables)
            folders = {**_host_folders(order), **access.folders}
            child = await self._spawn(order, writer, environment, folders)
            if self._ending.is_set():
                signal_group(child.pid, SIGKILL)
                raise _coming_down()
        except BaseException as error:
            if isinstance(error, PluginError):
                log.feed(f"{error}\n".encode())
            transport.close()
            self.logs.end(log)
            raise
        finally:
            os.close(writer)
        run = self._runs[pod_uid, container] = _Run(
            pod_uid, container, child, printed, transport, environment, folders
        )
        self._warden.watch(self._groups())
        self._tasks.create_task(self._attend(run))

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        """Ask a container to end, kill all of it after the grace, and return once it is gone.

        All its processes are asked, because what is mapped may be a script or `go run`, which leave the
        plugin itself to a child. A container that does not run is no error.
        """
        run = self._runs.get((pod_uid, container))
        if run is None:
            return
        self._ask(run, grace_seconds)
        if not await within(grace_seconds, run.ended.wait()):
            signal_group(run.child.pid, SIGKILL)
            await run.ended.wait()

    async def execute(self, pod_uid: str, container: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a command with the environment of a container's program; return its exit code and output.

        Cancelled, it is killed with all that it has started. Raises `PluginError` if it cannot be started,
        and `KubeletError` if the container does not run.
        """
        run = self._runs.get((pod_uid, container))
        if run is None:
            raise KubeletError(f"container {container} does not run")
        words = with_folders([expanded(word, run.environment) for word in command], run.folders)
        child = await spawn(words, asyncio.subprocess.PIPE, run.environment)
        try:
            assert child.stdout is not None
            output = await child.stdout.read(_OUTPUT_BYTES)
            code = await child.wait()
        finally:
            signal_group(child.pid, SIGKILL)
        return code, output.decode(errors="replace")

    # ── inside ──

    @staticmethod
    def _environment_of(order: StartOrder, variables: Mapping[str, str]) -> dict[str, str]:
        own = variables_of(order.container, order.pod, order.node_name, order.config.envs)
        if order.address and own.get(LISTEN_VARIABLE, "").startswith(":"):
            # In a network of its own a pod has all its addresses; here all nodes share this machine's.
            own[LISTEN_VARIABLE] = order.address + own[LISTEN_VARIABLE]
        node = _node_of(order)
        # The folders come last: what a manifest says of them is a path in a container, and there is none.
        return program_environment(
            order.plugin_dir,
            {
                **variables,
                "NODE_NAME": order.node_name,
                **own,
                "DEVPLUG_PLUGIN_DIR": str(order.plugin_dir),
                "DEVPLUG_KUBELET_ROOT": str(node.folder),
                CDI_DIR_VARIABLE: str(node.cdi),
            },
        )

    async def _spawn(
        self,
        order: StartOrder,
        output: int,
        environment: Mapping[str, str],
        folders: Mapping[str, Path],
    ) -> asyncio.subprocess.Process:
        image = text(order.container, "image")
        command = mapped(image, self._images)
        if command is None:
            raise PluginError(f"no command stands for the image {image}: give one with --image")
        node = _node_of(order)
        places = {
            "{dir}": str(order.plugin_dir),
            "{root}": str(node.folder),
            "{cdi}": str(node.cdi),
            "{node}": order.node_name,
        }
        own = variables_of(order.container, order.pod, order.node_name, order.config.envs)
        words = words_of([filled(word, places) for word in command], order.container, own)
        if order.address:
            words = [_OWN_ADDRESS.sub(rf"\g<1>{order.address}:", word) for word in words]
        return await spawn(with_folders(words, folders), output, environment)

    async def _attend(self, run: _Run) -> None:
        """Wait for a container's end, see to it that nothing is left, and tell of it."""
        group = run.child.pid
        try:
            code = await run.child.wait()
            # Who was asked to end may have children that take a little longer.
            await within(run.kills_at - asyncio.get_running_loop().time(), run.printed.ended.wait())
        finally:
            signal_group(group, SIGKILL)
        await within(_LAST_WORDS_SECONDS, run.printed.ended.wait())
        run.transport.close()
        try:
            self.logs.end(run.printed.log)
        except OSError as error:  # its file system may be full
            logger.warning("the log of a container could not be completed", extra={"reason": str(error)})
        del self._runs[run.pod_uid, run.container]
        self._warden.watch(self._groups())
        run.ended.set()
        if not self._ending.is_set():
            code = code if code >= 0 else _SIGNALLED - code
            try:
                self._on_ended(Ended(run.pod_uid, run.container, code, datetime.now(UTC)))
            except Exception:
                facts = {"pod": run.pod_uid, "container": run.container}
                logger.exception("the end of a container was not noted because of a bug", extra=facts)

    async def _end_all(self) -> None:
        runs = list(self._runs.values())
        for run in runs:
            self._ask(run, END_GRACE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE_SECONDS):
                for run in runs:
                    await run.ended.wait()
        for run in list(self._runs.values()):
            signal_group(run.child.pid, SIGKILL)
            await run.ended.wait()

    @staticmethod
    def _ask(run: _Run, grace_seconds: float) -> None:
        run.kills_at = asyncio.get_running_loop().time() + grace_seconds
        signal_group(run.child.pid, SIGTERM if grace_seconds > 0 else SIGKILL)

    def _groups(self) -> list[int]:
        return [run.child.pid for run in self._runs.values()]


def _node_of(order: StartOrder) -> NodeDir:
    return NodeDir(order.plugin_dir.parent)


def _host_folders(order: StartOrder) -> Mapping[str, Path]:
    return _node_of(order).mounts(host_paths(order.pod, order.container)) if can_mount() else {}


def _coming_down() -> KubeletError:
    return KubeletError("the sandbox is coming down and starts no container any more")


async def _reading(reader: int, printed: _Printed) -> asyncio.BaseTransport:
    """Read a pipe; the returned transport has it from now on."""
    pipe = os.fdopen(reader, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: printed, pipe)
    return transport
