"""Health rules at work on real files, nodes, pipes and processes: what is read, when, and who is told."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from devplug.daemon.config.templates import parse_template
from devplug.daemon.config.types import HealthCommand, HealthRule
from devplug.daemon.health import Prober
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.devices import Health
from tests.daemon.hosts import char_node, link, needs_mknod, tree
from tests.plugin.fakes import Time
from tests.waiting import until

RESOURCE = "example.com/a"
NULL = HostDeviceNode("/dev/null", (1, 3))
UP = HealthRule(attribute="state", equals="up", timeout_seconds=5)
CARD = "/sys/devices/pci0000:00/0000:00:01.0"


def prober(root: Path, *rules: HealthRule, time: Time | None = None) -> Prober:
    given: dict[str, Any] = {} if time is None else {"clock": time.clock, "sleep": time.sleep}
    return Prober(rules, Host(root), resource_name=RESOURCE, **given)


def command(*arguments: str, timeout_seconds: float = 5) -> HealthRule:
    return HealthRule(
        exec=HealthCommand(command=tuple(map(parse_template, arguments))), timeout_seconds=timeout_seconds
    )


def script(text: str) -> HealthRule:
    return command("/bin/sh", "-c", text.replace("{", "{{").replace("}", "}}"))


def card(root: Path, text: str = "up", name: str = "card") -> HostDevice:
    """A device whose folder has the attribute `state`; several of them have one folder each."""
    folder = f"{CARD}/{name}"
    tree(root, {f"{folder[1:]}/state": text})
    return HostDevice(name, hardware=folder)


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


@asynccontextmanager
async def at_work(one: Prober) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(one.run())
        try:
            yield
        finally:
            task.cancel()


def first_answer(root: Path, rule: HealthRule, found: HostDevice) -> tuple[Health, str]:
    """What one check says: the health, and why nothing was learned."""
    one = prober(root, rule)

    async def check() -> None:
        async with at_work(one):
            await one.first_check([found])

    asyncio.run(check())
    return one.health_of(found.name), one.doubt_of(found.name)


GOOD = (Health.healthy(), "")


def bad(reason: str) -> tuple[Health, str]:
    return Health.unhealthy(reason), ""


def unknown(reason: str) -> tuple[Health, str]:
    return Health.healthy(), reason


# ── attributes ────────────────────────────────────────────────────────────────────────────────────


def test_an_attribute_of_the_device_is_compared(tmp_path: Path) -> None:
    assert first_answer(tmp_path, UP, card(tmp_path, "up\n", "a")) == GOOD
    assert first_answer(tmp_path, UP, card(tmp_path, "down\n", "b")) == bad('state is "down", not "up"')


def test_an_attribute_that_only_a_parent_has_is_the_nearest_parents(tmp_path: Path) -> None:
    tree(tmp_path, {f"{CARD[1:]}/state": "up", "sys/devices/pci0000:00/state": "down"})
    (tmp_path / CARD[1:] / "tty" / "ttyX0").mkdir(parents=True)
    assert first_answer(tmp_path, UP, HostDevice("x", hardware=f"{CARD}/tty/ttyX0")) == GOOD


def test_a_device_known_by_its_node_has_the_attributes_of_the_hardware_behind_it(tmp_path: Path) -> None:
    tree(tmp_path, {f"{CARD[1:]}/state": "down", "sys/dev/char/240:7": f"-> ../../..{CARD}/x7"})
    (tmp_path / CARD[1:] / "x7").mkdir()
    found = HostDevice("x7", (HostDeviceNode("/dev/x7", (240, 7)),))
    assert first_answer(tmp_path, UP, found) == bad('state is "down", not "up"')


def test_an_attribute_that_nobody_has_is_unknown(tmp_path: Path) -> None:
    (tmp_path / CARD[1:]).mkdir(parents=True)
    reason = "neither the device nor a parent has an attribute state"
    assert first_answer(tmp_path, UP, HostDevice("x", hardware=CARD)) == unknown(reason)


@pytest.mark.parametrize("found", [HostDevice("x", hardware=CARD), HostDevice("x", (NULL,)), HostDevice("x")])
def test_a_device_that_sysfs_does_not_know_is_unknown(tmp_path: Path, found: HostDevice) -> None:
    assert first_answer(tmp_path, UP, found) == unknown("sysfs has no folder for it")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


def file_rule(text: str) -> HealthRule:
    return HealthRule(file=parse_template(text), equals="ok", timeout_seconds=5)


def test_a_file_is_compared_that_the_device_gives_the_name_of(tmp_path: Path) -> None:
    tree(tmp_path, {"run/a/A_7": "ok\n", "run/a/B": "broken\n"})
    rule = file_rule("/run/{id}/{serial}")
    assert first_answer(tmp_path, rule, HostDevice("a", facts={"serial": "A/7"})) == GOOD
    assert first_answer(tmp_path, rule, HostDevice("a", facts={"serial": "B"})) == bad(
        '/run/a/B is "broken", not "ok"'
    )


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("/run/{id}", "/run/a: No such file or directory"),
        ("/run/{serial}", "no value for {serial}"),
        ("/pipe", "/pipe is no regular file"),
        ("/watchdog", "/watchdog is no regular file"),
    ],
    ids=["missing", "the device lacks what it needs", "a pipe, never opened", "a node, never opened"],
)
def test_a_file_that_cannot_be_read_is_unknown(tmp_path: Path, file: str, reason: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    link(tmp_path / "watchdog")
    assert first_answer(tmp_path, file_rule(file), HostDevice("a")) == unknown(reason)


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


OPEN = HealthRule(open=True, timeout_seconds=5)


def test_nodes_that_open_are_good() -> None:
    assert first_answer(Path("/"), OPEN, HostDevice("a", (NULL, HostDeviceNode("/dev/zero", (1, 5))))) == GOOD


def test_a_pseudo_terminal_is_good_until_its_other_end_is_closed() -> None:
    master, slave = os.openpty()
    path, number = os.ttyname(slave), os.fstat(slave).st_rdev
    os.close(slave)
    found = HostDevice("pty", (HostDeviceNode(path, (os.major(number), os.minor(number))),))
    try:
        assert first_answer(Path("/"), OPEN, found) == GOOD
    finally:
        os.close(master)
    assert first_answer(Path("/"), OPEN, found) == bad(f"{path} cannot be opened: No such file or directory")


def test_a_node_that_became_another_device_is_bad_and_not_opened() -> None:
    for node in (replace(NULL, number=(240, 7)), replace(NULL, is_block=True)):
        answer = first_answer(Path("/"), OPEN, HostDevice("a", (node,)))
        assert answer == bad("/dev/null is another device now")


def test_the_worst_of_several_nodes_counts_and_those_of_the_driver_do_not() -> None:
    gone = HostDeviceNode("/dev/none", (240, 7))
    reason = "/dev/none cannot be opened: No such file or directory"
    assert first_answer(Path("/"), OPEN, HostDevice("a", (NULL, gone))) == bad(reason)
    assert first_answer(Path("/"), OPEN, HostDevice("a", (NULL, replace(gone, is_shared=True)))) == GOOD
    alone = first_answer(Path("/"), OPEN, HostDevice("a", (replace(NULL, is_shared=True),)))
    assert alone == unknown("it has no device node of its own to open")


@pytest.mark.parametrize("name", ["watchdog0", "wd"], ids=["by its name", "by another name, from sysfs"])
def test_a_watchdog_is_never_opened(tmp_path: Path, name: str) -> None:
    link(tmp_path / "dev" / name)
    if name == "wd":
        links = {
            "sys/devices/wd/subsystem": "-> ../../class/watchdog",
            "sys/dev/char/1:3": "-> ../../devices/wd",
        }
        tree(tmp_path, links)
    reason = f"/dev/{name} is a watchdog: opening it would let it reboot the machine"
    found = HostDevice("a", (HostDeviceNode(f"/dev/{name}", (1, 3)),))
    assert first_answer(tmp_path, OPEN, found) == unknown(reason)


@needs_mknod
def test_a_node_without_a_driver_is_bad(tmp_path: Path) -> None:
    node = char_node(tmp_path / "x", major=4000)
    try:
        os.close(os.open(node, os.O_RDONLY))
    except PermissionError:
        pytest.skip(f"{tmp_path} is mounted nodev")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    reason = "/x cannot be opened: No such device or address"
    assert first_answer(tmp_path, OPEN, HostDevice("a", (HostDeviceNode("/x", (4000, 0)),))) == bad(reason)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit 0", GOOD),
        ("echo link down; exit 1", bad("link down")),
        ("echo no driver >&2; exit 3", unknown("the command ended with code 3: no driver")),
        ('test "$DEVPLUG_SERIAL $DEVPLUG_DEVICE_ID $DEVPLUG_RESOURCE_NAME" = "A7 a example.com/a"', GOOD),
    ],
)
def test_a_command_judges_by_its_exit_code(text: str, expected: tuple[Health, str]) -> None:
    assert first_answer(Path("/"), script(text), HostDevice("a", facts={"serial": "A7"})) == expected


def test_a_command_gets_what_templates_make_of_the_device() -> None:
    rule = command("/usr/bin/test", "{serial}", "=", "A 7")
    assert first_answer(Path("/"), rule, HostDevice("a", facts={"serial": "A 7"})) == GOOD
    assert first_answer(Path("/"), rule, HostDevice("a")) == unknown("no value for {serial}")


def test_a_command_that_is_not_installed_is_unknown() -> None:
    reason = '"/opt/selftest" cannot be started: No such file or directory'
    assert first_answer(Path("/"), command("/opt/selftest"), HostDevice("a")) == unknown(reason)


def test_a_late_command_is_unknown_and_ended(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    rule = command("/bin/sh", "-c", f"echo $$ > {file}; exec sleep 60", timeout_seconds=0.3)
    while not (file.exists() and file.read_text()):  # a busy machine may not have begun with it
        assert first_answer(Path("/"), rule, HostDevice("a")) == unknown("no answer within 0.3 s")
    assert not Path("/proc", file.read_text().strip()).exists()


async def test_a_command_ends_when_the_prober_ends(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    one = prober(Path("/"), command("/bin/sh", "-c", f"echo $$ > {file}; exec sleep 60"))
    async with at_work(one):
        one.follow([HostDevice("a")])
        await until(lambda: file.exists() and file.read_text())
    assert not Path("/proc", file.read_text().strip()).exists()


# ── the first check ───────────────────────────────────────────────────────────────────────────────


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
        await one.first_check([*(each.found for each in hung), card(tmp_path, "down")])
        checks = 0
        while one.doubt_of("card"):  # a busy machine may be late with it, too
            checks += 1
            await time.asleep(checks)
            time.wake()
        assert one.health_of("card") == Health.unhealthy('state is "down", not "up"')
        assert {one.health_of(name) for name in names} == {Health.healthy()}
        assert {one.doubt_of(name) for name in names} == {"no answer within 0.3 s"}
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


# ── again and again ───────────────────────────────────────────────────────────────────────────────


async def test_a_device_worsens_and_recovers_and_whoever_waits_is_woken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line about it is the list's: `devplug.plugin.device_log`."""
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
        assert one.doubt_of("card").startswith("neither the device")
    assert [record.getMessage() for record in caplog.records] == [
        "a health check has no result; the device keeps its health"
    ]


async def test_a_rule_that_never_learns_anything_does_not_keep_a_device_from_recovering(
    tmp_path: Path,
) -> None:
    """To the inventory unknown is "as before", which here would be Unhealthy for ever."""
    time = Time()
    one = prober(tmp_path, UP, command("/opt/selftest"), time=time)
    found = card(tmp_path, "down")
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
        assert one.doubt_of("card") == '"/opt/selftest" cannot be started: No such file or directory'


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


# ── devices that come and go ──────────────────────────────────────────────────────────────────────


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
        await one.first_check([HostDevice("x", facts=BrokenFacts()), HostDevice("a")])
        assert one.doubt_of("x") == "the check failed: RuntimeError('a bug')"
        assert one.health_of("a") == Health.unhealthy('/a is "broken", not "ok"')
