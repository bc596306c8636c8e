"""Clients of the API server that send nothing, or half of what they should: the others are answered."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devplug.sandbox.server.connections import ConnectionLimits, Connections, HttpConnection, users_of_ports
from devplug.sandbox.server.listener import Tls
from tests.sandbox.server.beds import TOKEN, Server, served

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LIMIT = 16
FEW = ConnectionLimits(LIMIT)
SHORT = ConnectionLimits(head_seconds=0.05, body_seconds=0.05)
HEAD = (
    f"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
)
UNFINISHED = {
    "silence": b"",
    "half a head": HEAD.encode(),
    "half a body": f"{HEAD}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode(),
}
SILENT_AS_ANOTHER_USER = """
import encodings.idna, os, socket, sys
os.setgroups([]); os.setgid(1234); os.setuid(1234)
opened = []
for _ in range(int(sys.argv[2])):
    opened.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    opened[-1].sendall(b"GET /api/v1/pods?watch=1 HTTP/1.1\\r\\nHost: x\\r\\n")
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def connected(server: Server, content: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that have sent this, and wait."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            one.sendall(content)
            opened.append(one)
        yield opened


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("content", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_another_client_is_answered_beside_unfinished_requests(content: bytes) -> None:
    with served(limits=FEW) as server, connected(server, content, 4 * LIMIT):
        for _ in range(3):
            assert server.ask("GET", "/api/v1/namespaces").code == 200


def test_another_client_is_answered_beside_half_handshakes(tmp_path: Path) -> None:
    tls = Tls.made_in(tmp_path)
    with served(limits=FEW, tls=tls) as server, connected(server, b"\x16\x03\x01", 4 * LIMIT):
        told = subprocess.run(
            ["curl", "-s", "--max-time", "20", "--cacert", str(tls.cert_file), f"{server.url}/healthz"],
            capture_output=True,
            check=True,
        )
        assert told.stdout == b"ok"


def test_unfinished_requests_make_room_before_watches_and_idle_connections() -> None:
    with served(limits=FEW) as server, server.follow("/api/v1/namespaces?watch=1") as watch:
        assert b"ADDED" in watch.readline()
        idle = server.connect()
        idle.request("GET", "/healthz")
        idle.getresponse().read()
        with connected(server, b"GET /", 4 * LIMIT) as opened:
            assert server.ask("GET", "/healthz").code == 200
            assert is_closed(opened[0])
            idle.request("GET", "/healthz")
            assert idle.getresponse().read() == b"ok"
            body = {"metadata": {"name": "other"}}
            assert server.ask("POST", "/api/v1/namespaces", body).code == 201
            assert b"other" in watch.readline()
        idle.close()


def test_user_of_a_connection_is_told_from_other_sockets_with_its_port() -> None:
    rows = [
        "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode",
        "0: 0100007F:D1A2 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 1234 0 1",
        "1: 0100007F:1F90 0100007F:D1A2 01 00000000:00000000 00:00000000 00000000 0 0 2",
        "2: 0100007F:D1A2 0100007F:0050 01 00000000:00000000 00:00000000 00000000 77 0 3",
        "3: 0200007F:D1A2 0100007F:1F90 06 00000000:00000000 00:00000000 00000000 0 0 0",
    ]
    assert users_of_ports("\n".join(rows), 0x1F90) == {0xD1A2: 1234}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to become another user")
def test_another_user_takes_no_connection_of_ours() -> None:
    with served(limits=FEW) as server, connected(server, HEAD.encode(), 2) as ours:
        command = [sys.executable, "-I", "-c", SILENT_AS_ANOTHER_USER, str(server.port), str(4 * LIMIT)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "there\n"
            for one in ours:
                one.sendall(b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
                assert one.recv(12) == b"HTTP/1.1 422"
            other.communicate("")


@pytest.mark.parametrize("content", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_an_unfinished_request_is_closed_in_time(content: bytes) -> None:
    with served(limits=SHORT) as server, connected(server, content, 1) as (one,):
        assert is_closed(one)


def test_a_head_that_trickles_is_closed_in_time() -> None:
    with served(limits=SHORT) as server, connected(server, b"GET / HTTP/1.1\r\n", 1) as (one,):
        one.settimeout(0.01)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                one.sendall(b"A")
                if one.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError("it is open after 30 s")


def test_a_large_answer_before_a_close_leaves_the_server_running() -> None:
    """The socket's buffers cannot take the answer: its end is sent after the server closed the connection."""
    with served() as server:
        for number in range(8):
            body = {"metadata": {"name": f"big-{number}"}, "data": {"k": "v" * 900_000}}
            assert server.ask("POST", CONFIG_MAPS, body).code == 201
        for _ in range(3):
            answer = server.ask("GET", CONFIG_MAPS, headers={"Connection": "close"})
            assert (answer.code, len(answer.json["items"])) == (200, 8)


async def test_an_error_of_one_connection_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> HttpConnection:
        raise RuntimeError("no protocol")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as tasks:
            connections = Connections(listener, broken, None, tasks, FEW)
            connections.open()
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()
            connections.close()
    assert "no protocol" in caplog.text


def test_a_sandbox_of_many_nodes_fits_into_the_limit() -> None:
    assert ConnectionLimits().connections >= 5 * 100
