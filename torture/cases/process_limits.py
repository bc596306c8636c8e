"""Limits of the process: it runs out of descriptors, or may have only so much memory."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.daemon.footprint import LIMIT_MEBIBYTES
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from torture.catalogue import case
from torture.daemons import config_text, node, pod_of
from torture.footprint import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torture.catalogue import Trial
    from torture.daemons import Node

A: Final = "example.com/a"
TRUTH_SECONDS: Final = 6.0
"""gRPC looks once a second whether it can take connections again, and then at those that came first."""

FREE_DESCRIPTORS: Final = 12
"""How many the process may have besides those of a start."""

MEMORY_BYTES: Final = 128 * 1024 * 1024
"""Two thirds of what the DaemonSet gives (deploy)."""

RESOURCES: Final = 1_000
RESOURCES_MEMORY_BYTES: Final = LIMIT_MEBIBYTES * 1024 * 1024

MANY: Final = 10_000
SCRAPES: Final = 4


@case(
    "descriptors-used-up",
    fault="X17",
    promise="A daemon without free descriptors never ends; once some are free it serves as before, and what "
    "happened meanwhile is made up for",
    count=50,
    unit="times",
    invariants="I2 I4 I5",
    limit_seconds=150,
)
async def descriptors_used_up(trial: Trial) -> None:
    """Take all descriptors of one daemon by connections to its sockets, have something happen, let go."""
    ids = [f"a{number}" for number in range(4)]
    text = config_text(f"{{name: {A}, discover: {{static: {{ids: [{', '.join(ids)}]}}}}}}")
    async with node(trial.folder, text) as stage:
        pages = trial.folder / "pages"
        daemon = stage.start("--listen", f"unix:{pages}")
        await stage.until_listed({A: len(ids)}, daemon=daemon)
        await stage.until_registered(daemon, A)
        if stage.status_sockets() or trial.count > 10:
            await asyncio.sleep(0.5)
        limit = max(int(name) for name in os.listdir(f"/proc/{daemon.pid}/fd")) + FREE_DESCRIPTORS
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (limit, limit))
        for turn in trial.rounds():
            what = turn.random.choice(["nothing", "restart", "edit", "pods", "lost stream"])
            with ExitStack() as stack:
                for path in (pages, *stage.plugin_dir.glob("devplug-*.sock")):
                    for _ in range(FREE_DESCRIPTORS + 4):
                        client = stack.enter_context(socket.socket(socket.AF_UNIX))
                        client.settimeout(0)
                        with suppress(OSError):
                            client.connect(str(path))
                await asyncio.sleep(turn.random.uniform(0, 0.1))
                if what == "restart":
                    await stage.kubelet.restart()
                elif what == "edit":
                    ids = [f"a{number}" for number in range(9 - len(ids))]
                    stage.file.write_text(
                        config_text(f"{{name: {A}, discover: {{static: {{ids: [{', '.join(ids)}]}}}}}}")
                    )
                elif what == "pods":
                    await _admit(trial, stage, f"in-{turn.number}", turn.number, must_run=False)
                elif what == "lost stream":
                    with suppress(Exception):
                        stage.kubelet.drop_stream(A)
                await asyncio.sleep(turn.random.uniform(0, 0.15))
            await stage.until_listed({A: len(ids)}, TRUTH_SECONDS, daemon)
            await _admit(trial, stage, f"after-{turn.number}", turn.number, must_run=True)
        answer = await get(UnixAddress(str(pages)), "/readyz", timeout_seconds=10)
        trial.check(answer.status == 200, f"I4: /readyz says {answer.status}: {answer.body!r}")
        code, _ = await daemon.stop()
        trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}")


async def _admit(trial: Trial, stage: Node, name: str, number: int, *, must_run: bool) -> None:
    pod = pod_of(name, A)
    async with asyncio.timeout(15):
        status = await stage.kubelet.run_pod(pod)
    trial.check(not must_run or status.phase == "Running", f"I6: {status.message}", number)
    stage.kubelet.remove_pod(pod.uid)


@case(
    "memory-limited",
    fault="X17",
    promise="A daemon with 10,000 devices that is scraped, edited and asked lives in 128 MiB, two thirds of "
    "what the DaemonSet gives it",
    count=12,
    unit="daemons",
    invariants="I3 I4",
    limit_seconds=200,
)
async def memory_limited(trial: Trial) -> None:
    """Start a daemon under a limit, make it work, look at the most that it ever had."""
    peaks: list[int] = []
    at_rest: list[int] = []
    for turn in trial.rounds():
        folder = trial.folder / str(turn.number)
        folder.mkdir()
        async with node(folder, _many(MANY)) as stage:
            with _limited(trial, MEMORY_BYTES) as prefix:
                daemon = stage.start("--listen", f"unix:{folder}/pages", prefix=prefix)
                await stage.until_listed({A: MANY}, daemon=daemon)
                for number in range(SCRAPES):
                    for path in ("/metrics", "/readyz"):
                        await get(UnixAddress(f"{folder}/pages"), path, timeout_seconds=30)
                    await _admit(trial, stage, f"pod-{number}", turn.number, must_run=True)
                stage.file.write_text(_many(MANY - 1))
                await stage.until_listed({A: MANY - 1}, daemon=daemon)
                await get(UnixAddress(f"{folder}/pages"), "/metrics", timeout_seconds=30)
                peaks.append(_peak_bytes(daemon.pid))
                at_rest.append(resident_bytes(str(daemon.pid)))
                code, _ = await daemon.stop()
                trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}", turn.number)
        trial.check(
            peaks[-1] < MEMORY_BYTES, f"I3: {peaks[-1] / 1024 / 1024:.0f} MiB at its peak", turn.number
        )
    trial.figure("most memory ever", f"{max(peaks) / 1024 / 1024:.0f} MiB")
    trial.figure("memory at the end", f"{max(at_rest) / 1024 / 1024:.0f} MiB")


@case(
    "memory-limited-resources",
    fault="X17",
    promise="A daemon with 1,000 resources, all edited at once, and with a kubelet that restarts, lives in "
    "the memory that the DaemonSet gives it",
    count=2,
    unit="daemons",
    invariants="I3 I4",
    limit_seconds=600,
)
async def memory_limited_resources(trial: Trial) -> None:
    """Start a daemon with all resources that a file may have under the limit, and make it work."""
    peaks: list[int] = []
    for turn in trial.rounds():
        folder = trial.folder / str(turn.number)
        folder.mkdir()
        async with node(folder, _many_resources(1)) as stage:
            with _limited(trial, RESOURCES_MEMORY_BYTES) as prefix:
                daemon = stage.start("--listen", f"unix:{folder}/pages", prefix=prefix)
                await _until_all(stage, 1)
                await get(UnixAddress(f"{folder}/pages"), "/metrics", timeout_seconds=60)
                stage.file.write_text(_many_resources(2))
                await _until_all(stage, 2)
                await stage.kubelet.restart()
                await _until_all(stage, 2)
                await get(UnixAddress(f"{folder}/pages"), "/status", timeout_seconds=60)
                peaks.append(_peak_bytes(daemon.pid))
                trial.check(daemon.exit_code is None, f"I4: it ended: {daemon.last_words()}", turn.number)
        trial.check(
            peaks[-1] < RESOURCES_MEMORY_BYTES,
            f"I3: {peaks[-1] / 1024 / 1024:.0f} MiB at its peak",
            turn.number,
        )
    trial.figure("most memory ever", f"{max(peaks) / 1024 / 1024:.0f} MiB")


def _many_resources(devices: int) -> str:
    ids = ", ".join(f"d{number}" for number in range(devices))
    return config_text(
        *(f"{{name: {A}{n}, discover: {{static: {{ids: [{ids}]}}}}}}" for n in range(RESOURCES))
    )


async def _until_all(stage: Node, devices: int) -> None:
    """Wait until the kubelet has so many devices of each resource."""
    async with asyncio.timeout(120):
        await stage.kubelet.wait(lambda: sum(stage.kubelet.allocatable().values()) == devices * RESOURCES)


def _many(count: int) -> str:
    ids = ", ".join(f"device-{number}" for number in range(count))
    return config_text(f"{{name: {A}, discover: {{static: {{ids: [{ids}]}}}}}}")


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


@contextmanager
def _limited(trial: Trial, limit_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield what starts a command under the limit: in a control group of its own, or by a limit of it."""
    for root, file in ((_V1, "memory.limit_in_bytes"), (_V2, "memory.max")):
        group = root / f"devplug-torture-{os.getpid()}"
        try:
            if not (root / "cgroup.procs").exists():
                continue
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(limit_bytes))
        except OSError:
            group.rmdir()
            continue
        trial.figure("limited by", "a control group")
        try:
            yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        finally:
            with suppress(OSError):
                group.rmdir()
        return
    trial.figure("limited by", "RLIMIT_DATA")
    yield ("prlimit", f"--data={limit_bytes}")


_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
