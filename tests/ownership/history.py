"""Histories of a node: steps of hot-plug, edits, restarts and pods, drawn by a test and judged by the oracle.

A step is a verb with two numbers, which choose among what is there at that moment. So each list of steps can
be played, and a shorter one is simpler.

What nobody can know stays out: twins, and sticks without a serial number, keep their ports, because nobody
can tell which of them moved. The kubelet's checkpoint is lost only while no pod runs, and records of devplug
only while each container can open nothing but the stick that it was given, by a resource
that still selects it.
A container starts again only while its paths lead to no other stick.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from devplug.kubelet_dir import CHECKPOINT_NAME
from tests.ownership.machine import Stick
from tests.ownership.node import Described, Node, node, path, usb
from tests.virtualtime import passes, play

Step = tuple[str, int, int]
"""What happens, and two numbers that choose with what."""

Element = TypeVar("Element")

ANY, SPECIAL, OTHER, RENAMED, PORTS, LEFT, RIGHT = NAMES = tuple(
    f"example.com/{name}" for name in ("any", "special", "other", "renamed", "ports", "left", "right")
)
SECOND = "example.com/second"
"""The resource of another daemon: it finds all sticks."""

LINKS = {LEFT: "/dev/mine/left", RIGHT: "/dev/mine/right"}

FIRST, TWIN = Stick("first", "S"), Stick("twin", "S")
MOVER, STRANGER = Stick("mover", "T"), Stick("stranger", "U")
PLAIN, SAME_MAKE = Stick("plain", vendor="1a86"), Stick("same-make", vendor="1a86")
PLACES: Mapping[Stick, Sequence[str]] = {
    FIRST: "1",
    TWIN: "2",
    MOVER: "3412",
    STRANGER: "4356",
    PLAIN: "5",
    SAME_MAKE: "6",
}
"""The ports in which each stick is ever plugged, the usual one first."""

any_, other, renamed = usb(ANY), usb(OTHER, vendor="1a86"), usb(RENAMED)
special = usb(SPECIAL, selector={"serial": "T"})
ports = path(PORTS, "/dev/ttyUSB*")
left, right = (path(name, link) for name, link in LINKS.items())

FILES: Sequence[Sequence[Described]] = [
    [any_, other],
    [other, any_],
    [special, any_, other],
    [any_, special, other],
    [renamed, other],
    [usb(OTHER), usb(ANY, vendor="1a86")],
    [ports],
    [ports, any_, other],
    [other, ports],
    [other],
    [left, right, any_, other],
    [any_, other, left, right],
    [path(PORTS, "/dev/serial/by-path/*")],
    [usb(ANY, selector={"product": "6001"}), other],
]
"""The resources of each configuration, in their order."""

USB_KEYS: Sequence[Described] = [
    {"id": "stick-{serial}"},
    {"id": "port-{attr.devpath}"},
    {"health": [{"attribute": "idProduct", "equals": "6001"}]},
    {"expose": {"deviceNodes": ["tty"], "containerPath": "/dev/mine{index}"}},
]
"""Keys that an edit sets in a resource for USB devices, and removes again."""

KEYS: Sequence[Described] = [
    {},
    {"expose": {"env": {"A": "1"}}},
    {"expose": {"permissions": "r"}},
    {"expose": {"strategy": "cdi"}},
    {"prefer": "none"},
    {"prefer": "packed"},
    {"share": {"maxPerContainer": 1}},
    {"whenUnplugged": {"keepUnhealthyFor": "20s"}},
    {"onLost": {"exec": {"command": ["/bin/true"]}}},
]
"""Keys that an edit sets in any resource, and removes again."""

SOON = {"whenUnplugged": {"keepUnhealthyFor": "0s"}}


def _pick(among: Iterable[Element], number: int) -> Element:
    found = list(among)
    return found[number % len(found)]


class History:
    """The history of one node; lives as long as the node."""

    def __init__(self, here: Node) -> None:
        self.here = here
        self._count = 0
        self._is_cleaning = self._is_alone = True
        self._names: Sequence[str] = NAMES
        self._registrations: dict[str, int] = {}
        """How often each resource had registered that no edit has removed since."""
        self._acts: Mapping[str, Callable[[int, int], Awaitable[None] | None]] = {
            name: getattr(self, name) for name in VERBS
        }

    @asynccontextmanager
    async def begun(self, *, is_cleaning: bool, is_alone: bool) -> AsyncIterator[None]:
        """Run the daemon on a node with all sticks, and another daemon beside it unless it is alone."""
        self._is_cleaning, self._is_alone = is_cleaning, is_alone
        for stick, (port, *_) in PLACES.items():
            if stick is not STRANGER:
                self.here.machine.plug(stick, port)
        self._lead(FIRST, MOVER)
        await self.here.start(*self._described(0, 0))
        if is_alone:
            yield
            return
        self._names = (*NAMES, SECOND)
        second = {**path(SECOND, "/dev/ttyUSB*"), **SOON}
        cleaning = self.here.cleaning(second) if is_cleaning else {}
        async with self.here.another_daemon({**second, **cleaning}):
            yield

    async def take(self, step: Step) -> None:
        """Have a step happen; one that is not possible at this moment is left out."""
        verb, first, second = step
        if (awaited := self._acts[verb](first, second)) is not None:
            await awaited
        self.here.nothing_was_wrong()

    def _described(self, number: int, key: int) -> list[Described]:
        usb_keys = [*KEYS, *USB_KEYS]
        made: list[Described] = []
        for place, one in enumerate(_pick(FILES, number)):
            of_usb = "usb" in one["discover"]
            more = _pick(usb_keys if of_usb else KEYS, key) if place == 0 or key % 2 else {}
            cleaning = self.here.cleaning(one) if self._is_cleaning else {}
            expose = {**one.get("expose", {}), **more.get("expose", {})}
            made.append({**one, **SOON, **cleaning, **more, "expose": expose})
        return made

    # ── hardware ──

    def plug(self, what: int, where: int) -> None:
        """Plug a stick in."""
        taken = set(self.here.machine.ports)
        absent = [one for one in PLACES if one not in self.here.machine.sticks]
        choices = [(one, port) for one in absent for port in PLACES[one] if port not in taken]
        if choices:
            self.here.machine.plug(*_pick(choices, what + where))

    def unplug(self, what: int, _: int) -> None:
        """Pull a stick out."""
        if sticks := self._present():
            self.here.unplug(_pick(sticks, what))

    def replug(self, what: int, where: int) -> None:
        """Pull a stick out, and plug it in again before anything else happens."""
        if sticks := self._present():
            stick = _pick(sticks, what)
            self.here.unplug(stick)
            taken = set(self.here.machine.ports)
            self.here.machine.plug(stick, _pick([one for one in PLACES[stick] if one not in taken], where))

    def renumber(self, what: int, other: int) -> None:
        """Have two sticks change device numbers."""
        sticks = self._present()
        if len(sticks) > 1:
            one = sticks.pop(what % len(sticks))
            two = [one, _pick(sticks, other)]
            self.here.machine.renumber(*two)
            for stick in two:
                self.here.oracle.unplugged(stick.name)

    def link(self, one: int, two: int) -> None:
        """Have udev's own links lead to other sticks."""
        if sticks := self._present():
            self._lead(_pick(sticks, one), _pick(sticks, two))

    def _lead(self, *sticks: Stick) -> None:
        for link, stick in zip(LINKS.values(), sticks, strict=True):
            self.here.machine.link(link, stick)

    def _present(self) -> list[Stick]:
        return [stick for stick in PLACES if stick in self.here.machine.sticks]

    # ── the daemon and the kubelet ──

    def edit(self, number: int, key: int) -> None:
        """Write another configuration, and wait for nothing."""
        self.here.write(*self._described(number, key))
        self._note_names()

    async def edit_well(self, number: int, key: int) -> None:
        """Write another configuration, and wait until it is in effect."""
        self.edit(number, key)
        await self.quiet()

    async def restart(self, is_killed: int, seconds: int) -> None:
        """End the daemon, and start it again after a while."""
        await self._down(is_killed, seconds)
        await self.here.begin()

    async def restart_with(self, number: int, key: int) -> None:
        """End the daemon, and start it with another configuration."""
        await self._down(number, key)
        await self.here.begin(*self._described(number, key))

    async def lose(self, what: int, how: int) -> None:
        """End the daemon, and start it without one of its files, or with a damaged one."""
        await self.here.quiet()
        await self._down(how // 2, 0)
        seen = self.here.seen()
        is_clear = all(
            one.has(seen) == one.hardware and one.hardware <= self.here.matching(one.resource)
            for one in self.here.oracle.live.values()
        )
        marks = [sha256(str(one["name"]).encode()).hexdigest()[:12] for one in self.here.resources]
        names = {"names.json", *(f"held-{mark}.json" for mark in marks)}
        if (files := sorted(file for file in self.here.memory() if file.name in names)) and is_clear:
            file = _pick(files, what)
            file.write_text("{") if how % 2 else file.unlink()
        await self.here.begin()
        await self.quiet()

    async def _down(self, is_killed: int, seconds: int) -> None:
        await (self.here.kill() if is_killed % 2 else self.here.stop())
        await passes(float(seconds % 3))
        self._registrations.clear()

    async def restart_kubelet(self, how: int, _: int) -> None:
        """End the kubelet's process, and start the next one."""
        if how % 3 == 0 and not self.here.pods:
            (self.here.kubelet.plugin_dir / CHECKPOINT_NAME).unlink(missing_ok=True)
        self._registrations.clear()
        await self.here.restart_kubelet()

    def spoil(self, how: int, _: int) -> None:
        """Have PodResources answer nothing, not at all, or slowly, until all is quiet."""
        self.here.pod_resources.is_empty = how % 3 == 0
        self.here.pod_resources.is_refusing = how % 3 == 1
        self.here.pod_resources.seconds = (how % 3 - 1) * 1.5

    async def lose_api_server(self, _: int, __: int) -> None:
        """Restart the kubelet while the API server is away, until all is quiet."""
        if self.here.kubelet.is_api_server_up:
            self._registrations.clear()
            await self.here.lose_api_server()

    # ── pods ──

    async def run(self, name: int, kind: int) -> None:
        """Run a pod."""
        if not self.here.kubelet.is_api_server_up:
            return
        self._count += 1
        resource = _pick(self._names, name)
        if kind % 6 == 0 and self.here.free(resource):
            await self.here.try_init_pod(f"p{self._count}", resource)
        else:
            await self.here.run(f"p{self._count}", resource, 2 if kind % 6 == 1 else 1)

    async def run_any(self, name: int, kind: int) -> None:
        """Run a pod with what is free."""
        if free := [one for one in self._names if self.here.free(one)]:
            await self.run(self._names.index(_pick(free, name)), kind)

    def end(self, what: int, _: int) -> None:
        """End a pod."""
        if self.here.pods and self.here.kubelet.is_api_server_up:
            self.here.end(_pick(sorted(self.here.pods), what))

    async def start_again(self, what: int, _: int) -> None:
        """Have the container of a pod start again, with the answer that it had."""
        if not self.here.kubelet.is_api_server_up:
            return
        if names := sorted(name for name, one in self.here.pods.items() if not one.pod.init_containers):
            name, seen = _pick(names, what), self.here.seen()
            container = self.here.oracle.live[name]
            if seen.behind(seen.led_to(container.paths)) <= container.hardware:
                await self.here.start_again(name)

    # ── time ──

    async def wait(self, seconds: int, _: int) -> None:
        """Let some time go by."""
        await passes((0.01, 0.1, 0.4, 1.0, 3.0, 5.0, 12.0)[seconds % 7])

    async def quiet(self, _: int = 0, __: int = 0) -> None:
        """Wait until nothing happens any more, and have the oracle judge the node."""
        await self.here.find_api_server()
        self.here.pod_resources.is_empty = self.here.pod_resources.is_refusing = False
        self.here.pod_resources.seconds = 0.0
        await self.here.quiet()
        if self._is_alone:
            self.here.judge()
        self._judge_registrations()

    def _note_names(self) -> None:
        names = {str(one["name"]) for one in self.here.resources}
        self._registrations = {name: count for name, count in self._registrations.items() if name in names}

    def _judge_registrations(self) -> None:
        """O6: no edit makes a resource register again that the file has before and after it."""
        for name, count in self._registrations.items():
            now = self.here.kubelet.registrations(name)
            assert now == count, f"O6: {name} has registered {now} times, not {count}"
        names = [str(one["name"]) for one in self.here.resources]
        self._registrations = {name: self.here.kubelet.registrations(name) for name in names}

    async def end_well(self) -> None:
        """Judge the node a last time: each stick can be given out once."""
        await self.quiet()
        self.here.nothing_was_wrong()
        if self.here.oracle.late:
            await passes(RETRIED_SECONDS)
        if self._is_alone:
            await self.here.each_stick_has_one_pod()
        else:
            await self.here.fill()
        self.here.nothing_was_wrong()


RETRIED_SECONDS = 700.0
"""After so long a clean-up that failed has been tried again: it is every ten minutes at last."""

VERBS: Mapping[str, int] = {
    "plug": 3,
    "unplug": 3,
    "replug": 1,
    "renumber": 1,
    "link": 1,
    "edit": 2,
    "edit_well": 2,
    "restart": 2,
    "restart_with": 1,
    "lose": 1,
    "restart_kubelet": 1,
    "spoil": 1,
    "lose_api_server": 1,
    "run": 1,
    "run_any": 4,
    "end": 3,
    "start_again": 1,
    "wait": 3,
    "quiet": 2,
}
"""What can happen, and how often it is drawn."""


MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
"""The folder of nodes: the kubelet syncs its checkpoint all the time, which costs nothing in memory."""


async def pass_through(folder: Path, history: Sequence[Step], *, is_cleaning: bool, is_alone: bool) -> None:
    """Play a history, and have each step and its end judged."""
    async with node(folder) as here:
        played = History(here)
        async with played.begun(is_cleaning=is_cleaning, is_alone=is_alone):
            for step in history:
                await played.take(step)
            await played.end_well()


def play_history(history: Sequence[Step], *, is_cleaning: bool = True, is_alone: bool = True) -> None:
    """Play a history on a node of its own, in no time."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir=MEMORY))
    try:
        play(pass_through(folder, history, is_cleaning=is_cleaning, is_alone=is_alone))
    finally:
        shutil.rmtree(folder)
