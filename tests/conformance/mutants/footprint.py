"""Mutants that take too much."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant


class TakesMemory(Mutant):
    """Keeps 160 MiB for nothing."""

    fails = ("FOO01",)

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.ballast = b"x" * (160 * 1024 * 1024)


class NeverRests(Mutant):
    """Looks at its devices without a pause."""

    fails = ("FOO02",)
    also = ("RES09",)

    poll_seconds = 0.0


class StartsThreads(Mutant):
    """Has eighty threads that wait for work."""

    fails = ("FOO03",)

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        for _ in range(80):
            threading.Thread(target=threading.Event().wait, daemon=True).start()


class OpensFiles(Mutant):
    """Opens a file 150 times and closes none."""

    fails = ("FOO04",)

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(150)]


class Chatters(Mutant):
    """Prints a line whenever it looks at its devices."""

    fails = ("FOO05",)

    def devices(self) -> list[AdvertisedDevice]:
        self.say("looking at the devices")
        return super().devices()
