"""The serving of plugins: `run` for scripts, `serve` for programs, and the set of plugins that may change."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.errors import DevplugError, PluginError, error_to_raise, printable, quoted
from devplug.holds.decide import Face
from devplug.holds.ledger_store import IN_CODE
from devplug.linux.notifier import Notifier
from devplug.linux.signals import stop_signals
from devplug.linux.supervision import borne
from devplug.linux.threads import DaemonThreads, run_loop
from devplug.logs import show_logs
from devplug.plugin.callbacks import author_line
from devplug.plugin.contract import plugin_faults
from devplug.plugin.counters import PluginCounters
from devplug.plugin.discovery import discover
from devplug.plugin.drivers import Drivers
from devplug.plugin.environment import environment_at, pod_resources_at
from devplug.plugin.inventory import Inventory, log_changes
from devplug.plugin.lifecycle import Lifecycle
from devplug.plugin.service import LEAVING_SECONDS
from devplug.plugin.status import device_statuses, pages_at, resource_status, serve_status
from devplug.status import grouped_faults, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from devplug.devices import StrPath
    from devplug.driver.parameters import ParameterDecoder
    from devplug.k8s.account import Account
    from devplug.metrics.probes import Probes
    from devplug.plugin.claimed_plugin import ClaimedPlugin
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.environment import PluginEnvironment, Registration
    from devplug.plugin.holds import Holding, NodeHolds
    from devplug.plugin.status import Describe
    from devplug.plugin.takeover import TakeoverDetector
    from devplug.status import ProcessStatus, ResourceStatus
    from devplug.web.messages import Answer, Handler, Request


LISTEN_VARIABLE: Final = "DEVPLUG_LISTEN"

FIRST_LIST_SECONDS: Final = 30.0
"""How long a plugin that is to take another one's place may take for its first list."""

FORMER_LIMIT: Final = 100
"""How many resources that are served no more keep their counters: names may come and go for years."""

_DEFAULT_THREADS: Final = 16


class _Served(Struct):
    """One served resource; lives until it is removed, with one plugin after the other."""

    plugin: DevicePlugin
    inventory: Inventory
    lifecycle: Lifecycle | ClaimedPlugin
    task: asyncio.Task[None]
    holding: Holding | None = None
    discovery: asyncio.Task[None] | None = None
    """What follows the devices of `plugin`; None before the first turn of the loop."""
    successor: asyncio.Future[None] | None = None
    """Done once the plugin that waits for its first list is in effect, or has failed; None if none waits."""

    def give_up_successor(self, why: str) -> None:
        """Have the plugin that waits for its first list never take effect."""
        if self.successor is not None and not self.successor.done():
            self.successor.set_exception(PluginError(f"{self.plugin.resource_name}: {why}"))

    def cancel(self) -> tuple[asyncio.Task[None], ...]:
        """Cancel everything; return the tasks that end then."""
        self.give_up_successor("it is not served any more")
        tasks = (self.task,) if self.discovery is None else (self.task, self.discovery)
        for task in tasks:
            task.cancel()
        return tasks


