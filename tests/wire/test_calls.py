"""Calls and streams on real sockets: answers, statuses, and bytes that mean harm."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import errors
from devplug.errors import DevplugError, PluginError, RemoteError
from devplug.wire import deviceplugin
from devplug.wire.grpcio import grpc
from devplug.wire.sockets import connected
from devplug.wire.values import AdvertisedDevice, PluginOptions
from tests.wire.fakes import LIST, Plugin, allocate_raw, refusal, served

pytestmark = pytest.mark.usefixtures("pairing")


# ── calls and streams ──────────────────────────────────────────────────────────────────────────────


async def test_a_call_is_answered(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin()) as peer:
        (response,) = await peer.call(deviceplugin.ALLOCATE, [("a", "b")])
        assert response.envs == {"IDS": "a,b"}


async def test_a_stream_gives_each_answer_and_ends(short_dir: Path) -> None:
    plugin = Plugin()
    for answer in (LIST, (), None):
        plugin.answers.put_nowait(answer)
    async with served(short_dir / "p.sock", plugin) as peer:
        assert [answer async for answer in peer.stream(deviceplugin.LIST_AND_WATCH, None)] == [LIST, ()]


async def test_a_stream_that_the_client_leaves_ends_its_handler(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.answers.put_nowait(LIST)
    async with served(short_dir / "p.sock", plugin) as peer:
        async with aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as answers:
            assert await anext(answers) == LIST
            assert not plugin.left.is_set()
        await plugin.left.wait()


async def test_a_stream_whose_client_never_reads_ends_with_its_connection(short_dir: Path) -> None:
    plugin = Plugin()
    large = [AdvertisedDevice(f"{number:063}", "Healthy") for number in range(30_000)]
    for _ in range(10):
        plugin.answers.put_nowait(large)
    async with served(short_dir / "p.sock", plugin) as peer:
        async with connected(short_dir / "p.sock") as second:
            answers = second.stream(deviceplugin.LIST_AND_WATCH, None)
            await anext(answers)
        await plugin.left.wait()
        await answers.aclose()
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_a_stream_reports_the_error_that_ends_it(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.error = errors.LimitError("list-and-watch: stream limit")
    plugin.answers.put_nowait(None)
    async with served(short_dir / "p.sock", plugin) as peer:
        with pytest.raises(RemoteError) as caught:
            await anext(peer.stream(deviceplugin.LIST_AND_WATCH, None))
        assert (caught.value.status, caught.value.text) == (
            "ResourceExhausted",
            "list-and-watch: stream limit",
        )


# ── errors ⇄ status ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (errors.InvalidRequestError("no IDs"), "InvalidArgument", "no IDs"),
        (errors.UnknownDeviceError("x", "a.io/b"), "NotFound", 'device "x" is not known to a.io/b'),
        (errors.UnhealthyDeviceError("hot"), "FailedPrecondition", "hot"),
        (errors.LimitError("too many"), "ResourceExhausted", "too many"),
        (errors.NotReadyError("starting"), "Unavailable", "starting"),
        (errors.DeadlineError("no answer in 5 s"), "DeadlineExceeded", "no answer in 5 s"),
        (errors.NotOfferedError("not offered"), "Unimplemented", "not offered"),
        (errors.IncidentError("7f3a01"), "Internal", "internal error, incident 7f3a01"),
        (errors.AllocationError("no such model"), "FailedPrecondition", "no such model"),
        (errors.KubeletError("no such pod"), "Unknown", "no such pod"),
        (errors.RegistrationError("bad name"), "Unknown", "bad name"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_each_class_of_error_has_its_status(
    short_dir: Path, error: DevplugError, status: str, text: str
) -> None:
    plugin = Plugin()
    plugin.error = error
    async with served(short_dir / "p.sock", plugin) as peer:
        caught = await refusal(peer)
        assert (caught.status, caught.text) == (status, text)


async def test_the_text_of_an_error_crosses_on_one_line_of_200_bytes(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.error = errors.AllocationError("two\nlines " + "é" * 200)
    async with served(short_dir / "p.sock", plugin) as peer:
        caught = await refusal(peer)
        assert caught.text.startswith("two lines éé")
        assert caught.text.isprintable()
        assert len(caught.text.encode()) <= 200


@pytest.mark.parametrize("error", [ValueError("secret"), PluginError("secret"), RecursionError("secret")])
async def test_any_other_exception_crosses_as_a_number_only(
    short_dir: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    plugin = Plugin()
    plugin.error = error
    with caplog.at_level(logging.ERROR, "devplug.wire.handlers"):
        async with served(short_dir / "p.sock", plugin) as peer:
            caught = await refusal(peer)
    (record,) = caplog.records
    incident = vars(record)["incident"]
    assert (caught.status, caught.text) == ("Internal", f"internal error, incident {incident}")
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize(
    "status",
    [
        *("Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists"),
        *("PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange"),
        *("Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"),
    ],
)
async def test_the_status_of_a_remote_error_is_passed_on_with_its_text(short_dir: Path, status: str) -> None:
    plugin = Plugin()
    plugin.error = RemoteError(status, "two\nlines, " + "é" * 200)
    async with served(short_dir / "p.sock", plugin) as peer:
        caught = await refusal(peer)
        assert (caught.status, caught.text) == (status, plugin.error.text)


@pytest.mark.parametrize("status", ["OK", "Code(17)", "NOT_FOUND", ""])
async def test_a_remote_error_without_a_status_of_grpc_is_a_fault_like_any_other(
    short_dir: Path, status: str
) -> None:
    plugin = Plugin()
    plugin.error = RemoteError(status, "secret")
    async with served(short_dir / "p.sock", plugin) as peer:
        caught = await refusal(peer)
        assert caught.status == "Internal"
        assert caught.text.startswith("internal error, incident ")


async def test_an_answer_larger_than_the_kubelet_takes_is_refused_here(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin(), send_limit_bytes=100) as peer:
        assert (await peer.call(deviceplugin.ALLOCATE, [("x" * 50,)]))[0].envs == {"IDS": "x" * 50}
        caught = await refusal(peer, ("x" * 100,))
        assert caught.status == "Internal"
        assert "bytes; the kubelet takes 100" in caught.text


async def test_what_is_called_on_a_closed_connection_is_lost_with_it(short_dir: Path) -> None:
    """A kubelet that ends between two calls for a pod makes the second one on what it has closed."""
    async with served(short_dir / "p.sock", Plugin()):
        async with connected(short_dir / "p.sock") as peer:
            await peer.call(deviceplugin.GET_OPTIONS, None)
        assert (await refusal(peer)).status == "Canceled"
        with pytest.raises(RemoteError, match="Canceled desc = grpc: the client connection is closing"):
            await anext(peer.stream(deviceplugin.LIST_AND_WATCH, None))


# ── hostile bytes ──────────────────────────────────────────────────────────────────────────────────


async def test_a_request_over_the_limit_is_refused(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin(), receive_limit_bytes=1000) as peer:
        caught = await refusal(peer, ("x" * 2000,))
        assert caught.status == "ResourceExhausted"


@pytest.mark.parametrize(
    ("method", "content", "name"),
    [
        (deviceplugin.ALLOCATE, b"\x0a\x05ab", "AllocateRequest"),
        (deviceplugin.LIST_AND_WATCH, b"\xff\xff", "Empty"),
    ],
)
async def test_a_malformed_message_is_an_invalid_argument(
    short_dir: Path, method: deviceplugin.Method[Any, Any], content: bytes, name: str
) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()):
        refused = await allocate_raw(path, content, method.path)
        assert refused == f"INVALID_ARGUMENT malformed {name}"


async def test_a_compressed_message_is_refused(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()):
        request = deviceplugin.ALLOCATE.request.encode([("a" * 1000,)])
        refused = await allocate_raw(path, request, compression=grpc.Compression.Gzip)
        assert refused == "UNIMPLEMENTED Compression algorithm 'gzip' is disabled."


@pytest.mark.parametrize("method", ["/v1beta1.DevicePlugin/Reset", "/v1.PodResourcesLister/List", "/"])
async def test_an_unknown_method_is_unimplemented(short_dir: Path, method: str) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()):
        assert (await allocate_raw(path, b"", method)).startswith("UNIMPLEMENTED")


async def test_bytes_that_are_not_http2_disturb_nobody_else(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()) as peer:
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(64),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
        ):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(garbage)
            await reader.read()
            writer.close()
            await writer.wait_closed()
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
