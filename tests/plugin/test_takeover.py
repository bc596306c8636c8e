"""The signs of a takeover: what the log and the status report, and when the name is registered again."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from devplug.logs import AUDIT
from devplug.plugin.inventory import Inventory
from devplug.plugin.registration import CUTS_SECONDS
from devplug.plugin.resource_lock import new_socket_name
from devplug.plugin.takeover import TakeoverDetector, other_sockets
from devplug.status import Takeover
from tests.plugin.fakes import RESOURCE, devices
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time
SEEN = "another plugin registers this resource name"
OVER = "no sign of another plugin of this resource name for ten minutes"
PROCESS = f"process {os.getpid()}, {Path('/proc/self/comm').read_text().strip()}"


class Stage:
    """A name with the devices a and b, registered since the first second."""

    def __init__(self, folder: Path) -> None:
        self.inventory = Inventory(RESOURCE)
        self.changes = 0
        self.detector = TakeoverDetector(RESOURCE, self.inventory, folder, self._changed)

    def takeover(self) -> Takeover | None:
        return self.detector.takeover

    def _changed(self) -> None:
        self.changes += 1

    def review(self, *cuts: float, registered_at: float | None = 1.0) -> None:
        self.detector.review(registered_at=registered_at, cuts=cuts)

    async def answered(self, *ids: str, after: float = 2.5) -> None:
        """Let some time pass, and take one answer of the kubelet."""
        await passes(after)
        before = self.detector.listed()
        assert before is not None
        self.detector.compare(now(), before, ids)


@pytest.fixture
async def stage(short_dir: Path) -> Stage:
    made = Stage(short_dir)
    await made.inventory.replace(devices("a", "b"))
    await passes(1)
    made.review()
    return made


@pytest.fixture
def listening(short_dir: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listen(stack: ExitStack, path: Path, backlog: int = 8) -> None:
    opened = stack.enter_context(socket.socket(socket.AF_UNIX))
    opened.bind(str(path))
    opened.listen(backlog)


def logged(caplog: pytest.LogCaptureFixture, words: str = SEEN) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == AUDIT and record.message == words]


# ── the kubelet's list ──


async def test_a_takeover_is_logged_once_with_devices_and_sockets(
    stage: Stage, short_dir: Path, listening: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    listen(listening, short_dir / "vendor.sock")
    await stage.answered("x")
    assert stage.detector.is_in_doubt
    assert stage.takeover() is None
    for _ in range(5):
        await stage.answered("x")
    takeover = stage.takeover()
    assert takeover
    assert (takeover.signs, takeover.device_ids, takeover.is_lost) == (("listed",), ("x",), True)
    assert takeover.reason == stage.detector.fault
    assert takeover.reason == (
        'another plugin registers this name: the kubelet lists "x", which this plugin never listed; '
        f"stop it: one of the sockets vendor.sock ({PROCESS})"
    )
    assert stage.changes == 1
    (record,) = logged(caplog)
    facts = vars(record)
    assert (record.levelname, facts["signs"], facts["device_ids"]) == ("WARNING", ["listed"], ["x"])
    assert facts["reason"] == takeover.reason


@pytest.mark.parametrize(
    ("answers", "is_lost"),
    [
        ([(1, "ab"), (9, "ab")], False),
        ([(1, "ax")], False),
        ([(1, "ax"), (1.9, "x")], False),
        ([(1, "ax"), (1.9, "x"), (0.1, "x")], True),
        ([(1, "ax"), (2, "ab"), (2, "ax")], False),
        ([(1, "x"), (2, "y"), (1.9, "y")], False),
        ([(1, "xy"), (2, "yz"), (1, "z")], True),
    ],
    ids=[
        "ours",
        "one answer",
        "too soon",
        "two seconds",
        "late list",
        "another stranger",
        "one of two stays",
    ],
)
async def test_strangers_are_certain_in_two_answers(
    stage: Stage, answers: list[tuple[float, str]], *, is_lost: bool
) -> None:
    for after, ids in answers:
        await stage.answered(*ids, after=after)
    assert (stage.takeover() is not None) is is_lost


async def test_devices_that_we_listed_around_the_answer_are_no_strangers(stage: Stage) -> None:
    for _ in range(3):
        await passes(3)
        before = stage.detector.listed()
        assert before is not None
        await stage.inventory.replace(devices("b", "c"))
        stage.detector.compare(now(), before, ["a", "b", "c"])
        await stage.inventory.replace(devices("a", "b"))
    assert stage.takeover() is None


async def test_many_strangers_are_counted(stage: Stage) -> None:
    many = [f"x{number:03}" for number in range(500)]
    for _ in range(2):
        await stage.answered(*many)
    takeover = stage.takeover()
    assert takeover
    assert takeover.device_ids == tuple(many[:20])
    assert 'the kubelet lists "x000", "x001" and 18 more, which' in takeover.reason


async def test_a_takeover_that_has_ended_is_reported_for_ten_minutes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a takeover between two scrapes would never be seen."""
    caplog.set_level(logging.INFO)
    for _ in range(2):
        await stage.answered("x")
    await stage.answered("a", after=1)
    takeover = stage.takeover()
    assert takeover
    assert not takeover.is_lost
    assert 'the kubelet listed "x"' in takeover.reason
    await passes(CUTS_SECONDS)
    stage.review()
    assert stage.takeover() is None
    assert len(logged(caplog, OVER)) == 1


