"""A machine that umockdev makes, for the process that it starts: hardware comes and goes, with events.

Runs under `umockdev-wrapper` with the system's own python, which has GObject's bindings; it imports nothing
of ours. Usage: `umockdev_bed.py COMMAND ...`; what COMMAND writes is its own. Reads one JSON object per line:
`{"add": [text]}` with devices in the format of umockdev's recordings, `{"remove": path}` with a folder below
/sys, `{"start": true}`. umockdev takes each name of a node once: what comes back needs another one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gi  # type: ignore[import-not-found, import-untyped, unused-ignore]

gi.require_version("UMockdev", "1.0")
from gi.repository import UMockdev  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: E402


def remove(testbed: Any, top: str) -> None:
    """Take a device away with all that hangs on it, in the kernel's order (drivers/base/core.c, device_del).

    First what leads to it and what it says of itself, then the event, then its folder: umockdev alone would
    leave the children's nodes and links, and send no event.
    """
    root = Path(testbed.get_root_dir())
    folders = [folder for folder, _, files in os.walk(f"{root}{top}", topdown=False) if "uevent" in files]
    for folder in folders:
        kernel_name = Path(folder).name
        links = [*root.glob(f"sys/bus/*/devices/{kernel_name}"), *root.glob(f"sys/class/*/{kernel_name}")]
        own = {file.name: file for file in Path(folder).iterdir() if file.is_file()}
        # umockdev finds the node that it has to remove by `dev`, but leaves this link behind.
        if "dev" in own:
            links += root.glob(f"sys/dev/*/{own['dev'].read_text().strip()}")
        files = [file for name, file in own.items() if name not in {"uevent", "dev"}]
        for place in [*links, *files]:
            place.unlink()
    for folder in folders:
        testbed.uevent(folder.removeprefix(str(root)), "remove")
    for folder in folders:
        testbed.remove_device(folder.removeprefix(str(root)))


def add(testbed: Any, device: str, watcher: subprocess.Popen[bytes] | None) -> None:
    """Add one device, of which `watcher` sees all of its attributes or nothing.

    The kernel writes a device's attributes before it lists it (drivers/base/core.c, device_add); umockdev
    lists it first: who looks between the two sees a device that no kernel shows.
    """
    if watcher is None:
        testbed.add_from_string(device)
        return
    watcher.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, watcher.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    testbed.add_from_string(device)
    watcher.send_signal(signal.SIGCONT)


def main(command: list[str]) -> None:
    """Make a machine for `command`, and change it until the input ends."""
    testbed = UMockdev.Testbed.new()
    started = None
    for line in sys.stdin:
        message = json.loads(line)
        if "add" in message:
            for device in message["add"]:
                add(testbed, device, started)
        elif "remove" in message:
            remove(testbed, message["remove"])
        else:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if started is not None:
        started.terminate()
        started.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
