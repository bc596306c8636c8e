"""The errors, in branches by the person who must act. Pure.

`ConfigError`: edit the file. `PluginError`: mend the plugin's code. `KubeletError`: look at the node; it may
pass. `AllocationError`: this one request cannot be met. `RemoteError`: the other end of a socket refused.
Texts are one line, name the field and the value, and fit into a pod's status.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AllocationError",
    "AnswerTooLargeError",
    "ConfigError",
    "DeadlineError",
    "DevplugError",
    "ForbiddenPathError",
    "HasId",
    "IncidentError",
    "InvalidRequestError",
    "KubeletCrashError",
    "KubeletError",
    "LimitError",
    "NotOfferedError",
    "NotReadyError",
    "PluginError",
    "PluginFolderLostError",
    "Problem",
    "RegistrationError",
    "RemoteError",
    "UnhealthyDeviceError",
    "UnknownDeviceError",
    "end_of",
    "error_to_raise",
    "lines_of",
    "one_line",
    "outcome_of",
    "printable",
    "quoted",
]

TEXT_LIMIT_BYTES = 200
"""Longest text that crosses a socket: it ends in a pod's status, which people read on one line."""

QUOTE_LIMIT_BYTES = 64
"""Longest part of a foreign value that an error repeats."""

_BREAK: Final = "\r\n|[\n\r\x85\u2028\u2029]"


def quoted(value: object) -> str:
    """Return `value` in double quotes, control characters escaped, cut to 64 bytes."""
    text = json.dumps(str(value))
    if len(text) <= QUOTE_LIMIT_BYTES:
        return text
    return f'{text[: QUOTE_LIMIT_BYTES - 4].rstrip(chr(92))}..."'


def printable(text: str, *, keep: str = "") -> str:
    """Return `text` with every character escaped that a terminal may obey instead of show.

    These are the control characters (C0, C1), the marks that change the direction of text, and whatever else
    has no picture. `keep` names exceptions, such as the newline.
    """
    plain = text
    for character in keep:
        plain = plain.replace(character, "")
    if plain.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """Return `text` on one line of printable characters, at most `limit_bytes` long in UTF-8."""
    flat = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    if len(flat.encode()) <= limit_bytes:
        return flat
    return flat.encode()[: limit_bytes - 3].decode(errors="ignore") + "..."


def outcome_of(error: Exception) -> str:
    """Return the word by which a call is counted that ended so: `timed_out`, `refused` or `failed`."""
    if isinstance(error, DeadlineError | NotReadyError | TimeoutError):
        return "timed_out"
    is_meant = isinstance(error, DevplugError) and not isinstance(error, IncidentError)
    return "refused" if is_meant else "failed"


class HasId(Protocol):
    """Anything with a device ID: what an error needs to know of a device."""

    @property
    def id(self) -> str:
        """The device ID."""


class DevplugError(Exception):
    """The root of all errors that devplug raises on purpose."""


def lines_of(text: str) -> list[str]:
    """Return the lines as YAML 1.1 counts them, to which every position in a file refers."""
    return re.split(_BREAK, text)


def end_of(text: str) -> tuple[int, int]:
    """Return line and column of the end of a text, both from 1."""
    lines = lines_of(text)
    return len(lines), len(lines[-1]) + 1


class Problem(NamedTuple):
    """One thing wrong in a configuration file: where it is, and what to write instead."""

    line: int
    """Line in the file, from 1; 0 when the whole file is meant."""
    column: int
    """Column in that line, from 1; 0 when the whole line is meant."""
    path: str
    """The key, as in `resources[0].discover.path`; empty for the whole file."""
    message: str
    """What is wrong and what to change, without the place."""

    def __str__(self) -> str:
        """Return `path: message`, or the message alone for the whole file."""
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(DevplugError):
    """A configuration cannot be used; carries every problem found, in file order. Edit the file."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return one `FILE:LINE:COLUMN: error: PATH: MESSAGE` per problem, as compilers print them."""
        return [
            f"{self.file}{f':{p.line}' if p.line else ''}{f':{p.column}' if p.column else ''}: error: {p}"
            for p in self.problems
        ]


