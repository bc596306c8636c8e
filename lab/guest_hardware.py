"""The guest's hardware from inside: what the host plugs on request, and what the guest switches itself.

The guest and the host talk in JSON lines on the second serial port.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import tty
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.linux.uevents import shared_uevents
from lab.hardware import SRIOV_FUNCTION
from lab.initrd import load_order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.linux.uevents import Uevent

__all__ = ["GuestHardware", "Talk"]

PORT: Final = "/dev/ttyS1"

CAMERA_MODULE: Final = "vivid"
CAMERA_OPTIONS: Final = ("n_devs=1", "node_types=0x1")
"""One camera with one node, and none of the tuners and outputs that the module can pretend to have."""

CARD: Final = "1234 11e8"
"""Vendor and device of QEMU's `edu`: whatever says so goes to user space."""

QUIET_SECONDS: Final = 0.4
PCI: Final = Path("/sys/bus/pci")
TPM: Final = Path("/sys/class/tpm/tpm0/device")


# ── the serial port ──


class Talk:
    """The guest's end of the conversation; lives as long as `opened`'s block."""

    def __init__(self, port: int, reader: asyncio.StreamReader) -> None:
        self._port = port
        self._reader = reader

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: str = PORT) -> AsyncIterator[Talk]:
        """Open the port, without echo and line editing."""
        port = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        tty.setraw(port)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(port, "rb", buffering=0, closefd=False)
        )
        try:
            yield cls(port, reader)
        finally:
            transport.close()
            os.close(port)

    async def ask(self, **message: str) -> str | None:
        """Ask the host for something; return what stands against it, or None when it is done."""
        self._say(message)
        answer: dict[str, str | None] = json.loads(await self._reader.readline())
        return answer["fault"]

    def tell(self, text: str) -> None:
        """Say what happens now, for people."""
        self._say({"tell": text})

    def row(self, row: dict[str, Any]) -> None:
        """Report how one device fared: the fields of `report.Row`."""
        self._say({"row": row})

    def fault(self, text: str) -> None:
        """Report a claim that does not hold."""
        self._say({"fault": text})

    def end(self) -> None:
        """Say that all stories were played."""
        self._say({"end": True})

    def _say(self, message: dict[str, Any]) -> None:
        # The port does not block: it takes some KiB at once, and QEMU reads as fast as we write.
        content = json.dumps(message).encode() + b"\n"
        while content:
            try:
                content = content[os.write(self._port, content) :]
            except BlockingIOError:
                continue


# ── hardware ──


class GuestHardware:
    """Plugs and unplugs, and notes when the kernel first told of it; lives as long as `ready`'s block."""

    def __init__(self, talk: Talk, modules: Path) -> None:
        self._talk = talk
        # What it needs is loaded already.
        *_, camera = load_order((modules / "modules.dep").read_text(), [CAMERA_MODULE])
        self._camera = modules / camera
        self._first_event_at: float | None = None
        self._has_event = asyncio.Event()
        self._tpm_driver, self._tpm_name = TPM.joinpath("driver").resolve(), TPM.resolve().name

    @classmethod
    @asynccontextmanager
    async def ready(cls, talk: Talk, modules: Path) -> AsyncIterator[GuestHardware]:
        """Hear the kernel, and take away what comes later."""
        hardware = cls(talk, modules)
        async with shared_uevents() as listener:
            with listener.subscribe(hardware._note):
                await asyncio.to_thread(_write, PCI / "drivers/vfio-pci/new_id", CARD)
                await hardware._switch_tpm(is_there=False)
                await hardware.quiet()
                yield hardware

    async def switch(self, plug: str, *, is_there: bool) -> str | None:
        """Plug or unplug something; return what stands against it, or None when it is done."""
        self._first_event_at = None
        try:
            match plug:
                case "functions":
                    await asyncio.to_thread(_set_functions, 2 if is_there else 0)
                case "tpm":
                    await self._switch_tpm(is_there=is_there)
                case "camera":
                    await _run(
                        *(
                            ("insmod", str(self._camera), *CAMERA_OPTIONS)
                            if is_there
                            else ("rmmod", CAMERA_MODULE)
                        )
                    )
                case _:
                    return await self._talk.ask(**{"plug" if is_there else "unplug": plug})
        except OSError as error:
            return str(error)
        return None

    @property
    def first_event_at(self) -> float | None:
        """When the kernel first told of what was switched last, by the monotonic clock."""
        return self._first_event_at

    async def quiet(self) -> None:
        """Return when the kernel has said nothing for a while."""
        while True:
            self._has_event.clear()
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._has_event.wait()
            except TimeoutError:
                return

    def _note(self, _: Uevent | None) -> None:
        self._has_event.set()
        if self._first_event_at is None:
            self._first_event_at = time.monotonic()

    async def _switch_tpm(self, *, is_there: bool) -> None:
        file = self._tpm_driver / ("bind" if is_there else "unbind")
        await asyncio.to_thread(_write, file, self._tpm_name)


def _set_functions(count: int) -> None:
    """Have so many virtual functions, all of them for user space."""
    physical = PCI / "devices" / SRIOV_FUNCTION
    # Else the driver of the physical function takes them, and waits for controllers without queues.
    _write(physical / "sriov_drivers_autoprobe", "0")
    _write(physical / "sriov_numvfs", str(count))
    for number in range(count):
        function = physical / f"virtfn{number}"
        _write(function / "driver_override", "vfio-pci")
        _write(PCI / "drivers_probe", function.resolve().name)


def _write(file: Path, text: str) -> None:
    file.write_text(text)


async def _run(*command: str) -> None:
    """Run a command of busybox; raises `OSError` with what it says if it fails."""
    process = await asyncio.create_subprocess_exec(
        "busybox", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise OSError(f"{' '.join(command)}: {said.decode(errors='replace').strip()}")