class Serving:
    """A supervised set of plugins, each with its socket and registration; lives as long as `serve`'s block.

    It may grow and shrink meanwhile; one plugin's coming and going does not touch the others.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        environment: PluginEnvironment,
        decode: ParameterDecoder | None = None,
    ) -> None:
        self._group = group
        self._environment = environment
        self.drivers = Drivers(group, environment, decode)
        self._served: dict[Face, _Served] = {}
        self._counters: dict[str, PluginCounters] = {}
        self._status_task: asyncio.Task[None] | None = None
        self._holds: NodeHolds | None = None
        self._holds_task: asyncio.Task[None] | None = None
        self.notifier = Notifier()
        """Notifies whenever `statuses` may have changed."""

    @property
    def folder(self) -> Path:
        """The folder with the plugins' sockets."""
        return self._environment.folder

    @property
    def plugins(self) -> tuple[DevicePlugin, ...]:
        """The plugins that are served now."""
        return tuple(served.plugin for served in self._served.values())

    @property
    def waiting(self) -> tuple[str, ...]:
        """The resources with a new plugin that has not sent its first list yet."""
        return tuple(sorted(face.resource_name for face, served in self._served.items() if served.successor))

    @property
    def streams(self) -> Mapping[str, int]:
        """How many ListAndWatch streams are open of each resource, by name."""
        return {face.resource_name: one.lifecycle.streams for face, one in self._in_order()}

    @property
    def counters(self) -> Mapping[str, PluginCounters]:
        """The counters of each resource since the start, by name; also of former resources."""
        return self._counters

    def counters_of(self, resource_name: str) -> PluginCounters:
        """Return the counts of a resource, which begin with 0 when it is first asked for or served."""
        return self._counters.setdefault(resource_name, PluginCounters())

    @property
    def guards(self) -> Mapping[str, TakeoverDetector]:
        """The takeover detectors of the served resources, by name."""
        return {
            face.resource_name: guard
            for face, served in self._served.items()
            if (guard := served.lifecycle.guard)
        }

    def _in_order(self) -> list[tuple[Face, _Served]]:
        """Return the faces by resource name; the device plugin of a resource comes after its drivers."""
        return sorted(self._served.items(), key=lambda one: (one[0].resource_name, not one[0].driver))

    def statuses(
        self, describe_of: Callable[[Face], Describe] = lambda _: device_statuses
    ) -> tuple[ResourceStatus, ...]:
        """Return the status of each plugin at this moment, by resource name.

        `describe_of` returns what makes the statuses of a resource's devices, if these lack some facts.
        """
        return tuple(
            resource_status(served.inventory, served.lifecycle, describe_of(face))
            for face, served in sorted(self._served.items())
        )

    def hold(self, pod_resources: Path) -> None:
        """Follow the holders of devices, by the kubelet's socket, for plugins that are added from now on."""
        from devplug.plugin.holds import NodeHolds  # the daemon has holds of its own

        self._holds = NodeHolds(self.folder, pod_resources, self.drivers, self.repeat_list, self.notifier)
        self.drivers.pods = self._holds.holders.fresh_pods
        self.drivers.whereabouts = self._holds.ownership.whereabouts
        self._holds_task = self._group.create_task(borne(self._holds.run), name="devplug holds")

    def faults(self) -> Mapping[str, str]:
        """Return what keeps plugins from being ready, by resource name; empty if all are."""
        return {
            face.resource_name: served.lifecycle.fault
            for face, served in sorted(self._served.items())
            if served.lifecycle.fault
        }

    def add(
        self,
        plugin: DevicePlugin,
        *,
        on_failure: Callable[[DevplugError], None] | None = None,
        held_ids: Callable[[], AbstractSet[str]] | None = None,
        on_turn: Callable[[], None] | None = None,
        on_wanted: Callable[[], None] = lambda: None,
        dra: str = "",
        evicts: bool = False,
    ) -> None:
        """Start to serve one more plugin; raises `PluginError` for a broken contract or a name in use.

        `held_ids` returns the device IDs that containers may hold, and is asked at each change of the list:
        they stay listed, Unhealthy, when their device is gone. The kubelet knows them; without `held_ids`
        an ID that was given out counts as held for ever, or with `dra` for as long as a claim uses it.

        `on_turn` is called when no other process serves the name any more, before the kubelet hears of us,
        and `on_wanted` while another process waits to serve it.

        With `dra`, the name of a DRA driver, pods get the devices by claims; `evicts` then says whether an
        Unhealthy device ends the pods that have it. A caller with `held_ids` may serve one name
        as a device plugin and by drivers at the same time.

        If its `devices` fails before the first list, all plugins end as with `serve`; with `on_failure` only
        this one ends, and `on_failure` is called with the error.
        """
        if faults := plugin_faults(plugin):
            raise PluginError(*faults)
        name = plugin.resource_name
        face = Face(name, dra)
        others = [one for one in self._served if one.resource_name == name]
        if face in others or (others and held_ids is None):
            raise PluginError(_taken(name))
        claims = self.drivers.claims_of(face) if dra else None
        holding = None
        if self._holds is not None and held_ids is None:
            holding = self._holds.add(plugin, claims, dra)
            on_turn = partial(self._holds.holders.begin, name)
        counters, on_change = self.counters_of(name), self.notifier.notify
        inventory = Inventory(
            name,
            counters,
            on_change,
            held_ids=held_ids or (holding.held.held_ids if holding else claims.held_ids if claims else None),
            offered=holding.offered if holding else tuple,
            why_withheld=lambda id_: self.drivers.whereabouts(lambda *one: one == (name, id_)).reason,
        )
        lifecycle: Lifecycle | ClaimedPlugin
        if dra:
            from devplug.plugin.claimed_plugin import ClaimedPlugin  # it loads what DRA needs

            driver = self.drivers.driver(dra)
            lifecycle = ClaimedPlugin(plugin, inventory, driver, on_change, evicts=evicts, holding=holding)
        else:
            lifecycle = Lifecycle(
                plugin,
                inventory,
                self._environment,
                on_change,
                holding,
                on_turn or (lambda: None),
                on_wanted,
            )
        task = self._group.create_task(self._supervise(face, on_failure), name=f"devplug {name}")
        self._served[face] = _Served(plugin, inventory, lifecycle, task, holding)
        served = {one.resource_name for one in self._served}
        for former in [name for name in self._counters if name not in served][:-FORMER_LIMIT]:
            del self._counters[former]
        self.notifier.notify()

    async def _supervise(self, face: Face, on_failure: Callable[[DevplugError], None] | None) -> None:
        served = self._served[face]
        try:
            async with asyncio.TaskGroup() as group:
                if served.discovery is None:
                    served.discovery = group.create_task(discover(served.plugin, served.inventory))
                if served.holding is not None:
                    group.create_task(borne(partial(served.holding.run, served.inventory)))
                group.create_task(log_changes(served.inventory))
                group.create_task(served.lifecycle.run())
        except BaseExceptionGroup as errors:
            failure = error_to_raise(errors)
            if on_failure is None or served.inventory.is_ready or not isinstance(failure, DevplugError):
                raise
            self._served.pop(face, None)
            self._forget(face.resource_name)
            self.notifier.notify()
            on_failure(failure)

    def _forget(self, name: str) -> None:
        self._counters[name] = self._counters.pop(name)  # the last to be forgotten
        if self._holds is not None:
            self._holds.remove(name)

    def _face(self, resource_name: str, dra: str | None) -> Face | None:
        """Return the newest face of a resource, or the one of the driver `dra`."""
        faces = [one for one in self._served if one.resource_name == resource_name]
        return next((one for one in reversed(faces) if dra is None or one.driver == dra), None)

    async def replace(self, plugin: DevicePlugin, *, evicts: bool = False, dra: str | None = None) -> None:
        """Serve another plugin of a resource name, behind the same socket, registration and stream.

        Returns once the plugin is in effect. The plugin before answers until the new one has listed its
        devices for the first time, which may take 30 s. Then one list takes the place of the other, and calls
        that have begun end with the plugin before, whose `devices` is cancelled. Pods that the kubelet admits
        at that moment get devices that only the plugin before has, from that one. A later `replace` of the
        name takes the place of one that waits; if the caller is cancelled, nothing changes. Where nothing was
        listed yet, the new plugin is in effect at once.

        The kubelet is given other options, as where only one of the plugins has `pre_start`, by a new
        registration. `evicts` is as for `add`; `dra` is needed where a resource is served in several ways.

        Raises `PluginError` for a broken contract, a name that is not served, and if the plugin does not list
        its devices; the plugin before stays in effect.
        """
        if faults := plugin_faults(plugin):
            raise PluginError(*faults)
        name = plugin.resource_name
        if (face := self._face(name, dra)) is None:
            raise PluginError(f"resource name {quoted(name)} is not served; add the plugin instead")
        served = self._served[face]
        served.give_up_successor("another plugin has taken its place")
        begun = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if begun.done():
                raise PluginError("the plugin was given up")
            begun.set_result(None)
            if served.discovery is not None:
                served.discovery.cancel()
            served.plugin, served.discovery = plugin, task
            self.drivers.set_evicts(face, evicts=evicts)
            self.notifier.notify()

        if not served.inventory.is_ready:
            task = self._group.create_task(discover(plugin, served.inventory, may_fail=True))
            begin()
            served.lifecycle.service.replace(plugin)
            return
        task = self._group.create_task(self._follow_successor(plugin, served, begin, begun))
        served.successor = begun
        self.notifier.notify()
        try:
            async with asyncio.timeout(FIRST_LIST_SECONDS):
                await begun
        except TimeoutError:
            raise PluginError(
                f"{name}: devices() gave no list within {FIRST_LIST_SECONDS:g} s; the plugin before stays"
            ) from None
        finally:
            if served.successor is begun:
                served.successor = None
                self.notifier.notify()
            if served.discovery is not task:
                task.cancel()

    async def _follow_successor(
        self,
        plugin: DevicePlugin,
        served: _Served,
        begin: Callable[[], None],
        begun: asyncio.Future[None],
    ) -> None:
        async def take_first(listed: object) -> None:
            lifecycle = served.lifecycle
            leaving_seconds = 0.0 if lifecycle.driver else LEAVING_SECONDS
            await lifecycle.service.succeed(plugin, listed, begin, leaving_seconds=leaving_seconds)

        try:
            await discover(plugin, served.inventory, take_first=take_first)
        except DevplugError as error:
            if not begun.done():
                begun.set_exception(error)

    async def remove(self, resource_name: str, dra: str | None = None) -> None:
        """Stop serving a plugin once its calls in flight have ended; unknown names are ignored.

        `dra` is needed where a resource is served in several ways. Hardware that containers still have is
        offered by no other plugin until they have ended. If this plugin has a `clean_up`, another plugin that
        lists the hardware then has to clean it up, or this name has to be served again.
        """
        if face := self._face(resource_name, dra):
            served = self._served.pop(face)
            if face.driver:
                self.drivers.driver(face.driver).remove(resource_name)
            self.notifier.notify()
            await asyncio.wait(served.cancel())
            self._forget(resource_name)

    async def repeat_list(self) -> None:
        """Send the shortest list again: for each one that the kubelet takes it writes its checkpoint.

        Nothing is sent while no device plugin is registered: the kubelet does not read slices.
        """
        inventories = [
            one.inventory
            for face, one in self._served.items()
            if not face.driver and one.lifecycle.is_registered
        ]
        if inventories:
            await min(inventories, key=lambda inventory: len(inventory.snapshot.devices)).repeat()

    async def wait_registered(self) -> None:
        """Wait until every plugin is registered with a kubelet that reads its list."""
        while not all(served.lifecycle.is_registered for served in self._served.values()):
            await self.notifier.next.wait()

    def open_status_socket(self, handle: Handler) -> None:
        """Serve these pages at a status socket below the folder until `close`. Call it once."""
        status = serve_status(self.folder, self.wait_registered, handle)
        self._status_task = self._group.create_task(status, name="devplug status socket")

    async def close(self) -> None:
        """Stop serving; DRA drivers end first, because their work on claims needs the plugins."""
        await self.drivers.close()
        tasks = [task for served in self._served.values() for task in served.cancel()]
        if self._status_task is not None:
            self._status_task.cancel()
            tasks.append(self._status_task)
        self._served.clear()
        if tasks:
            await asyncio.wait(tasks)
        if self._holds_task is not None:
            # What is given out in the last calls has to be remembered, too.
            self._holds_task.cancel()
            await asyncio.wait((self._holds_task,))


