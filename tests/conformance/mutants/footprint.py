"""Mutants that take too much."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails


@fails("FOO01")
class TakesMemory(Mutant):
    """Keeps 160 MiB for nothing."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.ballast = b"x" * (160 * 1024 * 1024)


@fails("FOO02", also=("RES09",))
class NeverRests(Mutant):
    """Looks at its devices without a pause."""

    poll_seconds = 0.0


@fails("FOO03")
class StartsThreads(Mutant):
    """Has eighty threads that wait for work."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        for _ in range(80):
            threading.Thread(target=threading.Event().wait, daemon=True).start()


@fails("FOO04")
class OpensFiles(Mutant):
    """Opens a file 150 times and closes none."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(150)]


@fails("FOO05")
class Chatters(Mutant):
    """Prints a line whenever it looks at its devices."""

    def devices(self) -> list[AdvertisedDevice]:
        self.say("looking at the devices")
        return super().devices()
