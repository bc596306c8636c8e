"""The service of a configuration: the daemon, its status socket and pages, and a task that asks the kubelet.

The task compares what the kubelet lists under the daemon's resource names with what its plugins list, because
another plugin may have registered a name; `devplug.plugin.takeover` decides what a difference means.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from devplug.cdi.files import CDI_FOLDER
from devplug.daemon.cdi.spec_files import CdiFolder
from devplug.daemon.config.loader import decode_device_config
from devplug.daemon.config_file import ConfigFile
from devplug.daemon.context import DaemonContext
from devplug.daemon.daemon import Daemon
from devplug.daemon.sources.host import Host
from devplug.holds.client import UnansweredError, ask_allocatable
from devplug.holds.held_devices import clean_left
from devplug.holds.holders import Holders, audit_holders
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.linux.inotify import shared_watcher
from devplug.linux.notifier import within
from devplug.linux.supervision import borne
from devplug.plugin.environment import root_of
from devplug.plugin.resource_lock import LOCK_FOLDER, ResourceLock
from devplug.plugin.serving import served
from devplug.plugin.status import pages_at
from devplug.plugin.takeover import FIRST_RENEWAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from devplug.daemon.config.types import Config
    from devplug.daemon.reporter import Reporter
    from devplug.devices import StrPath
    from devplug.metrics.probes import Probes
    from devplug.plugin.serving import Serving
    from devplug.plugin.takeover import TakeoverDetector
    from devplug.web.messages import Answer, Request
    from devplug.wire.values import AllocatableResources

ASK_TIMEOUT_SECONDS: Final = 10.0

SETTLED_SECONDS: Final = 1.0
"""The wait from an event to the question: by then the kubelet has processed the answer, and one question
serves several events."""

DOUBT_SECONDS: Final = 2.0
"""The wait for the second question if something differs."""

QUICK_PERIOD_SECONDS: Final = 3.0
"""The least time between two questions while there are events."""

LOST_PERIOD_SECONDS: Final = 5.0
"""The time between questions while another plugin has a name: its end may make no event."""

LEVEL_SECONDS: Final = 300.0
"""The time between questions without an event. Every list that the kubelet takes changes the plugin folder:
it writes its checkpoint anew (manager.go genericDeviceUpdateCallback); and plugins make and remove
sockets."""


# ── comparisons with the kubelet ──────────────────────────────────────────────────────────────────


async def compare_lists(
    folder: Path, guards: Callable[[], Mapping[str, TakeoverDetector]], pod_resources: Path
) -> None:
    """Compare what the kubelet lists with `guards` whenever it may have changed, until cancelled."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            due = loop.time()
            while True:
                changed.clear()
                subscription.arm([str(folder / "*")])
                if await _ask(guards(), pod_resources):
                    due = loop.time() + QUICK_PERIOD_SECONDS
                if any(guard.is_in_doubt for guard in guards().values()):
                    await asyncio.sleep(DOUBT_SECONDS)
                    continue
                period = min(map(_period_seconds, guards().values()), default=LEVEL_SECONDS)
                await within(period, changed.wait())
                await asyncio.sleep(max(SETTLED_SECONDS, due - loop.time()))


def _period_seconds(guard: TakeoverDetector) -> float:
    if guard.fault:
        return LOST_PERIOD_SECONDS
    return FIRST_RENEWAL_SECONDS if guard.is_forgotten else LEVEL_SECONDS


async def _ask(guards: Mapping[str, TakeoverDetector], pod_resources: Path) -> bool:
    """Ask once, if there is anything to compare; return whether there was.

    Nothing happens without an answer: `holders` logs why there is none.
    """
    asked_at = asyncio.get_running_loop().time()
    before = {name: listed for name, guard in guards.items() if (listed := guard.listed())}
    if not before:
        return False
    try:
        allocatable = await ask_allocatable(pod_resources, timeout_seconds=ASK_TIMEOUT_SECONDS)
    except UnansweredError:
        return True
    if allocatable is None:
        return True
    kubelet_ids = _by_name(allocatable)
    for name, guard in guards.items():
        if name in before:
            guard.compare(asked_at, before[name], kubelet_ids.get(name, frozenset()))
    return True


def _by_name(allocatable: AllocatableResources) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for devices in allocatable.devices:
        found.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return {name: frozenset(ids) for name, ids in found.items()}


# ── claims ────────────────────────────────────────────────────────────────────────────────────────


async def ask_while_claimed(holders: Holders, serving: Serving) -> None:
    """Have the kubelet asked while claims use devices, and soon after each new one, until cancelled.

    The driver knows the claim; only the kubelet knows the containers.
    """
    await serving.drivers.is_any.wait()  # or each Allocate of a device plugin would wake this for nothing
    known: frozenset[str] = frozenset()
    with ExitStack() as asking:
        while True:
            change, uids = serving.notifier.next, serving.drivers.claim_uids()
            if uids and not known:
                asking.enter_context(holders.needed())
            if not uids:
                asking.close()
            if uids - known:
                holders.suspect()
            known = uids
            await change.wait()


