"""CDI specs in a folder, and what is in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devplug.cdi.spec import CdiDevice, CdiNode, CdiSpec
from devplug.daemon.cdi.spec_files import CdiFolder

_ROOT = Path(__file__).parents[3]

KIND = "devplug.example.com/serial"
OTHER_KIND = "devplug.example.com/camera"
ONE = CdiSpec(KIND, (CdiDevice("one", (CdiNode("/dev/serial0", "/dev/ttyUSB0"),)),))
TWO = CdiSpec(KIND, (CdiDevice("two", (CdiNode("/dev/serial0", "/dev/ttyUSB1"),)),))
CAMERA = CdiSpec(OTHER_KIND, (CdiDevice("front", (CdiNode("/dev/video0", "/dev/video0"),)),))
HUGE = CdiSpec(KIND, tuple(CdiDevice(f"d{n}", (CdiNode(f"/dev/x{n}", f"/dev/y{n}"),)) for n in range(2000)))


def ended_daemon(folder: Path, *specs: CdiSpec) -> None:
    """A daemon that wrote these and ended."""
    daemon = CdiFolder(folder)
    for spec in specs:
        daemon.write(spec)
    daemon.close()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def started(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that runs a program which can import this file."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:
        yield process
