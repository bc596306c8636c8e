"""Claims are prepared, unprepared, freed and allocated anew, and everything dies, in any order."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devplug.devices import ContainerResponse, Device
from devplug.driver.claim_spec import read_file, uid_of_file
from devplug.driver.claims import ClaimUse
from devplug.driver.offer import ClaimRequest, Offer, OfferedDevice
from devplug.driver.prepared_claims import PreparedClaims
from devplug.driver.service import ClaimService
from devplug.k8s.objects import Object
from devplug.testing.loopthread import LoopThread
from devplug.wire.dra import ClaimName, PreparedClaim
from tests.driver.world import DRIVER, NODE, SERIAL, Claims, FakeResource, decode
from tests.waiting import until

DEVICES = ("a", "b", "c")
NAMES = ("one", "two", "three")
POINTS = ("get", "prepare", "release", "released")
"""Where a process may die: between each two of its durable steps is one of them."""

STEP_SECONDS = 60.0
"""Only a hang takes so long."""

Outcome = TypeVar("Outcome")


class DeathError(Exception):
    """The process is killed."""


class Gate:
    """Stops whoever comes to a point, for ever."""

    def __init__(self) -> None:
        self.point = ""
        self.is_reached = False

    async def passed(self, point: str) -> None:
        if point == self.point:
            self.is_reached = True
            await asyncio.Event().wait()


class GatedClaims(Claims):
    gate: Gate

    async def get_claim(self, namespace: str, name: str) -> Object:
        await self.gate.passed("get")
        return await super().get_claim(namespace, name)


class Resource(FakeResource):
    """Knows which devices were prepared and not yet released, and who may still use them."""

    gate: Gate
    users: Callable[[str], object]
    """The claims with a CDI file that use a device."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: set[str] = set()
        self.may_repeat: set[str] = set()
        """Those whose release was done when the process died, before it was noted."""

    async def prepare(self, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[ContainerResponse]]:
        for one in requests:
            self.owed.update(one.device_ids)
            self.may_repeat.difference_update(one.device_ids)
        await self.gate.passed("prepare")
        return await super().prepare(requests)

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        await self.gate.passed("release")
        for id_ in device_ids:
            assert id_ in self.owed or id_ in self.may_repeat, f"{id_} is released twice"
            assert not self.users(id_), f"{id_} is released, and {self.users(id_)} uses it"
        self.owed.difference_update(device_ids)
        self.may_repeat.difference_update(device_ids)
        if self.gate.point == "released":
            self.may_repeat.update(device_ids)
        await self.gate.passed("released")


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="dp-"))
        self.cdi = self.root / "cdi"
        self.boots = 0
        self.claims = GatedClaims()
        self.resource = Resource()
        self.kinds: dict[str, str] = {}
        self.allocated: dict[str, tuple[str, ...]] = {}
        """By claim name, as the scheduler sees it."""
        self.known: dict[str, ClaimName] = {}
        """By UID, each claim that ever was."""
        self.thread = LoopThread("driver of any order")
        self.thread.start()
        self._begin()

    def play(self, story: Coroutine[Any, Any, Outcome]) -> Outcome:
        return self.thread.call(story, STEP_SECONDS)

    # ── the process ──

    def _begin(self) -> None:
        self.claims.gate = self.resource.gate = self.gate = Gate()
        self.resource.users = self._users
        self.life, _ = self.thread.hold(self._living(), STEP_SECONDS)

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        offer = Offer()
        offer.replace({name: OfferedDevice(SERIAL, Device(name)) for name in DEVICES})
        self.store = PreparedClaims(DRIVER, self.root / "plugins" / DRIVER, self.cdi, f"boot-{self.boots}")
        try:
            async with asyncio.TaskGroup() as tasks:
                self.tasks: asyncio.TaskGroup = tasks
                self.service = ClaimService(
                    DRIVER, NODE, self.store, {SERIAL: self.resource}, offer, self.claims, decode, tasks
                )
                yield
                raise DeathError
        except* DeathError:
            pass

    def _die(self) -> None:
        self.life.release(STEP_SECONDS)

    async def _until(self, point: str, call: Coroutine[Any, Any, object]) -> None:
        """Begin a call, and return where the process is to die, or when it is over."""
        self.gate.point = point
        work = self.tasks.create_task(call)
        await until(lambda: work.done() or self.gate.is_reached)

    # ── what is on the disk ──

    def _published(self) -> dict[str, ClaimUse]:
        found = {}
        for path in self.cdi.iterdir() if self.cdi.exists() else ():
            use = read_file(path.read_bytes())
            assert use is not None
            assert use.uid == uid_of_file(DRIVER, path.name)
            found[use.uid] = use
        return found

    def _users(self, device_id: str) -> list[str]:
        return [
            str(use)
            for use in self._published().values()
            for device in use.devices
            if device.device_id == device_id and not device.has_admin_access
        ]

    # ── the cluster ──

    @rule(
        name=st.sampled_from(NAMES),
        devices=st.lists(st.sampled_from(DEVICES), min_size=1, max_size=2, unique=True),
        kind=st.sampled_from(("exclusive", "shared", "admin")),
        is_new=st.booleans(),
    )
    def allocate(self, name: str, devices: list[str], kind: str, is_new: bool) -> None:
        """As the scheduler does: a device has one exclusive claim, or any number that share it."""
        if name in self.allocated:
            return
        for other, taken in self.allocated.items():
            kinds = {kind, self.kinds[other]}
            if set(taken) & set(devices) and "admin" not in kinds and kinds != {"shared"}:
                return
        known = [claim for claim in self.known.values() if claim.name == name]
        uid = known[-1].uid if known and not is_new else f"uid-{name}-{len(self.known)}"
        share = f"share-{uid}-{len(self.known)}" if kind == "shared" else ""
        claim = self.claims.allocate(name, *devices, uid=uid, admin=kind == "admin", share=share)
        self.known[uid], self.kinds[name], self.allocated[name] = claim, kind, tuple(devices)

    @rule(name=st.sampled_from(NAMES), is_deleted=st.booleans())
    def free(self, name: str, is_deleted: bool) -> None:
        """The pod is gone, by force or not: the claim is free, whatever the kubelet knows."""
        if self.allocated.pop(name, None):
            if is_deleted:
                self.claims.delete(name)
            else:
                self.claims.release(name)

    # ── the kubelet ──

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.known.values(), key=lambda one: one.uid)))
        answer = self.play(self._answer(claim))
        current = self.claims.objects.get((claim.namespace, claim.name))
        is_there = current is not None and current["metadata"]["uid"] == claim.uid
        assert not answer.error if is_there and claim.name in self.allocated else answer.error
        if not answer.error:
            use = self._published()[claim.uid]
            assert [one.name for one in use.devices] == list(self.allocated[claim.name])
            assert [one.cdi_names for one in use.devices] == [one.cdi_device_ids for one in answer.devices]

    async def _answer(self, claim: ClaimName) -> PreparedClaim:
        first = (await self.service.prepare([claim]))[claim.uid]
        assert (await self.service.prepare([claim]))[claim.uid] == first
        return first

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def unprepare(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.known.values(), key=lambda one: one.uid)))
        assert self.play(self.service.unprepare([claim])) == {claim.uid: ""}
        assert claim.uid not in self._published()

    # ── deaths ──

    @precondition(lambda self: self.known)
    @rule(data=st.data(), point=st.sampled_from(POINTS), is_prepare=st.booleans())
    def die(self, data: st.DataObject, point: str, is_prepare: bool) -> None:
        claim = data.draw(st.sampled_from(sorted(self.known.values(), key=lambda one: one.uid)))
        call = self.service.prepare if is_prepare else self.service.unprepare
        self.play(self._until(point, call([claim])))
        self._die()
        self._begin()

    @rule(is_emptied=st.booleans())
    def reboot(self, is_emptied: bool) -> None:
        """The CDI folder is in memory on most machines, and not on all."""
        self._die()
        self.boots += 1
        if is_emptied:
            shutil.rmtree(self.cdi, ignore_errors=True)
        self._begin()
        self.play(self._look())

    async def _look(self) -> None:
        async with self.store.locked():
            pass

    # ── what holds always ──

    @invariant()
    def files_and_state_agree(self) -> None:
        self.play(self._look())
        for uid, use in self._published().items():
            assert self.store.claims[uid] == use
            assert self.store.is_prepared(use)
        for uid, use in self.store.claims.items():
            assert self.store.is_prepared(use) == (uid in self._published())

    @invariant()
    def no_device_is_in_two_claims(self) -> None:
        for one, other in combinations(self.store.claims.values(), 2):
            assert not any(device.excludes(second) for device in one.devices for second in other.devices)

    def teardown(self) -> None:
        try:
            for uid, claim in self.known.items():
                assert self.play(self.service.unprepare([claim])) == {uid: ""}
            assert not self.store.claims
            assert not self._published()
            looked_at = {device for name, kind in self.kinds.items() if kind == "admin" for device in DEVICES}
            assert self.resource.owed <= looked_at
        finally:
            self._die()
            self.thread.stop(STEP_SECONDS)
            shutil.rmtree(self.root)


Machine.TestCase.settings = settings(stateful_step_count=30)
TestAnyOrder = Machine.TestCase
