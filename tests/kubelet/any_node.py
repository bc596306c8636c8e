"""A node with plugins for tests that try any sequence of events: what its plugins do, and a model of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse
from devplug.errors import KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet import checkpoint as checkpoints
from devplug.kubelet.allocation import DeviceAllocations, assignments_of
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, Scope, TopologySettings
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.testing.loopthread import Held, LoopThread
from devplug.wire.deviceplugin import CONTAINER_RESPONSE
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


def one_of(attribute: str) -> st.SearchStrategy[str]:
    """One of the names that a method of the machine returns."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, attribute)()))


TroubleKind = Literal["refused", "no answer", "new list", "cut off", "no preference", "no pre-start"]


@dataclass(frozen=True)
class Trouble:
    """What goes wrong at the next call of its kind."""

    kind: TroubleKind
    devices: Devices


async def refuse() -> None:
    raise KubeletError("boom")


class PluginNode(RuleBasedStateMachine):
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

    def _counts(self, pod_uid: str) -> dict[tuple[str, str], int]:
        return {
            (one.container_name, one.resource_name): len(one.device_ids)
            for one in self.kubelet.allocations()
            if one.pod_uid == pod_uid
        }

    # ── the kubelet and the node ──

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
    def the_nodes_numbers_are_those_of_the_lists(self) -> None:
        assert self.kubelet.capacity() == self.model.capacity(self.clock())
        assert self.kubelet.allocatable() == self.model.allocatable(self.clock())
