"""Health checks over time, on real files and processes: the first, later ones, devices that come and go."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from devplug.daemon.config.templates import parse_template
from devplug.daemon.config.types import HealthRule
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Health
from tests.daemon.hosts import tree
from tests.daemon.probers import CARD, UP, at_work, card, command, doubts, file_rule, prober
from tests.plugin.fakes import Time
from tests.waiting import until


def state_file(root: Path, found: HostDevice) -> Path:
    return root / found.hardware[1:] / "state"


class HungCard:
    """A device whose attribute holds whoever reads it, as with broken firmware, until it answers."""

    def __init__(self, root: Path, name: str) -> None:
        self.found = HostDevice(name, hardware=f"{CARD}/{name}")
        self._file = state_file(root, self.found)
        self._file.parent.mkdir(parents=True)
        os.mkfifo(self._file)
        self._writer: int | None = None

    @property
    def is_being_read(self) -> bool:
        """Whether somebody has begun to read it; holds the other end from then on, so that it hangs on."""
        if self._writer is None:
            try:
                self._writer = os.open(self._file, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
        return self._writer is not None

    async def answer(self, text: str) -> None:
        await until(lambda: self.is_being_read)
        assert self._writer is not None
        os.write(self._writer, text.encode())
        os.close(self._writer)


# ── the first check ────────────────────────────────────────────────────────────────────────────────


async def test_the_first_check_waits_for_all_rules_of_all_devices(tmp_path: Path) -> None:
    one = prober(tmp_path, UP, HealthRule(attribute="heat", max=90, timeout_seconds=5))
    found = [card(tmp_path, "up", "a"), card(tmp_path, "down", "b")]
    tree(tmp_path, {f"{CARD[1:]}/a/heat": "91", f"{CARD[1:]}/b/heat": "20"})
    async with at_work(one):
        await one.first_check(found)
        assert one.health_of("a") == Health.unhealthy("heat is 91, more than 90")
        assert one.health_of("b") == Health.unhealthy('state is "down", not "up"')


async def test_the_first_check_waits_until_the_prober_runs(tmp_path: Path) -> None:
    one = prober(tmp_path, UP)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(one.first_check([card(tmp_path, "down")]))
        await asyncio.sleep(0)
        assert not waiting.done()
        async with at_work(one):
            await waiting
    assert one.health_of("card").reason == 'state is "down", not "up"'


async def test_a_device_that_was_checked_is_not_waited_for_again(tmp_path: Path) -> None:
    one = prober(tmp_path, UP)
    found = card(tmp_path, "up")
    async with at_work(one):
        await one.first_check([found])
        one.follow([found])
        state_file(tmp_path, found).write_text("down")
        await one.first_check([found])
        assert one.health_of("card") == Health.healthy()


async def test_a_hung_device_is_unknown_after_the_timeout_and_holds_nobody_up(tmp_path: Path) -> None:
    time = Time()
    rule = HealthRule(attribute="state", equals="up", timeout_seconds=0.3)
    one = prober(tmp_path, rule, time=time)
    hung = [HungCard(tmp_path, f"hung{n}") for n in range(20)]
    names = [each.found.name for each in hung]
    async with at_work(one):
        with doubts() as reasons:
            await one.first_check([*(each.found for each in hung), card(tmp_path, "down")])
        checks = 0
        while one.health_of("card") == Health.healthy():  # a busy machine may be late with it, too
            checks += 1
            await time.asleep(checks)
            time.wake()
        assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')
        assert {one.health_of(name) for name in names} == {Health.healthy()}
        assert {reasons[name] for name in names} == {"no answer within 0.3 s"}
    # The prober has ended although all of them still hang.
    for each in hung:
        await each.answer("up")


async def test_a_hung_check_is_not_begun_again_and_its_late_answer_does_not_count(tmp_path: Path) -> None:
    time = Time()
    rule = HealthRule(attribute="state", equals="up", timeout_seconds=0.1, failure_threshold=1)
    one = prober(tmp_path, rule, time=time)
    hung = HungCard(tmp_path, "card")
    async with at_work(one):
        await one.first_check([hung.found])
        await until(lambda: hung.is_being_read)
        time.now += 1000
        for _ in range(100):
            await asyncio.sleep(0)
        assert time.slept == []
        await hung.answer("down")
        await time.asleep(1)
        assert one.health_of("card") == Health.healthy()


async def test_at_most_eight_checks_are_waited_for_at_once(tmp_path: Path) -> None:
    one = prober(tmp_path, UP)
    hung = [HungCard(tmp_path, f"{n}") for n in range(12)]
    async with at_work(one):
        one.follow(each.found for each in hung)
        await until(lambda: sum(each.is_being_read for each in hung) == 8)
        for _ in range(200):
            await asyncio.sleep(0)
        first = [each for each in hung if each.is_being_read]
        assert len(first) == 8
        for each in [*first, *(each for each in hung if each not in first)]:
            await each.answer("up")
        await one.first_check(each.found for each in hung)


# ── again and again ────────────────────────────────────────────────────────────────────────────────


async def test_a_device_worsens_and_recovers_and_whoever_waits_is_woken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line about it is the list's: `devplug.plugin.snapshot`."""
    caplog.set_level(logging.INFO)
    time = Time()
    rule = HealthRule(attribute="state", equals="up", failure_threshold=2, timeout_seconds=5)
    one = prober(tmp_path, rule, time=time)
    found = card(tmp_path, "up")
    async with at_work(one):
        await one.first_check([found])
        assert not one.changed.is_set()
        state_file(tmp_path, found).write_text("down")
        await time.asleep(1)
        time.wake()
        await time.asleep(2)
        assert not one.changed.is_set()
        time.wake()
        await one.changed.wait()
        assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')
        one.changed.clear()
        state_file(tmp_path, found).write_text("up")
        await time.asleep(3)
        time.wake()
        await one.changed.wait()
        assert one.health_of("card") == Health.healthy()
    assert caplog.records == []


