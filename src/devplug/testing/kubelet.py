"""A kubelet for tests: the emulator of `devplug.kubelet`, on a thread, with plain methods.

The one sync face of devplug: everything in it waits for what it causes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.manager import Kubelet
from devplug.kubelet.manifests import read_pod
from devplug.kubelet.pods import Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.plugin.serving import serve
from devplug.testing.loopthread import LoopThread
from devplug.testing.pods import AdmittedPod, ContainerView
from devplug.testing.programs import Program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.devices import Allocation
    from devplug.exchange import AdvertisedDevice
    from devplug.kubelet.pods import Event, PodStatus
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.serving import Registration

__all__ = ["Clock", "StartedPlugins", "SyncKubelet"]

Result = TypeVar("Result")

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""How long anything may take before a test is told that it hangs."""


class Clock:
    """The kubelet's clock, in seconds: it goes on by itself, and can be moved on."""

    def __init__(self, on_advance: Callable[[], None]) -> None:
        self._moved_seconds = 0.0
        self._on_advance = on_advance

    def __call__(self) -> float:
        """Return the time, from no particular beginning."""
        return time.monotonic() + self._moved_seconds

    def advance(self, seconds: float) -> None:
        """Go on by so many seconds at once; the kubelet then reports its node, as it would have by then."""
        self._moved_seconds += seconds
        self._on_advance()


class _Counts(dict[str, int]):
    """Resource name → count; a name that the node does not have is an error that lists those it has."""

    def __missing__(self, name: str) -> int:
        """Raise `KeyError` with the names that there are."""
        raise KeyError(f"the node has no {name}; it has {', '.join(self) or 'no resources at all'}")


class StartedPlugins:
    """Plugins that run in this process; they end with `stop`, or with their kubelet."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop: Callable[[], None] | None = stop

    def stop(self) -> None:
        """Stop serving them, as at the end of a plugin's program. Safe to repeat."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()


