"""The API of DRA drivers, and the one of their devices' health: values, messages and methods. Pure.

Two versions of the first are served side by side and differ in one field (kubelet.md 1.7): v1beta1 has no
share ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from devplug.wire.codecs import codec, empty_codec, many, number, one, text, texts
from devplug.wire.deviceplugin import Method
from devplug.wire.protobuf import Kind, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = TypeVar("Value")


class ClaimName(Struct, frozen=True):
    """A claim as the kubelet names it to a driver; the driver reads the rest from the API server."""

    namespace: str
    uid: str
    name: str


class PreparedDevice(Struct, frozen=True):
    """A device of a claim as its driver has prepared it. Nothing in it is checked."""

    pool_name: str
    device_name: str
    request_names: tuple[str, ...] = ()
    """The requests of the claim that it serves; empty for all."""
    cdi_device_ids: tuple[str, ...] = ()
    """What the container runtime gives a container that uses it."""
    share_id: str | None = None


class PreparedClaim(Struct, frozen=True):
    """The answer for one claim: its devices, or an error that is not empty."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class HealthWord:
    """The numbers of the API's HealthStatus; any other number counts as unknown."""

    UNKNOWN: Final = 0
    HEALTHY: Final = 1
    UNHEALTHY: Final = 2


class DeviceHealthReport(Struct, frozen=True):
    """What a driver reports of one device's health."""

    pool_name: str
    device_name: str
    health: int
    """A `HealthWord`."""
    last_updated_seconds: int = 0
    """Seconds since 1970; the kubelet takes its own time instead."""
    timeout_seconds: int = 0
    """How long the report counts; 30 s where it is not above 0."""
    message: str = ""


# ── maps from a claim's UID to a message: on the wire a message for each pair ──────────────────────


def _by_uid(name: str, layout: Layout[Value], missing: Value) -> Layout[Mapping[str, Value]]:
    """Return the message whose one field is `map<string, Value> claims = 1`."""
    entry: Layout[tuple[str, Value]] = Layout(
        "ClaimsEntry",
        (text(1, "key", is_optional=True), one(2, "value", layout)),
        lambda pair: pair,
        lambda key, value: (key or "", missing if value is None else value),
    )
    return Layout(name, (many(1, "claims", entry),), lambda claims: (sorted(claims.items()),), dict)


# ── prepare and unprepare ─────────────────────────────────────────────────────────────────────────

_CLAIM: Final[Layout[ClaimName]] = Layout(
    "Claim",
    (text(1, "namespace"), text(2, "uid"), text(3, "name")),
    attrgetter("namespace", "uid", "name"),
    ClaimName,
)


def _claims(name: str) -> Layout[Sequence[ClaimName]]:
    return Layout(name, (many(1, "claims", _CLAIM),), lambda claims: (claims,), tuple)


def _prepared(*, with_share_id: bool) -> Layout[Mapping[str, PreparedClaim]]:
    fields = (
        texts(1, "request_names"),
        text(2, "pool_name"),
        text(3, "device_name"),
        texts(4, "cdi_device_ids"),
        *((text(5, "share_id", is_optional=True),) if with_share_id else ()),
    )

    def device(
        requests: list[str], pool: str, name: str, cdi: list[str], share_id: str | None = None
    ) -> PreparedDevice:
        return PreparedDevice(pool, name, tuple(requests), tuple(cdi), share_id)

    devices = Layout("Device", fields, attrgetter(*(one.name for one in fields)), device)
    claim: Layout[PreparedClaim] = Layout(
        "NodePrepareResourceResponse",
        (many(1, "devices", devices), text(2, "error")),
        attrgetter("devices", "error"),
        lambda devices, error: PreparedClaim(tuple(devices), error),
    )
    return _by_uid("NodePrepareResourcesResponse", claim, PreparedClaim())


_UNPREPARED: Final = _by_uid(
    "NodeUnprepareResourcesResponse",
    Layout("NodeUnprepareResourceResponse", (text(1, "error"),), lambda error: (error,), str),
    "",
)

_PREPARE_REQUEST: Final = codec(_claims("NodePrepareResourcesRequest"))
_UNPREPARE_REQUEST: Final = codec(_claims("NodeUnprepareResourcesRequest"))


def _service(version: str) -> str:
    return f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"


Prepare = Method["Sequence[ClaimName]", Mapping[str, PreparedClaim]]
Unprepare = Method["Sequence[ClaimName]", Mapping[str, str]]

PREPARE: Final[Mapping[str, Prepare]] = {
    f"{version}.DRAPlugin": Method(
        _service(version),
        "NodePrepareResources",
        _PREPARE_REQUEST,
        codec(_prepared(with_share_id=version == "v1")),
    )
    for version in ("v1", "v1beta1")
}
"""By the names that a driver registers: those of versions, and not of the services on the wire."""

UNPREPARE: Final[Mapping[str, Unprepare]] = {
    f"{version}.DRAPlugin": Method(
        _service(version), "NodeUnprepareResources", _UNPREPARE_REQUEST, codec(_UNPREPARED)
    )
    for version in ("v1", "v1beta1")
}
"""As `PREPARE`; the answer is a text by claim UID, empty where the claim is unprepared."""


# ── health ────────────────────────────────────────────────────────────────────────────────────────

_IDENTIFIER: Final[Layout[tuple[str, str]]] = Layout(
    "DeviceIdentifier",
    (text(1, "pool_name"), text(2, "device_name")),
    lambda names: names,
    lambda pool, device: (pool, device),
)


def _report(
    names: tuple[str, str] | None, health: int, updated: int, timeout: int, message: str
) -> DeviceHealthReport:
    pool, device = names or ("", "")
    return DeviceHealthReport(pool, device, health, updated, timeout, message)


_DEVICE_HEALTH: Final[Layout[DeviceHealthReport]] = Layout(
    "DeviceHealth",
    (
        one(1, "device", _IDENTIFIER),
        number(2, "health", Kind.INT32),
        number(3, "last_updated_time", Kind.INT64),
        number(4, "health_check_timeout_seconds", Kind.INT64),
        text(5, "message"),
    ),
    lambda report: (
        (report.pool_name, report.device_name),
        report.health,
        report.last_updated_seconds,
        report.timeout_seconds,
        report.message,
    ),
    _report,
)
_REPORTS: Final[Layout[Sequence[DeviceHealthReport]]] = Layout(
    "NodeWatchResourcesResponse",
    (many(1, "devices", _DEVICE_HEALTH),),
    lambda devices: (devices,),
    tuple,
)

WATCH_RESOURCES: Final[Method[None, Sequence[DeviceHealthReport]]] = Method(
    "v1alpha1.DRAResourceHealth",
    "NodeWatchResources",
    empty_codec("NodeWatchResourcesRequest"),
    codec(_REPORTS),
    is_stream=True,
)
