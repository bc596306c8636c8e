"""Mutants that end late, wrongly, or with damage."""

from __future__ import annotations

import asyncio
import signal
from typing import ClassVar

from tests.conformance.mutants import Mutant


class DoesNotEnd(Mutant):
    """Waits for something at its end that does not come."""

    fails = ("END01",)
    also = ("END07", "END08")
    times: ClassVar = {"end_seconds": 5.0}

    async def end(self) -> None:
        await asyncio.Event().wait()


class EndsLate(Mutant):
    """Waits for its callers before it ends."""

    fails = ("END02",)
    times: ClassVar = {"end_limit_seconds": 1.0}

    async def end(self) -> None:
        await asyncio.sleep(2.0)
        await super().end()


class EndsWithAnError(Mutant):
    """Has the exit code of a failure although all went well."""

    fails = ("END03",)

    def exit_code(self) -> int:
        return 1


class LeavesItsSocket(Mutant):
    """Ends without a look at its socket's file."""

    fails = ("END04",)

    async def end(self) -> None:
        await self.listener.close(0.2, keep_file=True)


class SweepsTheFolder(Mutant):
    """Removes every socket in the folder when it ends."""

    fails = ("END05",)

    async def end(self) -> None:
        await super().end()
        for path in self.folder.iterdir():
            if path.is_socket():
                path.unlink()


class RemovesItsSocketByName(Mutant):
    """Removes at its end whatever has the name of its socket."""

    fails = ("END06",)
    poll_seconds = 1.0  # or it sees the loss, and takes its name back, before it ends

    async def end(self) -> None:
        await super().end()
        (self.folder / self.endpoint).unlink(missing_ok=True)


class WaitsForTheKubeletFirst(Mutant):
    """Does not look at signals before it has registered."""

    fails = ("END07",)
    times: ClassVar = {"settle_seconds": 3.0, "end_seconds": 5.0}

    async def end(self) -> None:
        if not self.listener.is_bound():
            await asyncio.Event().wait()
        await super().end()


class IgnoresInterrupts(Mutant):
    """Knows SIGTERM alone."""

    fails = ("END08",)
    times: ClassVar = {"end_seconds": 5.0}

    async def run(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        await super().run()


class CrashesAtItsEnd(Mutant):
    """Prints what a thread of it threw while it ended."""

    fails = ("END09",)

    async def end(self) -> None:
        await super().end()
        self.say('Traceback (most recent call last):\n  File "mutant.py", line 1\nValueError: closed')
