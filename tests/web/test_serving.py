"""Requests in order: over TCP, by clients of the field, one after the other, and how the server ends."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from shutil import which

import pytest

from devplug.web.addresses import Address, TcpAddress, parse_address
from devplug.web.client import get
from devplug.web.messages import Answer, Limits, Page, Request, Stream, not_found
from devplug.web.server import serving
from tests.web.raw import GET, HERE, LAST_GET, answer_to, connection, hello, one_answer


def port_of(address: Address) -> int:
    assert isinstance(address, TcpAddress)
    return address.port


async def site(request: Request) -> Answer:
    async def count() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"{number}\n".encode()
            yield b""

    match request.path:
        case "/page":
            return Page("ä" * 3, headers={"X-Mine": "1"})
        case "/large":
            return Page(b"x" * 5_000_000, "application/octet-stream")
        case "/stream":
            return Stream(count(), "application/x-ndjson")
        case "/fault":
            raise RuntimeError("a secret")
        case "/header":
            return Page("x", headers={"Bad\n": "x"})
        case "/seen":
            return Page(repr(request))
    return not_found()


async def test_a_page_comes_with_its_length_and_headers() -> None:
    async with serving(HERE, site, name="test") as address:
        answer = await answer_to(address, LAST_GET.replace(b"/ ", b"/page "))
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    assert status == "HTTP/1.1 200 OK"
    assert {"Content-Length: 6", "X-Mine: 1", "Connection: close"} < set(headers)
    assert {"X-Content-Type-Options: nosniff", "Cache-Control: no-store"} < set(headers)
    assert body.decode() == "äää"


async def test_a_head_gets_the_headers_without_the_body() -> None:
    async with serving(HERE, site, name="test") as address:
        for path in (b"/page", b"/stream", b"/fault", b"/none"):
            one, other = [
                await answer_to(address, LAST_GET.replace(b"GET / ", method + b" " + path + b" "))
                for method in (b"GET", b"HEAD")
            ]
            whole, alone = [answer.partition(b"\r\n\r\n") for answer in (one, other)]
            assert alone[2] == b"" != whole[2]
            assert alone[0].split(b"Date")[0] == whole[0].split(b"Date")[0]
            assert alone[0].split(b"GMT")[1] == whole[0].split(b"GMT")[1]


async def test_the_handler_sees_what_was_asked() -> None:
    async with serving(HERE, site, name="test") as address:
        answer = await get(address, "/seen?a=1&b")
    assert answer.body.decode() == repr(Request("/seen", {"a": "1", "b": ""}, "*/*", is_local=False))


async def test_requests_in_one_go_are_answered_in_their_order() -> None:
    async with serving(HERE, hello, name="test") as address, connection(address) as (reader, writer):
        writer.write(b"".join(GET.replace(b"/ ", f"/{n} ".encode()) for n in range(200)))
        bodies = [(await one_answer(reader))[1] for _ in range(200)]
    assert bodies == [f"hello /{n}".encode() for n in range(200)]


@pytest.mark.parametrize(
    "request_text", [LAST_GET, b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"]
)
async def test_a_client_that_wants_one_answer_gets_one(request_text: bytes) -> None:
    async with serving(HERE, hello, name="test") as address:
        answer = await answer_to(address, request_text + GET)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert answer.endswith(b"hello /")


async def test_a_client_that_has_closed_its_half_gets_its_answer() -> None:
    async with serving(HERE, hello, name="test") as address:
        assert (await answer_to(address, GET, half_closed=True)).endswith(b"hello /")


async def test_an_old_client_gets_a_stream_without_chunks() -> None:
    async with serving(HERE, site, name="test") as address:
        answer = await answer_to(address, b"GET /stream HTTP/1.0\r\n\r\n")
    assert answer.partition(b"\r\n\r\n")[2] == b"0\n1\n2\n"
    assert b"chunked" not in answer


@pytest.mark.parametrize("path", ["/fault", "/header"])
async def test_a_fault_of_the_handler_leaves_as_a_number_only(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> bytes:
        async with serving(HERE, site, name="test") as address:
            answer = await get(address, path)
            assert answer.status == 500
            assert (await get(address, "/page")).status == 200
            return answer.body

    body = (await ask()).decode()
    [record] = caplog.records
    assert body == f"internal error, incident {vars(record)['incident']}\n"
    assert vars(record)["path"] == path
    assert record.exc_info is not None


async def test_clients_of_the_standard_library_are_served() -> None:
    def ask(port: int) -> None:
        with urllib.request.urlopen(f"http://localhost:{port}/stream") as answer:
            assert (answer.status, answer.read()) == (200, b"0\n1\n2\n")
        with pytest.raises(urllib.error.HTTPError, match="404: Not Found") as caught:
            urllib.request.urlopen(f"http://localhost:{port}/none")
        caught.value.close()
        client = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(3):
            client.request("GET", "/large")
            answer = client.getresponse()
            assert len(answer.read()) == 5_000_000
        client.request("POST", "/page", body=b"x" * 100)
        answer = client.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert answer.read() == b"this server is read-only: use GET or HEAD\n"
        client.close()

    async with serving(TcpAddress("localhost", 0), site, name="test") as address:
        await asyncio.to_thread(ask, port_of(address))


async def test_curl_is_served() -> None:
    if which("curl") is None:
        pytest.skip("no curl here; install the package curl")

    async with serving(HERE, site, name="test") as address:
        arguments = ["-sS", "--fail", f"http://{address}/page", f"http://{address}/stream"]
        curl = await asyncio.create_subprocess_exec("curl", *arguments, stdout=subprocess.PIPE)
        printed, _ = await curl.communicate()
    assert (curl.returncode, printed.decode()) == (0, "äää0\n1\n2\n")


async def test_without_a_host_all_interfaces_are_served() -> None:
    async with serving(parse_address(":0"), hello, name="test") as address:
        port = port_of(address)
        assert (await get(TcpAddress("127.0.0.1", port), "/")).status == 200
        if socket.has_dualstack_ipv6():
            assert (await get(TcpAddress("::1", port), "/")).status == 200
        assert (await answer_to(address, LAST_GET.replace(b"localhost", b"node"))).startswith(b"HTTP/1.1 200")


async def test_a_name_of_someone_else_is_refused_on_loopback() -> None:
    async with serving(HERE, hello, name="test") as address:
        answer = await answer_to(address, GET.replace(b"localhost", b"evil.example"))
    assert answer.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")


def test_nothing_heavy_is_loaded_and_openssl_is_not_needed() -> None:
    program = (
        "import sys, asyncio\n"
        "before = set(sys.modules)\n"
        "import devplug.web.server, devplug.web.client\n"
        "print(*(set(sys.modules) - before), sep='\\n')"
    )
    heavy = {"ssl", "grpc", "email", "http", "http.client", "google.protobuf", "yaml"}
    for start in ("", "import sys; sys.modules['ssl'] = sys.modules['_hashlib'] = None\n"):
        done = subprocess.run(
            [sys.executable, "-c", start + program], check=True, capture_output=True, text=True
        )
        assert heavy & set(done.stdout.split()) == set()


def test_limits_are_what_the_manual_says() -> None:
    assert Limits() == Limits(64, 16 * 1024, 5, 30, 10)
