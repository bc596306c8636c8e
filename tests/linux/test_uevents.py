"""The loop's one socket for uevents: what a message says, who is told, and what if nothing can be heard."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.linux.uevents import Uevent, UeventListener, parse_uevent, shared_uevents
from tests.kerneldevices import (
    KernelDevice,
    announce,
    loop_device,
    needs_uevents,
    own_network_namespace,
    tap_device,
    vcs_device,
    veth_device,
    zram_device,
)
from tests.wire.fakes import open_descriptors

NULL = "/sys/devices/virtual/mem/null"
"""A device that every machine has, and that can be announced as often as one likes."""

GROUP = 1


async def turns(count: int = 10) -> None:
    """Let the loop read what the kernel has told by now: its queue is filled before a call returns."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def heard() -> AsyncIterator[list[Uevent | None]]:
    """All that one subscriber of the loop's listener is told."""
    told: list[Uevent | None] = []
    async with shared_uevents() as shared:
        with shared.subscribe(told.append):
            yield told


@contextmanager
def heard_here(**settings: int) -> Iterator[tuple[list[Uevent | None], UeventListener]]:
    """All that is told by a listener of one's own, and that listener."""
    told: list[Uevent | None] = []
    listener = UeventListener(**settings)
    with listener.subscribe(told.append):
        yield told, listener
    listener.close()


def of(device: KernelDevice, told: list[Uevent | None]) -> list[tuple[str, str]]:
    """What was told of one device: other processes make events as well."""
    path = device.sys_path.removeprefix("/sys")
    return [(event.action, event.subsystem) for event in told if event and event.devpath == path]


def nulls(told: list[Uevent | None]) -> int:
    return sum(1 for event in told if event and event.devpath == NULL.removeprefix("/sys"))


