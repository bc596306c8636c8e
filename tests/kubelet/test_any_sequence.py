"""Whatever happens to a node, and in whatever order: some things always hold."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse
from devplug.errors import KubeletCrashError, KubeletError, RemoteError
from devplug.k8s.kubelet_dir import CHECKPOINT_NAME
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet import checkpoint as checkpoints
from devplug.kubelet.allocation import DeviceAllocations, assignments_of
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, ContainerState, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, Scope, TopologySettings
from devplug.testing.loopthread import Held, LoopThread
from devplug.wire.deviceplugin import CONTAINER_RESPONSE
from devplug.wire.sockets import socket_identity
from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest
from tests.kubelet.fakes import (
    NO_OPTIONS,
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    Devices,
    FakePlugin,
    Ids,
    happened,
    register,
)
from tests.kubelet.model import Model

RESOURCES = (RESOURCE, OTHER_RESOURCE)
STEP_SECONDS = 15.0

MACHINE = NodeHardware((NumaNode(0, (10, 20)), NumaNode(1, (20, 10))))

DEVICE_IDS = ("d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7")

NUMA_NODES = (None, None, None, (0,), (0,), (1,), (1,), (0, 1), (), (-1,), (7,))
"""What devices say of their place; -1 and 7 are no nodes of the machine."""


Containers: TypeAlias = tuple[Container, ...]
Spec: TypeAlias = tuple[Containers, Containers]

# ── what may come ─────────────────────────────────────────────────────────────────────────────────

devices = st.builds(
    AdvertisedDevice,
    st.sampled_from(DEVICE_IDS),
    st.sampled_from([HEALTHY] * 6 + [UNHEALTHY, "odd"]),
    st.sampled_from(NUMA_NODES),
)

lists = (
    st.sampled_from([6, 6, 6, 6, 0])
    .flatmap(lambda size: st.lists(devices, min_size=size, max_size=12))
    .map(tuple)
)
"""Lists of devices, long ones more often; an ID may stand there twice, and with both healths."""

options = st.builds(PluginOptions, st.booleans(), st.booleans())

limits = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([1, 2, 3, 0]), max_size=2)


def _containers(prefix: str, least: int, *restart_policies: str | None) -> st.SearchStrategy[Containers]:
    one = st.tuples(limits, st.sampled_from(restart_policies))
    return st.lists(one, min_size=least, max_size=2).map(
        lambda drawn: tuple(Container(f"{prefix}{number}", *of_one) for number, of_one in enumerate(drawn))
    )


specs = st.tuples(_containers("i", 0, None, ALWAYS), _containers("c", 1, None))
"""Init containers and sidecars, and app containers."""


def one_of(attribute: str) -> st.SearchStrategy[str]:
    """One of the names that a method of the machine returns."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, attribute)()))


TroubleKind = Literal["refused", "no answer", "new list", "cut off", "no preference", "no pre-start"]


@dataclass(frozen=True)
class Trouble:
    """What goes wrong at the next call of its kind."""

    kind: TroubleKind
    devices: Devices


# ── the node ──────────────────────────────────────────────────────────────────────────────────────