async def test_what_cannot_be_read_any_more_stays_as_it_was_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    one = prober(tmp_path, UP, time=time)
    found = card(tmp_path, "down")
    async with at_work(one):
        await one.first_check([found])
        state_file(tmp_path, found).unlink()
        for times in range(1, 5):
            await time.asleep(times)
            time.wake()
        await time.asleep(5)
        assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')
    (record,) = caplog.records
    assert record.getMessage() == "a health check has no result; the device keeps its health"
    assert record.__dict__["reason"].startswith("neither the device")


async def test_a_rule_that_never_learns_anything_does_not_keep_a_device_from_recovering(
    tmp_path: Path,
) -> None:
    """To the inventory unknown is "as before", which here would be Unhealthy for ever."""
    time = Time()
    one = prober(tmp_path, UP, command("/opt/selftest"), time=time)
    found = card(tmp_path, "down")
    with doubts() as reasons:
        async with at_work(one):
            await one.first_check([found])
            assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')
            state_file(tmp_path, found).write_text("up")
            one.changed.clear()
            await time.asleep(2)
            time.wake()
            time.wake()
            await one.changed.wait()
            assert one.health_of("card") == Health.healthy()
    assert reasons["card"] == '"/opt/selftest" cannot be started: No such file or directory'


async def test_each_check_has_its_own_phase_and_keeps_it(tmp_path: Path) -> None:
    phases: dict[str, float] = {}
    for name in ("a", "b", "c", "d"):
        time = Time()
        rule = HealthRule(attribute="state", equals="up", period_seconds=10, timeout_seconds=5)
        one = prober(tmp_path, rule, time=time)
        async with at_work(one):
            await one.first_check([card(tmp_path, "up", name)])
            for times in range(1, 4):
                await time.asleep(times)
                time.now += 0.25  # it wakes a little late each time
                time.wake()
            await time.asleep(4)
        phases[name] = time.slept[0]
        assert time.slept[1:] == pytest.approx([9.75, 9.75, 9.75])
    assert len(set(phases.values())) == 4
    assert all(0 < phase <= 10 for phase in phases.values())


