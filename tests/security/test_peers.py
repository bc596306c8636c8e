"""Who may call: the rule, and that it holds at a socket whose file was opened to everybody."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.linux.unix_sockets import Peer, may_call, peer_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.web.messages import Page, Request
from devplug.web.server import serving
from tests.web.raw import hello

users = st.integers(0, 2**32 - 1)

ASK = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as one:
    one.connect(sys.argv[1])
    try:
        one.sendall(b"GET /x HTTP/1.0\\r\\n\\r\\n")
        print(one.recv(100).decode())
    except ConnectionError:
        print()
"""


@given(users, users)
def test_root_and_the_same_user_may_call_and_nobody_else(user: int, own: int) -> None:
    assert may_call(own, own)
    assert may_call(0, own)
    assert may_call(user, own) == (user in {0, own})


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == peer_of(other) == Peer(os.getpid(), os.geteuid())


async def asked_as(user: int, path: Path) -> str:
    """What another user's program is answered."""
    command = (sys.executable, "-I", "-c", ASK, str(path), str(user))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    return answer.decode().strip()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to become another user")
async def test_another_user_gets_no_answer_though_the_file_lets_everybody_in(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = short_dir / "s.sock"
    asked: list[Request] = []

    async def answer(request: Request) -> Page:
        asked.append(request)
        return await hello(request)

    caplog.set_level(logging.WARNING)
    async with serving(UnixAddress(str(path)), answer, name="test"):
        short_dir.chmod(0o755)
        path.chmod(0o777)
        for _ in range(3):
            assert await asked_as(65534, path) == ""
        assert asked == []
        assert (await asked_as(0, path)).startswith("HTTP/1.1 200 ")
        assert (await get(UnixAddress(str(path)), "/x")).body == b"hello /x"
    (record,) = caplog.records
    assert record.message == "a connection of another user was refused, although the socket's file permits it"
    assert vars(record)["user"] == 65534
