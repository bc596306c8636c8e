"""What is measured: a command, and the plugin that it starts, with folders and a kubelet of its own."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.kubelet import Kubelet, MissingError, playing
from bench.process import Process, running
from devplug.programs import filled, with_default_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REGISTER_SECONDS = 30
LIST_SECONDS = 30
"""How long each thing is waited for before its figure is given up."""

NODES = 8
"""How many devices there are, but where many are asked for."""


def many_file(count: int) -> str:
    """Return a configuration of one resource with so many devices."""
    return f"""\
version: 1
resources:
  - name: bench.devplug.io/many
    discover:
      path: /dev/null
    share:
      replicas: {count}
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plugin under test: how to start it, and where its devices are."""

    name: str
    command: tuple[str, ...]
    """With `{dir}` for the plugin folder and `{devices}` for the folder of its devices."""
    file: str = ""
    """A configuration for it, written before it starts; `{config}` is its path, `{devices}` works in it."""
    device_count: int = NODES
    """How many devices it lists, at least, when all is well."""
    default_dir: bool = False
    """Whether it has the plugin folder compiled in and runs where that is ours."""

    def watches_devices(self) -> bool:
        """Whether the command can be told where devices come and go."""
        return "{devices}" in "".join((*self.command, self.file))


@dataclass(slots=True)
class Plugin:
    """A started subject, with the kubelet that it talks to."""

    subject: Subject
    process: Process
    kubelet: Kubelet
    folder: Path
    devices: Path
    started_to_registered: float
    registered_to_listed: float


def plug(path: Path) -> None:
    """Make a device node like /dev/null, or a link to it where that is not allowed."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


@asynccontextmanager
async def started(subject: Subject) -> AsyncIterator[Plugin]:
    """Start a subject in folders of its own and wait for its first full list; it is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:  # short: it holds sockets
        root = Path(name)
        folder, backstage, devices = (root / part for part in ("plugins", "backstage", "devices"))
        for made in (folder, backstage, devices):
            made.mkdir()
        for number in range(NODES):
            plug(devices / f"node{number}")
        places = {"{dir}": str(folder), "{devices}": str(devices), "{config}": str(root / "config.yaml")}
        (root / "config.yaml").write_text(filled(subject.file, places))
        command = [filled(word, places) for word in subject.command]
        if subject.default_dir:
            command = with_default_dir(command, folder)
        async with playing(folder, backstage) as kubelet, running(command, root / "output") as process:
            kubelet.watch(process.child)
            try:
                endpoint = await kubelet.wait_registered(REGISTER_SECONDS)
                listed_at = await wait_full_list(kubelet, subject)
            except MissingError as error:
                raise MissingError(f"{error}; its last words: {process.last_words()}") from None
            yield Plugin(
                subject,
                process,
                kubelet,
                folder,
                devices,
                endpoint.registered_at - process.started_at,
                listed_at - endpoint.registered_at,
            )


async def wait_full_list(kubelet: Kubelet, subject: Subject) -> float:
    """Wait until the kubelet has all devices; return when it had them."""
    return await kubelet.wait_listed(
        lambda endpoint: len(endpoint.devices) >= subject.device_count,
        LIST_SECONDS,
        f"list of {subject.device_count} devices",
    )
