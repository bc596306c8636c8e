"""A node made of folders, on which the container of the DaemonSet runs as granted, beside our kubelet."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from devplug.kubelet.kubelet import Kubelet
from devplug.linux.processes import SIGKILL, SIGTERM, signal_group, spawn
from tests.deploy.security_context.namespaces import NODES

ROOT: Final = Path(__file__).parents[3]
RESOURCE: Final = "example.com/serial"
CONFIG: Final = f"""\
version: 1
resources:
  - name: {RESOURCE}
    discover: {{path: "/dev/ttyX*"}}
"""
UNUSED_MAJOR: Final = 60
"""No driver has it (Linux documentation, admin-guide/devices.txt: local use)."""


def play(story: Coroutine[Any, Any, None], seconds: float = 30) -> None:
    """Run a test's story, which it may not outlast."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await story

    asyncio.run(bounded())


def advertised(kubelet: Kubelet) -> set[str]:
    """The IDs that the kubelet knows of the daemon."""
    return {device.id for device in kubelet.devices(RESOURCE)}


async def until_advertised(kubelet: Kubelet, *names: str) -> None:
    """Wait until these are all."""
    await kubelet.wait(lambda: RESOURCE in kubelet.capacity() and advertised(kubelet) == {*names})


def _may_make_namespaces() -> bool:
    words = ["unshare", "--mount", "--pid", "--fork", "--net", "mount", "-t", "tmpfs", "none", "/tmp"]
    return os.geteuid() == 0 and not subprocess.run(words, capture_output=True, check=False).returncode


needs_namespaces: Final = pytest.mark.skipif(
    not _may_make_namespaces(),
    reason="only uid 0 that may mount tries a container: run the tests with sudo, outside of a container",
)


@dataclass(slots=True)
class Container:
    """One container that runs; it ends with its block at the latest."""

    runner: asyncio.subprocess.Process
    output_file: Path
    may_end: bool = False
    """Whether its end is no surprise."""

    def pid(self) -> int | None:
        """The process ID of its first process as this machine knows it; None until there is one."""
        children = Path(f"/proc/{self.runner.pid}/task/{self.runner.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def output(self) -> str:
        """What it has printed so far."""
        return self.output_file.read_text()

    async def end(self) -> int:
        """Ask it to end, as the kubelet does, and return its exit code."""
        self.may_end = True
        self.runner.send_signal(SIGTERM)
        return await self.runner.wait()


class Node:
    """Folders in place of a node's; in `root` is the kubelet's folder, in `dev` what the node has at /dev."""

    def __init__(self, folder: Path, manifest: Sequence[Mapping[str, Any]], config: str = CONFIG) -> None:
        self.root, self.dev = folder / "kubelet", folder / "dev"
        self.dev.mkdir()
        for name in ("pts", "shm", "mqueue", "hugepages"):
            (self.dev / name).mkdir()
        for name in NODES:
            os.mknod(self.dev / name, 0o20666, Path("/dev", name).stat().st_rdev)
        os.mknod(self.dev / "console", 0o20600, os.makedev(5, 1))
        self._config = folder / "config"
        self._config.mkdir()
        (self._config / "config.yaml").write_text(config)
        self.manifest_file = folder / "manifest.json"
        self.manifest_file.write_text(json.dumps(manifest))
        self._output = folder / "output"

    def plug(self, *names: str) -> None:
        """Make device nodes that nothing stands behind."""
        for name in names:
            os.mknod(self.dev / name, 0o20600, os.makedev(UNUSED_MAJOR, int(name.removeprefix("ttyX"))))

    def command(self, plugin_dir: Path | str, root: Path | str, *more: str) -> list[str]:
        """What runs the container; as a command of `devplug verify` too, where /dev is the node's already."""
        return [
            *(sys.executable, "-m", "tests.deploy.security_context", "--manifest", str(self.manifest_file)),
            *("--map", f"/var/lib/kubelet/device-plugins={plugin_dir}", "--map", f"/var/lib/kubelet={root}"),
            *("--config-map", str(self._config), *more),
        ]

    @asynccontextmanager
    async def container(self, *more: str) -> AsyncIterator[Container]:
        """Start the container; when the block is left, nothing of it is. An early end fails the block."""
        plugin_dir = self.root / "device-plugins"
        places = ("--map", f"/dev={self.dev}", "--mount-below", str(self.dev))
        words = self.command(plugin_dir, self.root, *places, *more)
        with self._output.open("wb") as output:
            runner = await spawn(words, output.fileno(), {**os.environ, "PYTHONPATH": str(ROOT)})
        container = Container(runner, self._output)

        async def watch() -> None:
            code = await runner.wait()
            assert container.may_end, f"it ended with {code}: {container.output()}"

        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch())
                yield container
                watching.cancel()
        finally:
            signal_group(runner.pid, SIGKILL)
            await runner.wait()

    async def result_of(self, program: str, *more: str) -> Any:
        """Run a Python program as the container, in place of devplug; return the JSON that it prints."""
        async with self.container("--program", program, *more) as container:
            container.may_end = True
            code = await container.runner.wait()
            assert code == 0, container.output()
            return json.loads(container.output().splitlines()[-1])

    @asynccontextmanager
    async def kubelet(self) -> AsyncIterator[Kubelet]:
        """Run a kubelet with its sockets in the node's folder."""
        kubelet = Kubelet.under(self.root)
        for name in ("device-plugins", "pod-resources", "plugins_registry"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        async with kubelet.running():
            yield kubelet


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """Make a control group with this memory limit, gone after the block; skips where that is refused."""
    first, unified = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    is_first = (first / "memory.limit_in_bytes").exists()
    folder = (first if is_first else unified) / f"devplug-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit_bytes))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"cannot make a control group with a memory limit here: {error}")
    try:
        yield folder
    finally:
        _remove_when_empty(folder)


def _remove_when_empty(group: Path) -> None:
    """Remove a control group whose processes have been killed, and may take a moment to be gone."""
    end = time.monotonic() + 5
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
        os.sched_yield()