def _taken(resource_name: str) -> str:
    return f"resource name {quoted(resource_name)} is served already; one plugin per name"


@asynccontextmanager
async def serve(
    *plugins: DevicePlugin,
    plugin_dir: StrPath | None = None,
    listen: str | None = None,
    registration: Registration = "auto",
    dra: str = "",
) -> AsyncIterator[Serving]:
    """Serve plugins inside a program's own event loop, until the block is left.

    The folder is `plugin_dir`, else `DEVPLUG_PLUGIN_DIR`, else the kubelet's; `registration` says how the
    kubelet comes to know the plugins, see `Registration`. At `listen` there are /healthz, /readyz and
    /metrics: `HOST:PORT`, `:PORT` for all addresses, or `unix:PATH`; for `devplug status` there is a status
    socket in `.devplug` in the folder. With `dra`, the name of a DRA driver, pods get the devices by claims
    (docs/dra.md); its CDI files go to `DEVPLUG_CDI_DIR`, else to /var/run/cdi. The block is entered at
    once, before any registration; `wait_registered` waits for that.
    Raises `PluginError` if a plugin breaks the contract or its `devices` fails before the first list,
    `KubeletError` if the folder cannot be used.
    """
    socket = pod_resources_at(plugin_dir)
    async with served(
        *plugins, plugin_dir=plugin_dir, registration=registration, dra=dra, pod_resources=socket
    ) as serving:
        pages = _pages_of(serving)
        serving.open_status_socket(pages)
        async with pages_at(listen, pages):
            yield serving


