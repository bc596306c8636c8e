"""The lab's outer side, with programs in the place of QEMU and swtpm that speak as those do."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest

from lab.host import run_guest
from lab.packages import Kernel
from lab.report import Report, Row

TPM = """
import os, pathlib, re, sys, signal
control = next(argument for argument in sys.argv if argument.startswith("type=unixio"))
pathlib.Path(control.partition("path=")[2]).touch()
signal.pause()
"""

MACHINE = """
import json, re, socket, sys

arguments = " ".join(sys.argv)

def connected(name):
    one = socket.socket(socket.AF_UNIX)
    one.connect(re.search(f"socket,id={name},path=([^ ,]+)", arguments)[1])
    return one.makefile("rw")

talk, qmp = connected("talk"), connected("qmp")

def say(to, **message):
    print(json.dumps(message), file=to, flush=True)

def heard(by):
    return json.loads(by.readline())

def console(text):
    with open(re.search("file,id=console,path=([^ ,]+)", arguments)[1], "a") as file:
        print(text, file=file)

say(qmp, QMP={"version": {}})
assert heard(qmp)["execute"] == "qmp_capabilities"
say(qmp, **{"return": {}})
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A kernel without modules, and a folder for programs that stand before all others."""
    made = Kernel("6.1", tmp_path / "kernel")
    made.modules.mkdir(parents=True)
    (made.modules / "modules.dep").write_text("")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    program(tmp_path, "busybox", "")
    program(tmp_path, "swtpm", TPM)
    return made


def program(folder: Path, name: str, text: str) -> None:
    file = folder / "bin" / name
    file.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
    file.chmod(0o755)


def run(kernel: Kernel, folder: Path, guest: str) -> tuple[Report, list[str]]:
    """Run the lab with a QEMU in which `guest` is what happens."""
    program(folder, "qemu-system-x86_64", MACHINE + textwrap.dedent(guest))
    told: list[str] = []
    return asyncio.run(run_guest(kernel, folder, [], told.append)), told


def test_the_host_plugs_what_the_guest_asks_for_and_keeps_what_it_reports(
    kernel: Kernel, tmp_path: Path
) -> None:
    report, told = run(
        kernel,
        tmp_path,
        """
        print("what firmware writes to serial ports", file=talk, flush=True)
        say(talk, tell="now the stick")
        say(talk, plug="storage")
        asked = heard(qmp)
        assert asked["execute"] == "device_add", asked
        assert asked["arguments"]["id"] == "storage", asked
        say(qmp, event="ACPI_DEVICE_OST", data={})
        say(qmp, **{"return": {}})
        assert heard(talk) == {"fault": None}
        say(talk, unplug="storage")
        assert heard(qmp) == {"execute": "device_del", "arguments": {"id": "storage"}}
        say(qmp, **{"return": {}})
        say(qmp, event="DEVICE_DELETED", data={"path": "/machine/peripheral/storage/storage.0"})
        say(qmp, event="DEVICE_DELETED", data={"device": "storage"})
        assert heard(talk) == {"fault": None}
        row = {"title": "USB storage", "id": "46f4:0001:STOR42", "numa_node": 1, "found_ms": 3.5}
        say(talk, row=row)
        say(talk, end=True)
        """,
    )
    assert report.holds, report.faults
    assert report.rows == [Row("USB storage", "46f4:0001:STOR42", 1, 3.5)]
    assert told == ["now the stick"]


def test_the_guest_hears_why_something_cannot_be_plugged(kernel: Kernel, tmp_path: Path) -> None:
    report, _ = run(
        kernel,
        tmp_path,
        """
        say(talk, plug="nvme")
        heard(qmp)
        say(qmp, error={"class": "GenericError", "desc": "Bus 'port-nvme' not found"})
        say(talk, fault=heard(talk)["fault"])
        say(talk, end=True)
        """,
    )
    assert report.faults == ["Bus 'port-nvme' not found"]
    assert not report.holds


def test_a_removal_that_the_guest_refuses_is_a_fault(kernel: Kernel, tmp_path: Path) -> None:
    report, _ = run(
        kernel,
        tmp_path,
        """
        say(talk, unplug="card")
        heard(qmp)
        say(qmp, event="DEVICE_UNPLUG_GUEST_ERROR", data={"device": "card"})
        say(qmp, **{"return": {}})
        say(talk, fault=heard(talk)["fault"])
        say(talk, end=True)
        """,
    )
    assert report.faults == ["the guest does not let go of card"]


def test_a_guest_that_ends_too_early_leaves_the_end_of_its_console(kernel: Kernel, tmp_path: Path) -> None:
    report, _ = run(
        kernel,
        tmp_path,
        """
        console("Kernel panic - not syncing: No working init found.")
        """,
    )
    (fault,) = report.faults
    assert fault.startswith("the guest ended before its last claim")
    assert fault.endswith("Kernel panic - not syncing: No working init found.")


async def test_a_qemu_that_does_not_start_ends_the_run(
    kernel: Kernel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path, "qemu-system-x86_64", "import sys; sys.exit('no such machine')")
    report = await run_guest(kernel, tmp_path, [], lambda _: None)
    assert len(report.faults) == 1
    assert "no such machine" in capfd.readouterr().err
