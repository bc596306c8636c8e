"""Calls and streams on real sockets: answers, statuses, deadlines, and bytes that mean harm."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from devplug import errors
from devplug.errors import DevplugError, PluginError, RemoteError
from devplug.wire import deviceplugin
from devplug.wire.grpcio import grpc
from devplug.wire.sockets import Listener, authority_of, connected
from devplug.wire.transport import GRPCIO
from devplug.wire.values import AdvertisedDevice, PluginOptions
from tests.wire.fakes import (
    LIST,
    Plugin,
    allocate_raw,
    fields_sent,
    open_descriptors,
    refusal,
    refuse,
    served,
)
from tests.wire.pairings import Pairing

pytestmark = pytest.mark.usefixtures("pairing")

# ── calls and streams ─────────────────────────────────────────────────────────────────────────────


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


# ── errors ⇄ status ───────────────────────────────────────────────────────────────────────────────


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


# ── hostile bytes ─────────────────────────────────────────────────────────────────────────────────


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


# ── calling ───────────────────────────────────────────────────────────────────────────────────────


async def bytes_of_a_call(path: Path, **options: Any) -> bytes:
    """What a server receives of a call, as far as its headers; it answers with its settings only."""
    seen = bytearray()
    closed = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x04\0\0\0\0\0")  # SETTINGS: the client speaks when it has seen them
        while not fields_sent(bytes(seen)):
            seen.extend(await reader.read(4096))
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_unix_server(listen, path), connected(path, **options) as peer:
        assert (await refusal(peer)).status == "Unavailable"
        await closed.wait()
    return bytes(seen)


@pytest.mark.parametrize("options", [{}, {"authority": "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock"}])
async def test_calls_carry_the_authority_of_the_kubelet_or_that_which_the_caller_wants(
    short_dir: Path, options: dict[str, str]
) -> None:
    seen = await bytes_of_a_call(short_dir / "p.sock", **options)
    assert seen.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert fields_sent(seen)[":authority"] == options.get("authority", "localhost")


@pytest.mark.parametrize(
    ("path", "authority"),
    [
        ("/var/lib/kubelet/plugins_registry/x.sock", "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock"),
        ("/-_.~!$&'()*+,;=:[]@", "%2F-_.~!$&'()*+,;=:[]@"),
        ("/a b%2F?#ü", "%2Fa%20b%252F%3F%23%C3%BC"),
    ],
)
def test_the_authority_of_a_path_is_spelt_as_go_does(path: str, authority: str) -> None:
    assert authority_of(Path(path)) == authority


async def test_a_plugin_takes_calls_with_the_authority_of_its_path(short_dir: Path) -> None:
    path = short_dir / "a b%2F?#ü.sock"
    async with served(path, Plugin()), connected(path, authority=authority_of(path)) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_an_error_that_somebody_keeps_holds_no_connection_open(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.error = errors.AllocationError("no")
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    before = open_descriptors()
    async with connected(listener.path) as peer:
        kept = await refusal(peer)
    while open_descriptors() > before:  # noqa: ASYNC110 -- no event tells
        await asyncio.sleep(0)
    assert kept.text == "no"
    await listener.close()


async def test_a_call_past_its_deadline_says_so_in_the_words_of_go(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer:
        with pytest.raises(RemoteError) as caught:
            await peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=0.05)
        assert str(caught.value) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"


@pytest.mark.parametrize("stands_there", ["nothing", "a plain file", "a dead socket", "a silent server"])
async def test_waiting_for_a_server_that_never_speaks_ends_at_the_deadline(
    short_dir: Path, stands_there: str
) -> None:
    path = short_dir / "p.sock"
    with socket.socket(socket.AF_UNIX) as server:
        if stands_there == "a plain file":
            path.touch()
        elif stands_there != "nothing":
            server.bind(str(path))
        if stands_there == "a silent server":
            server.listen()
        with pytest.raises(RemoteError) as caught:
            async with connected(path, ready_within_seconds=0.1):
                pass
        assert (caught.value.status, caught.value.text) == ("DeadlineExceeded", "context deadline exceeded")


async def test_a_call_without_a_server_is_unavailable(short_dir: Path) -> None:
    async with connected(short_dir / "p.sock") as peer:
        assert (await refusal(peer)).status == "Unavailable"


async def test_a_connection_that_is_tried_once_needs_somebody_who_listens(short_dir: Path) -> None:
    with pytest.raises(RemoteError) as caught:
        async with connected(short_dir / "p.sock", connect_within_seconds=30):
            pass
    assert (caught.value.status, caught.value.is_unsent) == ("Unavailable", True)


async def test_a_connection_that_is_tried_once_ends_at_the_deadline(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "p.sock"))
        silent.listen()
        with pytest.raises(RemoteError) as caught:
            async with connected(short_dir / "p.sock", connect_within_seconds=0.1):
                pass
    assert (caught.value.status, caught.value.is_unsent) == ("DeadlineExceeded", True)


async def test_a_connection_that_is_tried_once_is_not_made_anew_to_the_next_server(
    short_dir: Path, pairing: Pairing
) -> None:
    if pairing.client is GRPCIO:
        pytest.skip("grpcio connects again by itself, whoever listens then")
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.bind()
    async with connected(listener.path, connect_within_seconds=30) as peer:
        await listener.close()
        async with served(listener.path, following := Plugin()):
            assert (await refusal(peer)).status == "Unavailable"
            assert not following.entered.is_set()


async def test_a_call_whose_server_goes_is_an_error_and_no_cancellation(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    async with connected(listener.path) as peer, asyncio.TaskGroup() as group:
        refused = group.create_task(refusal(peer))
        await plugin.entered.wait()
        await listener.close()
    assert refused.result().status in {"Unavailable", "Canceled"}


async def test_a_cancelled_call_is_a_cancellation(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer, asyncio.TaskGroup() as group:
        call = group.create_task(peer.call(deviceplugin.ALLOCATE, [("a",)]))
        await plugin.entered.wait()
        call.cancel()
    assert call.cancelled()


async def test_an_answer_that_cannot_be_decoded_is_an_error(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin()) as peer:
        other = replace(
            deviceplugin.ALLOCATE, response=replace(deviceplugin.ALLOCATE.response, decode=refuse)
        )
        with pytest.raises(RemoteError) as caught:
            await peer.call(other, [("a",)])
        assert str(caught.value) == (
            "rpc error: code = Internal desc = cannot decode the answer to Allocate: malformed Answer"
        )
