"""Mutants that do not bear a kubelet which is away, slow, refuses, or has died."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import ClassVar

from devplug.errors import RemoteError
from devplug.wire.sockets import socket_identity
from tests.conformance.mutants import Mutant


class GivesUpOnASlowKubelet(Mutant):
    """Calls Register with a deadline shorter than the kubelet's dial."""

    fails = ("REG08",)
    times: ClassVar = {"slow_kubelet_seconds": 10.0}

    register_timeout_seconds = 1.0


class RegistersWhileItRegisters(Mutant):
    """Calls Register again where the answer does not come at once, and keeps waiting for both."""

    fails = ("REG09",)
    times: ClassVar = {"slow_kubelet_seconds": 4.0}

    async def register(self) -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(super().register())
            await asyncio.wait({first}, timeout=0.5)
            if not first.done():
                await super().register()


class NeedsAKubelet(Mutant):
    """Ends where there is no kubelet.sock when it starts."""

    fails = ("REG10",)
    times: ClassVar = {"down_seconds": 5.0}

    async def live(self) -> None:
        if socket_identity(self.folder / "kubelet.sock") is None:
            sys.exit("no kubelet.sock")
        await super().live()


class TakesItsTimeToRegister(Mutant):
    """Begins to serve, and so registers, well after it has seen the kubelet."""

    fails = ("REG11",)
    also = ("RES02",)
    times: ClassVar = {"return_limit_seconds": 1.0}

    async def serve(self) -> None:
        await asyncio.sleep(1.3)
        await super().serve()


class EndsWhenRefused(Mutant):
    """Takes a refused registration for a reason to end."""

    fails = ("REG12",)

    async def register(self) -> None:
        try:
            await super().register()
        except RemoteError as error:
            if error.status == "Unknown":
                sys.exit(str(error))
            raise


class TriesWithoutAPause(Mutant):
    """Registers again at once when it is refused."""

    fails = ("REG13",)

    async def register(self) -> None:
        while True:
            with suppress(RemoteError):
                return await super().register()


class EndsAtADeadSocket(Mutant):
    """Takes a kubelet.sock where nobody listens for a reason to end."""

    fails = ("REG15",)
    also = ("RES10",)
    times: ClassVar = {"down_seconds": 15.0}

    async def register(self) -> None:
        try:
            await super().register()
        except RemoteError as error:
            if error.status == "Unavailable":
                sys.exit(str(error))
            raise
