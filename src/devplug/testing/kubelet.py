"""A kubelet for tests: the emulator of `devplug.kubelet`, on a thread, with plain methods.

The one sync face of devplug: everything in it waits for what it causes.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from devplug.errors import KubeletError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.manifests import read_pod
from devplug.kubelet.pods import Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.plugin.serving import served
from devplug.testing.loopthread import ChangeCount, Clock, LoopThread
from devplug.testing.pods import AdmittedPod, NotInTimeError, containers_of, node_lines, restarted, synced
from devplug.testing.programs import Program, StartedPlugins
from devplug.testing.resource_claims import NODE_NAME, ResourceClaims, claim_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.kubelet.allocation import Allocation
    from devplug.kubelet.pods import Event, PodStatus
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.environment import Registration
    from devplug.testing.loopthread import Held
    from devplug.testing.pods import ContainerView
    from devplug.testing.resource_claims import ClaimServer
    from devplug.wire.values import AdvertisedDevice

Result = TypeVar("Result")

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""How long anything may take before a test fails because it hangs."""

_END_SECONDS: Final = 10.0
_LAST_STEP_SECONDS: Final = 1.0
"""How long all ends may take together, and one of them after that."""

_LOOK_AGAIN_SECONDS: Final = 0.1
_STORY_SECONDS: Final = 2.0
"""How long a kubelet that may hang itself is asked how things are."""


class _Counts(dict[str, int]):
    """Resource name → count; a name that the node does not have is an error that lists those it has."""

    def __missing__(self, name: str) -> int:
        """Raise `KeyError` with the names that there are."""
        raise KeyError(f"the node has no {name}; it has {', '.join(self) or 'no resources at all'}")