@asynccontextmanager
async def served(
    *plugins: DevicePlugin,
    plugin_dir: StrPath | None = None,
    registration: Registration = "auto",
    dra: str = "",
    decode: ParameterDecoder | None = None,
    cdi_folder: Path | None = None,
    account_of: Callable[[], Account] | None = None,
    node_name: str | None = None,
    pod_resources: Path | None = None,
    kubelet_root: Path | None = None,
    owner: str = IN_CODE,
) -> AsyncIterator[Serving]:
    """Serve plugins as `serve` does, without pages and status socket.

    Without `pod_resources`, the kubelet's socket, the holders of devices are not followed. `decode` reads the
    parameters of claims. The other parameters are for DRA drivers; see `PluginEnvironment`.
    """
    environment = environment_at(plugin_dir, registration, kubelet_root)
    environment.account_of, environment.node_name, environment.owner = account_of, node_name, owner
    environment.cdi_folder = cdi_folder or environment.cdi_folder
    faults = [fault for plugin in plugins for fault in plugin_faults(plugin)]
    names = Counter(plugin.resource_name for plugin in plugins if hasattr(plugin, "resource_name"))
    faults += [_taken(name) for name, count in names.items() if count > 1]
    if faults:
        raise PluginError(*faults)
    try:
        async with asyncio.TaskGroup() as group:
            serving = Serving(group, environment, decode)
            if pod_resources is not None:
                serving.hold(pod_resources)
            for plugin in plugins:
                serving.add(plugin, dra=dra)
            try:
                yield serving
            finally:
                await serving.close()
    except BaseExceptionGroup as errors:
        failure = error_to_raise(errors)
        raise failure from failure.__cause__


