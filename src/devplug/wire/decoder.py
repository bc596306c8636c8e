"""Decoding that does not hold up the event loop, whatever the other end has sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from devplug.wire.codecs import MessageTooLargeError
from devplug.wire.limits import INLINE_ELEMENTS_LIMIT

if TYPE_CHECKING:
    from devplug.wire.codecs import Codec

Value = TypeVar("Value")


async def decoded(codec: Codec[Value], content: bytes, elements: int) -> Value:
    """Return the value of a message as `decode` does; a large one does not hold up the event loop."""
    try:
        return codec.decode(content, min(elements, INLINE_ELEMENTS_LIMIT))
    except MessageTooLargeError:
        if elements <= INLINE_ELEMENTS_LIMIT:
            raise
    return await asyncio.to_thread(codec.decode, content, elements)