async def test_a_new_registration_makes_earlier_differences_void(stage: Stage) -> None:
    await stage.answered("x")
    await stage.answered("x")
    assert stage.detector.fault
    stage.review(registered_at=now())
    assert stage.detector.fault == ""
    assert stage.takeover()
    assert not stage.detector.is_in_doubt


async def test_an_answer_from_before_the_registration_is_ignored(stage: Stage) -> None:
    before = stage.detector.listed()
    assert before is not None
    for asked_at in (0.0, 0.9):
        stage.detector.compare(asked_at, before, ["x"])
    stage.review(registered_at=None)
    assert stage.detector.listed() is None
    stage.detector.compare(now(), before, ["x"])
    assert not stage.detector.is_in_doubt


# ── lost streams ──


@pytest.mark.parametrize(
    ("cuts", "at", "is_sign"),
    [
        ((10.0, 20.0, 30.0), 30.0, True),
        ((10.0, 20.0, 30.0), 30.0 + CUTS_SECONDS, True),
        ((10.0, 20.0, 30.0), 31.0 + CUTS_SECONDS, False),
        ((20.0, 30.0), 30.0, False),
        ((10.0, 20.0, 11.0 + CUTS_SECONDS), 11.0 + CUTS_SECONDS, False),
        ((1.0, 710.0, 720.0, 730.0), 730.0, True),
        ((), 5.0, False),
    ],
    ids=["three", "ten minutes ago", "longer ago", "two", "far apart", "the last three", "none"],
)
async def test_three_lost_streams_are_a_sign(
    stage: Stage, cuts: tuple[float, ...], at: float, *, is_sign: bool
) -> None:
    await passes(at - now())
    stage.review(*cuts)
    takeover = stage.takeover()
    assert (takeover.signs if takeover else ()) == (("cut",) if is_sign else ())
    assert stage.detector.fault == ""


async def test_another_sign_is_logged_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.review(0.1, 0.2, 0.3)
    stage.review(0.1, 0.2, 0.3)
    for _ in range(3):
        await stage.answered("x")
    assert [vars(one)["signs"] for one in logged(caplog)] == [["cut"], ["listed", "cut"]]
    assert stage.changes == 2


async def test_without_another_socket_the_reason_names_the_pod(stage: Stage) -> None:
    stage.review(0.1, 0.2, 0.3)
    takeover = stage.takeover()
    assert takeover
    assert takeover.reason.endswith("its socket is not in the plugin folder; look for its pod on this node")


# ── a kubelet that has forgotten us ──


