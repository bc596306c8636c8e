"""The names that a driver gives: of devices in slices, of resources in attributes, of slices. Pure.

All are functions of what they stand for alone, so they are the same after a re-plug, a reboot and an update.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from devplug.attributes import TEXT_LIMIT_BYTES

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

    The same number has the same name whoever asks: a slice whose creation got no answer is not made twice.
    """
    readable = _BETWEEN_LABELS.sub("-", f"{node_name}-{driver}".lower()).strip("-.")
    return f"{_hashed(readable, SLICE_NAME_LIMIT - 5, driver, node_name)}-{number:04x}"


def _hashed(readable: str, limit: int, *meant: str) -> str:
    """Return the beginning of a text and a hash of what is meant, together within the limit."""
    digest = hashlib.sha256("\0".join(meant).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{readable[: limit - _HASH_DIGITS - 1].rstrip('-.')}-{digest}"
