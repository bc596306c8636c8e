"""Mutants of restarts: the kubelet's, lost streams, and the plugin's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from devplug.conformance.restart_scenes import is_listening
from devplug.devices import UNHEALTHY
from devplug.wire.sockets import socket_identity
from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails


@fails("RES01", return_seconds=20.0)
class TakesANewKubeletForTheOld(Mutant):
    """Registers with the first kubelet, and with no other."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        is_first = self.streams_opened == 0
        return is_first or (is_same_kubelet and super().is_wanting(is_same_kubelet, opened))


@fails("RES02", return_limit_seconds=1.0)
class WaitsBeforeItRegistersAgain(Mutant):
    """Takes 1.3 s for every registration but the first."""

    async def register(self) -> None:
        await asyncio.sleep(1.3 if self.streams_opened else 0)
        await super().register()


@fails("RES24", first_pods_limit_seconds=0.4, settle_seconds=3.0)
class ChecksItsDevicesFirst(Mutant):
    """Lists its devices as Unhealthy with each kubelet but the first, until it has looked at them."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams_opened > 1:
            yield [replace(device, health=UNHEALTHY) for device in self.devices()]
            await asyncio.sleep(0.6)
        async for devices in super().lists():
            yield devices


@fails("RES03")
class NamesDevicesAfterTheKubelet(Mutant):
    """Makes its IDs from the socket at which it has registered."""

    def devices(self) -> list[AdvertisedDevice]:
        kubelet = socket_identity(self.folder / "kubelet.sock")
        return [replace(device, id=f"{device.id}-{hash(kubelet)}") for device in super().devices()]


@fails("RES04", return_seconds=20.0)
class NeverNoticesALostStream(Mutant):
    """Waits for the next kubelet when its stream ends."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return not is_same_kubelet or not self.listener.is_bound()


@fails("RES05", return_seconds=20.0)
class WaitsAfterALostStream(Mutant):
    """Registers 12 s after the loss of its first stream."""

    lost_at = float("inf")

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        if not super().is_wanting(is_same_kubelet, opened):
            return False
        if not is_same_kubelet or self.streams_opened != 1:
            return True
        self.lost_at = min(self.lost_at, time.monotonic())
        return time.monotonic() - self.lost_at > 12.0


@fails("RES06", return_seconds=20.0)
class NeverNoticesALostSocket(Mutant):
    """Binds anew only for a new kubelet."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return not is_same_kubelet or (
            self.listener.is_bound() and super().is_wanting(is_same_kubelet, opened)
        )


@fails("RES07", return_seconds=20.0)
class KnowsAKubeletByTheWipe(Mutant):
    """Takes a kubelet for new only if that has removed the plugin's socket."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        is_first = self.streams_opened == 0
        is_wiped = not self.listener.is_bound()
        return is_first or is_wiped or (is_same_kubelet and super().is_wanting(is_same_kubelet, opened))


@fails("RES08", down_seconds=20.0)
class EndsWithoutAKubelet(Mutant):
    """Ends when kubelet.sock has been missing for 0.4 s."""

    async def live(self) -> None:
        async def watch() -> None:
            missing_since = None
            while True:
                await asyncio.sleep(self.poll_seconds)
                if (self.folder / "kubelet.sock").exists() or not self.streams_opened:
                    missing_since = None
                elif missing_since is None:
                    missing_since = time.monotonic()
                elif time.monotonic() - missing_since > 0.4:
                    self.say("the kubelet is gone")
                    os._exit(1)

        await beside(super().live, watch)


@fails("RES09")
class LooksForTheKubeletWithoutAPause(Mutant):
    """Is busy, in three threads, as long as there is no kubelet.sock."""

    async def live(self) -> None:
        def work() -> None:
            for _ in range(20):
                hashlib.sha256(bytes(1 << 20))

        async def watch() -> None:
            while True:
                if (self.folder / "kubelet.sock").exists():
                    await asyncio.sleep(self.poll_seconds)
                else:
                    await asyncio.to_thread(work)

        await beside(super().live, watch, watch, watch)


@fails("RES10", "RES11", also=("RES07", "RES22"), return_seconds=20.0)
class ForgetsAKubeletThatComesQuickly(Mutant):
    """Has a pause of 5 s after a new kubelet, and takes another that comes meanwhile for the same."""

    changed_at = float("-inf")
    current: object = None
    forgotten: object = None

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        kubelet = socket_identity(self.folder / "kubelet.sock")
        if kubelet == self.forgotten:
            return False
        if self.streams_opened and not is_same_kubelet and kubelet != self.current:
            if time.monotonic() - self.changed_at < 5.0:
                self.forgotten = kubelet
                return False
            self.current = kubelet
            self.changed_at = time.monotonic()
        return super().is_wanting(is_same_kubelet, opened)


