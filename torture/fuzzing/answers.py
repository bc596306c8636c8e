"""What the servers may answer, written down a second time: for each call its statuses with their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from devplug.wire import methods, podresources
from devplug.wire.codecs import Codec, MalformedMessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.errors import RemoteError
    from devplug.wire.methods import Method

__all__ = ["ANSWERS", "Row", "answer_fault", "raw"]

TEXT_LIMIT_BYTES: Final = 200
"""Longest text that a plugin's refusal may have: it ends in a pod's status."""

_BYTES: Final[Codec[bytes]] = Codec("bytes", lambda content: content, lambda content: content)


def raw(method: Method[Any, Any]) -> Method[bytes, bytes]:
    """Return the method as one that takes and gives bytes as they are."""
    return replace(method, request=_BYTES, response=_BYTES)


@dataclass(frozen=True, slots=True)
class Row:
    """One refusal: its status as Go spells it, and what its text must match as a whole."""

    status: str
    text: str


_DEVICE: Final = r'device "[^"]*(\\"[^"]*)*"'

_ABOUT_IDS: Final = (
    Row("InvalidArgument", "CALL: a device ID is empty"),
    Row("InvalidArgument", r'CALL: device ID ".+" is \d+ characters long; at most 63 fit'),
    Row("InvalidArgument", f"CALL: {_DEVICE} is asked for twice"),
    Row("NotFound", f"CALL: {_DEVICE} is not known to example.com/a"),
)


def _of(call: str, *rows: Row) -> tuple[Row, ...]:
    return tuple(Row(row.status, row.text.replace("CALL", call)) for row in rows)


ANSWERS: Final[Mapping[Method[Any, Any], tuple[Row, ...]]] = {
    methods.GET_OPTIONS: (),
    methods.LIST_AND_WATCH: (
        Row("ResourceExhausted", "list-and-watch: 16 streams are open, which is the limit"),
    ),
    methods.ALLOCATE: _of(
        "allocate",
        *_ABOUT_IDS,
        Row("InvalidArgument", "CALL: no container requests"),
        Row("InvalidArgument", r"CALL: container \d+ asks for no devices"),
        Row("ResourceExhausted", r"CALL: \d+ devices are asked for; at most 10000 in one call"),
        Row(
            "FailedPrecondition",
            f"CALL: {_DEVICE} is unhealthy .+; delete and recreate the pod to get another device",
        ),
    ),
    methods.GET_PREFERRED_ALLOCATION: (
        Row("InvalidArgument", r"prefer: container \d+ asks for -\d+ devices"),
        Row("InvalidArgument", r'prefer: container \d+ must include ".*", which is not available'),
    ),
    methods.PRE_START_CONTAINER: _of(
        "pre-start", *_ABOUT_IDS, Row("InvalidArgument", "CALL: the request names no devices")
    ),
    methods.REGISTER: (
        Row("Unknown", r'requested API version ".*" is not supported by kubelet. Supported version is .+'),
        Row("Unknown", r'the ResourceName ".*" is invalid'),
        Row("Unknown", r"failed to dial device plugin: context deadline exceeded"),
        Row("Unknown", r'failed to dial device plugin: parse "passthrough:///.*": .+'),
        Row("Unknown", r"failed to get device plugin options: rpc error: code = \w+ desc = .*"),
    ),
    podresources.LIST: (),
    podresources.V1ALPHA1_LIST: (),
    podresources.GET_ALLOCATABLE_RESOURCES: (),
    podresources.GET: (Row("Unknown", r"pod .* in namespace .* not found"),),
}
"""Beyond `malformed …`, which every call answers to what is no message of its kind."""

_LEAKS: Final = re.compile(r"Traceback|Error\(|Exception|\.py\b|object at 0x|site-packages")


def answer_fault(method: Method[Any, Any], content: bytes, answer: bytes | RemoteError) -> str:
    """Return what is wrong about the answer to a request with this content; empty if nothing is."""
    try:
        method.request.decode(content)
        is_malformed = False
    except MalformedMessageError:
        is_malformed = True
    if isinstance(answer, bytes):
        if is_malformed:
            return f"I11: {method.name} answers what is no {method.request.message}"
        method.response.decode(answer)
        return ""
    text = answer.text
    if _LEAKS.search(text):
        return f"I11: {method.name} tells of its inside: {text[:300]}"
    if is_malformed:
        is_right = (answer.status, text) == ("InvalidArgument", f"malformed {method.request.message}")
        return "" if is_right else f"I11: {method.name} says {answer} of what is malformed"
    if answer.status != "Unknown" and (len(text.encode()) > TEXT_LIMIT_BYTES or not text.isprintable()):
        return f"I11: {method.name} says more than one short line: {text!r}"
    if any(
        row.status == answer.status and re.fullmatch(row.text, text, re.DOTALL) for row in ANSWERS[method]
    ):
        return ""
    return f"I11: {method.name} answers outside of the table: {str(answer)[:300]}"
