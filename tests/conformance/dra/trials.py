"""How tests try a DRA driver by the checks: on this loop, with a shorter look than a user's run has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.dra.driver_program import DriverPlace, DriverSubject
from devplug.conformance.dra.testbed import DriverRun
from devplug.conformance.runner import ARRIVAL, judge_run
from devplug.conformance.times import Times
from devplug.conformance.verdicts import Check, Verdict
from devplug.sandbox.scripted_api_server import scripted_api_server
from tests.conformance.dra.mutants import mutants
from tests.conformance.dra.right_driver import RightDriver

TIMES: Final = Times(
    start_seconds=60.0,
    dial_seconds=30.0,
    answer_seconds=60.0,
    options_limit_seconds=30.0,
    claim_limit_seconds=60.0,
    quick_claim_limit_seconds=30.0,
    slow_answer_seconds=0.4,
    health_seconds=30.0,
    first_list_limit_seconds=30.0,
    slices_seconds=60.0,
    change_seconds=60.0,
    republish_limit_seconds=30.0,
    silence_seconds=0.5,
    down_seconds=0.5,
    return_seconds=60.0,
    return_limit_seconds=30.0,
    end_seconds=30.0,
    end_limit_seconds=30.0,
    settle_seconds=0.3,
    check_seconds=300.0,
)
"""Shows a fault as soon as it can be seen; no limit is one that a right driver comes near, however busy the
machine. A mutant that never comes has shorter ones of its own."""


SUBJECT: Final = DriverSubject(unplug=("touch", "{work}/gone-0"), replug=("rm", "-f", "{work}/gone-0"))


class InProcess:
    """A driver on this loop, in place of a process."""

    def __init__(self, driver: RightDriver, tasks: asyncio.TaskGroup) -> None:
        self.started_at = time.monotonic()
        self.exit_code: int | None = None
        self._driver = driver
        self._ended = asyncio.Event()
        self._life = tasks.create_task(self._live())

    async def _live(self) -> None:
        try:
            await self._driver.run()
            self.exit_code = self._driver.exit_code()
        except asyncio.CancelledError:
            self.exit_code = -9
        except Exception:  # noqa: BLE001 -- a process would print it and end
            self.exit_code = 1
        await self._driver.die()
        self._ended.set()

    def last_words(self) -> str:
        return ""

    async def wait(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    async def stop(self, seconds: float) -> float | None:
        begun = time.monotonic()
        self._driver.stopping.set()
        if await self.wait(seconds):
            return time.monotonic() - begun
        await self.kill()
        return None

    async def kill(self) -> None:
        self._life.cancel()
        await self._ended.wait()


def lanes_of(name: str) -> Sequence[Check]:
    """Return the checks of the arrival and of the lanes that see a mutant's fault; for `right` all."""
    checks = all_driver_checks()
    if name not in mutants():
        return checks
    lanes = {one.lane for one in checks if one.id in mutants()[name].fails} | {ARRIVAL}
    return [one for one in checks if one.lane in lanes]


async def trial(name: str, checks: Sequence[Check], api_version: str = "v1") -> Sequence[Verdict]:
    """Return the verdicts on `right` or a mutant, which speaks this version of resource.k8s.io."""
    kind = mutants().get(name, RightDriver)
    times: dict[str, Any] = {**mutants()[name].times} if name in mutants() else {}
    return await trial_of(kind, checks, api_version, times)


async def trial_of(
    kind: type[RightDriver],
    checks: Sequence[Check],
    api_version: str = "v1",
    times: Mapping[str, Any] = MappingProxyType({}),
) -> Sequence[Verdict]:
    """Return the verdicts on a driver of this class; `times` differ from `TIMES`."""
    async with asyncio.TaskGroup() as tasks:

        async def launch(place: DriverPlace) -> InProcess:
            return InProcess(kind(place, api_version), tasks)

        run = DriverRun(launch, replace(TIMES, **times), scripted_api_server, SUBJECT)
        return await judge_run(run, checks, jobs=4)
