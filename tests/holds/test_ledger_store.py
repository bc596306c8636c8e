"""What outlives a process: one file for each resource that we own, and when it is written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from devplug.holds.held_device import Released, Remembered, Rules, ledger_memory, ledger_text
from devplug.holds.holders import Holders
from devplug.holds.ledger_store import WRITE_PERIOD_SECONDS, LedgerFile
from devplug.kubelet_dir import CHECKPOINT_NAME
from tests.holds.listings import KUBELET, NEXT_KUBELET, RESOURCE, holder, pod
from tests.holds.nodes import (
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
from tests.kubelet.fakes import SYSTEM, healthy, registered
from tests.kubelet.fakes import pod as new_pod
from tests.kubelet.monitors import monitored, socket_below
from tests.virtualtime import in_no_time, now
from tests.waiting import until

OTHER = "example.com/b"
KEEP_ASKING = Rules(period_seconds=0.02, absence_seconds=0.02, grace_seconds=3600)
FILE = "held-036cbe16b001.json"
"""Of `RESOURCE`; its name may not change, or an update forgets what is held."""


def owning(folder: Path, *resource_names: str, rules: Rules = QUICK) -> Holders:
    """The holders of a new process."""
    checkpoint = folder / "device-plugins" / CHECKPOINT_NAME
    holders = Holders(socket_below(folder), folder / "state", checkpoint=checkpoint, rules=rules)
    for resource_name in resource_names or (RESOURCE,):
        holders.own(resource_name)
    return holders


def file_of(folder: Path, resource_name: str = RESOURCE) -> Any:
    """Return what the file of a resource says, None without one."""
    for path in (folder / "state").glob("held-*.json"):
        if (content := json.loads(path.read_text()))["resource"] == resource_name:
            return content
    return None


def held_in(folder: Path, resource_name: str = RESOURCE) -> set[str]:
    content = file_of(folder, resource_name)
    return set(content["held"]) if content else set()


# ── over a restart of ours ────────────────────────────────────────────────────────────────────────


async def test_a_release_while_we_were_down_is_told_once(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.admit(SYSTEM)
        await kubelet.admit(new_pod("u"))
        holders = owning(short_dir)
        async with asking(holders):
            with holders.needed():
                await first_answer(holders)
        assert [path.name for path in (short_dir / "state").iterdir()] == [FILE]
        assert (short_dir / "state" / FILE).stat().st_mode & 0o777 == 0o600
        kubelet.end_pod("u")
        holders = owning(short_dir)
        assert holders.ledger.held_ids(RESOURCE) == {"a"}
        async with asking(holders):
            with holders.releases(RESOURCE):
                told = await released(holders)
                assert told == [Released(RESOURCE, "a", holder("u"))]
                assert holders.ledger.held_ids(RESOURCE) == {"a"}
                holders.take(told)
                assert holders.ledger.held_ids(RESOURCE) == set()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await released(holders)
        assert owning(short_dir).ledger.held_ids(RESOURCE) == set()
        assert list((short_dir / "state").iterdir()) == []


async def test_a_release_whose_reader_did_not_get_through_is_told_again(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.admit(SYSTEM)
        await kubelet.admit(new_pod("u"))
        for attempt in range(3):
            holders = owning(short_dir)
            async with asking(holders):
                with holders.releases(RESOURCE):
                    await first_answer(holders)
                    if not attempt:
                        kubelet.end_pod("u")
                    assert await released(holders) == [Released(RESOURCE, "a", holder("u"))]


async def test_two_programs_of_one_folder_remember_each_its_own_resources(short_dir: Path) -> None:
    one, other = owning(short_dir, RESOURCE), owning(short_dir, OTHER)
    async with (
        answering(socket_below(short_dir), listing(pod("p", "a"), pod("q", "b", resource_name=OTHER))),
        asking(one, other),
    ):
        with one.needed(), other.needed():
            await first_answer(one)
            await first_answer(other)
    assert (held_in(short_dir), held_in(short_dir, OTHER)) == ({"a"}, {"b"})
    later = owning(short_dir, OTHER)
    assert later.ledger.held_ids(OTHER) == {"b"}
    assert later.ledger.held_ids(RESOURCE) == set()


# ── own and disown ────────────────────────────────────────────────────────────────────────────────


async def test_what_we_do_not_own_is_known_and_not_remembered(short_dir: Path) -> None:
    holders = owning(short_dir)
    async with (
        answering(socket_below(short_dir), listing(pod("p", "a"), pod("q", "b", resource_name=OTHER))),
        asking(holders),
    ):
        with holders.needed():
            holders.note_allocated(OTHER, ["c"])
            await first_answer(holders)
        assert holders.ledger.held_ids(OTHER) == {"b", "c"}
        assert holders.ledger.holders_of(OTHER, "b") == (holder("q"),)
    assert (held_in(short_dir), held_in(short_dir, OTHER)) == ({"a"}, set())


async def test_what_was_known_before_it_is_owned_is_remembered_too(short_dir: Path) -> None:
    holders = owning(short_dir)
    async with (
        answering(socket_below(short_dir), listing(pod("p", "b", resource_name=OTHER))),
        asking(holders),
    ):
        with holders.needed():
            await first_answer(holders)
        holders.own(OTHER)
        await until(lambda: held_in(short_dir, OTHER) == {"b"})


async def test_a_resource_that_is_owned_later_is_taken_over_as_its_last_owner_left_it(
    short_dir: Path,
) -> None:
    first, second = owning(short_dir), owning(short_dir, OTHER)
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")), asking(second):
        with second.needed():
            await first_answer(second)
            first.note_allocated(RESOURCE, ["a"])
            first.disown(RESOURCE)
            assert second.ledger.held_ids(RESOURCE) == set()
            second.own(RESOURCE)
            assert second.ledger.held_ids(RESOURCE) == {"a"}
            assert second.ledger.may_be_held(RESOURCE, "a")
        with second.releases(RESOURCE):
            assert await released(second) == [Released(RESOURCE, "a", None)]


async def test_a_resource_that_is_given_up_leaves_its_file_and_nothing_of_it_is_written_later(
    short_dir: Path,
) -> None:
    holders = owning(short_dir)
    async with asking(holders):
        holders.note_allocated(RESOURCE, ["a"])
        holders.disown(RESOURCE)
        assert held_in(short_dir) == {"a"}
        holders.note_allocated(RESOURCE, ["b"])
        assert holders.ledger.held_ids(RESOURCE) == {"a", "b"}
    assert held_in(short_dir) == {"a"}
    holders.disown(RESOURCE)


def test_a_resource_that_was_given_up_can_be_owned_again(short_dir: Path) -> None:
    holders = owning(short_dir)
    holders.note_allocated(RESOURCE, ["a"])
    with pytest.raises(ValueError, match=f"^{RESOURCE} is owned already$"):
        holders.own(RESOURCE)
    holders.disown(RESOURCE)
    holders.note_allocated(RESOURCE, ["b"])
    holders.own(RESOURCE)
    holders.disown(RESOURCE)
    assert held_in(short_dir) == {"a", "b"}


async def test_without_a_folder_nothing_is_remembered(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir))
    holders.own(RESOURCE)
    async with asking(holders):
        holders.note_allocated(RESOURCE, ["a"])
        await turns()
    holders.disown(RESOURCE)
    assert holders.ledger.held_ids(RESOURCE) == {"a"}
    assert list(short_dir.iterdir()) == []


# ── when it is written ────────────────────────────────────────────────────────────────────────────


async def test_what_we_gave_out_is_in_the_file_soon_and_before_anybody_is_asked(short_dir: Path) -> None:
    holders = owning(short_dir)
    async with asking(holders):
        holders.note_allocated(RESOURCE, ["a"])
        await until(lambda: held_in(short_dir) == {"a"})
        holders.note_allocated(RESOURCE, ["b"])
        holders.note_allocated(RESOURCE, ["c"])
        await until(lambda: held_in(short_dir) == {"a", "b", "c"})


@in_no_time
async def test_many_allocates_make_few_writes(short_dir: Path) -> None:
    holders = owning(short_dir)
    async with asking(holders):
        since = now()
        holders.note_allocated(RESOURCE, ["first"])
        await until(lambda: held_in(short_dir) == {"first"})
        for number in range(100):  # which takes no time on this clock
            holders.note_allocated(RESOURCE, [f"{number}"])
            await turns(5)
        assert held_in(short_dir) == {"first"}
        await until(lambda: len(held_in(short_dir)) == 101)
        assert now() - since >= WRITE_PERIOD_SECONDS


async def test_what_we_gave_out_last_is_in_the_file_when_we_end(short_dir: Path) -> None:
    holders = owning(short_dir)
    async with asking(holders):
        holders.note_allocated(RESOURCE, ["a"])
        await until(lambda: held_in(short_dir) == {"a"})
        holders.note_allocated(RESOURCE, ["b"])
    assert held_in(short_dir) == {"a", "b"}


def test_a_write_that_comes_late_does_not_bring_back_what_was(short_dir: Path) -> None:
    """As of a thread that was waiting for its turn when the program ended."""
    file = LedgerFile(short_dir, RESOURCE)
    file.write(2, lambda: {"b": Remembered()})
    file.write(1, lambda: {"a": Remembered()})
    assert file.read() == {"b": Remembered()}


async def test_the_file_is_left_alone_when_nothing_changed(short_dir: Path) -> None:
    path = short_dir / "state" / FILE
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a", "b")):
        holders = owning(short_dir)
        async with asking(holders):
            await kubelet.admit(new_pod("u"))
            with holders.needed():
                await held_by(holders, "u")
        before = path.stat().st_ino, path.stat().st_mtime_ns
        holders = owning(short_dir)
        async with asking(holders):
            with holders.needed():
                await holders.wait(lambda: questions(kubelet) >= 6)
            holders.note_allocated(OTHER, ["a"])
            await turns()
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


async def test_a_kubelet_that_lists_what_is_held_again_is_in_every_file(short_dir: Path) -> None:
    serve = listing(pod("p", "a"), pod("q", "b", resource_name=OTHER))
    holders = owning(short_dir, RESOURCE, OTHER)
    async with asking(holders):
        with holders.needed():
            async with answering(socket_below(short_dir), serve):
                await until(lambda: held_in(short_dir) and held_in(short_dir, OTHER))
            before = file_of(short_dir)["kubelets"]
            async with answering(socket_below(short_dir), serve):
                await until(lambda: before != file_of(short_dir)["kubelets"])
                await until(lambda: before != file_of(short_dir, OTHER)["kubelets"])


# ── files that are no good ────────────────────────────────────────────────────────────────────────


def test_a_damaged_file_is_as_good_as_none(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    (short_dir / "state").mkdir()
    (short_dir / "state" / FILE).write_bytes(b"\xff{")
    holders = owning(short_dir)
    assert holders.ledger.held_ids(RESOURCE) == set()
    (record,) = caplog.records
    assert (
        record.message
        == "cannot read the file of held devices; devices released while devplug was down are not noticed"
    )
    holders.note_allocated(RESOURCE, ["a"])
    holders.disown(RESOURCE)
    assert owning(short_dir).ledger.held_ids(RESOURCE) == {"a"}


def test_the_file_of_another_resource_is_not_believed(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holders = owning(short_dir, OTHER)
    holders.note_allocated(OTHER, ["b"])
    holders.disown(OTHER)
    (path,) = (short_dir / "state").iterdir()
    path.rename(path.with_name(FILE))
    assert owning(short_dir).ledger.held_ids(RESOURCE) == set()
    (record,) = caplog.records
    assert vars(record)["reason"] == f"it is of the resource {OTHER!r}, not of {RESOURCE}"


async def test_a_file_that_cannot_be_written_is_told_once_and_ends_nothing(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (short_dir / "state").write_text("a file")
    holders = owning(short_dir, rules=KEEP_ASKING)
    async with monitored(short_dir) as kubelet, asking(holders):
        with holders.needed():
            holders.note_allocated(RESOURCE, ["a"])
            await holders.wait(lambda: questions(kubelet) >= 3)
        assert holders.ledger.held_ids(RESOURCE) == {"a"}
    written = [record.message for record in caplog.records if record.name.endswith("ledger_store")]
    assert written[-1:] == [
        "cannot write the file of held devices; a release while devplug is down will not be noticed"
    ]
    assert len([text for text in written if text.startswith("cannot write")]) == 1


async def test_a_file_that_could_not_be_written_is_written_once_it_can(short_dir: Path) -> None:
    (short_dir / "state").write_text("a file")
    holders = owning(short_dir, rules=KEEP_ASKING)
    async with monitored(short_dir), asking(holders):
        with holders.needed():
            holders.note_allocated(RESOURCE, ["a"])
            await first_answer(holders)
            (short_dir / "state").unlink()
            await until(lambda: held_in(short_dir) == {"a"})


async def test_what_is_remembered_of_a_resource_that_is_owned_later_wakes_who_waits_for_it(
    short_dir: Path,
) -> None:
    """As when an edit brings back a resource that an earlier process gave out of."""
    first = owning(short_dir)
    async with asking(first):
        first.note_allocated(RESOURCE, ["a"])
        await until(lambda: held_in(short_dir) == {"a"})
    later = Holders(socket_below(short_dir), short_dir / "state", rules=QUICK)
    async with asking(later), asyncio.TaskGroup() as group:
        waiting = group.create_task(later.wait(lambda: later.ledger.held_ids(RESOURCE)))
        await turns()
        later.own(RESOURCE)
        assert await waiting == {"a"}


# ── the text of the file ──────────────────────────────────────────────────────────────────────────


def test_the_file_says_it_all() -> None:
    memory = {
        "a": Remembered((holder("p"), holder("q")), KUBELET),
        "b": Remembered(),
        "ä/\n": Remembered((holder("p"),), NEXT_KUBELET),
    }
    assert ledger_memory(ledger_text(RESOURCE, memory).encode(), RESOURCE) == memory
    assert ledger_memory(ledger_text("x.y/ä", {}).encode(), "x.y/ä") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        '{"version":3,"resource":"a/b","kubelets":[],"held":{}}',
        '{"version":2,"kubelets":[],"held":{}}',
        '{"version":2,"resource":"a/c","kubelets":[],"held":{}}',
        '{"version":2,"resource":"a/b","kubelets":[[1,2]],"held":{}}',
        '{"version":2,"resource":"a/b","kubelets":[[1,2,Infinity]],"held":{}}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":[]}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":{"x":null}}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":{"x":{"holders":[["p"]]}}}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":{"x":{"holders":[[1,2,3]]}}}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":{"x":{"holders":[],"kubelet":0}}}',
        '{"version":2,"resource":"a/b","kubelets":[],"held":{"x":{"holders":[]',
    ],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ledger_memory(text.encode(), "a/b")


def test_an_undamaged_one_is_not() -> None:
    assert ledger_memory(b'{"version":2,"resource":"a/b","kubelets":[],"held":{}}', "a/b") == {}
