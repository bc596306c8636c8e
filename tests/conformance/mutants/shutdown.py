"""Mutants that end late, wrongly, or with damage."""

from __future__ import annotations

import asyncio
import signal

from tests.conformance.mutants import Mutant, fails


@fails("END01", also=("END07", "END08"), end_seconds=5.0)
class DoesNotEnd(Mutant):
    """Waits for something at its end that does not come."""

    async def end(self) -> None:
        await asyncio.Event().wait()


@fails("END02", end_limit_seconds=1.0)
class EndsLate(Mutant):
    """Waits for its callers before it ends."""

    async def end(self) -> None:
        await asyncio.sleep(2.0)
        await super().end()


@fails("END03")
class EndsWithAnError(Mutant):
    """Has the exit code of a failure although all went well."""

    def exit_code(self) -> int:
        return 1


@fails("END04")
class LeavesItsSocket(Mutant):
    """Ends without a look at its socket's file."""

    async def end(self) -> None:
        await self.listener.close(0.2, keep_file=True)


@fails("END05")
class SweepsTheFolder(Mutant):
    """Removes every socket in the folder when it ends."""

    async def end(self) -> None:
        await super().end()
        for path in self.folder.iterdir():
            if path.is_socket():
                path.unlink()


@fails("END06")
class RemovesItsSocketByName(Mutant):
    """Removes at its end whatever has the name of its socket."""

    poll_seconds = 1.0  # or it sees the loss, and takes its name back, before it ends

    async def end(self) -> None:
        await super().end()
        (self.folder / self.endpoint).unlink(missing_ok=True)


@fails("END07", settle_seconds=3.0, end_seconds=5.0)
class WaitsForTheKubeletFirst(Mutant):
    """Does not look at signals before it has registered."""

    async def end(self) -> None:
        if not self.listener.is_bound():
            await asyncio.Event().wait()
        await super().end()


@fails("END08", end_seconds=5.0)
class IgnoresInterrupts(Mutant):
    """Knows SIGTERM alone."""

    async def run(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        await super().run()


@fails("END09")
class CrashesAtItsEnd(Mutant):
    """Prints what a thread of it threw while it ended."""

    async def end(self) -> None:
        await super().end()
        self.say('Traceback (most recent call last):\n  File "mutant.py", line 1\nValueError: closed')
