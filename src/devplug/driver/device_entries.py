"""The entry of a device in a ResourceSlice: names, attributes, shares and taint, in the form of v1. Pure.

Limits and rules are the API server's (resource/v1 types.go, validation.go; dra.md D42–D46). A value that they
refuse would cost all devices of the slice, so it is left out here, and logged. Names depend on what they
stand for alone, so they are the same after a re-plug, a reboot and an update.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.attributes import TEXT_LIMIT_BYTES, Version
from devplug.devices import HealthState
from devplug.dra.taints import NO_EXECUTE, NO_SCHEDULE
from devplug.k8s.quantity import Quantity, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.attributes import AttributeValue, Partition
    from devplug.devices import Device, Health
    from devplug.k8s.objects import Object

RESOURCE_ATTRIBUTE: Final = "resource"
"""The attribute that every device has, in the driver's domain: `device_names.resource_value`."""

ID_ATTRIBUTE: Final = "id"
"""The attribute with the device's ID, unless the device has another one of the name, or no room for it."""

SHARES: Final = "shares"
"""The capacity of a device that several claims may use at once: how many."""

UNHEALTHY_TAINT: Final = "devplug.io/unhealthy"
"""The key of an unhealthy device's taint; its value is the reason, as far as a label value can say it."""

ATTRIBUTES_LIMIT: Final = 32
"""The most attributes and capacities of a device."""

CAPACITIES_LIMIT: Final = 16
"""How many of these are capacities: attributes have the other half at least."""

_NAME_LIMIT: Final = 32
_DOMAIN_LIMIT: Final = 63
_VALUE_LIMIT: Final = 63
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NOT_OF_A_VALUE: Final = re.compile(r"[^A-Za-z0-9._]+")


class DeviceEntry(Struct, frozen=True):
    """What a slice says of a device, and what it cannot say."""

    content: Object
    """The entry of `spec.devices`; its taint has no `timeAdded` yet."""
    dropped: Mapping[str, str]
    """The attributes and capacities that are left out, each with why."""


def device_entry(
    driver: str, resource_name: str, device: Device, *, shares: int = 0, evicts: bool = False
) -> DeviceEntry:
    """Return the entry of a resource's device; with `evicts` the taint also ends pods that have it.

    With `shares` it is the entry of what the device is a share of, which has so many of them.
    """
    id_ = device.share_of if shares else device.id
    name = device_name(resource_name, id_)
    capacity, unfit = _capacity(driver, device.capacity, shares)
    limit = ATTRIBUTES_LIMIT - len(capacity)
    attributes, dropped = device_attributes(driver, resource_name, device.attributes, limit)
    if len(attributes) < limit:
        attributes.setdefault(ID_ATTRIBUTE, {"string": id_})
    content: Object = {"name": name, "attributes": attributes}
    if capacity:
        content["capacity"] = capacity
    if shares:
        content["allowMultipleAllocations"] = True
    if device.health.state is HealthState.UNHEALTHY:
        content["taints"] = [taint_of(device.health, evicts=evicts)]
    return DeviceEntry(content, {**unfit, **dropped})


# ── attributes ──


def device_attributes(
    driver: str, resource_name: str, attributes: Mapping[str, AttributeValue], limit: int = ATTRIBUTES_LIMIT
) -> tuple[dict[str, object], dict[str, str]]:
    """Return attributes as the API has them, and those that are left out, each with why.

    A name in the driver's own domain loses it (D46). Of more than fit, the first ones stay.
    """
    taken: dict[str, object] = {RESOURCE_ATTRIBUTE: {"string": resource_value(resource_name)}}
    dropped: dict[str, str] = {}
    for name, value in attributes.items():
        short = name.removeprefix(f"{driver}/")
        if fault := _name_fault(short) or _value_fault(value):
            dropped[name] = fault
        elif short in taken:
            is_ours = short == RESOURCE_ATTRIBUTE
            dropped[name] = "has the name that the driver needs itself" if is_ours else "is there already"
        elif len(taken) == limit:
            dropped[name] = f"is one of more than {limit}"
        else:
            taken[short] = {_type_of(value): str(value) if isinstance(value, str) else value}
    return taken, dropped


