"""Steps of the machine's clock: an hour, ten years, back to 1970. What is decided by time must not notice."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from torture.catalogue import case
from torture.daemons import config_text, node, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torture.catalogue import Trial
    from torture.daemons import Daemon, Node

A: Final = "example.com/a"
COUNT: Final = 4
TRUTH_SECONDS: Final = 2.0
HOUR: Final = 3600
YEARS: Final = 10 * 365 * 24 * HOUR

_SHIM: Final = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    void *place = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) offset = place;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    if (!result && now) { now->tv_sec = precise.tv_sec; now->tv_usec = precise.tv_nsec / 1000; }
    return result;
}

time_t time(time_t *place) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (place) *place = precise.tv_sec;
    return precise.tv_sec;
}
"""
"""What stands before the C library in the daemon: its calendar is so many seconds beside the true one."""


@case(
    "clock-steps",
    fault="X19",
    promise="A clock that steps by an hour, ten years or back to 1970 registers nothing again and drops no "
    "device: only time that never goes back decides",
    count=100,
    unit="steps",
    invariants="I2 I4 I6 I7 I12",
    limit_seconds=120,
)
async def clock_steps(trial: Trial) -> None:
    """Step the calendar of one daemon while something happens, or nothing."""
    shim = _compiled(trial.folder)
    if shim is None:
        trial.figure("skipped", "no C compiler here")
        return
    offset = trial.folder / "offset"
    _step(offset, 0)
    devices = trial.folder / "dev"
    devices.mkdir()
    for number in range(COUNT):
        (devices / f"n{number}").symlink_to("/dev/null")
    text = config_text(f'{{name: {A}, discover: {{path: "{devices}/n*"}}}}')
    async with node(trial.folder, text) as stage:
        variables = {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(offset)}
        daemon = stage.start(variables=variables)
        await stage.until_listed({A: COUNT}, daemon=daemon)
        await stage.until_registered(daemon, A)
        for turn in trial.rounds():
            seconds = turn.random.choice([HOUR, -HOUR, YEARS, -YEARS, -int(time.time()), 0])
            what = turn.random.choice(["nothing", "unplug", "restart", "pod"])
            before = stage.kubelet.registrations(A)
            await _happen(trial, stage, daemon, what, devices, partial(_step, offset, seconds), turn.number)
            await stage.until_listed({A: COUNT}, TRUTH_SECONDS, daemon)
            again = stage.kubelet.registrations(A) - (0 if what == "restart" else before)
            most = 1 if what == "restart" else 0
            trial.check(again <= most, f"I7: {what}, {seconds} s: {again} registrations", turn.number)
            await _admit(trial, stage, f"pod-{turn.number}", turn.number)
        code, _ = await daemon.stop()
        trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}")
        # Or it would be the true clock that was tried: the log has the daemon's time of day.
        hours = {line[:2] for line in daemon.said().splitlines() if " INFO " in line}
        trial.check(len(hours) > 1 or trial.count < 20, f"I2: the clock was not stepped: {hours}")


async def _happen(
    trial: Trial, stage: Node, daemon: Daemon, what: str, devices: Path, step: Callable[[], None], number: int
) -> None:
    """Step the clock in the midst of something."""
    if what == "unplug":
        # The last ones: no pod was ever given them, so that nothing keeps them but the time.
        first, second = (devices / f"n{COUNT - at}" for at in (1, 2))
        first.unlink()
        await stage.until_listed({A: COUNT - 1}, TRUTH_SECONDS, daemon)
        step()
        # It is kept for ten minutes, which have not passed at the next look.
        second.unlink()
        await stage.until_listed({A: COUNT - 2}, TRUTH_SECONDS, daemon)
        listed = {one.id for one in stage.kubelet.devices(A)}
        trial.check(len(listed) == COUNT, f"I12: a device was dropped: {listed}", number)
        for device in (first, second):
            device.symlink_to("/dev/null")
    elif what == "restart":
        step()
        await stage.kubelet.restart()
    elif what == "pod":
        async with asyncio.TaskGroup() as group:
            group.create_task(_admit(trial, stage, f"in-{number}", number))
            step()
    else:
        step()
        await asyncio.sleep(0.05)


async def _admit(trial: Trial, stage: Node, name: str, number: int) -> None:
    pod = pod_of(name, A)
    async with asyncio.timeout(10):
        status = await stage.kubelet.run_pod(pod)
    trial.check(status.phase == "Running", f"I6: {status.message}", number)
    stage.kubelet.remove_pod(pod.uid)


def _step(offset: Path, seconds: int) -> None:
    """Have the daemon's calendar so many seconds beside the true one, from this moment on."""
    with offset.open("r+b" if offset.exists() else "wb") as file:
        file.write(seconds.to_bytes(8, "little", signed=True))


def _compiled(folder: Path) -> Path | None:
    """Return the shim as a library; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(_SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library
