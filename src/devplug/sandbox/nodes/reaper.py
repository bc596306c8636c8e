"""The reaper of a killed sandbox: a small process that ends its containers when a pipe closes."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from devplug.linux.processes import spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

_SCRIPT: Final = """
while read -r line; do groups=$line; done
for group in $groups; do kill -s TERM -- "-$group"; done
[ -z "$groups" ] || sleep 2
for group in $groups; do kill -s KILL -- "-$group"; done
"""
"""A line that is cut off, because its writer was killed in the middle of it, is not believed."""


class Reaper:
    """Knows the process groups that run; lives as long as its `watching` block, in which they should end.

    The kernel's own means (PR_SET_PDEATHSIG) would end the first process of each container only, and that
    not once it changes its user.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    @classmethod
    @asynccontextmanager
    async def watching(cls) -> AsyncIterator[Reaper]:
        """Start the process; what still runs when the block is left, or we are killed, is ended by it."""
        reader, writer = os.pipe()
        try:
            # A group of its own, because Ctrl-C is for the sandbox.
            child = await spawn(["/bin/sh", "-c", _SCRIPT], asyncio.subprocess.DEVNULL, stdin=reader)
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        try:
            yield cls(writer)
        finally:
            os.close(writer)
            await child.wait()

    def watch(self, groups: Iterable[int]) -> None:
        """Say which groups run now; if the process was ended by somebody, it is done without."""
        with suppress(BrokenPipeError):
            os.write(self._pipe, (" ".join(map(str, groups)) + "\n").encode())