def deaf_for_want_of_a_descriptor() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.fixture
def _descriptors() -> Any:
    """The limit as it was, after the test."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# ── what a message says ──

KERNEL = b"add@/devices/virtual/block/loop7\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=loop7\0SEQNUM=9\0"


def libudev(content: bytes, magic: bytes = b"\xfe\xed\xca\xfe", start: int = 40) -> bytes:
    return b"libudev\0" + magic + struct.pack("=III", 40, start, len(content)) + bytes(16) + content


@pytest.mark.parametrize(
    ("message", "said", "properties"),
    [
        (
            KERNEL,
            ("add", "/devices/virtual/block/loop7", "block"),
            {"ACTION": "add", "SUBSYSTEM": "block", "DEVNAME": "loop7", "SEQNUM": "9"},
        ),
        (
            libudev(b"ACTION=add\0DEVPATH=/devices/x/1-1\0SUBSYSTEM=usb\0"),
            ("add", "/devices/x/1-1", "usb"),
            {"ACTION": "add", "DEVPATH": "/devices/x/1-1", "SUBSYSTEM": "usb"},
        ),
        (b"add@/devices/spi@1/x\0SUBSYSTEM=i\0", ("add", "/devices/spi@1/x", "i"), {"SUBSYSTEM": "i"}),
        (b"add@/devices/x\0MODALIAS=of:Nx=y\0", ("add", "/devices/x", ""), {"MODALIAS": "of:Nx=y"}),
    ],
    ids=["of the kernel", "of libudev", "a path with the action's @", "a value with the key's ="],
)
def test_a_message_says_what_happened_to_what(
    message: bytes, said: tuple[str, str, str], properties: dict[str, str]
) -> None:
    assert parse_uevent(message) == Uevent(*said, properties)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"add",
        b"@/devices/x\0",
        b"add@devices/x\0",
        b"libudev\0",
        libudev(b"ACTION=add\0DEVPATH=/x\0", magic=b"\0\0\0\0"),
        libudev(b"ACTION=add\0DEVPATH=/x\0", start=41),
        libudev(b"ACTION=add\0DEVPATH=/x\0", start=8),
        libudev(b"ACTION=add\0DEVPATH=/x\0")[:30],
        libudev(b"DEVPATH=/x\0"),
        libudev(b"ACTION=add\0"),
    ],
)
def test_what_is_no_uevent_is_none(message: bytes) -> None:
    assert parse_uevent(message) is None


@given(
    st.binary(max_size=300)
    | st.builds(lambda start, rest: start + rest, st.sampled_from([KERNEL, libudev(b"")]), st.binary())
    | st.builds(lambda at, byte: KERNEL[:at] + byte + KERNEL[at:], st.integers(0, 90), st.binary(max_size=3))
    | st.builds(
        lambda header, rest: b"libudev\0\xfe\xed\xca\xfe" + header + rest,
        st.binary(min_size=12, max_size=28),
        st.binary(max_size=100),
    )
)
def test_no_message_is_too_odd_to_read(message: bytes) -> None:
    event = parse_uevent(message)
    assert event is None or (event.action and event.devpath.startswith("/"))


WORDS = st.text(st.characters(exclude_characters="\0=@", codec="utf-8"), min_size=1, max_size=20)


@given(WORDS, WORDS, st.dictionaries(WORDS, WORDS.map(lambda text: f"{text}=")), st.booleans())
def test_what_was_written_is_what_is_read(
    action: str, path: str, properties: dict[str, str], is_libudev: bool
) -> None:
    said = {**properties, "ACTION": action, "DEVPATH": f"/{path}", "SUBSYSTEM": "x"}
    content = b"".join(f"{key}={value}".encode() + b"\0" for key, value in said.items())
    message = libudev(content) if is_libudev else f"{action}@/{path}".encode() + b"\0" + content
    assert parse_uevent(message) == Uevent(action, f"/{path}", "x", said)


# ── real devices ──


@pytest.mark.root
@needs_uevents
@pytest.mark.parametrize(
    ("make", "subsystem"),
    [
        (loop_device, "block"),
        (zram_device, "block"),
        (vcs_device, "vc"),
        (tap_device, "net"),
        (veth_device, "net"),
    ],
)
async def test_a_device_that_comes_and_goes_is_told(
    make: Callable[[], AbstractContextManager[KernelDevice]], subsystem: str
) -> None:
    async with heard() as told:
        with make() as device:
            await turns()
            assert of(device, told)[0] == ("add", subsystem)
        await turns()
        assert of(device, told)[-1] == ("remove", subsystem)


@pytest.mark.root
@needs_uevents
async def test_interfaces_are_told_in_their_own_network_namespace_only() -> None:
    async with heard() as told:
        with own_network_namespace(), tap_device() as device, loop_device() as disk:
            with heard_here() as (told_there, _):
                announce(NULL)
                await turns()
            assert nulls(told_there) >= 1
        await turns()
        assert of(device, told) == []
        assert of(disk, told)[0] == ("add", "block")


# ── one descriptor ──


async def test_all_who_listen_share_one_descriptor_and_the_last_gives_it_back() -> None:
    before = open_descriptors()
    async with shared_uevents() as one:
        assert open_descriptors() == before + one.is_listening
        async with shared_uevents() as other, heard(), heard():
            assert one is other
            assert open_descriptors() == before + one.is_listening
        assert open_descriptors() == before + one.is_listening
    assert open_descriptors() == before
    async with shared_uevents() as later:
        assert later is not one


@pytest.mark.root
@needs_uevents
async def test_everybody_is_told_until_their_block_is_left() -> None:
    async with heard() as stays:
        async with heard() as ends:
            announce(NULL)
            await turns()
            assert nulls(stays) == nulls(ends) >= 1
        count = len(ends)
        announce(NULL)
        await turns()
        assert len(ends) == count
        assert nulls(stays) >= 2


@pytest.mark.root
@needs_uevents
async def test_a_subscriber_may_leave_at_an_event() -> None:
    async with shared_uevents() as listener:
        told: list[Uevent | None] = []
        leaving = ExitStack()
        leaving.enter_context(listener.subscribe(lambda _: leaving.close()))
        with listener.subscribe(told.append):
            announce(NULL)
            announce(NULL)
            await turns()
            assert nulls(told) >= 2


# ── what is lost ──


@pytest.mark.root
@needs_uevents
async def test_after_more_events_than_fit_it_is_told_last_that_some_were_missed() -> None:
    """The kernel says so first, and goes on losing until its queue has been read."""
    with heard_here(receive_bytes=1) as (told, _):
        for _ in range(50):
            announce(NULL)
        await turns()
        assert told[0] is None
        assert told[-1] is None
        assert 1 <= nulls(told) < 50
        told.clear()
        announce(NULL)
        await turns()
        assert nulls(told) >= 1
        assert None not in told


@pytest.mark.root
@needs_uevents
async def test_a_burst_fits() -> None:
    async with heard() as told:
        for _ in range(2000):
            announce(NULL)
        while nulls(told) < 2000:
            await turns(1)
        assert None not in told


@pytest.mark.root
@needs_uevents
async def test_what_another_process_sends_is_not_told() -> None:
    with own_network_namespace(), heard_here() as (told, _):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as liar:
            try:
                liar.sendto(KERNEL, (0, GROUP))
            except OSError as error:
                pytest.skip(f"may not send to the kernel's group: {error}")
        announce(NULL)
        await turns()
        assert nulls(told) >= 1
        assert parse_uevent(KERNEL) not in told
        assert None not in told


@pytest.mark.root
@needs_uevents
async def test_a_message_that_nobody_can_read_counts_as_missed() -> None:
    """The kernel takes such messages from root, and passes them on as its own."""
    with own_network_namespace(), heard_here() as (told, _):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as root:
            text = b"gibberish"
            try:
                root.sendto(struct.pack("=IHHII", 16 + len(text), 16, 1, 0, 0) + text, (0, 0))
            except OSError as error:
                pytest.skip(f"this kernel passes nothing on: {error}")
        await turns()
        assert None in told


async def test_a_socket_that_fails_is_told_as_missed_and_opened_again() -> None:
    with heard_here() as (told, listener):
        if listener._socket is None:
            pytest.skip("no uevents can be heard here")
        reader, writer = os.pipe()
        os.dup2(reader, listener._socket.fileno())
        os.close(reader)
        os.close(writer)
        listener._read()
        assert told == [None]
        assert not listener.is_listening
        assert listener.listen()
        assert told == [None, None]


# ── what cannot be heard ──


@pytest.mark.usefixtures("_descriptors")
async def test_without_a_socket_there_is_one_warning_and_another_try_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    deaf_for_want_of_a_descriptor()
    async with shared_uevents() as listener, heard() as told:
        assert not listener.is_listening
        assert not listener.listen()
        assert [record.message for record in caplog.records] == [
            "cannot receive kernel uevents; looking for devices every 5 s instead"
        ]
        assert told == []
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for _ in range(2):
            if not listener.listen():
                pytest.skip("no uevents can be heard here")
            assert told == [None]


LISTENS = """
import asyncio
import logging
from devplug.linux.uevents import shared_uevents

logging.basicConfig(format="%(message)s: %(reason)s")

async def main():
    async with shared_uevents() as listener:
        print(listener.is_listening)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("namespaces", "is_heard"),
    [
        ("-Urn", False),
        pytest.param("-n", True, marks=needs_uevents),
        pytest.param("-Ur", True, marks=needs_uevents),
    ],
)
def test_a_user_namespace_of_ones_own_is_known_to_hear_nothing(namespaces: str, is_heard: bool) -> None:
    """The socket opens there, and stays silent: a pod with `hostUsers: false`."""
    try:
        ran = subprocess.run(
            ["unshare", namespaces, sys.executable, "-c", LISTENS],
            capture_output=True,
            text=True,
            check=False,
            timeout=40,
        )
    except OSError as error:
        pytest.skip(f"no unshare here: {error}")
    if ran.returncode:
        pytest.skip(f"may make no namespaces here: {ran.stderr}")
    assert ran.stdout == f"{is_heard}\n"
    assert ("hostUsers: true" in ran.stderr) == (not is_heard)