@pytest.mark.parametrize(
    ("answers", "is_forgotten"),
    [
        ([(1, "a"), (1, "")], False),
        ([(1, ""), (4.9, "")], False),
        ([(1, ""), (2, ""), (3, "")], True),
        ([(1, ""), (2, "a"), (3, "")], False),
        ([(1, "x"), (8, "x")], False),
        ([(1, "x"), (4, "")], False),
    ],
    ids=["once", "too soon", "five seconds", "shown between", "others", "others before"],
)
async def test_a_kubelet_that_lists_nothing_for_five_seconds_has_forgotten_us(
    stage: Stage, answers: list[tuple[float, str]], *, is_forgotten: bool
) -> None:
    for after, ids in answers:
        await stage.answered(*ids, after=after)
    assert stage.detector.is_forgotten is is_forgotten


async def test_a_kubelet_lists_nothing_where_we_have_no_healthy_device(stage: Stage) -> None:
    for reason in ("dropped", "still dropped"):
        await stage.inventory.mark_unhealthy(["a", "b"], reason)
        await stage.answered(after=9)
        assert not stage.detector.is_in_doubt
        assert not stage.detector.is_forgotten


async def test_a_forgetful_kubelet_is_registered_with_ever_more_rarely(stage: Stage) -> None:
    times = []
    await stage.answered("a")
    while now() < 3 * 3600:
        await stage.answered()
        if stage.detector.take_renewal():
            times.append(now())
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] < 15
    assert [round(wait / 60) for wait in waits[:6]] == [1, 2, 4, 8, 16, 32]
    assert max(waits) < 3700


async def test_once_it_shows_our_devices_the_next_time_is_the_first_again(stage: Stage) -> None:
    for _ in range(2):
        await stage.answered("b")
        while not stage.detector.take_renewal():
            await stage.answered()
        began = now()
        await stage.answered("a", "b")
        while not stage.detector.take_renewal():
            await stage.answered()
        assert now() - began < 15


async def test_a_kubelet_that_lists_others_is_not_registered_with_again(stage: Stage) -> None:
    for _ in range(100):
        await stage.answered("x")
        assert not stage.detector.take_renewal()


# ── the sockets of others ──


def test_live_sockets_of_others_are_named_newest_first(short_dir: Path, listening: ExitStack) -> None:
    for number in range(12):
        listen(listening, short_dir / f"{number:02}.sock")
        os.utime(short_dir / f"{number:02}.sock", (number, number))
    names = [f"{number:02}.sock ({PROCESS})" for number in range(11, 3, -1)]
    assert other_sockets(short_dir) == names


def test_dead_sockets_files_and_ours_are_not_named(short_dir: Path, listening: ExitStack) -> None:
    (short_dir / "kubelet_internal_checkpoint").touch()
    (short_dir / ".devplug").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "dead.sock"))
    for name in ("kubelet.sock", new_socket_name(RESOURCE), new_socket_name("example.com/b")):
        listen(listening, short_dir / name)
    assert other_sockets(short_dir) == []
    assert other_sockets(short_dir / "gone") == []


@pytest.mark.parametrize(
    "name",
    [
        "devplug-.sock",
        "devplug-000000000000-1-abcde.sock.sock",
        "xdevplug-000000000000-1-abcde.sock",
        "devplug-000000000000-1-abcde",
    ],
)
def test_a_name_that_resembles_ours_is_named(short_dir: Path, listening: ExitStack, name: str) -> None:
    listen(listening, short_dir / name)
    assert other_sockets(short_dir) == [f"{name} ({PROCESS})"]


def test_a_socket_whose_queue_is_full_is_live(short_dir: Path, listening: ExitStack) -> None:
    listen(listening, short_dir / "vendor.sock", 0)
    waiting = listening.enter_context(socket.socket(socket.AF_UNIX))
    waiting.connect(str(short_dir / "vendor.sock"))
    assert other_sockets(short_dir) == ["vendor.sock"]
