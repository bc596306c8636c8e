"""A daemon as a process of its own that runs out of descriptors: it bears that, and says so once."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from devplug.kubelet.kubelet import Kubelet
from tests.cli.programs import DEVPLUG, PATIENCE_SECONDS, environment, limited
from tests.waiting import until

RESOURCES = 40
LOW = 100
"""A limit of descriptors that allows nine resources."""

FILE = "version: 1\nresources:\n" + "".join(
    f"- {{name: example.com/r{number}, discover: {{path: /dev/zero}}, overlap: shared}}\n"
    for number in range(RESOURCES)
)

LAST = FILE.splitlines()[-1]


@contextmanager
def daemon_in(folder: Path, file: str, by: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a daemon that `by` starts with its limits; it is dead when the block is left."""
    config = folder / "devplug.yaml"
    config.write_text(file)
    arguments = ("run", "-c", str(config), "--plugin-dir", str(folder), "--cdi-dir", str(folder / "cdi"))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*by, *DEVPLUG, *arguments], env=environment(), stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def healthy(kubelet: Kubelet, count: int) -> None:
    """Wait until so many devices are Healthy."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await kubelet.wait(lambda: sum(kubelet.allocatable().values()) == count)


async def test_what_fits_into_the_limit_is_served_and_the_rest_when_there_is_room(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir)
    async with kubelet.running():
        with daemon_in(short_dir, FILE, limited(LOW, LOW)) as daemon:
            await healthy(kubelet, 9)
            assert daemon.poll() is None
            (short_dir / "devplug.yaml").write_text("\n".join((*FILE.splitlines()[:2], LAST)))
            await until(lambda: kubelet.allocatable().get(f"example.com/r{RESOURCES - 1}"))
            daemon.terminate()
            assert await asyncio.to_thread(daemon.wait, PATIENCE_SECONDS) == 0
    told = f"the limit of {LOW} open files allows 9 resources; raise it (ulimit -n)"
    assert (short_dir / "log").read_text().count(told) == 1


async def test_it_raises_its_soft_limit_and_gives_health_commands_the_old_one(short_dir: Path) -> None:
    shows = f"test $(ulimit -Sn) = {LOW} && test $(ulimit -Hn) = 4096"
    checked = (
        "- {name: example.com/checked, discover: {path: /dev/zero}, overlap: shared, "
        f'health: [{{exec: {{command: [/bin/sh, -c, "{shows}"]}}}}]}}\n'
    )
    kubelet = Kubelet(short_dir)
    async with kubelet.running():
        with daemon_in(short_dir, FILE + checked, limited(LOW, 4096)):
            await healthy(kubelet, RESOURCES + 1)


async def test_without_a_free_descriptor_it_stays_and_serves_again_later(short_dir: Path) -> None:
    """A new kubelet comes meanwhile: every socket has to be made again."""
    kubelet = Kubelet(short_dir)
    async with kubelet.running():
        with daemon_in(short_dir, FILE, limited(4096, 4096)) as daemon:
            await healthy(kubelet, RESOURCES)
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (8, 4096))
            await kubelet.restart()
            await until(lambda: "Too many open files" in (short_dir / "log").read_text())
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (4096, 4096))
            await healthy(kubelet, RESOURCES)
            daemon.terminate()
            assert await asyncio.to_thread(daemon.wait, PATIENCE_SECONDS) == 0
    log = (short_dir / "log").read_text()
    assert log.count("Too many open files") < RESOURCES


@pytest.fixture
def pids_group() -> Iterator[Path]:
    """A control group that has a pids limit; removed after the test."""
    for above in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        group = above / f"devplug-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / "pids.max").exists():
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("only root makes control groups, where they may be written")


async def test_under_a_pids_limit_it_serves_takes_edits_and_ends(short_dir: Path, pids_group: Path) -> None:
    """One process, no thread beside it, and no command of a health check."""
    (pids_group / "pids.max").write_text("1")
    joins = ("sh", "-c", f'echo $$ > {pids_group}/cgroup.procs && exec "$@"', "sh")
    checked = (
        "- {name: example.com/checked, discover: {path: /dev/zero}, overlap: shared, "
        "health: [{exec: {command: [/bin/true]}, period: 1s}, {open: true, period: 1s}]}\n"
    )
    few = "\n".join((*FILE.splitlines()[:4], ""))
    kubelet = Kubelet(short_dir)
    async with kubelet.running():
        with daemon_in(short_dir, few, joins) as daemon:
            await healthy(kubelet, 2)
            (short_dir / "devplug.yaml").write_text(few + checked)
            await healthy(kubelet, 3)
            daemon.terminate()
            assert await asyncio.to_thread(daemon.wait, PATIENCE_SECONDS) == 0
    assert (short_dir / "log").read_text().count("cannot start a thread") <= 1
