"""Mutants that register wrongly, too often, or not at all."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from devplug.exchange import PluginOptions, RegisterRequest
from tests.conformance.mutants import Mutant

if TYPE_CHECKING:
    from pathlib import Path


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
