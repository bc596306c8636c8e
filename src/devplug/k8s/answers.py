"""What an API server may answer: its limits, and the object in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from devplug.web.messages import TooLargeError

if TYPE_CHECKING:
    from devplug.k8s.objects import Object

ANSWER_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Longest answer, and longest event of a watch: etcd takes objects of 1.5 MiB. Longer pages are asked for in
parts."""

ANSWER_ELEMENTS_LIMIT: Final = 256 * 1024
"""Most values of an answer: an empty object takes three bytes as text and 64 in memory."""


def decoded_object(content: bytes) -> Object:
    """Return the object that JSON is; raises `TooLargeError`, `ValueError`.

    Each value has a bracket before it, or a comma. Those within texts count, too, which few texts have.
    """
    if sum(content.count(mark) for mark in (b"{", b"[", b",")) > ANSWER_ELEMENTS_LIMIT:
        raise TooLargeError(f"the API server answered with more than {ANSWER_ELEMENTS_LIMIT} values")
    return msgspec.json.decode(content, type=dict[str, Any])
