"""What the guard of a name tells, when, how often; and when it has the name registered again."""

from __future__ import annotations

import logging
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from devplug.logs import AUDIT
from devplug.plugin.inventory import Inventory
from devplug.plugin.takeover import LASTS_SECONDS, Listed
from devplug.plugin.takeover_detector import TakeoverDetector
from devplug.status import Takeover
from tests.plugin.fakes import RESOURCE, devices
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time
TOLD = "another plugin registers this resource name"
OVER = "no sign of another plugin of this resource name for ten minutes"


class Guarded:
    """A guard of a name with the devices a and b, registered since the first second."""

    def __init__(self, folder: Path) -> None:
        self.inventory = Inventory(RESOURCE)
        self.changes = 0
        self.guard = TakeoverDetector(
            RESOURCE, self.inventory, folder, "own.sock", self._changed, wall_clock=lambda: 7e9
        )

    def takeover(self) -> Takeover | None:
        return self.guard.takeover

    def _changed(self) -> None:
        self.changes += 1

    async def registered(self) -> None:
        await self.inventory.replace(devices("a", "b"))
        await passes(1)
        self.review(registered_at=1.0)

    def review(
        self,
        *,
        registered_at: float | None = 1.0,
        cuts: tuple[float, ...] = (),
        calls: tuple[float, ...] = (),
    ) -> None:
        self.guard.review(registered_at=registered_at, cuts=cuts, strange_calls=calls)

    async def answered(self, *told: str, after: float = 2.5) -> None:
        """Let some time pass, and take one answer of the kubelet."""
        await passes(after)
        before = self.guard.listed()
        assert before is not None
        self.guard.compare(now(), before, told)


@pytest.fixture
async def stage(short_dir: Path) -> Guarded:
    guarded = Guarded(short_dir)
    await guarded.registered()
    return guarded


def told(caplog: pytest.LogCaptureFixture, words: str = TOLD) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == AUDIT and record.message == words]


async def test_a_name_that_is_another_ones_is_told_once_with_signs_devices_and_sockets(
    stage: Guarded, short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(short_dir / "vendor.sock"))
        opened.listen()
        await stage.answered("x")
        assert stage.guard.is_in_doubt
        assert stage.takeover() is None
        for _ in range(5):
            await stage.answered("x")
        takeover = stage.takeover()
        assert takeover
        assert (takeover.signs, takeover.device_ids, takeover.since) == (("listed",), ("x",), 7e9)
        assert takeover.reason == stage.guard.fault
        assert takeover.reason.endswith("stop it: one of the sockets vendor.sock")
        assert [one.name for one in takeover.sockets] == ["vendor.sock"]
        assert stage.changes == 1
    (record,) = told(caplog)
    facts = vars(record)
    assert (record.levelname, facts["signs"], facts["device_ids"]) == ("WARNING", ["listed"], ["x"])
    assert facts["sockets"][0].startswith("vendor.sock (live, ")


async def test_another_sign_is_told_again_and_the_end_is_told(
    stage: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage.review(cuts=(0.1, 0.2, 0.3))
    stage.review(cuts=(0.1, 0.2, 0.3))
    stage.review(cuts=(0.1, 0.2, 0.3), calls=(0.5, 0.6))
    assert stage.guard.fault == ""
    await passes(2 * LASTS_SECONDS)
    stage.review(cuts=(0.1, 0.2, 0.3), calls=(0.5, 0.6))
    assert stage.takeover() is None
    assert stage.changes == 3
    assert [vars(one)["signs"] for one in told(caplog)] == [["cut"], ["asked", "cut"]]
    assert len(told(caplog, OVER)) == 1


async def test_without_a_foreign_socket_it_says_where_else_to_look(stage: Guarded) -> None:
    stage.review(cuts=(0.1, 0.2, 0.3))
    takeover = stage.takeover()
    assert takeover
    assert "its socket is not in the plugin folder" in takeover.reason


async def test_a_new_registration_makes_earlier_differences_void(stage: Guarded) -> None:
    await stage.answered("x")
    await stage.answered("x")
    assert stage.guard.fault
    stage.review(registered_at=now())
    assert stage.guard.fault == ""
    assert stage.takeover()
    assert not stage.guard.is_in_doubt


async def test_an_answer_from_before_the_registration_says_nothing(stage: Guarded) -> None:
    before = stage.guard.listed()
    assert before is not None
    for asked_at in (0.0, 0.9):
        stage.guard.compare(asked_at, before, ["x"])
    stage.review(registered_at=None)
    assert stage.guard.listed() is None
    stage.guard.compare(now(), before, ["x"])
    assert not stage.guard.is_in_doubt


async def test_a_device_given_without_us_is_told_while_it_is_held_and_for_a_while(stage: Guarded) -> None:
    stage.guard.note_given("a")
    assert stage.takeover() is None
    await passes(300)
    stage.guard.note_given("a")
    takeover = stage.takeover()
    assert takeover
    assert takeover.signs == ("given",)
    await passes(10 * LASTS_SECONDS)
    stage.review()
    assert stage.takeover() is not None
    stage.guard.note_released("b")
    stage.guard.note_released("a")
    await passes(LASTS_SECONDS + 1)
    stage.review()
    assert stage.takeover() is None


async def test_a_kubelet_that_has_nothing_of_ours_is_registered_with_again_ever_more_rarely(
    stage: Guarded,
) -> None:
    """One that never shows our devices must not be registered with at every look."""
    times = []
    await stage.answered("a")
    while now() < 3 * 3600:
        await stage.answered()
        if stage.guard.take_renewal():
            times.append(now())
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] < 15
    assert [round(wait / 60) for wait in waits[:6]] == [1, 2, 4, 8, 16, 32]
    assert max(waits) < 3700


async def test_once_it_shows_our_devices_the_next_time_is_the_first_again(stage: Guarded) -> None:
    for _ in range(2):
        await stage.answered("b")
        while not stage.guard.take_renewal():
            await stage.answered()
        began = now()
        await stage.answered("a", "b")
        while not stage.guard.take_renewal():
            await stage.answered()
        assert now() - began < 15


async def test_a_kubelet_that_lists_another_ones_devices_is_not_fought_for(stage: Guarded) -> None:
    for _ in range(100):
        await stage.answered("x")
        assert not stage.guard.take_renewal()


async def test_what_is_compared_is_what_was_advertised(stage: Guarded) -> None:
    await stage.inventory.mark_unhealthy(["b"], "dropped")
    assert stage.guard.listed() == Listed(frozenset({"a", "b"}), frozenset({"a"}))
