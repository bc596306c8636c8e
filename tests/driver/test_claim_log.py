"""The state file of claims has what it was told, however it was cut off, and stays short."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.prepared_claims import LINES_LEAST, ClaimLog, Entry, claims_in, state_text
from tests.driver.world import SERIAL

UIDS = ("u1", "u2", "u3")


def use(uid: str, device: str = "a") -> ClaimUse:
    return ClaimUse("ns", "c", uid, (DeviceUse("r", device, SERIAL, device.upper()),))


entries = st.lists(
    st.sampled_from(UIDS).map(lambda uid: Entry(ended=uid))
    | st.builds(lambda uid, device: Entry(use(uid, device)), st.sampled_from(UIDS), st.sampled_from("ab"))
)


def after(begin: Sequence[str], noted: Sequence[Entry]) -> dict[str, ClaimUse]:
    found = {uid: use(uid) for uid in begin}
    for entry in noted:
        if entry.begun is not None:
            found[entry.begun.uid] = entry.begun
        else:
            found.pop(entry.ended, None)
    return found


# ── what is read ──


@given(begin=st.sets(st.sampled_from(UIDS)), noted=entries, data=st.data())
def test_whole_lines_count_wherever_the_file_is_cut_off(
    begin: set[str], noted: list[Entry], data: st.DataObject
) -> None:
    first = state_text(after(sorted(begin), ())).encode()
    lines = [msgspec.json.encode(entry) + b"\n" for entry in noted]
    whole = first + b"".join(lines)
    cut = data.draw(st.integers(len(first), len(whole)))
    damage = data.draw(st.sampled_from((b"", bytes(5), bytes(5) + b"\n")))
    complete = whole[len(first) : cut].count(b"\n")
    is_torn = damage != b"" or not whole[:cut].endswith(b"\n")
    assert claims_in(whole[:cut] + damage) == (
        after(sorted(begin), noted[:complete]),
        None if is_torn else complete,
    )


@pytest.mark.parametrize("content", [b"", b"\0" * 9, b"{", b'{"version":1}', b"\xff\n", b"[" * 9999])
def test_a_file_that_does_not_begin_as_one_is_refused(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        claims_in(content)


# ── what is written ──


async def note(log: ClaimLog, claims: dict[str, ClaimUse], entry: Entry) -> None:
    if entry.begun is not None:
        claims[entry.begun.uid] = entry.begun
    else:
        claims.pop(entry.ended, None)
    await log.note(entry, claims, is_durable=entry.begun is not None)


async def test_what_was_noted_at_the_same_time_is_all_there(tmp_path: Path) -> None:
    log, claims = ClaimLog(tmp_path / "state"), dict[str, ClaimUse]()
    assert log.read() == {}
    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(note(log, claims, Entry(use(f"u{number}"))))
    assert ClaimLog(tmp_path / "state").read() == claims
    assert len(claims) == 50
    assert log.is_current()


async def test_a_file_stays_short_however_many_claims_come_and_go(tmp_path: Path) -> None:
    log, claims = ClaimLog(tmp_path / "state"), dict[str, ClaimUse]()
    for number in range(4 * LINES_LEAST):
        await note(log, claims, Entry(use(f"u{number}")))
        await note(log, claims, Entry(ended=f"u{number}"))
        assert len((tmp_path / "state").read_bytes().split(b"\n")) <= 2 * LINES_LEAST
    assert ClaimLog(tmp_path / "state").read() == {}


async def test_who_has_written_is_noticed_by_the_other_one(tmp_path: Path) -> None:
    one, claims = ClaimLog(tmp_path / "state"), dict[str, ClaimUse]()
    await note(one, claims, Entry(use("u1")))
    other = ClaimLog(tmp_path / "state")
    assert not other.is_current()
    assert other.read() == claims
    assert other.is_current()
    await note(other, claims, Entry(ended="u1"))
    assert not one.is_current()
    assert one.read() == {}


async def test_after_a_line_that_was_cut_off_the_file_is_replaced(tmp_path: Path) -> None:
    state, claims = tmp_path / "state", dict[str, ClaimUse]()
    first = ClaimLog(state)
    for uid in UIDS:
        await note(first, claims, Entry(use(uid)))
    state.write_bytes(state.read_bytes()[:-5])
    second = ClaimLog(state)
    claims = second.read()
    assert sorted(claims) == ["u1", "u2"]
    await note(second, claims, Entry(use("u3")))
    assert ClaimLog(state).read() == claims
    assert state.read_text() == state_text(claims)


async def test_after_a_write_that_failed_the_file_is_replaced(tmp_path: Path) -> None:
    state, claims = tmp_path / "folder" / "state", dict[str, ClaimUse]()
    log = ClaimLog(state)
    await note(log, claims, Entry(use("u1")))
    kept = state.rename(tmp_path / "kept")
    state.mkdir()
    with pytest.raises(IsADirectoryError):
        await note(log, claims, Entry(use("u2")))
    assert not log.is_current()
    state.rmdir()
    kept.rename(state)
    await note(log, claims, Entry(use("u3")))
    assert sorted(ClaimLog(state).read()) == ["u1", "u2", "u3"]
    assert state.read_text() == state_text(claims)
