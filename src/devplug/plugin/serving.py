"""Serve plugins: `run` for scripts, `serve` for programs, and the set of served plugins that may change."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from devplug.errors import DevplugError, PluginError, quoted
from devplug.logs import show_logs
from devplug.plugin.contract import plugin_faults
from devplug.plugin.discovery import discover
from devplug.plugin.inventory import Inventory
from devplug.plugin.lifecycle import Lifecycle
from devplug.plugin.records import Records
from devplug.plugin.registration import Way, chosen_way
from devplug.plugin.statuses import device_statuses, resource_status
from devplug.plugin.statussocket import serve_status
from devplug.plugin.surroundings import Surroundings
from devplug.plugin.threads import DaemonThreads
from devplug.pulse import Pulse
from devplug.status.places import REGISTRY_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from devplug.devices import StrPath
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.nameguard import NameGuard
    from devplug.plugin.statuses import Describe
    from devplug.plugin.tally import Tally
    from devplug.probes import Probes
    from devplug.status.values import ResourceStatus
    from devplug.web.values import Answer, Handler, Request

__all__ = [
    "KUBELET_PLUGIN_DIR",
    "PLUGIN_DIR_VARIABLE",
    "Registration",
    "Serving",
    "pages_at",
    "run",
    "serve",
    "served",
    "stop_signals",
]

KUBELET_PLUGIN_DIR: Final = "/var/lib/kubelet/device-plugins"
"""Where every kubelet has its socket; compiled in there, its --root-dir does not move it (constants.go)."""

PLUGIN_DIR_VARIABLE: Final = "DEVPLUG_PLUGIN_DIR"
LISTEN_VARIABLE: Final = "DEVPLUG_LISTEN"

Registration: TypeAlias = Literal["socket", "watcher", "auto"]
"""How the kubelet comes to know the plugins. `socket`: they call it at its socket in the plugin folder.
`watcher`: it finds their sockets in `plugins_registry` beside that folder; it may take seconds to look, and
minutes after a failure. `auto`: `socket`, unless only `plugins_registry` is there, as in a container that is
given nothing else. What it chose stays, for the two must never be mixed: the end of one stream ends the
other. That folder follows the kubelet's --root-dir (kubelet.go), so where that is not the usual one, the
plugin folder has to be named below it, be it there or not."""

_DEFAULT_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class _Served:
    plugin: DevicePlugin
    inventory: Inventory
    lifecycle: Lifecycle
    task: asyncio.Task[None]


class Serving:
    """A supervised set of plugins, each with its socket and registration; lives as long as `serve`'s block.

    It may grow and shrink meanwhile; one plugin's coming and going does not touch the others.
    """

    def __init__(self, group: asyncio.TaskGroup, surroundings: Surroundings) -> None:
        self._group = group
        self._surroundings = surroundings
        self._served: dict[str, _Served] = {}
        self._records = Records()
        self._telling: asyncio.Task[None] | None = None
        self.pulse = Pulse()
        """Beats whenever `statuses` may have changed."""

    @property
    def folder(self) -> Path:
        """Where the sockets are."""
        return self._surroundings.folder

    @property
    def plugins(self) -> tuple[DevicePlugin, ...]:
        """The plugins that are served now."""
        return tuple(served.plugin for served in self._served.values())

    @property
    def streams(self) -> Mapping[str, int]:
        """How many ListAndWatch streams are open of each resource, by name."""
        return {name: served.lifecycle.streams for name, served in self._served.items()}

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What each resource has gone through since the start, by name; also of the last served no longer."""
        return self._records.tallies

    def tally(self, resource_name: str) -> Tally:
        """Return the counts of a resource, which begin with 0 when it is first asked for or served."""
        return self._records.tally(resource_name)

    @property
    def guards(self) -> Mapping[str, NameGuard]:
        """What is known of other plugins of the names that are served, by name."""
        return {name: served.lifecycle.guard for name, served in self._served.items()}

    def statuses(
        self, describe_of: Callable[[str], Describe] = lambda _: device_statuses
    ) -> tuple[ResourceStatus, ...]:
        """Return how each plugin is at this moment, by resource name.

        `describe_of` returns for a name what makes its devices' statuses, if they do not say all themselves.
        """
        return tuple(
            resource_status(served.inventory, served.lifecycle, describe_of(name))
            for name, served in sorted(self._served.items())
        )

    def faults(self) -> Mapping[str, str]:
        """Return what keeps plugins from being ready, by resource name; empty if all are."""
        return {
            name: served.lifecycle.fault
            for name, served in sorted(self._served.items())
            if served.lifecycle.fault
        }

    def add(self, plugin: DevicePlugin, *, on_failure: Callable[[DevplugError], None] | None = None) -> None:
        """Begin to serve one more plugin; raises `PluginError` if it breaks the contract or a name in use.

        If its `devices` fails before the first list, all ends as with `serve`; with `on_failure` only this
        plugin does, and it is told why.
        """
        if faults := plugin_faults(plugin):
            raise PluginError(*faults)
        name = plugin.resource_name
        if name in self._served:
            raise PluginError(_taken(name))
        tally = self.tally(name)
        inventory = Inventory(name, tally, self.pulse.beat, past=self._records.take(name, time.monotonic()))
        lifecycle = Lifecycle(plugin, inventory, tally, self._surroundings, self.pulse.beat)
        work = self._supervise(plugin, inventory, lifecycle, on_failure)
        task = self._group.create_task(work, name=f"devplug {name}")
        self._served[name] = _Served(plugin, inventory, lifecycle, task)
        self._records.forget_former(self._served)
        self.pulse.beat()

    async def _supervise(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        lifecycle: Lifecycle,
        on_failure: Callable[[DevplugError], None] | None,
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(discover(plugin, inventory))
                group.create_task(lifecycle.run())
        except BaseExceptionGroup as errors:
            failure = _the_one_in(errors)
            if on_failure is None or inventory.is_ready or not isinstance(failure, DevplugError):
                raise
            self._served.pop(plugin.resource_name, None)
            self._records.leave(plugin.resource_name, inventory.past, time.monotonic())
            self.pulse.beat()
            on_failure(failure)

    async def remove(self, resource_name: str) -> None:
        """Stop serving a plugin once its calls in flight have ended; unknown names are ignored."""
        if served := self._served.pop(resource_name, None):
            self.pulse.beat()
            served.task.cancel()
            await asyncio.wait((served.task,))
            self._records.leave(resource_name, served.inventory.past, time.monotonic())

    async def release(self, resource_name: str, ids: Iterable[str]) -> None:
        """Let go of device IDs that no pod holds any more; only who asks the kubelet can know.

        Until then an ID that was handed out stays listed, Unhealthy, when its device is gone.
        """
        if served := self._served.get(resource_name):
            await served.inventory.release(ids)

    async def repeat_list(self) -> None:
        """Send the shortest list again: for each one that the kubelet takes it writes its checkpoint.

        Nothing is sent while no plugin is registered.
        """
        inventories = [one.inventory for one in self._served.values() if one.lifecycle.is_registered]
        if inventories:
            await min(inventories, key=lambda inventory: len(inventory.snapshot.devices)).repeat()

    async def wait_registered(self) -> None:
        """Wait until a kubelet has accepted every plugin and listens to its list."""
        while not all(served.lifecycle.is_registered for served in self._served.values()):
            await self.pulse.next.wait()

    def tell(self, handle: Handler) -> None:
        """Answer with these pages at a status socket below the folder until `close`. Call it once."""
        self._telling = self._group.create_task(serve_status(self, handle), name="devplug status socket")

    async def close(self) -> None:
        """Stop serving all of them, and the status socket, side by side."""
        tasks = [served.task for served in self._served.values()]
        if self._telling is not None:
            tasks.append(self._telling)
        self._served.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _taken(resource_name: str) -> str:
    return f"resource name {quoted(resource_name)} is served already; one plugin per name"


@asynccontextmanager
async def serve(
    *plugins: DevicePlugin,
    plugin_dir: StrPath | None = None,
    listen: str | None = None,
    registration: Registration = "auto",
) -> AsyncIterator[Serving]:
    """Serve plugins inside a program's own event loop, until the block is left.

    The folder is `plugin_dir`, else `DEVPLUG_PLUGIN_DIR`, else the kubelet's; `registration` says how the
    kubelet comes to know the plugins, see `Registration`. At `listen` there are /healthz, /readyz and
    /metrics: `HOST:PORT`, `:PORT` for all addresses, or `unix:PATH`; for `devplug status` there is a status
    socket in `.devplug` in the folder. The block is entered at once, before any registration;
    `wait_registered` waits for that. Raises `PluginError` if a plugin breaks the contract or its `devices`
    fails before the first list, `KubeletError` if the folder cannot be used.
    """
    async with served(*plugins, plugin_dir=plugin_dir, registration=registration) as serving:
        pages = _Pages(serving)
        serving.tell(pages.answer)
        async with pages_at(listen, pages.answer):
            yield serving


@asynccontextmanager
async def served(
    *plugins: DevicePlugin, plugin_dir: StrPath | None = None, registration: Registration = "auto"
) -> AsyncIterator[Serving]:
    """Serve plugins as `serve` does, and tell nobody of them but the kubelet."""
    surroundings = _surroundings(plugin_dir, registration)
    faults = [fault for plugin in plugins for fault in plugin_faults(plugin)]
    names = Counter(plugin.resource_name for plugin in plugins if hasattr(plugin, "resource_name"))
    faults += [_taken(name) for name, count in names.items() if count > 1]
    if faults:
        raise PluginError(*faults)
    try:
        async with asyncio.TaskGroup() as group:
            serving = Serving(group, surroundings)
            for plugin in plugins:
                serving.add(plugin)
            try:
                yield serving
            finally:
                await serving.close()
    except BaseExceptionGroup as errors:
        failure = _the_one_in(errors)
        raise failure from failure.__cause__


class _Pages:
    """The pages about what is served, made when they are first asked for: until then they cost memory."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @cached_property
    def _probes(self) -> Probes:
        from devplug.plugin.pages import probes_of

        return probes_of(self._serving)

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        return await self._probes.answer(request)


@asynccontextmanager
async def pages_at(listen: str | None, handle: Handler) -> AsyncIterator[None]:
    """Serve pages at an address for a block, if there is one.

    Raises `PluginError` for a text that is no address, and `ListenError` if nobody can listen there.
    """
    if listen is None:
        yield
        return
    # HTTP: most programs do without.
    from devplug.web.addresses import parse_address
    from devplug.web.server import serving as answering

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise PluginError(f"listen: {error}") from error
    async with answering(address, handle, name="probes"):
        yield


def _surroundings(plugin_dir: StrPath | None, registration: str) -> Surroundings:
    """Return where the sockets go, and how they get known; raises `PluginError` for an unknown way."""
    if registration not in get_args(Registration):
        raise PluginError(f'registration: {quoted(registration)} is none of "socket", "watcher" and "auto"')
    folder = Path(plugin_dir or os.environ.get(PLUGIN_DIR_VARIABLE) or KUBELET_PLUGIN_DIR).absolute()
    # Beside it by its name, also where it is a link or does not exist.
    registry = Path(os.path.normpath(folder)).parent / REGISTRY_NAME
    way = chosen_way(registration, has_plugin_dir=_is_folder(folder), has_registry=_is_folder(registry))
    return Surroundings(folder if way is Way.SOCKET else registry, way)


def _is_folder(path: Path) -> bool:
    """Whether there is a folder, or may be one for who may look; who may not is told so when it is needed."""
    try:
        return path.is_dir()
    except PermissionError:
        return True


def _the_one_in(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that a group is about: the only one in it, or the first of ours."""
    leaves = _leaves(errors)
    ours = [error for error in leaves if isinstance(error, DevplugError)]
    if len(leaves) == 1 or (ours and len(ours) == len(leaves)):
        return (ours or leaves)[0]
    return errors


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def run(
    *plugins: DevicePlugin,
    plugin_dir: StrPath | None = None,
    listen: str | None = None,
    registration: Registration = "auto",
) -> None:
    """Serve plugins until SIGTERM or SIGINT: the last line of a plugin's script.

    Sets up logging if nobody has; without `listen`, `DEVPLUG_LISTEN` counts. Returns after a signal, when
    calls in flight have ended; a second signal ends the process at once. Raises what `serve` raises.
    """
    show_logs()
    listen = listen or os.environ.get(LISTEN_VARIABLE) or None
    asyncio.run(_run(plugins, plugin_dir, listen, registration))


async def _run(
    plugins: tuple[DevicePlugin, ...],
    plugin_dir: StrPath | None,
    listen: str | None,
    registration: Registration,
) -> None:
    asyncio.get_running_loop().set_default_executor(DaemonThreads(_DEFAULT_THREADS, "devplug-default"))
    async with (
        stop_signals() as stopped,
        serve(*plugins, plugin_dir=plugin_dir, listen=listen, registration=registration),
    ):
        await stopped.wait()


@asynccontextmanager
async def stop_signals(*, has_terminal: bool = False) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set, once: the second signal ends the process at once.

    With `has_terminal` a second SIGINT raises KeyboardInterrupt, so that what was done to the terminal is
    undone. Raised in the middle of an end, that may be lost, and the end hang.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    both = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopped.set()
        for number in both:
            loop.remove_signal_handler(number)
        if not has_terminal:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    for number in both:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in both:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
