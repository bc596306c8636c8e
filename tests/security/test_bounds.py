"""What one caller can take of a plugin: calls, headers, connections; and that the page of bounds is true."""

from __future__ import annotations

import ast
import asyncio
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from devplug.daemon.commands import OUTPUT_LIMIT_BYTES
from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.devices import DEVICE_ID_LIMIT_BYTES
from devplug.errors import TEXT_LIMIT_BYTES
from devplug.holds.holders import ANSWER_LIMIT_BYTES
from devplug.holds.ledger import KEPT_LIMIT
from devplug.linux.durable_file import STATE_VALUES_LIMIT
from devplug.logs import LINE_LIMIT
from devplug.metrics.catalogue import DEVICE_SERIES_LIMIT
from devplug.metrics.probes import PAGES_BURST_SECONDS
from devplug.plugin.service import PREFER_TIMEOUT_SECONDS
from devplug.web.messages import Limits
from devplug.wire import deviceplugin
from devplug.wire.http2.flow_control import STRIKES_LIMIT
from devplug.wire.limits import (
    CALLS_AT_ONCE_LIMIT,
    CONNECTIONS_LIMIT,
    ELEMENTS_LIMIT,
    HELD_LIMIT_BYTES,
    INLINE_ELEMENTS_LIMIT,
    PLUGIN_RECEIVE_LIMIT_BYTES,
    REQUEST_ELEMENTS_LIMIT,
    STREAMS_LIMIT,
)
from devplug.wire.server_connection import SPEAK_SECONDS
from tests.plugin.fakes import Listed, devices, served
from tests.virtualtime import in_no_time, now
from tests.waiting import until
from tests.wire.fakes import open_descriptors, with_grpcio

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


@with_grpcio
async def test_headers_of_a_call_have_a_bound_and_the_next_call_is_answered(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as stage:
        async with grpc.aio.insecure_channel(f"unix:{stage.path}") as channel:
            ask = channel.unary_unary(deviceplugin.GET_OPTIONS.path, None, None)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(b"", metadata=(("x", "a" * 20 * 1024),), timeout=30)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            # More than four times as much is no call any more, and the connection ends.
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await ask(b"", metadata=(("x", "a" * 80 * 1024),), timeout=30)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert len(await stage.allocate(["a"])) == 1


async def test_connections_that_say_nothing_keep_nobody_from_being_answered_and_leave_nothing(
    short_dir: Path,
) -> None:
    async with served(short_dir, Listed(), devices("a")) as stage:
        await stage.allocate(["a"])
        before = open_descriptors()
        with ExitStack() as stack:
            for _ in range(200):
                silent = stack.enter_context(socket.socket(socket.AF_UNIX))
                silent.setblocking(False)
                silent.connect(str(stage.path))
                await asyncio.sleep(0)
            for _ in range(20):
                assert len(await stage.allocate(["a"])) == 1
        await until(lambda: open_descriptors() <= before)


@in_no_time
async def test_a_connection_that_does_not_speak_http2_is_closed_after_its_time(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as stage:
        reader, writer = await asyncio.open_unix_connection(stage.path)
        await reader.read()  # its own settings, and then the end
        assert now() == pytest.approx(SPEAK_SECONDS, abs=0.1)
        writer.close()


# ── the page ──


def rows() -> list[list[str]]:
    (section,) = re.findall(r"^## Bounds\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


USUAL: Final = Limits()
NUMBERS: Final = {
    "calls at once, of one plugin": CALLS_AT_ONCE_LIMIT,
    "ListAndWatch streams of one plugin": STREAMS_LIMIT,
    "a request": PLUGIN_RECEIVE_LIMIT_BYTES // 2**20,
    "requests that the servers of a process hold": HELD_LIMIT_BYTES // 2**20,
    "elements of a request: fields, and numbers of a packed field": REQUEST_ELEMENTS_LIMIT,
    "elements of an answer: PodResources, a list of devices, a driver's answers": ELEMENTS_LIMIT,
    "an answer of PodResources": ANSWER_LIMIT_BYTES // 2**20,
    "held device IDs that devplug did not allocate": KEPT_LIMIT,
    "elements that are decoded on the event loop": INLINE_ELEMENTS_LIMIT,
    "a log line": LINE_LIMIT,
    "connections to a plugin's socket": CONNECTIONS_LIMIT,
    "how long a connection may take to speak HTTP/2": SPEAK_SECONDS,
    "resets, pings, settings and empty frames of a connection": STRIKES_LIMIT,
    "devices in one call": 10_000,
    "a device ID": DEVICE_ID_LIMIT_BYTES,
    "how long a call may take": PREFER_TIMEOUT_SECONDS,
    "an error's text": TEXT_LIMIT_BYTES,
    "connections to a page, to metrics and to probes": USUAL.connections,
    "making metrics and status": PAGES_BURST_SECONDS,
    "streams of a page": USUAL.streams,
    "the head of an HTTP request": USUAL.header_bytes // 1024,
    "how long that may take": USUAL.header_seconds,
    "a connection without a request": USUAL.idle_seconds,
    "a reader that does not read": USUAL.write_seconds,
    "series of single devices": DEVICE_SERIES_LIMIT,
    "the configuration file": SIZE_LIMIT_BYTES // 2**20,
    "a state file: `held-*`, `names`, `prepared_claims`": STATE_VALUES_LIMIT,
    "what is kept of a command's output": OUTPUT_LIMIT_BYTES // 1024,
}


def test_the_page_has_the_bounds_as_they_are() -> None:
    told = {row[0]: row[1] for row in rows()}
    assert set(NUMBERS) <= set(told)
    for what, number in NUMBERS.items():
        assert f"{number:,g}" in told[what], what


def test_each_bound_of_the_page_has_its_test() -> None:
    for what, *_, tests in rows():
        names = re.findall(r"`(tests/[\w/]+\.py)`", tests)
        assert names, what
        for name in names:
            tree = ast.parse((ROOT / name).read_text())
            assert any(
                isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_")
                for one in tree.body
            )
