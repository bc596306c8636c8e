"""The lab's outer side: boots the guest, plugs what it asks for, and collects what it reports.

Hardware is plugged and unplugged by QEMU's machine protocol (QMP), one command after another; the messages
are those of QEMU's docs/interop/qmp-spec.rst.
"""

from __future__ import annotations

import asyncio
import compileall
import json
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import devplug
from lab.hardware import PLUGGABLE, Sockets, arguments
from lab.initrd import initrd
from lab.report import Report, Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from lab.packages import Kernel

__all__ = ["LIMIT_SECONDS", "run_guest"]

LIMIT_SECONDS: Final = 480
"""How long a run may take, from the power switch to the last claim: twice what it takes on two busy cores."""

DRIVERS: Final = (
    *("xhci_pci", "usb_storage", "sd_mod", "ftdi_sio", "nvme", "vfio_iommu_type1", "vfio_pci"),
    *("videobuf2_v4l2", "videobuf2_vmalloc", "videobuf2_dma_contig", "v4l2_tpg", "v4l2_dv_timings", "cec"),
)
"""What udev would load on a node when it sees the devices, and what the camera's driver needs."""

REPOSITORY: Final = Path(__file__).parent.parent


# ── QMP ──


class QmpError(Exception):
    """QEMU refused a command; the text is QEMU's."""


class Qmp:
    """A conversation with one QEMU; lives as long as the connection, which its opener closes.

    One caller at a time.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._events: list[dict[str, Any]] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[Qmp]:
        """Open the conversation on a connection that QEMU made."""
        qmp = cls(reader, writer)
        try:
            await qmp._read()
            await qmp.execute("qmp_capabilities")
            yield qmp
        finally:
            writer.close()

    async def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> object:
        """Run a command and return its result. Raises `QmpError`, and `EOFError` if QEMU ends."""
        self._writer.write(
            json.dumps({"execute": command, "arguments": dict(arguments or {})}).encode() + b"\n"
        )
        await self._writer.drain()
        while True:
            answer = await self._read()
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise QmpError(str(answer["error"]["desc"]))
            else:
                result: object = answer["return"]
                return result

    async def wait_deleted(self, device_id: str) -> None:
        """Return when a device is gone that was to be removed. Raises `QmpError` if the guest refuses."""
        while True:
            event = self._events.pop(0) if self._events else await self._read()
            # Of a device with parts, those are told of by path alone.
            if event.get("data", {}).get("device") != device_id:
                continue
            if event["event"] == "DEVICE_DELETED":
                return
            if event["event"] in {"DEVICE_UNPLUG_GUEST_ERROR", "MEM_UNPLUG_ERROR"}:
                raise QmpError(f"the guest does not let go of {device_id}")

    async def _read(self) -> dict[str, Any]:
        line = await self._reader.readline()
        if not line:
            raise EOFError("QEMU has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


# ── the guest's life ──


async def run_guest(
    kernel: Kernel, folder: Path, names: Sequence[str], tell: Callable[[str], None]
) -> Report:
    """Boot the guest, play the stories of these names and return what they showed; then the guest is off.

    The console's text is in `folder`, as `console.log`. `tell` is called with what happens meanwhile.
    """
    console, image = folder / "console.log", folder / "initrd"
    # The guest is some twenty times slower, and cannot keep what it compiles.
    for package in (REPOSITORY / "lab", Path(devplug.__file__).parent):
        await asyncio.to_thread(compileall.compile_dir, package, quiet=2)
    image.write_bytes(initrd(kernel, DRIVERS, _guest_command(kernel, names)))
    console.write_bytes(b"")
    report = Report()
    # Of sockets only 107 bytes of the path count, and this folder may be deep.
    with tempfile.TemporaryDirectory(prefix="devplug-lab-") as name:
        sockets = Sockets(Path(name, "qmp"), Path(name, "talk"), Path(name, "tpm"))
        try:
            async with (
                asyncio.timeout(LIMIT_SECONDS),
                _accepting(sockets.qmp) as qmp_connection,
                _accepting(sockets.talk) as talk_connection,
                _tpm(Path(name), sockets.tpm),
                _qemu(kernel, image, console, sockets) as qemu,
                asyncio.TaskGroup() as group,
            ):
                talking = group.create_task(_talk(qmp_connection, talk_connection, report, tell))
                await qemu.wait()
                if not (qmp_connection.done() and talk_connection.done()):
                    talking.cancel()
        except TimeoutError:
            report.faults.append(f"the guest is not ready after {LIMIT_SECONDS} s; see {console}")
    if not report.has_ended:
        report.faults.append(f"the guest ended before its last claim; see {console}:\n{_tail(console)}")
    return report


def _guest_command(kernel: Kernel, names: Sequence[str]) -> list[str]:
    return [
        *("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run", "TMPDIR=/run", "LC_ALL=C.UTF-8"),
        # The root folder is read-only, and looking for what it cannot write takes time.
        *("PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"),
        f"PYTHONPATH={REPOSITORY}:{Path(devplug.__file__).parent.parent}",
        *(sys.executable, "-m", "lab.guest", str(kernel.modules), *names),
    ]


def _tail(console: Path) -> str:
    lines = console.read_text(errors="replace").splitlines()
    return "\n".join(f"  {line.rstrip()}" for line in lines[-12:])


# ── processes and sockets ─────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _qemu(
    kernel: Kernel, image: Path, console: Path, sockets: Sockets
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = arguments(kernel=kernel.image, initrd=image, console=console, sockets=sockets)
    async with _process("qemu-system-x86_64", *command) as qemu:
        yield qemu


@asynccontextmanager
async def _tpm(folder: Path, socket: Path) -> AsyncIterator[None]:
    """Run a TPM in software; QEMU connects to it when it starts."""
    control = f"type=unixio,path={socket}"
    async with _process(
        *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={folder}", "--ctrl", control),
        *("--flags", "not-need-init,startup-clear", "--log", f"file={folder / 'swtpm.log'}"),
    ):
        while not socket.exists():  # noqa: ASYNC110 -- it announces itself in no other way
            await asyncio.sleep(0.05)
        yield


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program until the block is left."""
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def _accepting(path: Path) -> AsyncIterator[asyncio.Future[Connection]]:
    """Listen on a socket until the block is left; yields who connects first."""
    first: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if first.done():
            writer.close()
        else:
            first.set_result((reader, writer))

    server = await asyncio.start_unix_server(accept, path)
    try:
        yield first
    finally:
        server.close()
        if first.done() and not first.cancelled():
            first.result()[1].close()


