"""A runtime of real processes for a test, with the orders that a node's agent would give it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devplug.kubelet.pods import ContainerConfig
from devplug.sandbox.api.options import LogOptions
from devplug.sandbox.nodes.containerruntime import Ended, ProcessRuntime, StartOrder

IMAGE = "example.com/plugins/one:1.0"


def pod(uid: str = "u-1", image: str = IMAGE, **container: Any) -> Any:
    return {
        "metadata": {"namespace": "default", "name": "plugin", "uid": uid, "labels": {"app": "one"}},
        "spec": {"containers": [{"name": "c", "image": image, **container}]},
        "status": {"podIP": "10.0.0.7"},
    }


def config(envs: Sequence[tuple[str, str]] = ()) -> ContainerConfig:
    return ContainerConfig(tuple(envs), {}, (), (), ())


def order(
    one: Any, plugin_dir: Path, restart_count: int = 0, envs: Sequence[tuple[str, str]] = ()
) -> StartOrder:
    container = one["spec"]["containers"][0]
    return StartOrder(one, "worker-0", plugin_dir, container, restart_count, config(envs))


@dataclass
class Bed:
    """A running runtime, and what it has told."""

    runtime: ProcessRuntime
    folder: Path
    ends: asyncio.Queue[Ended] = field(default_factory=asyncio.Queue)

    async def start(self, one: Any | None = None, restart_count: int = 0) -> Any:
        one = one or pod()
        await self.runtime.start(order(one, self.folder / "device-plugins", restart_count))
        return one

    async def log(self, one: Any, **options: Any) -> str:
        return b"".join([part async for part in self.reading(one, **options)]).decode()

    def reading(self, one: Any, **options: Any) -> AsyncIterator[bytes]:
        return self.runtime.logs.read(one, LogOptions(**{"container": "c", **options}))

    async def printed(self, one: Any, what: str) -> str:
        """The log until it has `what`."""
        seen = ""
        async for part in self.reading(one, follow=True):
            seen += part.decode()
            if what in seen:
                break
        return seen


@asynccontextmanager
async def running(folder: Path, command: str | Sequence[str]) -> AsyncIterator[Bed]:
    """A runtime in which `command` stands for `IMAGE`; all of it is ended when the block is left."""
    words = shlex.split(command) if isinstance(command, str) else command
    ends: asyncio.Queue[Ended] = asyncio.Queue()
    runtime = ProcessRuntime({"one": words}, folder / "logs", ends.put_nowait)
    (folder / "device-plugins").mkdir(exist_ok=True)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(runtime.run())
        try:
            yield Bed(runtime, folder, ends)
        finally:
            task.cancel()
