"""Hostile callers of a driver: bytes that are no message, huge calls, fields and names of another world."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from devplug.conformance.raw_clients import MALFORMED, raw
from devplug.conformance.testbed import LATE
from devplug.conformance.verdicts import MUST, FailedError, check
from devplug.errors import RemoteError
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from devplug.conformance.dra.testbed import DriverBed

LANE = "hostile"
_MANY: Final = 100
_LONG: Final = 2**20
_NEW_FIELD: Final = b"\x4a\x03new"
"""Field 9, a text: none of the API's messages has one of that number."""
_VICTIM: Final = "verify-victim"
_NAMES: Final = (
    f"../../../../../../api/v1/namespaces/{_VICTIM}",
    f"x/../../../../../../../api/v1/namespaces/{_VICTIM}",
    f"x?dryRun=All&fieldManager=x#/{_VICTIM}",
)
_CUT_OFF: Final = ("/namespaces/default/resourceclaims/x", "/namespaces/x")
"""What is asked for if a name ends at its question mark."""


@check(
    "DRA82",
    MUST,
    "Garbage on its sockets does a driver no harm.",
    why="whoever can reach the socket ends it, and with it all claims of the node",
    change="let bytes that are not HTTP/2 end their own connection, and nothing else",
    source="RFC 9113",
    lane=LANE,
)
async def bears_garbage(bed: DriverBed) -> None:
    """Send bytes that are no HTTP/2 to both sockets, and silence; then have a claim prepared."""
    one = bed.registration
    for path in (one.path, one.endpoint):
        for content in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x00" * 4096,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
        ):
            try:
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(content)
                await writer.drain()
                writer.transport.abort()
            except OSError:
                continue
    await bed.check_serves("after garbage")


@check(
    "DRA83",
    MUST,
    "A message that cannot be decoded is refused, and does no harm.",
    why="whoever can reach the socket ends the driver, or has it answer what nobody asked",
    change="answer an error for a message that cannot be decoded, and go on serving",
    source="gRPC status codes, INVALID_ARGUMENT and INTERNAL",
    lane=LANE,
)
async def refuses_malformed_messages(bed: DriverBed) -> None:
    """Send bytes that cannot be decoded to both calls: endless, cut off, not UTF-8, too deep."""
    one = bed.registration
    for malformed in MALFORMED:
        for method in (raw(PREPARE[one.version]), raw(UNPREPARE[one.version])):
            try:
                async with connected(one.endpoint) as peer:
                    await peer.call(method, malformed.content, timeout_seconds=bed.times.claim_limit_seconds)
            except RemoteError as error:
                if error.status == LATE:
                    raise FailedError(f"{malformed.name} to {method.name}: nothing came") from error
            else:
                if malformed.must_be_refused:
                    raise FailedError(f"{malformed.name} to {method.name} is answered like a valid request")
        await bed.check_serves(f"after {malformed.name}")


@check(
    "DRA84",
    MUST,
    "Calls with very many claims, and with endless names, do a driver no harm.",
    why="whoever can reach the socket ends it, and with it all claims of the node",
    change="refuse names that Kubernetes does not allow, and keep nothing of what is refused",
    source="apimachinery validation (names of at most 253 characters)",
    lane=LANE,
)
async def bears_huge_calls(bed: DriverBed) -> None:
    """Ask for a hundred claims that do not exist, then for one whose name has a megabyte."""
    unknown = [ClaimName("default", str(uuid.uuid4()), f"none-{number}") for number in range(_MANY)]
    for what, claims in (
        (f"a call with {_MANY} claims that do not exist", unknown),
        ("a claim with a name of a megabyte", [ClaimName("default", str(uuid.uuid4()), "n" * _LONG)]),
    ):
        try:
            await bed.call_prepare(*claims)
        except RemoteError as error:
            if error.status == LATE:
                raise FailedError(f"{what}: nothing came") from error
        finally:
            for claim in claims:
                bed.claims.pop(claim.uid, None)
        await bed.check_serves(f"after {what}")


@check(
    "DRA85",
    MUST,
    "Fields that a driver does not know are passed over.",
    why="no pod with a claim starts after an update of the kubelet that has a field more",
    change="ignore fields that you do not know, as protobuf does by default",
    source="protobuf.dev/programming-guides/proto3, unknown fields",
    lane=LANE,
)
async def passes_unknown_fields_over(bed: DriverBed) -> None:
    """Have a claim prepared by a request with one more field in the message, and one more in the claim."""
    bed.require_endpoint()
    claim = bed.allocate(*bed.free())
    bed.claims[claim.uid] = claim
    one = bed.registration
    method = PREPARE[one.version]
    tag, length, *content = method.request.encode([claim])  # the length of a claim of ours has one byte
    request = bytes([tag, length + len(_NEW_FIELD), *content]) + _NEW_FIELD + _NEW_FIELD
    try:
        async with connected(one.endpoint) as peer:
            answer = await peer.call(raw(method), request, timeout_seconds=bed.times.claim_limit_seconds)
    except RemoteError as error:
        raise FailedError(f"a request with an unknown field is answered with {error}") from error
    found = method.response.decode(answer).get(claim.uid)
    if found is None or found.error:
        raise FailedError(f"a claim with an unknown field is answered with {found}")


@check(
    "DRA86",
    MUST,
    "A claim's name is no path: nothing else is asked of the API server with the driver's rights.",
    why="whoever can reach the socket reads what the driver's ServiceAccount may, and changes it",
    change="quote each part of the path, or refuse what no name of Kubernetes is",
    source="RFC 3986, 3.3; apimachinery validation (names are DNS subdomains)",
    lane=LANE,
)
async def asks_for_nothing_else(bed: DriverBed) -> None:
    """Prepare claims whose namespaces and names have slashes, dots and question marks."""
    count = len(bed.api.requests)
    for name in _NAMES:
        for claim in (ClaimName("default", str(uuid.uuid4()), name), ClaimName(name, str(uuid.uuid4()), "y")):
            await bed.refusal(claim)
    for one in bed.api.requests[count:]:
        if _VICTIM in one.path.split("/") or one.path.endswith(_CUT_OFF):
            raise FailedError(f"{one.method} {one.path} was asked of the API server")
    await bed.check_serves("after names that are paths")