async def decide_at_claims(context: DaemonContext, serving: Serving) -> None:
    """Decide again who offers which hardware whenever a claim begins or ends to use some, until cancelled."""
    await serving.drivers.is_any.wait()
    while True:
        change = serving.notifier.next
        context.ownership.refresh_soon()
        await change.wait()


# ── the service ───────────────────────────────────────────────────────────────────────────────────


def _reporting(
    serving: Serving, daemon: Daemon, holders: Holders | None, config_file: ConfigFile | None
) -> tuple[Callable[[], Reporter], Callable[[Request], Awaitable[Answer]]]:
    """Return what makes the reporter and what answers for its pages; both load it at their first call."""

    @cache
    def reporter() -> Reporter:
        from devplug.daemon.reporter import Reporter

        return Reporter(serving, daemon, holders, config_file)

    @cache
    def pages() -> Probes:
        return reporter().probes()

    async def answer(request: Request) -> Answer:
        return await pages().answer(request)

    return reporter, answer


@asynccontextmanager
async def serve_config(
    config: Config,
    *,
    plugin_dir: StrPath | None = None,
    pod_resources: Path | None = None,
    file: Path | None = None,
    look_again: asyncio.Event | None = None,
    listen: str | None = None,
    kube_events: bool = False,
    numa_nodes: tuple[int, ...] = (),
    cdi_folder: Path = CDI_FOLDER,
    host: Host | None = None,
) -> AsyncIterator[Serving]:
    """Serve every resource of `config` that this machine has, until the block is left.

    `pod_resources` is the absolute path of the kubelet's PodResources socket; without it a device counts as
    held for ever after its Allocate. Edits of `file` are applied when inotify reports them or `look_again` is
    set. There is a status socket in `.devplug` in the plugin folder; `listen` is a further address of its
    pages, as of `devplug.serve`. With `kube_events` the daemon writes Events and a condition of the Node.
    `cdi_folder` is where container runtimes look for CDI files. `numa_nodes` are those that the kubelet
    knows, empty if that is unknown: devices on others are logged. `host` is the machine whose devices are
    served; this one by default.
    Raises what `devplug.serve` raises.
    """
    async with (
        served(
            plugin_dir=plugin_dir,
            decode=decode_device_config,
            cdi_folder=cdi_folder,
            kubelet_root=root_of(pod_resources),
            owner="",
        ) as serving,
        asyncio.TaskGroup() as group,
    ):
        memory = serving.folder / LOCK_FOLDER

        def note_change() -> None:
            serving.notifier.notify()
            context.ownership.refresh_soon()

        holders = None
        clock = asyncio.get_running_loop().time
        if pod_resources is not None:
            holders = Holders(
                pod_resources,
                memory,
                checkpoint=serving.folder / CHECKPOINT_NAME,
                rewrite_checkpoint=serving.repeat_list,
                clock=clock,
                on_change=note_change,
                is_served=lambda name: not ResourceLock(serving.folder, name).is_free(),
                other_claims=serving.drivers.others,
            )
            serving.drivers.pods = holders.fresh_pods
        context = DaemonContext(
            host=host or Host(),
            clock=clock,
            holders=holders,
            cdi=CdiFolder(cdi_folder),
            memory=memory,
            numa_nodes=numa_nodes,
            on_look=lambda name, seconds: serving.counters_of(name).look_seconds.observe(seconds),
            on_change=serving.notifier.notify,
        )
        daemon = Daemon(serving, context, group)
        context.claims_of = serving.drivers.claims_of
        context.clean_elsewhere = daemon.clean_elsewhere
        context.claimed = serving.drivers.held
        context.claims_revision = lambda: serving.drivers.claims_revision
        config_file = None if file is None else ConfigFile(file, daemon, serving.notifier.notify, look_again)
        reporter, answer = _reporting(serving, daemon, holders, config_file)
        tasks: list[asyncio.Task[None]] = []

        def start(work: Callable[[], Coroutine[None, None, None]]) -> None:
            tasks.append(group.create_task(borne(work)))

        try:
            await daemon.apply(config)
            if holders is not None and pod_resources is not None:
                start(holders.run)
                start(partial(daemon.learn_holders, holders, pod_resources))
                start(partial(audit_holders, holders, lambda: daemon.device_plugins))
                start(partial(clean_left, holders, daemon.clean_elsewhere))
                start(partial(daemon.follow_left, holders))
                start(partial(ask_while_claimed, holders, serving))
                start(partial(compare_lists, serving.folder, lambda: serving.guards, pod_resources))
            start(partial(decide_at_claims, context, serving))
            start(partial(context.ownership.follow_paths, context.host.inside))
            if config_file is not None:
                start(partial(config_file.follow, config))
            if kube_events:
                from devplug.daemon.events.writers import report_to_cluster

                start(
                    partial(
                        report_to_cluster, lambda: reporter().status(), serving.notifier, daemon.node_name
                    )
                )
            serving.open_status_socket(answer)
            async with pages_at(listen, answer):
                yield serving
        finally:
            daemon.give_up_edits()
            # What is given out in the last calls has to be remembered, too.
            await serving.close()
            daemon.close()
            for task in tasks:
                task.cancel()