# ── what the guest says ───────────────────────────────────────────────────────────────────────────


async def _talk(
    qmp_connection: asyncio.Future[Connection],
    talk_connection: asyncio.Future[Connection],
    report: Report,
    tell: Callable[[str], None],
) -> None:
    """Answer the guest until it ends: one JSON object per line, in both directions."""
    async with Qmp.on(*await qmp_connection) as qmp:
        reader, writer = await talk_connection
        while line := await reader.readline():
            try:
                message: dict[str, Any] = json.loads(line)
            except ValueError:
                # Firmware and boot loaders look for someone on serial ports, too.
                continue
            match message:
                case {"plug": str(name)}:
                    answer = await _answer(qmp, "device_add", {**PLUGGABLE[name], "id": name})
                    writer.write(json.dumps({"fault": answer}).encode() + b"\n")
                case {"unplug": str(name)}:
                    answer = await _answer(qmp, "device_del", {"id": name})
                    writer.write(json.dumps({"fault": answer}).encode() + b"\n")
                case {"tell": str(text)}:
                    tell(text)
                case {"row": dict(row)}:
                    report.rows.append(Row(**row))
                case {"fault": str(fault)}:
                    report.faults.append(fault)
                case {"end": True}:
                    report.has_ended = True


async def _answer(qmp: Qmp, command: str, options: dict[str, Any]) -> str | None:
    """Do what the guest asked for; return what QEMU has against it, or None."""
    try:
        await qmp.execute(command, options)
        if command == "device_del":
            await qmp.wait_deleted(options["id"])
    except (QmpError, EOFError) as error:
        return str(error)
    return None