class SyncKubelet:
    """A kubelet in a temporary folder, for as long as its `with` block lasts.

    Plugins that it started end with it. `timeout_seconds` is how long a single step may take. The settings'
    clock is replaced by one that can be moved.
    """

    def __init__(
        self,
        settings: KubeletSettings | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self.clock = Clock(lambda: self._thread.ask(self._kubelet.update_node_status))
        self._settings = replace(settings or KubeletSettings(), clock=self.clock)
        self._thread = LoopThread("kubelet of a test")
        self._cleanup = ExitStack()
        self._changed = threading.Condition()
        self._changes = 0
        self._lists: Counter[str] = Counter()
        self._pods = 0
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        """Start the kubelet; its socket takes registrations when this returns."""
        with ExitStack() as stack:
            # Short, because the path of a socket has 107 bytes at most, and pytest's folders are long.
            place = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 -- a private folder in it
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubelet-", dir=place))
            self._kubelet = Kubelet.under(folder, self._settings)
            self._thread.start()
            stack.callback(self._thread.stop, self._timeout_seconds)
            for manager in (self._kubelet.running(), self._counting()):
                held, _ = self._thread.hold(manager, self._timeout_seconds)
                stack.callback(held.release, self._timeout_seconds)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all plugins, then the kubelet. Raises what a plugin of this process has died of."""
        self._cleanup.close()

    # ── where it is ──

    @property
    def root(self) -> Path:
        """The folder that stands for `/var/lib/kubelet`."""
        return self.plugin_dir.parent

    @property
    def plugin_dir(self) -> Path:
        """The folder that stands for `/var/lib/kubelet/device-plugins`."""
        return self._kubelet.plugin_dir

    # ── plugins ──

    def start(self, *plugins: DevicePlugin, registration: Registration = "auto") -> StartedPlugins:
        """Serve plugins in this process; returns once the kubelet has their first lists.

        Raises what `devplug.serve` raises, and `TimeoutError` if a plugin does not get that far.
        """
        lists = self._lists.copy()
        serving = serve(*plugins, plugin_dir=self.plugin_dir, registration=registration)
        held, served = self._thread.hold(serving, self._timeout_seconds)
        stop = self._cleanup.enter_context(ExitStack())
        stop.callback(held.release, self._timeout_seconds)
        names = [plugin.resource_name for plugin in plugins]
        self.wait(
            lambda: held.ended.done() or all(self._lists[name] > lists[name] for name in names),
            what=f"no list of {', '.join(names)}",
        )
        if held.ended.done():
            stop.pop_all()
            held.ended.result()
        self._thread.call(served.wait_registered(), self._timeout_seconds)
        return StartedPlugins(stop.close)

    def run(
        self,
        command: Sequence[str],
        *,
        resources: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Run a plugin's program, in any language; returns once the kubelet has its first list.

        `{dir}` in an argument becomes the plugin folder, which is in `DEVPLUG_PLUGIN_DIR` too. With
        `resources`, all of those have to be there. Raises `ChildProcessError` if the program ends before
        that, and `TimeoutError`; both with what it has printed.
        """
        lists = self._lists.copy()
        program = Program(command, self.plugin_dir, environment or {})
        self._programs.append(program)
        self._cleanup.callback(program.stop)

        def is_there() -> bool:
            new = {name for name, count in self._lists.items() if count > lists[name]}
            return bool(new) and new.issuperset(resources)

        self.wait(
            lambda: program.exit_code is not None or is_there(),
            what=f"no list of {' '.join(program.command)}",
        )
        if program.exit_code is not None:
            raise ChildProcessError(
                f"{' '.join(program.command)} ended with {program.exit_code} and was not registered; "
                f"it printed:\n{program.output}",
            )
        return program

    # ── pods ──

    def admit(self, pod: Mapping[str, object] | str | Pod) -> AdmittedPod:
        """Give the kubelet a pod, and start its containers; return it, also if it was refused.

        A pod is a manifest (YAML, or as a mapping), or only the limits of its one container:
        `{"example.com/fpga": 1}`. Raises `ConfigError` for a manifest that the API would not take.
        """
        self._pods += 1
        bound = _pod(pod, f"pod-{self._pods}")
        self._thread.call(self._kubelet.run_pod(bound), self._timeout_seconds)
        return AdmittedPod(self, bound.uid)

    def pod_status(self, uid: str) -> PodStatus:
        """Return a pod's status as the kubelet reports it."""
        return self._thread.ask(lambda: self._kubelet.pod(uid))

    def containers_of(self, uid: str) -> Mapping[str, ContainerView]:
        """Return what a pod's containers are and have."""
        return self._thread.ask(lambda: self._containers_of(uid))

    def restart_container(self, uid: str, name: str) -> ContainerView:
        """End a container of a pod and start it again."""
        self._thread.ask(lambda: self._kubelet.end_container(uid, name))
        self._thread.call(self._kubelet.start_container(uid, name), self._timeout_seconds)
        return self.containers_of(uid)[name]

    def delete_pod(self, uid: str) -> None:
        """Delete a pod."""
        self._thread.ask(lambda: self._kubelet.remove_pod(uid))

    # ── the node ──

    @property
    def capacity(self) -> Mapping[str, int]:
        """Resource name → devices, healthy or not. `KeyError` for a name that the node never had."""
        return _Counts(self._thread.ask(self._kubelet.capacity))

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Resource name → healthy devices, whoever holds them. `KeyError` as for `capacity`."""
        return _Counts(self._thread.ask(self._kubelet.allocatable))

    @property
    def allocations(self) -> Sequence[Allocation]:
        """Who holds what, by pod UID, container name and resource name."""
        return self._thread.ask(self._kubelet.allocations)

    @property
    def events(self) -> Sequence[Event]:
        """The events on pods, oldest first."""
        return self._thread.ask(lambda: tuple(self._kubelet.events))

    def devices(self, resource_name: str) -> Sequence[AdvertisedDevice]:
        """Return the last list that came for a resource, by ID."""
        return self._thread.ask(lambda: self._kubelet.devices(resource_name))

    def metric(self, name: str, **labels: str) -> float:
        """Return one of the kubelet's own metrics; 0 if nothing was counted."""
        return self._thread.ask(lambda: self._kubelet.metrics.value(name, **labels))

    # ── trouble ──

    def restart(self, *, reboot: bool = False) -> None:
        """Restart the kubelet, or the whole node; pods are admitted again before any plugin is back.

        Sockets are wiped; wait for `allocatable` to see that a plugin has come back.
        """
        self._thread.call(self._kubelet.restart(reboot=reboot), self._timeout_seconds)

    def drop_stream(self, resource_name: str) -> None:
        """Cut the connection to whoever serves a resource; raises `KubeletError` if nobody does."""
        self._thread.ask(lambda: self._kubelet.drop_stream(resource_name))

    # ── waiting ──

    def wait(
        self,
        condition: Callable[[], Result],
        *,
        timeout_seconds: float | None = None,
        what: str = "the condition never came true",
    ) -> Result:
        """Return what `condition` returns once that is true; it is asked now and after every change.

        Raises `TimeoutError` with the state of the node and the output of all programs.
        """
        limit_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit_seconds
        while True:
            seen = self._changes
            if result := condition():
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{what} within {limit_seconds:g} s\n{self._story()}")
            with self._changed:
                if self._changes == seen:
                    # A program that ends is no change of the kubelet's: look at it now and then.
                    self._changed.wait(min(left, 0.1))

    def _story(self) -> str:
        """Return all that may explain why something did not happen."""
        lines = [
            f"capacity     {dict(self.capacity) or 'no resources'}",
            f"allocatable  {dict(self.allocatable) or 'no resources'}",
            *(f"event        {event.pod_uid}: {event.reason}: {event.message}" for event in self.events),
            *(
                f"held         {held.pod_uid}/{held.container_name}: {held.device_ids}"
                for held in self.allocations
            ),
        ]
        for program in self._programs:
            state = "runs" if program.exit_code is None else f"ended with {program.exit_code}"
            lines += [f"{' '.join(program.command)} {state}; it printed:", program.output]
        return "\n".join(lines)

    # ── on the loop ──

    @asynccontextmanager
    async def _counting(self) -> AsyncIterator[None]:
        """Count changes for as long as the block lasts, and wake whoever waits."""
        with self._kubelet.changes() as changes:

            async def count() -> None:
                async for change in changes:
                    with self._changed:
                        self._changes += 1
                        self._lists[change.resource_name] += change.kind is ChangeKind.LISTED
                        self._changed.notify_all()

            async with asyncio.TaskGroup() as group:
                counting = group.create_task(count())
                yield
                counting.cancel()

    def _containers_of(self, uid: str) -> dict[str, ContainerView]:
        status = self._kubelet.pod(uid)
        held = [one for one in self._kubelet.allocations() if one.pod_uid == uid]
        views = {}
        for one in status.containers:
            options = one.options
            views[one.name] = ContainerView(
                one.name,
                one.state,
                one.reason,
                one.message,
                one.restart_count,
                {mine.resource_name: mine.device_ids for mine in held if mine.container_name == one.name},
                one.allocated_resources,
                dict(options.envs) if options else {},
                dict(options.annotations) if options else {},
                options.mounts if options else (),
                options.device_nodes if options else (),
                options.cdi_devices if options else (),
            )
        return views


def _pod(pod: Mapping[str, object] | str | Pod, name: str) -> Pod:
    """Return the pod that a test means."""
    if isinstance(pod, Pod):
        return pod
    if isinstance(pod, str) or "spec" in pod or "kind" in pod:
        return read_pod(pod)
    container = {"name": "main", "resources": {"limits": pod}}
    return read_pod({"metadata": {"name": name}, "spec": {"containers": [container]}})
