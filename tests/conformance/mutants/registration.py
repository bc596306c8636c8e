"""Mutants of registration, with a kubelet that is as it should be and with one that is not."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from devplug.errors import RemoteError
from devplug.wire.sockets import socket_identity
from devplug.wire.values import PluginOptions, RegisterRequest
from tests.conformance.mutants import Mutant


class NeverRegisters(Mutant):
    """Serves its socket and waits to be found."""

    fails = ("REG01",)
    times: ClassVar = {"start_seconds": 20.0}

    async def live(self) -> None:
        await self.serve()
        await self.stopping.wait()


class RegistersBeforeItServes(Mutant):
    """Registers first and means to serve after the answer, which so never comes."""

    fails = ("REG02",)
    times: ClassVar = {"start_seconds": 20.0, "dial_seconds": 5.0}

    async def serve(self) -> None:
        pass


class HasNoDomainInItsName(Mutant):
    """Registers a resource that is called as the processor is: without a domain."""

    fails = ("REG03",)

    resource_name = "mutant"


class SpeaksAnotherVersion(Mutant):
    """Registers with the version of another API."""

    fails = ("REG04",)

    version = "v1"


class SendsAPathAsEndpoint(Mutant):
    """Names its socket with a slash, which the kubelet's join happens to swallow."""

    fails = ("REG05",)

    def request(self) -> RegisterRequest:
        return RegisterRequest(self.version, f"/{self.endpoint}", self.resource_name, self.options)


class DoesNotAnswerTheOptions(Mutant):
    """Throws where the kubelet asks for the options, inside Register."""

    fails = ("REG06",)
    times: ClassVar = {"start_seconds": 20.0}

    async def get_options(self, _: None) -> PluginOptions:
        raise RuntimeError("not now")


class SaysOtherOptionsInRegister(Mutant):
    """Leaves the options in the registration empty."""

    fails = ("REG07",)

    def request(self) -> RegisterRequest:
        return RegisterRequest(self.version, self.endpoint, self.resource_name)


class RegistersNowAndThen(Mutant):
    """Registers again every half second, in case the kubelet has forgotten it."""

    fails = ("REG14",)
    times: ClassVar = {"silence_seconds": 4.0}

    registered_at = 0.0

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        is_due = time.monotonic() > self.registered_at + 0.5
        if is_due:
            self.registered_at = time.monotonic()
        return is_due


class ChangesItsOptions(Mutant):
    """Offers pre-start only to the first who asks."""

    fails = ("REG16",)

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.answers = [self.options]

    async def get_options(self, _: None) -> PluginOptions:
        return self.answers.pop() if self.answers else PluginOptions(preferred_allocation_available=True)


class OpensItsSocketToAll(Mutant):
    """Lets everybody on the machine call it."""

    fails = ("REG17",)

    async def serve(self) -> None:
        await super().serve()
        self.listener.path.chmod(0o777)


class LooksForItsOptions(Mutant):
    """Takes more than a second to find out what it offers."""

    fails = ("REG18",)
    times: ClassVar = {"options_limit_seconds": 1.0}

    async def get_options(self, _: None) -> PluginOptions:
        await asyncio.sleep(1.2)
        return self.options


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