async def test_a_check_that_missed_its_turns_leaves_them_out(tmp_path: Path) -> None:
    time = Time()
    one = prober(tmp_path, UP, time=time)
    async with at_work(one):
        await one.first_check([card(tmp_path)])
        await time.asleep(1)
        time.now += 35
        time.wake()
        await time.asleep(2)
    assert time.slept[1] == pytest.approx(5)


# ── devices that come and go ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_missed", [True, False])
async def test_a_device_that_was_plugged_in_again_starts_anew(tmp_path: Path, is_missed: bool) -> None:
    time = Time()
    rule = HealthRule(attribute="state", equals="up", success_threshold=5, timeout_seconds=5)
    one = prober(tmp_path, rule, time=time)
    before = card(tmp_path, "down", "port1")
    after = card(tmp_path, "up", "port2")
    async with at_work(one):
        await one.first_check([before])
        one.follow([before])
        assert one.health_of("port1") != Health.healthy()
        if is_missed:
            one.follow([])
            assert one.health_of("port1") == Health.healthy()
        again = HostDevice("port1", hardware=before.hardware if is_missed else after.hardware)
        state_file(tmp_path, again).write_text("up")
        await one.first_check([again])
        assert one.health_of("port1") == Health.healthy()


async def test_a_device_whose_facts_changed_goes_on_with_them(tmp_path: Path) -> None:
    time = Time()
    rule = HealthRule(file=parse_template("/{serial}"), equals="ok", failure_threshold=1)
    tree(tmp_path, {"A": "ok", "B": "broken"})
    one = prober(tmp_path, rule, time=time)
    async with at_work(one):
        await one.first_check([HostDevice("x", facts={"serial": "A"})])
        await time.asleep(1)
        one.follow([HostDevice("x", facts={"serial": "B"})])
        time.wake()
        await one.changed.wait()
        assert one.health_of("x") == Health.unhealthy('/B is "broken", not "ok"')


async def test_a_device_that_goes_in_its_first_check_is_not_waited_for(tmp_path: Path) -> None:
    one = prober(tmp_path, UP)
    hung = HungCard(tmp_path, "card")
    async with at_work(one), asyncio.TaskGroup() as group:
        waiting = group.create_task(one.first_check([hung.found]))
        await until(lambda: hung.is_being_read)
        one.follow([])
        await waiting
        await hung.answer("up")


async def test_devices_are_kept_when_the_prober_runs_again(tmp_path: Path) -> None:
    one = prober(tmp_path, UP)
    found = card(tmp_path, "down")
    for _ in range(2):
        async with at_work(one):
            await one.first_check([found])
            assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')


async def test_without_rules_nothing_is_followed_and_nothing_is_waited_for(tmp_path: Path) -> None:
    time = Time()
    one = prober(tmp_path, time=time)
    threads, tasks = set(threading.enumerate()), len(asyncio.all_tasks())
    async with at_work(one):
        await one.first_check([card(tmp_path)])
        one.follow([card(tmp_path)])
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == tasks + 1
    assert time.slept == []
    assert set(threading.enumerate()) <= threads
    assert one.health_of("card") == Health.healthy()


class BrokenFacts(Mapping[str, str | int]):
    def __getitem__(self, key: str) -> str:
        raise RuntimeError("a bug")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a bug")

    def __len__(self) -> int:
        return 1


async def test_a_check_that_is_broken_does_not_end_the_others(tmp_path: Path) -> None:
    time = Time()
    tree(tmp_path, {"a": "broken"})
    one = prober(tmp_path, file_rule("/{id}"), time=time)
    async with at_work(one):
        with doubts() as reasons:
            await one.first_check([HostDevice("x", facts=BrokenFacts()), HostDevice("a")])
        assert reasons["x"] == "the check failed: RuntimeError('a bug')"
        assert one.health_of("a") == Health.unhealthy('/a is "broken", not "ok"')