def probes_of(serving: Serving) -> Probes:
    """Return the pages about what is served."""
    from devplug import __version__
    from devplug.metrics.probes import Probes
    from devplug.plugin.probes import serving_families, status_of

    def status() -> ProcessStatus:
        return status_of(serving.statuses(), __version__, serving.drivers.statuses())

    return Probes(
        status=lambda: text_of(status()),
        faults=lambda: grouped_faults(serving.faults().items()),
        notes=lambda: tuple(
            f"resource {name}: the new plugin has not listed devices yet; the plugin before answers"
            for name in serving.waiting
        ),
        families=lambda: serving_families(
            status(), serving.counters, serving.streams, serving.drivers.counters
        ),
        notifier=serving.notifier,
    )


def _pages_of(serving: Serving) -> Handler:
    """Return the pages about what is served, made at the first request: until then they cost memory."""
    made = cache(probes_of)

    async def answer(request: Request) -> Answer:
        return await made(serving).answer(request)

    return answer


def run(
    *plugins: DevicePlugin,
    plugin_dir: StrPath | None = None,
    listen: str | None = None,
    registration: Registration = "auto",
    dra: str = "",
) -> None:
    """Serve plugins until SIGTERM or SIGINT: the last line of a plugin's script.

    Sets up logging if the program has not; without `listen`, `DEVPLUG_LISTEN` counts. Returns after a signal,
    when calls in flight have ended; a second signal ends the process at once. An error that `serve` raises
    ends the program with exit code 1 and one line on standard error; it is the cause of the `SystemExit`.
    """
    show_logs()
    listen = listen or os.environ.get(LISTEN_VARIABLE) or None

    async def serve_until_stopped() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads(_DEFAULT_THREADS, "devplug-default"))
        served_now = serve(*plugins, plugin_dir=plugin_dir, listen=listen, registration=registration, dra=dra)
        async with stop_signals() as stopped, served_now:
            await stopped.wait()

    try:
        run_loop(serve_until_stopped())
    except DevplugError as error:
        # The line of the author's code that failed, since the traceback would show devplug's own code first.
        line = author_line(error.__cause__) if error.__cause__ else ""
        raise SystemExit(printable(f"devplug: {error}{f' ({line})' if line else ''}", keep="\n")) from error
