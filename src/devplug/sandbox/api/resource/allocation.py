"""The status of a ResourceClaim: its allocation, who may use it, and what drivers say (dra.md D59)."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text, whole, with_part
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import (
    duplicate_field,
    forbidden_field,
    invalid_field,
    required_field,
    too_long_field,
    too_many_field,
    unsupported_field,
)
from devplug.sandbox.api.resource.claims import (
    configuration_errors,
    raw_errors,
    request_name_errors,
    request_name_list_errors,
)
from devplug.sandbox.api.resource.devices import binding_errors
from devplug.sandbox.api.resource.gostructs import go_struct
from devplug.sandbox.api.resource.lists import list_errors, set_errors
from devplug.sandbox.api.resource.names import (
    driver_errors,
    key_errors,
    label_name_errors,
    pool_errors,
    uuid_errors,
)
from devplug.sandbox.api.resource.nodes import node_selector_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

_RESERVED: Final = 256
_RESULTS: Final = 32
_CONFIGURATIONS: Final = 64
_DEVICE_CONDITIONS: Final = 8
_ADDRESSES: Final = 16
_INTERFACE_LIMIT_BYTES: Final = 256
_HARDWARE_LIMIT_BYTES: Final = 128
_REASON_LIMIT_BYTES: Final = 1024
_MESSAGE_LIMIT_BYTES: Final = 32 * 1024
_SOURCES: Final = ("FromClaim", "FromClass")
_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  "
    "or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    f"'{_REASON}')"
)
_IPV4_IN_IPV6_BITS: Final = 96
_KEPT_OF_META: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_DEVICE: Final = ("driver", "pool", "device")


def rebased(new: Object, old: Object, part_name: str) -> Object:
    """Return a changed claim with what may not be changed this way as it was: by `/status`, or without it.

    The status of devices that are not allocated any more goes with them (strategy.go).
    """
    if part_name != "status":
        return {**new, "status": fields(old, "status")}
    kept = {word: value for word in _KEPT_OF_META if (value := part(old, "metadata", word)) is not None}
    meta = {word: value for word, value in fields(new, "metadata").items() if word not in _KEPT_OF_META}
    new = {**new, "metadata": {**meta, **kept}, "spec": fields(old, "spec")}
    gone = {_device(one) for one in _results(old)} - {_device(one) for one in _results(new)}
    devices = entries(new, "status", "devices")
    left = [one for one in devices if _device(one) not in gone]
    return new if len(left) == len(devices) else with_part(new, left or None, "status", "devices")


def status_errors(new: Object, old: Object, *, is_changed: bool) -> Iterator[FieldError]:
    """Yield what is wrong with the change of a status; `is_changed` is about its allocation."""
    status = fields(new, "status")
    reserved, allocation = entries(status, "reservedFor"), part(status, "allocation")
    requests = entries(new, "spec", "devices", "requests")
    yield from set_errors(
        reserved, "status.reservedFor", _RESERVED, _consumer_errors, lambda one: text(one, "uid")
    )
    yield from _device_statuses_errors(new)
    if reserved and allocation is None:
        yield forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")
    elif text(old, "metadata", "deletionTimestamp"):
        before = entries(old, "status", "reservedFor")
        if any(one not in before for one in reserved):
            why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield forbidden_field("status.reservedFor", why)
    if allocation is None:
        return
    if part(old, "status", "allocation") is None:
        yield from _allocation_errors(allocation, requests)
    elif is_changed:
        value = go_struct("AllocationResult", allocation)
        yield invalid_field("status.allocation", value, "field is immutable")


def _results(claim: Object) -> list[object]:
    return entries(claim, "status", "allocation", "devices", "results")


def _device(one: object) -> tuple[str, ...]:
    return tuple(text(one, word) for word in _DEVICE)


def _shared_device(one: object) -> tuple[str, ...]:
    return (*_device(one), text(one, "shareID"))


def _told(one: object) -> object:
    """Return a device, or a share of one, as an error tells it (structured.SharedDeviceID)."""
    return go_struct("SharedDeviceID", {word: text(one, word) for word in (*_DEVICE, "shareID")})


# ── reservations and allocations ──


def _consumer_errors(consumer: object, place: str) -> Iterator[FieldError]:
    for word in ("resource", "name", "uid"):
        if not text(consumer, word):
            yield required_field(f"{place}.{word}")


def _allocation_errors(allocation: object, requests: list[object]) -> Iterator[FieldError]:
    place = "status.allocation.devices"

    def result(one: object, place: str) -> Iterator[FieldError]:
        yield from request_name_errors(text(one, "request"), f"{place}.request", requests)
        yield from driver_errors(text(one, "driver"), f"{place}.driver")
        yield from pool_errors(text(one, "pool"), f"{place}.pool")
        yield from label_name_errors(text(one, "device"), f"{place}.device")
        yield from binding_errors(one, place)
        yield from _share_errors(one, place)

    def configuration(one: object, place: str) -> Iterator[FieldError]:
        if not (source := text(one, "source")):
            yield required_field(f"{place}.source")
        elif source not in _SOURCES:
            yield unsupported_field(f"{place}.source", source, _SOURCES)
        yield from request_name_list_errors(one, place, requests)
        yield from configuration_errors(one, place)

    yield from list_errors(entries(allocation, "devices", "results"), f"{place}.results", _RESULTS, result)
    configurations = entries(allocation, "devices", "config")
    yield from list_errors(configurations, f"{place}.config", _CONFIGURATIONS, configuration)
    if (selector := part(allocation, "nodeSelector")) is not None:
        yield from node_selector_errors(selector, "status.allocation.nodeSelector")


def _share_errors(one: object, place: str) -> Iterator[FieldError]:
    if (share := part(one, "shareID")) is not None:
        yield from uuid_errors(str(share), f"{place}.shareID")


# ── what drivers say of devices ──


def _device_statuses_errors(claim: Object) -> Iterator[FieldError]:
    place, allocated = "status.devices", {_shared_device(one) for one in _results(claim)}
    seen: set[tuple[str, ...]] = set()
    devices = entries(claim, "status", "devices")
    for number, one in enumerate(devices):
        yield from _device_status_errors(one, f"{place}[{number}]", allocated)
    for number, one in enumerate(devices):
        if (device := _shared_device(one)) in seen:
            yield duplicate_field(f"{place}[{number}]", _told(one))
        seen.add(device)


def _device_status_errors(one: object, place: str, allocated: set[tuple[str, ...]]) -> Iterator[FieldError]:
    yield from driver_errors(text(one, "driver"), f"{place}.driver")
    yield from pool_errors(text(one, "pool"), f"{place}.pool")
    yield from label_name_errors(text(one, "device"), f"{place}.device")
    yield from _share_errors(one, place)
    if _shared_device(one) not in allocated:
        yield invalid_field(place, _told(one), "must be an allocated device in the claim")
    conditions = entries(one, "conditions")
    if len(conditions) > _DEVICE_CONDITIONS:
        yield too_many_field(f"{place}.conditions", len(conditions), _DEVICE_CONDITIONS)
    for number, condition in enumerate(conditions):
        here = f"{place}.conditions[{number}]"
        if text(condition, "type") in [text(other, "type") for other in conditions[:number]]:
            yield duplicate_field(f"{here}.type", text(condition, "type"))
        yield from _condition_errors(condition, here)
    if (data := part(one, "data")) is not None:
        yield from raw_errors(data, f"{place}.data")
    yield from _network_errors(fields(one, "networkData"), f"{place}.networkData")


def _condition_errors(condition: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with a condition (apimachinery meta/v1/validation ValidateCondition)."""
    yield from key_errors(text(condition, "type"), f"{place}.type")
    if (status := text(condition, "status")) not in _STATUSES:
        yield unsupported_field(f"{place}.status", status, _STATUSES)
    if (generation := whole(condition, "observedGeneration")) < 0:
        why = "must be greater than or equal to zero"
        yield invalid_field(f"{place}.observedGeneration", generation, why)
    if not text(condition, "lastTransitionTime"):
        yield required_field(f"{place}.lastTransitionTime")
    if not (reason := text(condition, "reason")):
        yield required_field(f"{place}.reason")
    else:
        if not re.fullmatch(_REASON, reason):
            yield invalid_field(f"{place}.reason", reason, _REASON_RULE)
        if len(reason.encode()) > _REASON_LIMIT_BYTES:
            yield too_long_field(f"{place}.reason", _REASON_LIMIT_BYTES)
    if len(text(condition, "message").encode()) > _MESSAGE_LIMIT_BYTES:
        yield too_long_field(f"{place}.message", _MESSAGE_LIMIT_BYTES)