@fails("RES11", return_seconds=20.0)
class GivesUpAfterSomeRestarts(Mutant):
    """Has seen enough after eight registrations."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return self.streams_opened < 8 and super().is_wanting(is_same_kubelet, opened)


@fails("RES12")
class LeavesDescriptorsOpen(Mutant):
    """Opens two files for each registration, and closes none."""

    async def register(self) -> None:
        for _ in range(2):
            os.open("/dev/null", os.O_RDONLY)
        await super().register()


@fails("RES13")
class KeepsWhatEachRegistrationNeeded(Mutant):
    """Holds 4 MiB more after each registration."""

    kept: list[bytes] = []  # noqa: RUF012 -- there is one plugin in a process

    async def register(self) -> None:
        self.kept.append(os.urandom(4 * 1024 * 1024))
        await super().register()


@fails("RES14")
class StartsThreadsForEachRegistration(Mutant):
    """Starts two threads for each registration, and ends none."""

    async def register(self) -> None:
        for _ in range(2):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        await super().register()


@fails("RES15")
class LeavesItsOldSockets(Mutant):
    """Leaves a socket behind for each registration but the first."""

    async def register(self) -> None:
        if self.streams_opened:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as end:
                end.bind(str(self.folder / f"mutant-{self.streams_opened}.sock"))
        await super().register()


@fails("RES16", return_seconds=20.0)
class BearsOneLostStream(Mutant):
    """Registers after the first lost stream, and not after the second."""

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        is_lost_again = is_same_kubelet and self.listener.is_bound() and self.streams_opened > 1
        return not is_lost_again and super().is_wanting(is_same_kubelet, opened)


@fails("RES21", return_seconds=20.0)
class SleepsThroughARestart(Mutant):
    """Takes what is there after a standstill for what was there before."""

    missed: object = None

    async def live(self) -> None:
        signal.signal(signal.SIGCONT, self.go_on)  # not the loop's, which may look for kubelets first
        await super().live()

    def go_on(self, *_: object) -> None:
        self.missed = socket_identity(self.folder / "kubelet.sock")

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        kubelet = socket_identity(self.folder / "kubelet.sock")
        return kubelet != self.missed and super().is_wanting(is_same_kubelet, opened)


@fails("RES22", settle_seconds=3.0)
class RegistersEightTimes(Mutant):
    """Calls Register eight times with each new kubelet but the first."""

    async def register(self) -> None:
        for _ in range(8 if self.streams_opened else 1):
            await super().register()


@fails("RES23", return_seconds=20.0)
class LooksAtTheFolderThatItKnows(Mutant):
    """Does nothing any more when the plugin folder is another one."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.known_folder = os.open(folder, os.O_RDONLY)  # open, so that no other gets its inode

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        try:
            is_known = os.path.samestat(os.fstat(self.known_folder), self.folder.stat())
        except FileNotFoundError:  # between the old folder and the new one
            is_known = False
        return is_known and super().is_wanting(is_same_kubelet, opened)


async def beside(*lives: Callable[[], Awaitable[None]]) -> None:
    """Run all of them side by side."""

    async def run(one: Callable[[], Awaitable[None]]) -> None:
        await one()

    async with asyncio.TaskGroup() as group:
        for one in lives:
            group.create_task(run(one))


@fails("RES17")
class NamesDevicesAfterItsProcess(Mutant):
    """Makes its IDs from its process ID."""

    def devices(self) -> list[AdvertisedDevice]:
        return [replace(device, id=f"{device.id}-{os.getpid()}") for device in super().devices()]


@fails("RES18")
class EndsBeforeALeftSocket(Mutant):
    """Takes a socket file on which nobody listens for one in use."""

    async def serve(self) -> None:
        path = self.folder / self.endpoint
        looks = 40  # one that is about to end still removes its own
        while path.exists() and not is_listening(path):
            if not (looks := looks - 1):
                sys.exit("address already in use")
            await asyncio.sleep(0.05)
        await super().serve()


@fails("RES19")
class LeavesThePredecessorsSocket(Mutant):
    """Has a socket name for each start, and removes none but its own."""

    endpoint = f"mutant-{os.getpid()}.sock"


@fails("RES20")
class EndsBesideAnother(Mutant):
    """Ends if another of its kind serves already."""

    async def serve(self) -> None:
        if is_listening(self.folder / self.endpoint):
            sys.exit("another one is running already")
        await super().serve()