class PluginError(DevplugError):
    """A plugin's code or values break the contract; names every fault found. Mend the plugin."""

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class KubeletError(DevplugError):
    """The kubelet or its folders are not as they should be. Look at the node; it may pass."""


class RegistrationError(KubeletError):
    """A registration was refused. The text is the kubelet's own (its registration server, `server.go`)."""


class KubeletCrashError(KubeletError):
    """The emulated kubelet did what makes the real one panic; the text says what and where."""

    def __init__(self, cause: str, place: str) -> None:
        self.cause = cause
        self.place = place
        super().__init__(f"{cause}: the kubelet would have crashed here (panic in {place})")


class PluginFolderLostError(KubeletError):
    """The plugin folder was removed under its mount; no process can heal that from inside a container."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(
            f"{folder} was deleted on the host while it was mounted here; nothing can be created in it any "
            "more; restart this container so that the folder is mounted again",
        )


class AllocationError(DevplugError):
    """One request cannot be met; the text reaches the user in the pod's status (200 bytes)."""


class InvalidRequestError(AllocationError):
    """The request is invalid and cannot succeed."""


class ForbiddenPathError(AllocationError):
    """A path that would be given to a container leads where the configuration does not allow it to."""


class UnknownDeviceError(AllocationError):
    """A device ID that is not advertised under this resource name; `reason` says why, if that is known."""

    def __init__(self, device_id: str, resource_name: str, reason: str = "") -> None:
        self.device_id = device_id
        self.resource_name = resource_name
        why = f"is {reason}" if reason else f"is not known to {resource_name}"
        super().__init__(f"device {quoted(device_id)} {why}")


class UnhealthyDeviceError(AllocationError):
    """A known device that must not be used now; raised by user code, it also marks `devices` Unhealthy."""

    def __init__(self, reason: str, *devices: HasId, advice: str = "") -> None:
        self.reason = reason
        self.devices = devices
        self.advice = advice
        ids = ", ".join(quoted(device.id) for device in devices[:3])
        more = f" and {len(devices) - 3} more" if len(devices) > 3 else ""
        noun, verb = ("device", "is") if len(devices) == 1 else ("devices", "are")
        what = f"{noun} {ids}{more} {verb} unhealthy ({reason})" if devices else reason
        super().__init__(f"{what}; {advice}" if advice else what)


class LimitError(AllocationError):
    """A request, or the number of requests at once, is over a limit of ours."""


class NotReadyError(AllocationError):
    """The plugin has no first list of devices yet, or is going down."""


class DeadlineError(AllocationError):
    """The plugin's own code did not answer within its deadline."""


class NotOfferedError(AllocationError):
    """A call that the plugin does not offer in its options."""


class IncidentError(AllocationError):
    """A fault of the plugin; the other end learns a number only, and the log has the rest under it."""

    def __init__(self, incident: str) -> None:
        self.incident = incident
        super().__init__(f"internal error, incident {incident}")


class AnswerTooLargeError(AllocationError):
    """The plugin's answer is larger than the other end takes."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"the plugin's answer has {size_bytes} bytes; the kubelet takes {limit_bytes}")


class RemoteError(DevplugError):
    """The other end of a socket answered with an error status, or nothing answered at all.

    `status` is the gRPC status code as Go spells it (`Unknown`, `NotFound`); the sentence is the one that
    Go programs print, because that is what the kubelet puts into a pod's status. `is_unsent` says that nobody
    was there to take the call; otherwise the other end may have done what was asked, whatever the status.
    """

    def __init__(self, status: str, text: str, *, is_unsent: bool = False) -> None:
        self.status = status
        self.text = text
        self.is_unsent = is_unsent
        super().__init__(f"rpc error: code = {status} desc = {text}")


def error_to_raise(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to raise for a group: the only one in it, or the first of ours."""
    leaves = _leaves(errors)
    ours = [error for error in leaves if isinstance(error, DevplugError)]
    if len(leaves) == 1 or (ours and len(ours) == len(leaves)):
        return (ours or leaves)[0]
    return errors


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