def _network_errors(data: Object, place: str) -> Iterator[FieldError]:
    for word, limit_bytes in (
        ("interfaceName", _INTERFACE_LIMIT_BYTES),
        ("hardwareAddress", _HARDWARE_LIMIT_BYTES),
    ):
        if len(text(data, word).encode()) > limit_bytes:
            yield too_long_field(f"{place}.{word}", limit_bytes)
    yield from set_errors(entries(data, "ips"), f"{place}.ips", _ADDRESSES, _address_errors, str)


def _address_errors(written: object, place: str) -> Iterator[FieldError]:
    """Yield what keeps a text from being an interface's address in its one form, as in `10.9.8.7/24`."""
    one = _canonical_address(str(written))
    if not one:
        why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield invalid_field(place, str(written), why)
    elif one != written:
        yield invalid_field(place, str(written), f"must be in canonical form ({go_quoted(one)})")


def _canonical_address(written: str) -> str:
    """Return an address with its network's length in its one form; empty for none."""
    text_, slash, length = written.partition("/")
    if not slash or "%" in text_ or not (length.isascii() and length.isdigit()):
        return ""
    # Zeros in front of a number are taken, as upstream takes them, and then the form is wrong.
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text_):
        text_ = ".".join(part.lstrip("0") or "0" for part in text_.split("."))
    try:
        address = ipaddress.ip_address(text_)
    except ValueError:
        return ""
    bits = int(length)
    if bits > address.max_prefixlen:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        bits -= _IPV4_IN_IPV6_BITS if bits > address.ipv4_mapped.max_prefixlen else 0
        return f"{address.ipv4_mapped}/{bits}"
    return f"{address}/{bits}"
