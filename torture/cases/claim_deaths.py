"""Deaths of a driver: at a step of prepare or unprepare; the next one goes on with what is left."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from devplug.cdi.spec import CdiOwner
from devplug.devices import ContainerResponse, Device, DeviceNode
from devplug.driver.offer import ClaimRequest, Offer, OfferedDevice
from devplug.driver.parameters import DeviceConfig
from devplug.driver.prepared_claims import PreparedClaims
from devplug.driver.service import ClaimService
from torture.catalogue import case
from torture.claims import DRIVER, MEMORY, NODE, Claims, NodeFiles, doubly
from torture.deaths import die_at, follow_steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from devplug.holds.hardware import Use
    from devplug.wire.dra import ClaimName
    from torture.catalogue import Trial

RESOURCE: Final = "example.com/a"
IDS: Final = tuple(f"d{number}" for number in range(4))
AGAIN: Final = 0.25
"""How often the next driver dies, too, at some step of its own."""


@case(
    "driver-dies-in-claims",
    fault="D24",
    promise="A driver that dies at any durable step of prepare or unprepare leaves claims that the next one "
    "prepares and unprepares: no file is left, no device has two claims, each use has one release",
    count=11_000,
    unit="kills",
    invariants="I1 I13 I14",
    limit_seconds=600,
    brief=True,
)
async def driver_dies_in_claims(trial: Trial) -> None:
    """Kill a forked driver before one of the system calls that change files, each of them in turn."""
    gc.freeze()  # or each child copies what it only counts
    with tempfile.TemporaryDirectory(prefix="tt-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name, "round")
        steps = {story: await _steps_of(story, folder) for story in STORIES}
        points = [(story, step) for story in STORIES for step in range(steps[story])]
        kills = dict.fromkeys(points, 0)
        for turn in trial.rounds():
            story, step = point = points[turn.number % len(points)]
            async with _scene(folder, turn.random) as scene:
                call = await scene.told(story)
                kills[point] += scene.die(call, step)
                if turn.random.random() < AGAIN:
                    scene.die(call, turn.random.randrange(steps[story]))
                for text in await scene.faults(call):
                    trial.broke(f"{text} ({_words(story)}, step {step})", turn.number)
    trial.figure("kills at each step", f"{min(kills.values()):,} to {max(kills.values()):,}")
    trial.figure("steps", ", ".join(f"{count} to {_words(story)}" for story, count in steps.items()))


def _words(story: Story) -> str:
    return story.__name__.strip("_").replace("_", " ")


async def _steps_of(story: Story, folder: Path) -> int:
    """Return how many steps the call of a story has."""
    async with _scene(folder, random.Random(0)) as scene:
        return scene.steps_of(await scene.told(story))


# ── the driver ──


Call: TypeAlias = Callable[[ClaimService], Awaitable[Mapping[str, Any]]]
"""A call of the kubelet, of any driver."""

Story: TypeAlias = Callable[["_Scene", ClaimService], Awaitable[Call]]
"""What was before a death, done by a driver that lives; returns the call that the death comes in."""


class _Resource:
    """A resource that writes down what it does, where no death takes it away."""

    resource_name: Final = RESOURCE
    node_owner: Final = CdiOwner()

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    async def prepare(self, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[ContainerResponse]]:
        self._note("+", [id_ for one in requests for id_ in one.device_ids])
        return [[*(await self.current(one.device_ids, 0)).values()] for one in requests]

    def uses(self, _: Sequence[str]) -> Mapping[str, Use]:
        return {}

    async def release(self, device_ids: Sequence[str], **_: bool) -> None:
        self._note("-", device_ids)

    async def current(self, device_ids: Sequence[str], _: int) -> Mapping[str, ContainerResponse]:
        return {one: ContainerResponse(device_nodes=[DeviceNode(f"/dev/{one}")]) for one in device_ids}

    def _note(self, sign: str, ids: Sequence[str]) -> None:
        with open(self._journal, "ab", buffering=0) as file:
            file.write("".join(f"{sign}{id_}\n" for id_ in ids).encode())


class _Scene:
    """The node and the cluster of one round; lives on disk and in this process, and not in a driver."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.claims = Claims()
        self.chance = chance
        self.files = NodeFiles(folder / "plugins", folder / "cdi")
        self._folder = folder
        self._journal = folder / "journal"
        self._known: list[ClaimName] = []
        self._repeats: Counter[str] = Counter()
        """How often a device may be released once more, by its ID."""

    async def told(self, story: Story) -> Call:
        """Have a driver do what a story tells of."""
        async with self.driver() as driver:
            return await story(self, driver)

    def allocate(self, *devices: str, like: ClaimName | None = None, share_id: str = "") -> ClaimName:
        """Allocate devices to a claim, a new one or one that was released."""
        name, uid = (like.name, like.uid) if like else ("", "")
        claim = self.claims.allocate(*devices, name=name, uid=uid, share_id=share_id)
        self._known += [] if like else [claim]
        return claim

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[ClaimService]:
        """Have a driver, as in a process of its own that has just begun."""
        offer = Offer()
        offer.replace({id_: OfferedDevice(RESOURCE, Device(id_)) for id_ in IDS})
        store = PreparedClaims(DRIVER, self.files.folder, self.files.cdi, "boot")
        resource = _Resource(self._journal)
        async with asyncio.TaskGroup() as tasks:
            yield ClaimService(
                DRIVER,
                NODE,
                store,
                {RESOURCE: resource},
                offer,
                self.claims,
                lambda _: (DeviceConfig(), ()),
                tasks,
            )

    # ── deaths ──

    def die(self, call: Call, step: int) -> bool:
        """Have a driver in a forked process die before a step of a call; return whether it did."""
        child = os.fork()
        if not child:
            self._end_with(call, partial(die_at, step))
        _, status = os.waitpid(child, 0)
        signs = self._signs()
        for id_ in chain.from_iterable(self.files.in_use().values()):
            # Its release was done and not noted: the next one cannot know.
            self._repeats[id_] += signs.get(id_, "").endswith("-")
        return os.WIFSIGNALED(status)

    def steps_of(self, call: Call) -> int:
        """Have a driver in a forked process make a call to its end; return how many steps that has."""
        steps = self._folder / "steps"
        child = os.fork()
        if not child:
            file = os.open(steps, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._end_with(call, lambda folders: follow_steps(folders, lambda: os.write(file, b".")))
        os.waitpid(child, 0)
        return steps.stat().st_size

    def _end_with(self, call: Call, begin: Callable[[tuple[str, ...]], object]) -> NoReturn:
        """End this process, which was forked, with a call by a driver of its own."""

        async def live() -> None:
            async with self.driver() as driver:
                begin((str(self._folder),))
                await call(driver)

        try:
            asyncio.run(live())
        finally:
            os._exit(0)

    # ── afterwards ──

    async def faults(self, call: Call) -> list[str]:
        """Do as a kubelet does after a death, until all pods are gone; return what is wrong on the way."""
        found = [*self._faults_of_files()]
        async with self.driver() as driver:
            for uid, answer in (await call(driver)).items():
                if fault := getattr(answer, "error", answer):
                    found.append(f"I13: {uid} after a death: {fault}")
            found += self._faults_of_files()
            for uid, fault in (await driver.unprepare(self._known)).items():
                found += [f"I13: {uid} is not unprepared: {fault}"] if fault else []
        found += [f"I13: {one} is left" for one in self.files.remains()]
        for id_, signs in self._signs().items():
            repeats = len(re.findall("(?<=-)-", signs))
            if not signs.endswith("-") or repeats > self._repeats[id_]:
                found.append(f"I14: {id_} was prepared and released as in {signs}")
        return found

    def _faults_of_files(self) -> Iterator[str]:
        prepared = self.files.prepared()
        yield from (f"I1: {one}" for one in doubly(prepared.values()))
        for uid in prepared.keys() - self.files.in_use().keys():
            yield f"I13: {uid} has a CDI file and is not in use"

    def _signs(self) -> dict[str, str]:
        """Return of each device when it was prepared, +, and released, -, in that order."""
        found: dict[str, str] = {}
        for line in self._journal.read_text().splitlines() if self._journal.exists() else ():
            found[line[1:]] = found.get(line[1:], "") + line[0]
        return found


@asynccontextmanager
async def _scene(folder: Path, chance: random.Random) -> AsyncIterator[_Scene]:
    folder.mkdir()
    try:
        yield _Scene(folder, chance)
    finally:
        shutil.rmtree(folder)


# ── stories ──


async def _prepare(scene: _Scene, _: ClaimService) -> Call:
    devices = scene.chance.sample(IDS, scene.chance.randint(1, 2))
    claim = scene.allocate(*devices)
    return lambda service: service.prepare([claim])


async def _prepare_anew(scene: _Scene, driver: ClaimService) -> Call:
    """The claim was released, and then allocated again, before it was unprepared."""
    claim = scene.allocate("d0")
    await driver.prepare([claim])
    claim = scene.allocate("d1", like=claim)
    return lambda service: service.prepare([claim])


async def _take_over(scene: _Scene, driver: ClaimService) -> Call:
    """The claim before was released while its kubelet was away: it is unprepared late (dra.md D28)."""
    before = scene.allocate("d0", "d1")
    await driver.prepare([before])
    scene.claims.release(before)
    claim = scene.allocate("d0")
    return lambda service: service.prepare([claim])


async def _share(scene: _Scene, driver: ClaimService) -> Call:
    await driver.prepare([scene.allocate("d0", share_id="one")])
    claim = scene.allocate("d0", share_id="two")
    return lambda service: service.prepare([claim])


async def _unprepare(scene: _Scene, driver: ClaimService) -> Call:
    claim = scene.allocate(*scene.chance.sample(IDS, scene.chance.randint(1, 2)))
    await driver.prepare([claim])
    scene.claims.release(claim)
    return lambda service: service.unprepare([claim])


async def _unprepare_a_share(scene: _Scene, driver: ClaimService) -> Call:
    claim = scene.allocate("d0", share_id="one")
    await driver.prepare([claim, scene.allocate("d0", share_id="two")])
    scene.claims.release(claim)
    return lambda service: service.unprepare([claim])


STORIES: Final = (_prepare, _prepare_anew, _take_over, _share, _unprepare, _unprepare_a_share)
