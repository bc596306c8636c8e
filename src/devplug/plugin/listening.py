"""Where a program with plugins tells of itself. What it tells is made when somebody asks: see `pages`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug.errors import PluginError
from devplug.web.addresses import parse_address
from devplug.web.server import serving as answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.web.values import Handler

__all__ = ["served_at"]


@asynccontextmanager
async def served_at(listen: str, handle: Handler) -> AsyncIterator[None]:
    """Serve pages at an address for a block.

    Raises `PluginError` for a text that is no address, and `ListenError` if nobody can listen there.
    """
    try:
        address = parse_address(listen)
    except ValueError as error:
        raise PluginError(f"listen: {error}") from error
    async with answering(address, handle, name="probes"):
        yield
