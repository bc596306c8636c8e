"""What the cluster is told, before it has the API's form: notices, events and the condition. Pure values.

Times are Unix times in seconds, because the cluster reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["MESSAGE_LIMIT_BYTES", "Condition", "Event", "Notice", "Reason", "Status"]

MESSAGE_LIMIT_BYTES: Final = 1024
"""Longest message of an Event (API: NoteLengthLimit, pkg/apis/core/validation/events.go); ours of both."""


class Reason(StrEnum):
    """Why an Event is written; people select by it, so a word is never given another meaning."""

    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DEVICE_HEALTHY = "DeviceHealthy"
    DEVICE_ADDED = "DeviceAdded"
    DEVICE_REMOVED = "DeviceRemoved"
    RESOURCE_READY = "ResourceReady"
    RESOURCE_NOT_READY = "ResourceNotReady"
    CONFIG_APPLIED = "ConfigApplied"
    CONFIG_REFUSED = "ConfigRefused"


class Status(StrEnum):
    """What a condition says."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened."""

    reason: Reason
    subject: str
    """The resource name or the file that it happened to: notices with the same two count as one event."""
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """An Event as it is to stand in the cluster."""

    suffix: str
    """What sets its name apart from those of this machine's others."""
    notice: Notice
    """The last one."""
    count: int
    first_at: float
    last_at: float
    is_new: bool
    """Whether the cluster has none of that name yet."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The Node's condition as it is to stand in the cluster."""

    status: Status
    reason: str
    message: str
    since: float
    """Since when it has this status."""
    at: float
    """When it was last found to be so: the heartbeat."""
