"""The one client over real sockets: when it asks, what it knows, and whom it tells."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from devplug.errors import AllocationError
from devplug.holds.client import Trouble
from devplug.holds.held_device import Released
from devplug.holds.holders import ANSWER_LIMIT_BYTES, Holders
from devplug.holds.ledger import KEPT_LIMIT
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.linux.notifier import Notifier
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected
from devplug.wire.values import PodResources
from tests.holds.listings import RESOURCE, holder, pod
from tests.holds.nodes import (
    OLD,
    ONCE,
    QUICK,
    answering,
    asking,
    first_answer,
    held_by,
    listing,
    questions,
    released,
    turns,
)
from tests.kubelet.fakes import Clock, healthy, registered
from tests.kubelet.fakes import pod as new_pod
from tests.kubelet.monitors import monitored, socket_below
from tests.virtualtime import now, on_virtual_time

anyio_backend = on_virtual_time


# ── when it asks ──────────────────────────────────────────────────────────────────────────────────


async def test_nobody_is_asked_before_somebody_needs_to_know(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with monitored(short_dir) as kubelet, asking(holders):
        await turns()
        assert questions(kubelet) == 0
        assert (holders.ledger.is_known, holders.age_seconds) == (False, None)
        with holders.needed():
            await first_answer(holders)
        assert questions(kubelet) >= 1
        assert holders.age_seconds is not None


async def test_all_who_need_to_know_share_the_questions(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with monitored(short_dir) as kubelet, asking(holders):
        with holders.needed(), holders.releases("a/b"), holders.releases("a/c"):
            await first_answer(holders)
            await turns()
        with holders.needed():
            await turns()
        assert questions(kubelet) == 1


async def test_the_kubelet_is_asked_again_every_period(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with monitored(short_dir) as kubelet, asking(holders):
        with holders.needed():
            await holders.wait(lambda: questions(kubelet) >= 4)


async def test_what_we_give_out_is_looked_for_soon(short_dir: Path) -> None:
    """A pod that lives shorter than the period must have been seen once."""
    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(holders):
        with holders.needed():
            await first_answer(holders)
            await kubelet.admit(new_pod("u"))
            holders.note_allocated(RESOURCE, ["a"])
            assert holders.ledger.held_ids(RESOURCE) == {"a"}
            await held_by(holders, "u")
            await turns()
        assert questions(kubelet) == 2


# ── kubelets come and go ──────────────────────────────────────────────────────────────────────────


async def test_a_kubelet_that_comes_later_is_asked_when_its_socket_appears(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with asking(holders):
        with holders.needed():
            await holders.wait(lambda: holders.last_error)
            assert holders.trouble is Trouble.ABSENT
            async with monitored(short_dir):
                await first_answer(holders)
        assert holders.last_error is None
        assert holders.errors == {Trouble.ABSENT: 1}


async def test_a_restarted_kubelet_is_asked_at_once_and_what_was_held_stays_in_use(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(holders):
        await kubelet.run_pod(new_pod("u"))
        with holders.needed():
            await first_answer(holders)
            await kubelet.restart()
            await holders.wait(lambda: questions(kubelet) == 1)
        assert holders.ledger.held_ids(RESOURCE) == {"a"}


async def test_a_dead_kubelet_leaves_what_it_said_last(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with asking(holders):
        with holders.needed():
            async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")):
                await kubelet.admit(new_pod("u"))
                await held_by(holders, "u")
            await holders.wait(lambda: holders.trouble is Trouble.UNREACHABLE)
        assert holders.ledger.holders_of(RESOURCE, "a") == (holder("u"),)
        assert [one.name for one in holders.pods] == ["u"]
        assert not holders.ledger.may_be_held(RESOURCE, "b")


async def test_a_refusal_by_the_rate_limit_is_waited_out(short_dir: Path) -> None:
    clock = Clock()
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with monitored(short_dir, clock=clock) as kubelet, asking(holders):
        async with connected(socket_below(short_dir)) as other_monitor:
            for _ in range(10):
                await other_monitor.call(LIST, None)
        with holders.needed():
            await holders.wait(lambda: holders.errors[Trouble.RATE_LIMITED])
            clock.seconds += 1
            asked = now()
            await first_answer(holders)
            assert now() - asked >= 0.9
        assert holders.errors == {Trouble.RATE_LIMITED: 1}
        assert questions(kubelet) == 11


async def test_a_trouble_is_logged_once_and_its_end_too(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with asking(holders):
        with holders.needed():
            await holders.wait(lambda: holders.errors[Trouble.ABSENT] == 2)
            async with monitored(short_dir):
                await first_answer(holders)
    messages = [record.message for record in caplog.records if record.name == "devplug.holds.holders"]
    # At the end the kubelet goes first, and that may be noticed too.
    assert messages[:2] == [
        "PodResources does not answer; devices that were held stay held until it does",
        "PodResources answers again",
    ]


async def test_an_old_kubelet_tells_as_well(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with answering(socket_below(short_dir), listing(pod("p", "a")), versions=OLD), asking(holders):
        with holders.needed():
            await first_answer(holders)
    assert holders.ledger.holders_of(RESOURCE, "a") == (holder("p"),)
    assert holders.errors == {}


async def test_a_device_of_two_pods_is_logged_once(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def serve() -> Sequence[PodResources]:
        nonlocal asked
        asked += 1
        return (pod("p", "a"), pod("q", "a"))

    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with answering(socket_below(short_dir), serve), asking(holders):
        with holders.needed():
            await holders.wait(lambda: asked >= 3)
    (record,) = caplog.records
    assert record.message == "the kubelet lists one device for several pods"
    facts = vars(record)
    assert (facts["resource_name"], facts["device"], facts["pods"]) == (RESOURCE, "a", "default/p, default/q")


# ── releases ──────────────────────────────────────────────────────────────────────


async def test_whoever_shows_what_is_held_is_woken_when_it_is_let_go(short_dir: Path) -> None:
    """The answer that settles a release says no more than the one before it."""
    changed = Notifier()
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now, on_change=changed.notify)

    async def shown(ids: set[str]) -> None:
        while holders.ledger.held_ids(RESOURCE) != ids:
            await changed.next.wait()

    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(holders):
        with holders.needed():
            await kubelet.admit(new_pod("u"))
            await shown({"a"})
            kubelet.end_pod("u")
            await shown(set())


async def test_every_question_without_answer_is_announced(short_dir: Path) -> None:
    changed = Notifier()
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now, on_change=changed.notify)
    async with asking(holders):
        with holders.needed():
            while holders.errors[Trouble.ABSENT] < 2:
                await changed.next.wait()


async def test_a_release_is_told_to_its_resources_reader(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(holders):
        with holders.releases(RESOURCE), holders.releases("example.com/b"):
            for uid in ("u", "v"):
                await kubelet.admit(new_pod(uid))
                await held_by(holders, uid)
                kubelet.end_pod(uid)
                told = await released(holders)
                assert told == [Released(RESOURCE, "a", holder(uid))]
                holders.take(told)


async def test_an_admission_that_failed_after_our_answer_is_a_release_without_a_holder(
    short_dir: Path,
) -> None:
    checkpoint = short_dir / "device-plugins" / CHECKPOINT_NAME
    holders = Holders(socket_below(short_dir), checkpoint=checkpoint, rules=QUICK, clock=now)
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(holders):
        with holders.releases(RESOURCE):
            await first_answer(holders)
            holders.note_allocated(RESOURCE, ["a"])
            assert await released(holders) == [Released(RESOURCE, "a", None)]


async def test_what_came_free_at_once_is_told_at_once_by_id(short_dir: Path) -> None:
    ids = [f"d{number:05}" for number in range(10_000)]
    listed: list[tuple[PodResources, ...]] = [(pod("p", *ids),), (pod("other", "z"),)]

    async def serve() -> Sequence[PodResources]:
        return listed[0]

    holders = Holders(socket_below(short_dir), rules=QUICK, clock=now)
    async with answering(socket_below(short_dir), serve), asking(holders):
        with holders.releases(RESOURCE):
            await first_answer(holders)
            del listed[0]
            told = await released(holders)
            assert told == [Released(RESOURCE, one, holder("p")) for one in ids]
            holders.take(told)
            listed[0] = ()
            assert await released(holders) == [Released(RESOURCE, "z", holder("other"))]


async def test_held_ids_that_are_not_kept_are_refused_by_the_kubelets_word(short_dir: Path) -> None:
    many = pod("many", *(f"d{number:06}" for number in range(KEPT_LIMIT)))

    async def serve() -> Sequence[PodResources]:
        return (many, pod("p", "z"))

    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with answering(socket_below(short_dir), serve), asking(holders):
        with holders.needed():
            await first_answer(holders)
            assert "z" not in holders.ledger.held_ids(RESOURCE)
            with pytest.raises(AllocationError, match='"z" is held by default/p'):
                await holders.release_or_refuse(RESOURCE, ["z"])
            await holders.release_or_refuse(RESOURCE, ["free"])


async def test_an_answer_over_its_limit_is_an_error_in_words(short_dir: Path) -> None:
    async def serve() -> Sequence[PodResources]:
        return (pod("p", "x" * (ANSWER_LIMIT_BYTES + 1)),)

    holders = Holders(socket_below(short_dir), rules=ONCE, clock=now)
    async with answering(socket_below(short_dir), serve), asking(holders):
        with holders.needed():
            await holders.wait(lambda: holders.trouble is Trouble.TOO_LARGE)
