"""The reading of one health rule on real files, nodes, pipes and processes."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.daemon.config.types import HealthRule
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import Health
from tests.daemon.hosts import char_node, link, needs_mknod, tree
from tests.daemon.probers import CARD, UP, at_work, card, command, doubts, file_rule, prober, unknown
from tests.waiting import until

NULL = HostDeviceNode("/dev/null", (1, 3))


def script(text: str) -> HealthRule:
    return command("/bin/sh", "-c", text.replace("{", "{{").replace("}", "}}"))


def first_answer(root: Path, rule: HealthRule, found: HostDevice) -> tuple[Health, str]:
    """What one check says: the health, and why nothing was learned."""
    one = prober(root, rule)

    async def check() -> None:
        async with at_work(one):
            await one.first_check([found])

    with doubts() as reasons:
        asyncio.run(check())
    return one.health_of(found.name), reasons.get(found.name, "")


GOOD = (Health.healthy(), "")


def bad(reason: str) -> tuple[Health, str]:
    return Health.unhealthy(reason), ""


# ── attributes ─────────────────────────────────────────────────────────────────────────────────────


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


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


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


# ── opening ────────────────────────────────────────────────────────────────────────────────────────


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


# ── commands ───────────────────────────────────────────────────────────────────────────────────────


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
