"""Whatever pods, kubelet, program and hardware do: nothing that a pod holds is told free or leaves the list.

Each release is told once, and what is gone leaves the list after it. The model is a kubelet that knows who
holds what; the ledger sees only its answers, some of them late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from devplug.daemon.device_list import DeviceList, ScanResult
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Device
from devplug.holds.held_device import Released, ledger_memory, ledger_text
from devplug.holds.ledger import Ledger
from devplug.plugin.inventory import Inventory
from devplug.wire.values import PodResources
from tests.daemon.hosts import resource
from tests.holds.listings import RESOURCE, RULES, pods

IDS = tuple("abc")
FILE = resource('discover: {usb: {vendor: "0403"}}, whenUnplugged: {keepUnhealthyFor: 0s}')


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.count = 0
        self.held: dict[str, set[str]] = {}
        """What each pod holds whose containers live, or start again after a reboot."""
        self.hidden: set[str] = set()
        """Pods that hold in an init container, which no answer shows."""
        self.statics: set[str] = set()
        self.arriving: dict[str, float] = {}
        """Pods for which we gave out devices, and when, while the kubelet has not booked them yet."""
        self.booked: dict[str, set[str]] = {}
        """What the kubelet has in memory: it drops pods that are gone when it is asked, if it is synced."""
        self.file: dict[str, set[str]] = {}
        """Its checkpoint."""
        self.is_file_readable = True
        self.kubelet = (1, 1, 1)
        self.is_synced = True
        self.asked_at: float | None = None
        self.served: tuple[PodResources, ...] | None = None
        self.unreported: set[str] = set()
        """What the ledger has learned to be held and has not told free since."""
        self.pending: set[str] = set()
        self.written = ""
        """What was remembered when another program got the resource."""
        self.remembered: dict[int, str] = {}
        """What was remembered at each revision of this ledger."""
        self.loop = asyncio.Runner()
        self.plugged = set(IDS)
        """The devices that are there."""
        self.we_begin("")

    def we_begin(self, text: str) -> None:
        self.ledger = self.new_ledger(text)
        self.listing = DeviceList(FILE)
        self.inventory = Inventory(RESOURCE, held_ids=lambda: self.ledger.held_ids(RESOURCE))
        self.listed: Sequence[Device] = ()
        """The last list, which the plugin takes a while later."""
        self.the_devices_are_looked_at()
        self.the_plugin_takes_the_list()

    def new_ledger(self, text: str) -> Ledger:
        ledger = Ledger(RULES)
        if text:
            ledger.recall(RESOURCE, ledger_memory(text.encode(), RESOURCE), self.now)
        ledger.keep_releases(RESOURCE)
        return ledger

    def text(self) -> str:
        return ledger_text(RESOURCE, self.ledger.memory(RESOURCE))

    @initialize(ids=st.sets(st.sampled_from(IDS), max_size=2), is_file_readable=st.booleans())
    def pods_that_were_there_before_us(self, ids: set[str], *, is_file_readable: bool) -> None:
        self.held["old"] = ids
        self.book("old")
        self.is_file_readable = is_file_readable

    # ── pods ──

    def free(self) -> list[str]:
        """What the kubelet can give out: it is listed as healthy, and was there at the last look."""
        listed = self.inventory.snapshot.devices.values()
        healthy = {device.id for device in listed if not device.health.reason}
        there = healthy & self.listing.present().keys()
        return sorted(there - self.in_use() - set().union(*self.booked.values()))

    def in_use(self) -> AbstractSet[str]:
        return set().union(*self.held.values())

    def book(self, name: str) -> None:
        self.booked[name] = self.held[name]
        self.file = dict(self.booked)

    def give(self, ids: set[str]) -> str:
        self.count += 1
        name = f"p{self.count}"
        self.held[name] = ids
        self.arriving[name] = self.now
        self.loop.run(self.answer(ids))
        self.unreported |= ids
        self.pending -= ids
        return name

    async def answer(self, ids: set[str]) -> None:
        async with self.inventory.handing_out(self.inventory.find_healthy(ids)):
            self.ledger.allocated(RESOURCE, ids, self.now)

    @precondition(lambda self: self.is_synced and self.free())
    @rule(data=st.data(), is_init=st.booleans())
    def a_pod_asks_for_devices(self, data: st.DataObject, is_init: bool) -> None:
        name = self.give(data.draw(st.sets(st.sampled_from(self.free()), min_size=1)))
        if is_init:
            self.hidden.add(name)

    @precondition(lambda self: self.free())
    @rule(data=st.data())
    def a_static_pod_gets_a_device(self, data: st.DataObject) -> None:
        name = self.give({data.draw(st.sampled_from(self.free()))})
        self.statics.add(name)
        self.the_kubelet_has_our_answers()

    @precondition(lambda self: self.arriving)
    @rule(is_failed=st.booleans())
    def the_kubelet_has_our_answer(self, is_failed: bool) -> None:
        name = next(iter(self.arriving))
        del self.arriving[name]
        self.book(name)
        if is_failed:
            del self.held[name]

    def the_kubelet_has_our_answers(self) -> None:
        while self.arriving:
            self.the_kubelet_has_our_answer(is_failed=False)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[name]
        self.arriving.pop(name, None)

    # ── hardware ──

    @precondition(lambda self: self.plugged)
    @rule(data=st.data())
    def a_device_is_pulled_out(self, data: st.DataObject) -> None:
        self.plugged.remove(data.draw(st.sampled_from(sorted(self.plugged))))

    @precondition(lambda self: len(self.plugged) < len(IDS))
    @rule(data=st.data())
    def a_device_is_plugged_in(self, data: st.DataObject) -> None:
        self.plugged.add(data.draw(st.sampled_from(sorted(set(IDS) - self.plugged))))

    @rule()
    def the_devices_are_looked_at(self) -> None:
        found = [HostDevice(name) for name in sorted(self.plugged)]
        self.listed = self.listing.update(
            ScanResult(found, self.now, held_ids=self.ledger.held_ids(RESOURCE))
        )

    @rule()
    def the_plugin_takes_the_list(self) -> None:
        self.loop.run(self.inventory.replace(self.listed))

    # ── the kubelet, and time ──

    @rule(seconds=st.sampled_from([0.1, 1, 9, 10, 19, 20, 60, 1000]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        # The kubelet books what it has got long before the grace is over.
        if any(self.now - since >= RULES.grace_seconds / 2 for since in self.arriving.values()):
            self.the_kubelet_has_our_answers()

    @rule()
    def the_kubelet_restarts_while_the_api_server_is_away(self) -> None:
        self.kubelet = (1, 1, self.kubelet[2] + 1)
        self.is_synced = False
        self.booked = dict(self.file)
        # It asks anew for pods that it had not booked, so these have not begun.
        for name in self.arriving:
            del self.held[name]
        self.arriving.clear()
        self.asked_at = self.served = None

    @precondition(lambda self: not self.is_synced)
    @rule()
    def the_api_server_is_back(self) -> None:
        self.is_synced = True

    @rule(data=st.data())
    def the_machine_reboots(self, data: st.DataObject) -> None:
        """Some pods start again, with the devices that the checkpoint has for them."""
        self.the_kubelet_restarts_while_the_api_server_is_away()
        gone = data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else ()
        self.held = {name: ids for name, ids in self.held.items() if name not in gone}
        self.we_restart()

    @rule()
    def some_plugin_sends_a_list(self) -> None:
        self.file = dict(self.booked)

    # ── us ──

    @rule()
    def we_restart(self) -> None:
        self.we_begin(self.text())
        self.remembered.clear()
        self.unreported |= self.pending
        self.pending.clear()
        self.asked_at = self.served = None

    @rule()
    def another_program_gets_the_resource(self) -> None:
        self.written = self.text()

    @precondition(lambda self: self.written)
    @rule()
    def the_resource_comes_back_to_us(self) -> None:
        memory = ledger_memory(self.written.encode(), RESOURCE)
        self.ledger.recall(RESOURCE, memory, self.now)
        self.unreported |= memory.keys()
        self.pending -= memory.keys()
        self.written = ""

    @rule()
    def somebody_takes_the_releases(self) -> None:
        released = self.ledger.pending_releases(RESOURCE)
        assert [one.device_id for one in released] == sorted(self.pending)
        self.ledger.take(released)
        self.pending.clear()

    @precondition(lambda self: self.asked_at is None)
    @rule()
    def we_ask(self) -> None:
        self.asked_at = self.now

    @precondition(lambda self: self.asked_at is not None and self.served is None)
    @rule()
    def the_kubelet_lists(self) -> None:
        if self.is_synced:
            self.booked = {name: ids for name, ids in self.booked.items() if name in self.held}
        known = self.held.keys() if self.is_synced else self.statics & self.held.keys()
        shown = {name: set() if name in self.hidden else self.booked.get(name, set()) for name in known}
        self.served = pods(shown)

    @precondition(lambda self: self.served is not None)
    @rule()
    def the_answer_arrives(self) -> None:
        assert self.asked_at is not None
        assert self.served is not None
        listed = {i for one in self.served for c in one.containers for d in c.devices for i in d.device_ids}
        self.unreported |= listed
        self.pending -= listed
        is_needed = self.is_file_readable and self.ledger.needs_checkpoint(self.served, self.kubelet)
        checkpoint = pods(self.file) if is_needed else None
        for change in self.ledger.listed(self.served, self.asked_at, self.kubelet, checkpoint):
            if isinstance(change, Released) and change.is_free:
                assert change.device_id not in self.in_use()
                assert change.device_id in self.unreported
                self.unreported.remove(change.device_id)
                self.pending.add(change.device_id)
        self.asked_at = self.served = None

    @precondition(lambda self: self.asked_at is None and self.is_synced and self.free())
    @rule(data=st.data(), is_init=st.booleans())
    def a_pod_asks_while_an_answer_is_on_its_way(self, data: st.DataObject, is_init: bool) -> None:
        self.we_ask()
        self.the_kubelet_lists()
        self.now += 0.1
        self.a_pod_asks_for_devices(data, is_init)
        self.the_answer_arrives()

    @precondition(lambda self: self.held)
    @rule(restarts=st.booleans(), periods=st.sampled_from([1, 4]))
    def all_pods_end(self, restarts: bool, periods: int) -> None:
        self.held.clear()
        self.arriving.clear()
        self.periods_pass(periods)
        if restarts:
            self.we_restart()

    @rule(times=st.integers(1, 5))
    def periods_pass(self, times: int) -> None:
        for _ in range(times):
            self.time_passes(RULES.period_seconds)
            if self.asked_at is None:
                self.we_ask()
            if self.served is None:
                self.the_kubelet_lists()
            self.the_answer_arrives()
            if self.ledger.is_checkpoint_old:
                self.some_plugin_sends_a_list()

    # ── promises ──

    @invariant()
    def what_we_gave_out_and_a_pod_holds_is_in_use(self) -> None:
        ours = set().union(*(ids for name, ids in self.held.items() if name != "old"))
        assert ours | self.pending <= self.ledger.held_ids(RESOURCE)
        assert not any(self.ledger.may_be_held(RESOURCE, one) for one in self.pending)

    @invariant()
    def what_we_gave_out_and_a_pod_holds_is_listed(self) -> None:
        ours = set().union(*(ids for name, ids in self.held.items() if name != "old"))
        assert ours <= self.inventory.snapshot.devices.keys()

    @invariant()
    def what_is_remembered_has_another_revision_whenever_it_changes(self) -> None:
        revision = self.ledger.revision(RESOURCE)
        assert self.remembered.setdefault(revision, self.text()) == self.text()
        assert revision == max(self.remembered)

    def teardown(self) -> None:
        """Once all pods have ended, each release is told, if the kubelet says so at all."""
        self.held.clear()
        self.arriving.clear()
        self.is_synced = self.is_file_readable = True
        self.periods_pass(4)
        assert self.unreported == set()
        assert self.ledger.held_ids(RESOURCE) == self.pending
        self.somebody_takes_the_releases()
        assert self.ledger.held_ids(RESOURCE) == set()
        assert self.ledger.memory(RESOURCE) == {}
        self.the_devices_are_looked_at()
        self.the_plugin_takes_the_list()
        assert self.inventory.snapshot.devices.keys() == self.plugged
        self.loop.close()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(stateful_step_count=30)
