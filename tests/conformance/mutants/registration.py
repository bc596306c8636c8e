"""Mutants of registration, with a kubelet that is as it should be and with one that is not."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

from devplug.errors import RemoteError
from devplug.wire.sockets import socket_identity
from devplug.wire.values import PluginOptions, RegisterRequest
from tests.conformance.mutants import Mutant, fails


@fails("REG01", start_seconds=20.0)
class NeverRegisters(Mutant):
    """Serves its socket and waits to be found."""

    async def live(self) -> None:
        await self.serve()
        await self.stopping.wait()


@fails("REG02", start_seconds=20.0, dial_seconds=5.0)
class RegistersBeforeItServes(Mutant):
    """Registers first and means to serve after the answer, which so never comes."""

    async def serve(self) -> None:
        pass


@fails("REG03")
class HasNoDomainInItsName(Mutant):
    """Registers a resource that is called as the processor is: without a domain."""

    resource_name = "mutant"


@fails("REG04")
class SpeaksAnotherVersion(Mutant):
    """Registers with the version of another API."""

    version = "v1"


@fails("REG05")
class SendsAPathAsEndpoint(Mutant):
    """Names its socket with a slash, which the kubelet's join happens to swallow."""

    def request(self) -> RegisterRequest:
        return RegisterRequest(self.version, f"/{self.endpoint}", self.resource_name, self.options)


@fails("REG06", start_seconds=20.0)
class DoesNotAnswerTheOptions(Mutant):
    """Throws where the kubelet asks for the options, inside Register."""

    async def get_options(self, _: None) -> PluginOptions:
        raise RuntimeError("not now")


@fails("REG07")
class SaysOtherOptionsInRegister(Mutant):
    """Leaves the options in the registration empty."""

    def request(self) -> RegisterRequest:
        return RegisterRequest(self.version, self.endpoint, self.resource_name)


@fails("REG14", silence_seconds=4.0)
class RegistersNowAndThen(Mutant):
    """Registers again every half second, in case the kubelet has forgotten it."""

    registered_at = 0.0

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        is_due = time.monotonic() > self.registered_at + 0.5
        if is_due:
            self.registered_at = time.monotonic()
        return is_due


@fails("REG16")
class ChangesItsOptions(Mutant):
    """Offers pre-start only to the first who asks."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.answers = [self.options]

    async def get_options(self, _: None) -> PluginOptions:
        return self.answers.pop() if self.answers else PluginOptions(preferred_allocation_available=True)


@fails("REG17")
class OpensItsSocketToAll(Mutant):
    """Lets everybody on the machine call it."""

    async def serve(self) -> None:
        await super().serve()
        self.listener.path.chmod(0o777)


@fails("REG18", options_limit_seconds=1.0)
class LooksForItsOptions(Mutant):
    """Takes more than a second to find out what it offers."""

    async def get_options(self, _: None) -> PluginOptions:
        await asyncio.sleep(1.2)
        return self.options


@fails("REG08", slow_kubelet_seconds=10.0)
class GivesUpOnASlowKubelet(Mutant):
    """Calls Register with a deadline shorter than the kubelet's dial."""

    register_timeout_seconds = 1.0


@fails("REG09", slow_kubelet_seconds=4.0)
class RegistersWhileItRegisters(Mutant):
    """Calls Register again where the answer does not come at once, and keeps waiting for both."""

    async def register(self) -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(super().register())
            await asyncio.wait({first}, timeout=0.5)
            if not first.done():
                await super().register()


@fails("REG10", down_seconds=5.0)
class NeedsAKubelet(Mutant):
    """Ends where there is no kubelet.sock when it starts."""

    async def live(self) -> None:
        if socket_identity(self.folder / "kubelet.sock") is None:
            sys.exit("no kubelet.sock")
        await super().live()


@fails("REG11", also=("RES02",), return_limit_seconds=1.0)
class TakesItsTimeToRegister(Mutant):
    """Begins to serve, and so registers, well after it has seen the kubelet."""

    async def serve(self) -> None:
        await asyncio.sleep(1.3)
        await super().serve()


@fails("REG12")
class EndsWhenRefused(Mutant):
    """Takes a refused registration for a reason to end."""

    async def register(self) -> None:
        try:
            await super().register()
        except RemoteError as error:
            if error.status == "Unknown":
                sys.exit(str(error))
            raise


@fails("REG13")
class TriesWithoutAPause(Mutant):
    """Registers again at once when it is refused."""

    async def register(self) -> None:
        while True:
            with suppress(RemoteError):
                return await super().register()


@fails("REG15", also=("RES10",), down_seconds=15.0)
class EndsAtADeadSocket(Mutant):
    """Takes a kubelet.sock where nobody listens for a reason to end."""

    async def register(self) -> None:
        try:
            await super().register()
        except RemoteError as error:
            if error.status == "Unavailable":
                sys.exit(str(error))
            raise
