"""Mutants of the registration of a DRA driver."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from devplug.errors import RemoteError
from devplug.wire.dra import PREPARE, ClaimName, PreparedClaim
from devplug.wire.sockets import Binding, unary
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.conformance.dra.mutants import Mutant, fails


@fails("DRA01", start_seconds=0.7)
class MakesNoRegistrationSocket(Mutant):
    """Serves its claims, and waits for the kubelet to know."""

    async def serve(self) -> None:
        await self.service.bind()


@fails("DRA02", options_limit_seconds=0.1)
class ThinksAboutWhoItIs(Mutant):
    """Looks for its devices inside GetInfo."""

    async def get_info(self, _: None) -> PluginInfo:
        await asyncio.sleep(1.2)
        return await super().get_info(_)


@fails("DRA03", start_seconds=1.0)
class SaysItIsADevicePlugin(Mutant):
    """Registers with the type of device plugins."""

    type = "DevicePlugin"


@fails("DRA04", also=("DRA20", "DRA25"), start_seconds=1.0)
class HasAnUnderscoreInItsName(Mutant):
    """Is called as no slice's driver can be."""

    name = "my_driver.example.com"


@fails("DRA05", also=("DRA09",))
class SendsARelativeEndpoint(Mutant):
    """Sends the service socket's file name, as device plugins do."""

    def endpoint(self) -> str:
        return self.service_socket().name


@fails("DRA06", start_seconds=1.0)
class AnnouncesARelease(Mutant):
    """Announces the version of itself, as CSI drivers do."""

    versions = ("1.0.0",)


@fails("DRA07")
class AnnouncesTheOldestFirst(Mutant):
    """Orders its versions by age."""

    versions = ("v1beta1.DRAPlugin", "v1.DRAPlugin")


@fails("DRA08", also=("DRA72", "DRA73", "DRA74", "DRA75", "DRA77", "DRA81"))
class ServesAfterItWasAsked(Mutant):
    """Makes the service socket when the kubelet has registered it."""

    async def serve(self) -> None:
        await self.registration.bind()
        await asyncio.Event().wait()

    async def take_status(self, _: RegistrationStatus) -> None:
        await self.service.bind()


@fails("DRA09")
class AnnouncesWhatItDoesNotServe(Mutant):
    """Announces v1beta1, too, whose service it does not register."""

    served = ("v1.DRAPlugin",)


@fails("DRA10")
class ThrowsAtTheStatus(Mutant):
    """Answers NotifyRegistrationStatus with an error."""

    async def take_status(self, _: RegistrationStatus) -> None:
        raise RemoteError("Internal", "not implemented yet")


@fails("DRA11", also=("DRA70", "DRA75"))
class MovesItsEndpoint(Mutant):
    """Tells a new endpoint each time."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._numbers = itertools.count()

    async def get_info(self, _: None) -> PluginInfo:
        number = next(self._numbers)
        endpoint = self.endpoint() if number == 0 else f"{self.endpoint()}.{number}"
        return PluginInfo(self.type, self.name, endpoint, self.versions)


@fails("DRA12")
class ServesInTheRegistry(Mutant):
    """Makes its service socket beside the registration socket."""

    def service_socket(self) -> Path:
        return self.place.registry / f"service-of-{self.name}.sock"

    def registration_socket(self) -> Path:
        return self.place.registry / f"a-{self.name}-reg.sock"


@fails("DRA13")
class CallsItsSocketAsEverybody(Mutant):
    """Calls its registration socket reg.sock."""

    def registration_socket(self) -> Path:
        return self.place.registry / "reg.sock"


@fails("DRA14")
class KeepsAStateForEachVersion(Mutant):
    """Has no names of requests in v1beta1, which was written first."""

    def service_bindings(self) -> tuple[Binding, ...]:
        v1beta1 = PREPARE["v1beta1.DRAPlugin"]
        others = [one for one in super().service_bindings() if one.method != v1beta1]
        return (*others, unary(v1beta1, self.prepare_nameless))

    async def prepare_nameless(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        answers = await self.prepare(claims)
        return {
            uid: replace(one, devices=tuple(replace(device, request_names=()) for device in one.devices))
            for uid, one in answers.items()
        }