def _name_fault(name: str) -> str | None:
    """Return what keeps a name from being an attribute's: `model`, or `example.com/model` (D43)."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not (len(domain) <= _DOMAIN_LIMIT and _DOMAIN.fullmatch(domain)):
        return f"has a domain that is no DNS subdomain of at most {_DOMAIN_LIMIT} characters"
    if len(identifier) > _NAME_LIMIT or not _IDENTIFIER.fullmatch(identifier):
        return f"has a name that is no identifier (letters, digits, _) of at most {_NAME_LIMIT} characters"
    return None


def _value_fault(value: AttributeValue) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is no valid Unicode"
    return f"is {size} bytes long; {TEXT_LIMIT_BYTES} fit" if size > TEXT_LIMIT_BYTES else None


def _type_of(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "version" if isinstance(value, Version) else "string"


# ── capacities and shares ──


def _capacity(
    driver: str, capacity: Mapping[str, int], shares: int
) -> tuple[dict[str, Object], dict[str, str]]:
    """Return capacities as the API has them, and those that are left out, each with why.

    Of what is shared out a request that asks for none takes its part, as else the first would take all (D86).
    """
    taken = {SHARES: _shares(shares)} if shares else {}
    dropped: dict[str, str] = {}
    for name, value in capacity.items():
        short = name.removeprefix(f"{driver}/")
        if fault := _name_fault(short):
            dropped[name] = fault
        elif short in taken:
            dropped[name] = "is there already"
        elif len(taken) == CAPACITIES_LIMIT:
            dropped[name] = f"is one of more than {CAPACITIES_LIMIT} capacities"
        else:
            taken[short] = {"value": quantity(value)}
            if shares:
                taken[short]["requestPolicy"] = {"default": quantity(value // shares)}
    return taken, dropped


def quantity(number: int) -> str:
    """Return a number as the API server tells it, so that nothing differs from what is stored."""
    return canonical(Quantity.parse(str(number) if number % 1024 else f"{number // 1024}Ki"))


def _shared_example() -> Object:
    """Return the entry of a device with shares, by which to see whether an API server knows them."""
    return {"name": "shared", "allowMultipleAllocations": True, "capacity": {SHARES: _shares(1)}}


def _shares(count: int) -> Object:
    """Return the capacity that is shared out: a claim takes one share, or as many whole ones as it says.

    Whoever asks for less than one has one, so that no more claims have the device than it has shares (D86).
    """
    # A step above the least has to fit.
    limits = {"min": "1", "step": "1"} if count > 1 else {"min": "1"}
    policy = {"default": "1", "validRange": limits}
    return {"value": quantity(count), "requestPolicy": policy}


# ── partitions ──


def counter_sets(partitions: Iterable[Partition]) -> dict[str, Object]:
    """Return the counter sets that these devices take of, by what they are of.

    What only one device is a part of has none: it would limit nobody, and each set is one of few in a slice.
    """
    wholes: dict[str, list[Mapping[str, int]]] = {}
    for one in partitions:
        wholes.setdefault(one.of, []).append(one.whole)
    return {of: _counter_set(of, told) for of, told in wholes.items() if len(told) > 1}


def _counter_set(of: str, told: Iterable[Mapping[str, int]]) -> Object:
    """Return a set with all counters that devices know of it: a pool that lacks one is invalid (D77)."""
    most: dict[str, int] = {}
    for whole in told:
        most |= {name: max(number, most.get(name, 0)) for name, number in whole.items()}
    return {"name": counter_set_name(of), "counters": _counters(most)}


def consumption(partition: Partition) -> Object:
    """Return what a device takes of its counter set."""
    return {"counterSet": counter_set_name(partition.of), "counters": _counters(partition.takes)}


def _counters(numbers: Mapping[str, int]) -> Object:
    return {name: {"value": quantity(number)} for name, number in sorted(numbers.items())}


def _partition_example() -> Object:
    """Return the entry of a device that takes of counters, to see whether an API server knows them."""
    takes = {"counterSet": "whole", "counters": _counters({"memory": 1})}
    return {"name": "part", "consumesCounters": [takes]}


# ── taints ──


def taint_of(health: Health, *, evicts: bool) -> Object:
    """Return the taint of an unhealthy device (D80)."""
    value = _NOT_OF_A_VALUE.sub("-", health.reason)[:_VALUE_LIMIT].strip("-._")
    taint: Object = {"key": UNHEALTHY_TAINT, "effect": NO_EXECUTE if evicts else NO_SCHEDULE}
    return {**taint, "value": value} if value else taint


SHARED: Final = "allowMultipleAllocations"
PART: Final = "consumesCounters"
QUESTIONS: Final = {
    SHARED: (_shared_example(), "DRAConsumableCapacity", "each replica is published as a device"),
    PART: (_partition_example(), "DRAPartitionableDevices", "parts are published without what they exclude"),
}
"""By field: a device that has it, the feature gate, and what is done without."""


# ── names ──

LABEL_LIMIT: Final = 63
"""The longest DNS label, and so the longest name of a device (dra.md D43)."""

SLICE_NAME_LIMIT: Final = 253
"""The longest name of an object: a DNS subdomain."""

_HASH_DIGITS: Final = 8
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_BETWEEN_LABELS: Final = re.compile(r"[^a-z0-9.]+|(?<![a-z0-9])\.|\.(?![a-z0-9])")


def device_name(resource_name: str, device_id: str) -> str:
    """Return a device's name in a slice: a DNS label made of its ID, with a hash of resource and ID.

    The hash is there always: a driver has one pool for all of its resources, and two of them may use one ID.
    """
    readable = _OTHER.sub("-", device_id.lower()).strip("-") or "device"
    return _hashed(readable, LABEL_LIMIT, resource_name, device_id)


def counter_set_name(of: str) -> str:
    """Return the name of the counters of what several devices are parts of: a DNS label."""
    return _hashed(_OTHER.sub("-", of.lower()).strip("-") or "whole", LABEL_LIMIT, of)


def resource_value(resource_name: str) -> str:
    """Return the value of the attribute `resource`, by which a DeviceClass selects a resource's devices.

    It is the resource name, or its beginning and a hash where it is longer than an attribute can be.
    """
    if len(resource_name) <= TEXT_LIMIT_BYTES:
        return resource_name
    return _hashed(resource_name, TEXT_LIMIT_BYTES, resource_name)


def slice_name(driver: str, node_name: str, number: int) -> str:
    """Return the name of a slice: a DNS subdomain of node and driver, so that they sort by `number` (D74).

    The name depends on nothing else. So a retry after a lost answer does not create a second slice.
    """
    readable = _BETWEEN_LABELS.sub("-", f"{node_name}-{driver}".lower()).strip("-.")
    return f"{_hashed(readable, SLICE_NAME_LIMIT - 5, driver, node_name)}-{number:04x}"


def _hashed(readable: str, limit: int, *meant: str) -> str:
    """Return the beginning of a text and a hash of what is meant, together within the limit."""
    digest = hashlib.sha256("\0".join(meant).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{readable[: limit - _HASH_DIGITS - 1].rstrip('-.')}-{digest}"