class SyncKubelet:
    """A kubelet in a temporary folder, for as long as its `with` block lasts.

    Plugins that it started end with it. `timeout_seconds` is how long a single step may take, `end_seconds`
    how long all ends may together. The settings' clock is replaced by one that can be moved, and claims are
    read from `claims`.
    """

    def __init__(
        self,
        settings: KubeletSettings | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        end_seconds: float = _END_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._end_seconds = min(timeout_seconds, end_seconds)
        self.clock = Clock(lambda: self._ask(self._kubelet.update_node_status))
        self.claims = ResourceClaims()
        given = settings or KubeletSettings()
        self._settings = replace(given, clock=self.clock, claims=self.claims, slices=self.claims)
        self._thread = LoopThread("kubelet of a test")
        self._cleanup = ExitStack()
        self._changes = ChangeCount()
        self._admitted = 0
        self._pods: dict[str, Pod] = {}
        self._end_by: float | None = None
        self._programs: list[Program] = []
        self._api: ClaimServer | None = None

    def __enter__(self) -> Self:
        """Start the kubelet; its socket takes registrations when this returns."""
        with ExitStack() as stack:
            # Short, because the path of a socket has 107 bytes at most, and pytest's folders are long.
            place = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 -- a private folder in it
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubelet-", dir=place))
            self._kubelet = Kubelet.under(folder, self._settings)
            self._thread.start()
            stack.callback(lambda: self._thread.stop(self._seconds_to_end()))
            for manager in (self._kubelet.running(), self._changes.counting(self._kubelet)):
                held, _ = self._thread.hold(manager, self._timeout_seconds)
                stack.callback(self._release, held)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Stop all plugins, then the kubelet. Raises what a plugin of this process has died of.

        If the block failed, its own error stays, and what happens here becomes a note of it.
        """
        self._end_by = time.monotonic() + self._end_seconds
        try:
            self._cleanup.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and when all of it was ended: {failure}")

    # ── where it is ──

    @property
    def root(self) -> Path:
        """The folder that stands for `/var/lib/kubelet`."""
        return self.plugin_dir.parent

    @property
    def plugin_dir(self) -> Path:
        """The folder that stands for `/var/lib/kubelet/device-plugins`."""
        return self._kubelet.plugin_dir

    @property
    def cdi_dir(self) -> Path:
        """The folder that stands for `/var/run/cdi`: DRA drivers write their CDI files there."""
        return self.root / "cdi"

    # ── plugins ──

    def start(
        self,
        *plugins: DevicePlugin,
        registration: Registration = "auto",
        dra: str = "",
        timeout_seconds: float | None = None,
    ) -> StartedPlugins:
        """Serve plugins in this process; returns once the kubelet has their first lists.

        With `dra`, the name of a DRA driver, they are served as `devplug.run(plugin, dra=NAME)` does; it
        returns once the driver is registered and its ResourceSlices are published.
        Raises what `devplug.serve` raises, and `TimeoutError` if a plugin does not get that far.
        """
        api = self._with_api() if dra else None
        lists = self._changes.lists()
        # Without a status socket: no test reads `devplug status`.
        plugins_served = served(
            *plugins,
            plugin_dir=self.plugin_dir,
            registration=registration,
            dra=dra,
            cdi_folder=self.cdi_dir,
            pod_resources=self.root / "pod-resources" / "kubelet.sock",
            account_of=api.account if api else None,
            node_name=NODE_NAME,
        )
        held, serving = self._thread.hold(plugins_served, self._timeout_seconds)
        stop = self._cleanup.enter_context(ExitStack())
        stop.callback(self._release, held)
        names = [plugin.resource_name for plugin in plugins]

        def is_there() -> bool:
            if dra:
                return not self._ask(serving.faults)
            return self._changes.lists_since(lists).issuperset(names)

        self.wait(
            lambda: held.ended.done() or is_there(),
            timeout_seconds=timeout_seconds,
            what=f"no {'ResourceSlices' if dra else 'list'} of {', '.join(names)}",
        )
        if held.ended.done():
            stop.pop_all()
            held.ended.result()
        self._call(serving.wait_registered(), f"{', '.join(names)} did not stay registered")
        return StartedPlugins(stop.close)

    def run(
        self,
        command: Sequence[str],
        *,
        resources: Sequence[str] = (),
        drivers: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Run a plugin's program, in any language; returns once the kubelet has its first list.

        `{dir}` in an argument becomes the plugin folder, which is in `DEVPLUG_PLUGIN_DIR` too, and `{root}`
        the folder above it. With `resources` and DRA `drivers`, all of those have to be there. A driver has
        `KUBECONFIG`, `NODE_NAME` and `DEVPLUG_CDI_DIR` in its environment. Raises
        `PluginError` for a program that cannot be started, `ChildProcessError` if it ends before that, and
        `TimeoutError`; both with what it has printed.
        """
        lists = self._changes.lists()
        for_drivers = self._with_api().environment if drivers else {}
        program = Program(command, self.plugin_dir, {**for_drivers, **(environment or {})})
        self._programs.append(program)
        self._cleanup.callback(program.stop)

        def is_there() -> bool:
            new = self._changes.lists_since(lists)
            return bool(new or drivers) and new.issuperset(resources) and all(map(self.has_driver, drivers))

        self.wait(
            lambda: program.exit_code is not None or is_there(),
            what=f"no list of {program}, or a driver is missing",
        )
        if program.exit_code is not None:
            raise ChildProcessError(
                f"{program} ended with {program.exit_code} and was not registered; "
                f"it printed:\n{program.output}",
            )
        return program

    @property
    def slices(self) -> Sequence[Mapping[str, Any]]:
        """The ResourceSlices that DRA drivers have published, by name."""
        return self._ask(self._with_api().slices)

    def _with_api(self) -> ClaimServer:
        """Return the API server of DRA drivers, which is started at the first use."""
        if self._api is None:
            held, self._api = self._thread.hold(claim_server(NODE_NAME, self.root), self._timeout_seconds)
            self._cleanup.callback(self._release, held)
            self.claims.serve_at(self._api, self._ask)
        return self._api

    def has_driver(self, name: str) -> bool:
        """Whether a DRA driver is registered and connected."""
        return self._ask(lambda: self._kubelet.dra.has_driver(name))

    # ── pods ──

    def admit(
        self,
        pod: Mapping[str, object] | str | Pod,
        *,
        static: bool = False,
        timeout_seconds: float | None = None,
    ) -> AdmittedPod:
        """Give the kubelet a pod, and start its containers; return it, also if it was refused.

        A pod is a manifest (YAML, or as a mapping), or only the limits of its one container:
        `{"example.com/fpga": 1}`. One without a UID gets a new one, as from the API server; a `static` one
        comes from the kubelet's own folder of manifests. Raises `ConfigError` for a manifest that the API
        would not take, `KubeletError` for a second pod of one name and for one that is not static while the
        API server is away, and `TimeoutError` if a plugin does not answer, for which the real kubelet would
        wait for ever.
        """
        self._admitted += 1
        bound = _pod(pod, f"pod-{self._admitted}", f"uid-{self._admitted}")
        bound = replace(bound, is_static=static or bound.is_static)
        for other in self._pods.values():
            if (other.namespace, other.name) == (bound.namespace, bound.name) or other.uid == bound.uid:
                raise KubeletError(
                    f'pods "{bound.name}" already exists; delete it first, or use another name'
                )
        self._pods[bound.uid] = bound
        self.claims.reserve(bound)
        self._call(
            self._kubelet.run_pod(bound),
            f"pod {bound.name} was neither refused nor started",
            timeout_seconds,
        )
        return AdmittedPod(self, bound.uid)

    def pod_status(self, uid: str) -> PodStatus:
        """Return a pod's status as the kubelet reports it."""
        return self._ask(lambda: self._kubelet.pod(uid))

    def containers_of(self, uid: str) -> Mapping[str, ContainerView]:
        """Return what a pod's containers are and have."""
        return self._ask(lambda: containers_of(self._kubelet, uid))

    def restart_container(self, uid: str, name: str) -> ContainerView:
        """End a container of a pod if it runs, start it, and then start those that wait for it."""
        self.pod_status(uid)  # raises for one that was deleted
        self._call(restarted(self._kubelet, self._pods[uid], name), f"container {name} was not started")
        return self.containers_of(uid)[name]

    def sync_pod(self, uid: str) -> None:
        """Try again to prepare a pod's claims, and then start those of its containers that wait."""
        self._call(synced(self._kubelet, self._pods[uid]), f"pod {uid} was not started")

    def delete_pod(self, uid: str) -> None:
        """Unprepare a pod's claims, and delete it; raises `KubeletError`, also if it was deleted before."""
        self.pod_status(uid)
        self._call(self._kubelet.dra.unprepare(self._pods[uid]), "the claims were not unprepared")
        self._ask(lambda: self._kubelet.remove_pod(uid))
        self.claims.release(self._pods.pop(uid))

    # ── the node ──

    @property
    def capacity(self) -> Mapping[str, int]:
        """Resource name → devices, healthy or not. `KeyError` for a name that the node never had."""
        return _Counts(self._ask(self._kubelet.capacity))

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Resource name → healthy devices, whoever holds them. `KeyError` as for `capacity`."""
        return _Counts(self._ask(self._kubelet.allocatable))

    @property
    def allocations(self) -> Sequence[Allocation]:
        """Who holds what, by pod UID, container name and resource name."""
        return self._ask(self._kubelet.allocations)

    @property
    def events(self) -> Sequence[Event]:
        """The events on pods, oldest first."""
        return self._ask(lambda: tuple(self._kubelet.events))

    def devices(self, resource_name: str) -> Sequence[AdvertisedDevice]:
        """Return the last list that came for a resource, by ID. `KeyError` as for `capacity`."""
        _ = self.capacity[resource_name]
        return self._ask(lambda: self._kubelet.devices(resource_name))

    def metric(self, name: str, **labels: str) -> float:
        """Return one of the kubelet's own metrics; 0 if nothing was counted."""
        return self._ask(lambda: self._kubelet.metrics.value(name, **labels))

    # ── trouble ──

    def restart(self, *, reboot: bool = False, plugins_first: bool = False) -> None:
        """Restart the kubelet, or the whole node, which ends all containers.

        Sockets are wiped, and pods are admitted again before any plugin is back; wait for `allocatable` to
        see that one has come back. With `plugins_first` all that were there come back before the pods do.
        """
        if not plugins_first:
            self._call(self._kubelet.restart(reboot=reboot), "the kubelet did not restart")
            return
        names = [name for name, count in self.allocatable.items() if count]
        lists = self._changes.lists()
        self._call(self._kubelet.restart(reboot=reboot, with_pods=False), "the kubelet did not restart")
        self.wait(
            lambda: self._changes.lists_since(lists).issuperset(names),
            what=f"{', '.join(names)} did not all come back",
        )
        self._call(self._kubelet.readmit(), "the pods were not admitted again")

    def lose_api_server(self) -> None:
        """Take the API server away from the kubelet, which notices at its next start.

        Until `find_api_server`, a kubelet that starts knows static pods only: it lists and frees no others.
        """
        self._ask(self._kubelet.lose_api_server)

    def find_api_server(self) -> None:
        """Bring the API server back; returns once the kubelet has admitted the pods it had not heard of."""
        self._call(self._kubelet.find_api_server(), "the pods were not admitted again")

    def drop_stream(self, resource_name: str) -> None:
        """Cut the connection to whoever serves a resource; raises `KubeletError` if nobody does."""
        self._ask(lambda: self._kubelet.drop_stream(resource_name))

    # ── waiting ──

    def wait(
        self,
        condition: Callable[[], Result],
        *,
        timeout_seconds: float | None = None,
        what: str = "the condition never came true",
    ) -> Result:
        """Return what `condition` returns once that is true; it is asked now and after every change.

        One that raises `LookupError`, as for a resource that is not there yet, is not true yet. Raises
        `TimeoutError` with the state of the node and the output of all programs.
        """
        limit_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit_seconds
        while True:
            seen = self._changes.count
            failure: LookupError | None = None
            try:
                if result := condition():
                    return result
            except LookupError as error:
                failure = error
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotInTimeError(f"{what} within {limit_seconds:g} s\n{self.story()}") from failure
            # What a program prints, and does to files, is no change of the kubelet's: look at times.
            self._changes.wait_for_next(seen, min(left, _LOOK_AGAIN_SECONDS))

    def story(self) -> str:
        """Return all that may explain a failure: the node, its pods and events, and what programs printed."""
        try:
            lines = self._thread.ask(lambda: node_lines(self._kubelet, self._pods), _STORY_SECONDS)
        except (KubeletError, TimeoutError):
            lines = ["the kubelet does not answer"]
        for program in self._programs:
            state = "runs" if program.exit_code is None else f"ended with {program.exit_code}"
            lines += [f"program      {program}: {state}; it printed:", program.output]
        return "\n".join(lines)

    def _release(self, held: Held[Any]) -> None:
        held.release(self._seconds_to_end())

    def _seconds_to_end(self) -> float:
        """Return how long an end may take; one deadline for all of them, when everything ends."""
        if self._end_by is None:
            return self._timeout_seconds
        return max(_LAST_STEP_SECONDS, self._end_by - time.monotonic())

    def _ask(self, function: Callable[[], Result]) -> Result:
        return self._thread.ask(function, self._timeout_seconds)

    def _call(
        self,
        coroutine: Coroutine[object, object, Result],
        failure: str,
        timeout_seconds: float | None = None,
    ) -> Result:
        """Return what a coroutine returns on the loop; where it hangs, tell what that means."""
        try:
            return self._thread.call(coroutine, timeout_seconds or self._timeout_seconds)
        except TimeoutError as error:
            raise NotInTimeError(f"{failure}: {error}\n{self.story()}") from None


def _pod(pod: Mapping[str, object] | str | Pod, name: str, uid: str) -> Pod:
    """Return the pod that a test means; `name` and `uid` are for one that has none."""
    if isinstance(pod, Pod):
        return pod
    if isinstance(pod, str) or "spec" in pod or "kind" in pod:
        return read_pod(pod, uid=uid)
    container = {"name": "main", "resources": {"limits": pod}}
    return read_pod({"metadata": {"name": name}, "spec": {"containers": [container]}}, uid=uid)
