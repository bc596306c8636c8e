"""Logs of containers: what is kept, what readers get, and what there is where nothing runs."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.options import LogOptions
from devplug.sandbox.nodes.containerlogs import (
    LogFile,
    LogReader,
    Logs,
    blocks,
    nano_stamp,
    records,
    rows_of,
    tail,
)
from tests.sandbox.containers.beds import pod, running

BEGUN = datetime(2026, 5, 1, 12, tzinfo=UTC)
LINES = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=8)


def options(**given: Any) -> LogOptions:
    return LogOptions(**{"container": "c", **given})


def rows(*lines: str) -> bytes:
    """One line a second."""
    start = int(BEGUN.timestamp())
    return b"".join(
        records(line.encode(), nano_stamp((start + number) * 10**9 + 5), is_complete=True)
        for number, line in enumerate(lines)
    )


def told(written: bytes, **given: Any) -> str:
    return LogReader(options(**given)).bytes_of(written).decode()


async def rows_in(path: Path, pieces: Iterable[bytes], **limits: Any) -> bytes:
    """The rows of a log that has got these pieces."""
    log = LogFile(path, **limits)
    for piece in pieces:
        log.feed(piece)
    log.close()
    return rows_of(path)


# ── rows ──


def test_rows_are_those_of_container_runtimes() -> None:
    assert rows("one", "") == (
        b"2026-05-01T12:00:00.000000005Z stdout F one\n2026-05-01T12:00:01.000000005Z stdout F \n"
    )


@given(LINES, st.integers(1, 9), st.booleans())
def test_what_was_printed_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], step: int, ends: bool
) -> None:
    printed = b"\n".join(lines) + (b"\n" if ends else b"")
    pieces = [printed[start : start + step] for start in range(0, len(printed), step)]
    kept = asyncio.run(rows_in(tmp_path_factory.getbasetemp() / "given.log", pieces))
    assert b"".join(LogReader(options()).bytes_of(block) for block in blocks(kept)) == printed


@pytest.mark.parametrize("length", [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 200_000])
async def test_a_long_line_has_several_rows_and_is_one_line_to_readers(tmp_path: Path, length: int) -> None:
    line = b"x" * length + b"\n"
    kept = await rows_in(tmp_path / "0.log", [line[at : at + 50_000] for at in range(0, len(line), 50_000)])
    assert max(map(len, kept.split(b"\n"))) < 17 * 1024
    assert LogReader(options()).bytes_of(kept) == line
    stamped = LogReader(options(timestamps=True)).bytes_of(kept)
    assert len(stamped) == len(line) + len("2026-05-01T12:00:00.000000000Z ")


@given(st.lists(st.text("ab ", max_size=5), max_size=6), st.integers(0, 8))
def test_a_tail_is_the_last_lines(lines: list[str], wanted: int) -> None:
    last = tail(rows(*lines), wanted)
    assert last == b"".join(rows(*lines).splitlines(keepends=True)[max(len(lines) - wanted, 0) :])


def test_lines_may_be_asked_for_since_a_moment_with_times_and_up_to_a_size() -> None:
    kept = rows("one", "two", "three")
    assert told(kept, since=BEGUN + timedelta(seconds=1)) == "two\nthree\n"
    assert told(kept, since=BEGUN + timedelta(seconds=1, microseconds=1)) == "three\n"
    assert told(kept, timestamps=True).splitlines()[1] == "2026-05-01T12:00:01.000000005Z two"
    assert told(kept, limit_bytes=6) == "one\ntw"
    assert told(kept, limit_bytes=100) == "one\ntwo\nthree\n"


@given(st.lists(st.integers(0, 40_000), max_size=12))
def test_blocks_are_whole_rows_and_all_of_them(sizes: list[int]) -> None:
    kept = rows(*("x" * size for size in sizes))
    parts = list(blocks(kept))
    assert b"".join(parts) == kept
    assert all(part.endswith(b"\n") for part in parts)


# ── files ──


async def test_a_log_is_bounded_and_keeps_at_least_its_newer_half(tmp_path: Path) -> None:
    kept = await rows_in(tmp_path / "0.log", [b"%d\n" % number for number in range(1000)], limit_bytes=4000)
    assert 2000 <= len(kept) <= 4000
    numbers = [int(line) for line in told(kept).split()]
    assert numbers == list(range(numbers[0], 1000))


async def test_a_follower_misses_nothing_when_the_file_is_begun_anew(tmp_path: Path) -> None:
    logs = Logs(tmp_path, lambda _: True)
    log = logs.begin(pod(), "c", 0)
    log._half_bytes = 300
    seen = ""
    fed = count()
    log.feed(b"%d\n" % next(fed))
    async for part in logs.read(pod(), options(follow=True)):
        seen += part.decode()
        if (number := next(fed)) < 50:
            log.feed(b"%d\n" % number)
        else:
            logs.end(log)
    assert [int(line) for line in seen.split()] == list(range(50))


async def test_files_lie_as_the_kubelet_lays_them_out(tmp_path: Path) -> None:
    async with running(tmp_path, "sh -c 'echo out; echo err >&2'") as bed:
        for number in range(4):
            await bed.start(pod(), number)
            await bed.ends.get()
    folder = tmp_path / "logs" / "default_plugin_u-1" / "c"
    assert sorted(file.name for file in folder.iterdir()) == ["2.log", "3.log"]
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
    assert re.fullmatch(rf"{stamp} stdout F out\n{stamp} stdout F err\n", (folder / "3.log").read_text())


async def test_the_logs_of_a_pod_that_is_gone_can_be_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, "echo hello") as bed:
        for uid in ("u-1", "u-2"):
            await bed.start(pod(uid))
            await bed.ends.get()
        bed.runtime.logs.forget("u-1")
        assert [await bed.log(pod(uid)) for uid in ("u-1", "u-2")] == ["", "hello\n"]


# ── readers ──


async def test_a_follower_gets_lines_as_they_come_and_ends_with_the_container(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    command = f"sh -c 'echo one; read line < {go_on}; echo two; printf three'"
    os.mkfifo(go_on)
    async with running(tmp_path, command) as bed:
        one = await bed.start()
        parts = bed.reading(one, follow=True)
        assert await anext(parts) == b"one\n"
        assert await bed.log(one) == "one\n"
        go_on.write_text("now\n")
        assert b"".join([part async for part in parts]) == b"two\nthree"
        assert await bed.log(one, tail_lines=2) == "two\nthree"


async def test_the_log_of_the_run_before_can_be_had(tmp_path: Path) -> None:
    async with running(tmp_path, ["sh", "-c", "echo $$"]) as bed:
        one = await bed.start()
        await bed.ends.get()
        first = await bed.log(one)
        with pytest.raises(StatusError) as refused:
            await bed.log(one, previous=True)
        assert str(refused.value) == 'previous terminated container "c" in pod "plugin" not found'
        one["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": {}}}]
        assert await bed.log(one, previous=True) == first
        await bed.start(one, 1)
        await bed.ends.get()
        one["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
        assert await bed.log(one, previous=True) == first
        assert await bed.log(one) != first


async def test_a_container_in_name_only_says_how_to_have_a_program_in_its_place(tmp_path: Path) -> None:
    one = pod(image="busybox:1.36@sha256:00")
    async with running(tmp_path, "true") as bed:
        assert await bed.log(one, follow=True) == (
            'container "c" is Running in name only: nothing runs in it; for a program of this machine in its '
            "place, start the sandbox anew with: devplug sandbox up --image busybox:1.36=COMMAND\n"
        )
        assert await bed.log(one, tail_lines=0) == ""


async def test_a_mapped_container_that_has_not_started_has_an_empty_log(tmp_path: Path) -> None:
    async with running(tmp_path, "true") as bed:
        assert await bed.log(pod(), follow=True) == ""