class Node(RuleBasedStateMachine):
    """A kubelet with real plugins on real sockets, beside a model of it."""

    compat: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.model = Model(self.compat)
        self.folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))
        self.thread = LoopThread("kubelet of a sequence")
        self.thread.start()
        self.life: Held[Kubelet] | None = None
        self.plugins: dict[str, FakePlugin] = {}
        self.resource_of: dict[str, str] = {}
        self.pods: dict[str, Pod] = {}
        self.ever: set[str] = set()
        """All pods that were ever admitted, also those that were removed."""
        self.ended: set[str] = set()
        """Pods here that have ended or were refused."""
        self.unheard: dict[str, dict[tuple[str, str], int]] = {}
        """Pods of which a kubelet that started without the API server has not heard → what they hold."""
        self.trouble: Trouble | None = None
        self.expected: Counter[ChangeKind] = Counter()
        """The changes that the present step waits for."""
        self.is_written = False
        """Whether the last thing that the last step did was to write the checkpoint."""
        self.is_refused = False
        """Whether an Allocate of the last step failed."""

    @initialize(
        policy=st.sampled_from([Policy.NONE, *Policy]),
        scope=st.sampled_from(Scope),
        listed=st.tuples(lists, lists),
    )
    def start(self, policy: Policy, scope: Scope, listed: tuple[Devices, Devices]) -> None:
        kubelet_settings = KubeletSettings(
            clock=self.clock, compat=self.compat, machine=MACHINE, topology=TopologySettings(policy, scope)
        )
        self.kubelet = Kubelet(self.folder, kubelet_settings)
        self.life, _ = self.thread.hold(self.kubelet.running(), STEP_SECONDS)
        for resource_name, first in zip(RESOURCES, listed, strict=True):
            self.do(self._come(self._new_plugin(resource_name, first)))

    def teardown(self) -> None:
        try:
            if self.life is not None:
                self.thread.call(self._end(), STEP_SECONDS)
                self.life.release(STEP_SECONDS)
        finally:
            self.thread.stop(STEP_SECONDS)
            shutil.rmtree(self.folder)

    async def _end(self) -> None:
        for plugin in self.plugins.values():
            await plugin.die()

    def do(self, step: Coroutine[Any, Any, None]) -> None:
        """Take a step; where it kills the kubelet, begin the next life."""
        self.is_written = self.is_refused = False
        try:
            self.thread.call(self._within(step), STEP_SECONDS)
        except KubeletCrashError:
            if not self.compat:
                raise
            assert not self.kubelet.is_running
            self.thread.call(self._within(self._next_life()), STEP_SECONDS)

    async def _within(self, step: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(10):
            await step

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[Counter[ChangeKind]]:
        """A block that notes how many changes of which kind it makes; they are waited for at its end."""
        self.expected = expected = Counter[ChangeKind]()
        with self.kubelet.changes() as changes:
            yield expected
            while +expected:
                expected[(await anext(changes)).kind] -= 1
        for name, plugin in self.plugins.items():
            await plugin.streams(self.model.streams_of(name))

    # ── plugins ──

    def connected_plugins(self) -> list[str]:
        return [name for name in self.plugins if self.model.streams_of(name)]

    def known_plugins(self) -> list[str]:
        return list(self.plugins)

    @rule(resource_name=st.sampled_from(RESOURCES), listed=lists, options=options)
    def a_plugin_comes(self, resource_name: str, listed: Devices, options: PluginOptions) -> None:
        """It may take over from another one that lives on."""
        self.do(self._come(self._new_plugin(resource_name, listed, options)))

    def _new_plugin(
        self, resource_name: str, listed: Devices, options: PluginOptions = NO_OPTIONS
    ) -> FakePlugin:
        plugin = FakePlugin(self.folder, f"p{len(self.plugins)}", listed, options)
        plugin.on_allocate = lambda ids: self._allocate(plugin, ids)
        plugin.on_prefer = self._prefer
        plugin.on_pre_start = self._pre_start
        self.plugins[plugin.name] = plugin
        self.resource_of[plugin.name] = resource_name
        return plugin

    @rule(name=one_of("known_plugins"), is_reachable=st.sampled_from([True, True, True, False]))
    def a_plugin_registers_again(self, name: str, *, is_reachable: bool) -> None:
        """It may be one that is connected, and is then connected twice."""
        self.do((self._come if is_reachable else self._come_in_vain)(self.plugins[name]))

    async def _come(self, plugin: FakePlugin) -> None:
        async with self.settling():
            if not self.model.streams_of(plugin.name):
                await plugin.die()
                await plugin.listen()
            resource_name = self.resource_of[plugin.name]
            await register(self.kubelet, plugin, resource_name)
            self.model.registered(resource_name, plugin.name)
            self.model.listed(resource_name, plugin.devices)
        self.is_written = True

    async def _come_in_vain(self, plugin: FakePlugin) -> None:
        resource_name = self.resource_of[plugin.name]
        if not self.model.streams_of(plugin.name):
            await plugin.die()
            await plugin.listen()
        plugin.on_options = refuse
        with pytest.raises(RemoteError, match="failed to get device plugin options"):
            await plugin.register(resource_name)
        plugin.on_options = None
        self.model.refused(resource_name)

    @precondition(lambda self: self.connected_plugins())
    @rule(name=one_of("connected_plugins"), listed=lists)
    def a_list_comes(self, name: str, listed: Devices) -> None:
        self.do(self._list(self.plugins[name], listed))

    async def _list(self, plugin: FakePlugin, listed: Devices) -> None:
        async with self.settling() as expected:
            expected[ChangeKind.LISTED] += plugin.send(listed)
            self.model.listed(self.resource_of[plugin.name], listed)
        self.is_written = True

    @precondition(lambda self: self.connected_plugins())
    @rule(
        name=one_of("connected_plugins"),
        how=st.sampled_from(["ends", "fails", "dies", "is lost"]),
        is_back=st.sampled_from([True, True, False]),
    )
    def a_stream_ends(
        self, name: str, how: Literal["ends", "fails", "dies", "is lost"], *, is_back: bool
    ) -> None:
        self.do(self._end_streams(self.plugins[name], how))
        if is_back:
            self.the_nodes_numbers_are_those_of_the_lists()
            self.do(self._come(self.plugins[name]))

    async def _end_streams(
        self, plugin: FakePlugin, how: Literal["ends", "fails", "dies", "is lost"]
    ) -> None:
        resource_name, now = self.resource_of[plugin.name], self.clock()
        async with self.settling() as expected:
            if how == "is lost":
                if self.model.resources[resource_name].newest:
                    expected[ChangeKind.STREAM_ENDED] += self.model.cut(resource_name, now)
                    self.kubelet.drop_stream(resource_name)
                return
            expected[ChangeKind.STREAM_ENDED] += self.model.ended(resource_name, plugin.name, now)
            if how == "dies":
                await plugin.die()
            else:
                plugin.end_streams(KubeletError("boom") if how == "fails" else None)

    # ── trouble ──

    @rule(
        kind=st.sampled_from(TroubleKind.__args__),  # type: ignore[attr-defined]
        listed=lists,
    )
    def there_will_be_trouble(self, kind: TroubleKind, listed: Devices) -> None:
        self.trouble = Trouble(kind, listed)
        self.is_written = False

    def _meets(self, *kinds: TroubleKind) -> Trouble | None:
        """Return the trouble, if it is of these kinds, and only once."""
        if self.trouble is None or self.trouble.kind not in kinds:
            return None
        trouble, self.trouble = self.trouble, None
        return trouble

    async def _allocate(self, plugin: FakePlugin, ids: Ids) -> Sequence[ContainerResponse]:
        resource_name = self.resource_of[plugin.name]
        trouble = self._meets("refused", "no answer", "new list", "cut off")
        match trouble and trouble.kind:
            case "refused":
                self.is_refused = True
                await refuse()
            case "no answer":
                return []
            case "new list":
                assert trouble is not None
                with self.kubelet.changes() as changes:
                    if times := plugin.send(trouble.devices):
                        self.model.listed(resource_name, trouble.devices)
                        await happened(changes, ChangeKind.LISTED, times)
            case "cut off" if self.model.resources[resource_name].newest:
                self.expected[ChangeKind.STREAM_ENDED] += self.model.cut(resource_name, self.clock())
                self.kubelet.drop_stream(resource_name)
                self.is_refused = True
                await asyncio.get_running_loop().create_future()
        return [plugin.response(ids)]

    async def _prefer(self, _: PreferenceRequest) -> Sequence[Ids]:
        """Prefer them all, also those that are not to be had."""
        if self._meets("no preference"):
            await refuse()
        return [DEVICE_IDS[::-1]]

    async def _pre_start(self, _: Ids) -> None:
        if self._meets("no pre-start"):
            await refuse()

    # ── pods ──

    def active_pods(self) -> list[str]:
        return [uid for uid in self.pods if uid not in self.ended]

    def all_pods(self) -> list[str]:
        return list(self.pods)

    @rule(specs=st.lists(specs, min_size=1, max_size=3), are_started=st.booleans(), are_static=st.booleans())
    def pods_come(self, specs: Sequence[Spec], *, are_started: bool, are_static: bool) -> None:
        """Without the API server only static ones do."""
        for init_containers, containers in specs if are_static or self.kubelet.is_api_server_up else ():
            uid = f"u{len(self.ever)}"
            pod = Pod(uid, uid, init_containers=init_containers, containers=containers, is_static=are_static)
            self.ever.add(uid)
            self.pods[uid] = pod
            self.do(self._admit(pod))
            for _ in pod.in_start_order() if are_started else ():
                if uid not in self.ended:
                    self.do(self._start_next(pod))

    async def _admit(self, pod: Pod) -> None:
        gone = self.ended | self.ever - {*self.pods}
        known = {
            name for name, state in self._allocations.resources.items() if state.is_device_plugin_resource
        }
        async with self.settling():
            status = await self.kubelet.admit(pod)
        if status.is_terminal:
            self.ended.add(pod.uid)
            return
        held = self._counts(pod.uid)
        wanted = {
            (container.name, name): count
            for container in pod.in_start_order()
            for name, count in container.limits.items()
            if count and name in known
        }
        assert held == wanted
        if held and self.kubelet.sources_ready:
            assert gone.isdisjoint(one.pod_uid for one in self.kubelet.allocations())
        self.is_written |= bool(held)

    def _counts(self, pod_uid: str) -> dict[tuple[str, str], int]:
        return {
            (one.container_name, one.resource_name): len(one.device_ids)
            for one in self.kubelet.allocations()
            if one.pod_uid == pod_uid
        }

    def known_pods(self) -> list[str]:
        """Those active ones that the kubelet has heard of since it started."""
        return [uid for uid in self.active_pods() if uid not in self.unheard]

    @precondition(lambda self: self.known_pods())
    @rule(uid=one_of("known_pods"))
    def a_container_starts(self, uid: str) -> None:
        """The next one in the order of starts; a regular init container runs to its end."""
        self.do(self._start_next(self.pods[uid]))

    async def _start_next(self, pod: Pod) -> None:
        status = self.kubelet.pod(pod.uid)
        waiting = [
            one
            for one in pod.in_start_order()
            if (state := status.container(one.name).state) is ContainerState.WAITING
            or (state is ContainerState.TERMINATED and not pod.runs_to_its_end(one))
        ]
        if not waiting:
            return
        container = waiting[0]
        before = self.kubelet.allocations()
        async with self.settling():
            started = await self.kubelet.start_container(pod.uid, container.name)
        if started.state is not ContainerState.RUNNING:
            return
        held = [
            device_id
            for one in self.kubelet.allocations()
            if (one.pod_uid, one.container_name) == (pod.uid, container.name)
            for device_id in one.device_ids
        ]
        given = started.options.envs.values() if started.options else ()
        assert Counter(held) == Counter(device_id for ids in given for device_id in ids.split(","))
        self.is_written = self.kubelet.allocations() != before
        if pod.runs_to_its_end(container):
            self.kubelet.end_container(pod.uid, container.name)

    def running_containers(self) -> list[tuple[str, str]]:
        return [
            (uid, container.name)
            for uid in self.active_pods()
            for container in self.kubelet.pod(uid).containers
            if container.state is ContainerState.RUNNING
        ]

    @precondition(lambda self: self.running_containers())
    @rule(which=one_of("running_containers"))
    def a_container_ends(self, which: tuple[str, str]) -> None:
        self.is_written = False
        self.kubelet.end_container(*which)

    @precondition(lambda self: self.pods)
    @rule(uid=one_of("all_pods"), is_removed=st.booleans())
    def a_pod_ends(self, uid: str, *, is_removed: bool) -> None:
        self.is_written = False
        self.ended.add(uid)
        self.kubelet.end_pod(uid)
        if is_removed:
            self.kubelet.remove_pod(uid)
            del self.pods[uid]
            self.ended.discard(uid)

    # ── the kubelet and the node ──

    @rule(reboot=st.booleans(), orderly=st.booleans(), plugins_first=st.sampled_from([True, True, False]))
    def the_kubelet_restarts(self, *, reboot: bool, orderly: bool, plugins_first: bool) -> None:
        self.do(self._restart(reboot=reboot, orderly=orderly, plugins_first=plugins_first))

    async def _restart(self, *, reboot: bool, orderly: bool, plugins_first: bool) -> None:
        newest = {resource_name: name for name, resource_name in self.resource_of.items()}
        in_file = self._restored() if self._file().exists() else DeviceAllocations()
        async with self.settling():
            await self.kubelet.restart(reboot=reboot, orderly=orderly, with_pods=False)
            self._restarted()
        assert self._allocations.assignments == in_file.assignments
        for name in newest.values() if plugins_first else ():
            await self._come(self.plugins[name])
        await self._readmit()

    async def _next_life(self) -> None:
        async with self.settling():
            await self.kubelet.restart(with_pods=False)
            self._restarted()
        await self._readmit()

    def _restarted(self) -> None:
        self.model.restarted(self.clock())
        is_up = self.kubelet.is_api_server_up
        self.unheard = {
            uid: self._counts(uid) for uid, pod in self.pods.items() if not (is_up or pod.is_static)
        }

    async def _readmit(self) -> None:
        self.is_written = False
        async with self.settling():
            await self.kubelet.readmit()
        self.ended.update(uid for uid in self.pods if self.kubelet.pod(uid).is_terminal)

    @rule()
    def the_api_server_goes(self) -> None:
        self.kubelet.lose_api_server()

    @precondition(lambda self: not self.kubelet.is_api_server_up)
    @rule()
    def the_api_server_comes_back(self) -> None:
        self.do(self._find_api_server())

    async def _find_api_server(self) -> None:
        async with self.settling():
            await self.kubelet.find_api_server()
        self.unheard.clear()
        self.ended.update(uid for uid in self.pods if self.kubelet.pod(uid).is_terminal)

    @rule(seconds=st.sampled_from([1, 299, 301]))
    def the_nodes_status_is_written(self, seconds: float) -> None:
        self.clock.seconds += seconds
        before = socket_identity(self._file())
        self.kubelet.update_node_status()
        self.is_written = socket_identity(self._file()) != before
        assert self.is_written == bool(self.model.updated(self.clock()))

    # ── what always holds ──

    @property
    def _allocations(self) -> DeviceAllocations:
        return self.kubelet.device_manager.allocations

    def _file(self) -> Path:
        return self.folder / CHECKPOINT_NAME

    def _restored(self) -> DeviceAllocations:
        """Return the allocations of a second device manager that reads the file."""
        allocations = DeviceAllocations()
        allocations.restore(
            assignments_of(checkpoints.decode(self._file().read_bytes()), CONTAINER_RESPONSE.decode)
        )
        return allocations

    @invariant()
    def it_runs(self) -> None:
        assert self.life is not None
        if self.life.ended.done():
            self.life.ended.result()
        assert self.kubelet.is_running

    @invariant()
    def no_device_is_in_two_places(self) -> None:
        """Neither in two active pods, nor in two containers of a pod that live as long as it does."""
        of_pods = Counter[tuple[str, str]]()
        for uid in self.active_pods():
            lasting = {one.name for one in self.pods[uid].lasting_containers()}
            mine = [held for held in self.kubelet.allocations() if held.pod_uid == uid]
            in_lasting = Counter(
                (held.resource_name, device_id)
                for held in mine
                if held.container_name in lasting
                for device_id in held.device_ids
            )
            assert all(times == 1 for times in in_lasting.values()), in_lasting
            of_pods.update(
                {(held.resource_name, device_id) for held in mine for device_id in held.device_ids}
            )
        assert all(times == 1 for times in of_pods.values()), of_pods

    @invariant()
    def the_nodes_numbers_are_those_of_the_lists(self) -> None:
        assert self.kubelet.capacity() == self.model.capacity(self.clock())
        assert self.kubelet.allocatable() == self.model.allocatable(self.clock())

    @invariant()
    def what_the_kubelet_has_not_heard_of_stays_assigned(self) -> None:
        assert {uid: self._counts(uid) for uid in self.unheard} == self.unheard

    @invariant()
    def what_is_assigned_belongs_to_a_pod_that_was_here(self) -> None:
        assert self.ever.issuperset(held.pod_uid for held in self.kubelet.allocations())

    def _assigned(self, resource_name: str) -> set[str]:
        return {
            device_id
            for held in self.kubelet.allocations()
            if held.resource_name == resource_name
            for device_id in held.device_ids
        }

    @invariant()
    def what_is_available_is_healthy_and_assigned_to_nobody(self) -> None:
        for name, resource in self.model.resources.items():
            available = self._allocations.state(name).available
            assert available <= resource.healthy
            assert available.isdisjoint(self._assigned(name))

    @invariant()
    def nothing_is_left_over_from_a_refused_allocate(self) -> None:
        for name in self.model.resources if self.is_refused else ():
            assert (self._allocations.state(name).allocated or set()) == self._assigned(name)

    @invariant()
    def a_pod_that_has_ended_stays_so(self) -> None:
        for uid in self.pods:
            assert self.kubelet.pod(uid).is_terminal == (uid in self.ended)

    @invariant()
    def what_was_just_written_is_what_is_known(self) -> None:
        if not self.is_written:
            return
        written = checkpoints.decode(self._file().read_bytes())
        known = self._allocations.resources
        assert {*(written.registered or ())} == {name for name in known if known[name].healthy is not None}
        assert len(written.entries or ()) == len(self._allocations.assignments)
        assert self._restored().assignments == self._allocations.assignments


async def refuse() -> None:
    raise KubeletError("boom")


class MendedNode(Node):
    """A node without the flaws of 1.36: its kubelet never crashes."""

    compat = False


@pytest.mark.timeout(600)  # to have the time to find the shortest sequence, where one fails
@pytest.mark.parametrize("machine", [Node, MendedNode])
def test_the_books_are_right_after_any_sequence_of_events(machine: type[Node]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 5,
            stateful_step_count=40,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
