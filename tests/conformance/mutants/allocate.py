"""Mutants whose Allocate gives the wrong devices, refuses what it must not, or cannot bear many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from devplug.devices import ContainerResponse
from devplug.errors import NotReadyError, RemoteError, UnhealthyDeviceError, UnknownDeviceError
from devplug.wire.sockets import Listener
from tests.conformance.mutants import Mutant, fails
from tests.conformance.right import Ids
from tests.conformance.spoilt import changed, mount, node


@fails("ALL01")
class RefusesEveryAllocate(Mutant):
    """Lists healthy devices and gives none of them."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        raise NotReadyError("the plugin is starting")


@fails("ALL01", "ALL12", skips=("ALL02", "ALL05", "ALL13", "PST01", "HOS04", "HOS13"), answer_seconds=5.0)
class NeverAnswersAllocate(Mutant):
    """Waits for a driver that is not there."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        await asyncio.Event().wait()
        return []


@fails("ALL02")
class AnswersWithoutAContainerResponse(Mutant):
    """Answers an empty message to a container that is alone in its call."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        responses = await super().allocate(containers)
        return responses if len(containers) > 1 else []


@fails("ALL03")
class AnswersInAnotherOrder(Mutant):
    """Gives the first container what the last one asked for."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        return list(reversed(await super().allocate(containers)))


@fails("ALL03")
class AnswersTheFirstContainerOnly(Mutant):
    """Reads the first container request, as the kubelet reads the first response."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        return (await super().allocate(containers))[:1]


@fails("ALL04")
class AnswersOncePerDevice(Mutant):
    """Sends a container response for each device, as Akri does."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        self.check_request(containers)
        return [self.response((id_,)) for ids in containers for id_ in ids]


@fails("ALL04")
class ForgetsTheSecondDevice(Mutant):
    """Gives a container the mount of its first device alone."""

    def response(self, ids: Ids) -> ContainerResponse:
        (self.work / ids[0]).touch()
        return changed(super().response(ids), mounts=[mount(self.work / ids[0], "/run/mutant")])


@fails("ALL05")
class TakesUnknownIds(Mutant):
    """Does not look the requested IDs up, as the SR-IOV plugin."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        super().check_request(
            [tuple(id_ if self.health_of(id_) else "dev-0" for id_ in ids) for ids in containers]
        )


@fails("ALL06")
class GivesUnhealthyDevices(Mutant):
    """Looks up only whether it knows a device, not how it is."""

    def check_id(self, id_: str) -> None:
        if not self.health_of(id_):
            raise UnknownDeviceError(id_[:64], self.resource_name)


@fails("ALL07")
class GivesADeviceTwiceInOneRequest(Mutant):
    """Does not notice that an ID comes twice."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        super().check_request([tuple(dict.fromkeys(ids)) for ids in containers])


@fails("ALL08")
class AnswersACallForNoContainer(Mutant):
    """Answers an empty message with an empty message."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        if containers:
            super().check_request(containers)


@fails("ALL09")
class AnswersAContainerWithoutIds(Mutant):
    """Gives a container that asks for no device an answer without one."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        super().check_request([ids or ("dev-0",) for ids in containers])


@fails("ALL10", skips=("PST05", "HOS01", "HOS13"))
class GivesADeviceOnce(Mutant):
    """Takes each device for used once it was given, as Akri's agent did (project-akri/akri#843)."""

    def check_request(self, containers: Sequence[Ids]) -> None:
        super().check_request(containers)
        for id_ in {id_ for ids in containers for id_ in ids} & self.handed_out:
            raise UnhealthyDeviceError(f"{id_} is in use")


@fails("ALL10")
class GivesAnotherNodeEachTime(Mutant):
    """Counts its answers and gives a node by that number."""

    def response(self, ids: Ids) -> ContainerResponse:
        self.answers += 1
        path = ("/dev/null", "/dev/zero")[self.answers % 2]
        return changed(super().response(ids), device_nodes=[node(path, f"/dev/mutant-{id_}") for id_ in ids])

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.answers = 0


@fails("ALL11")
class MixesUpCallsAtOnce(Mutant):
    """Remembers who asked in the plugin, not in the call."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        self.asked = containers
        await asyncio.sleep(0.05)
        return await super().allocate(self.asked)


@fails("ALL11", also=("HOS13",))
class FailsTheSecondCallAtOnce(Mutant):
    """Is busy while it answers somebody."""

    is_busy = False

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        if self.is_busy:
            raise NotReadyError("the plugin answers somebody else")
        self.is_busy = True
        try:
            await asyncio.sleep(0.05)
            return await super().allocate(containers)
        finally:
            self.is_busy = False


@fails("ALL12", call_limit_seconds=1.0)
class TakesLongOverItsFirstAllocate(Mutant):
    """Loads a driver when the first device is asked for."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        if not self.handed_out:
            await asyncio.sleep(2)
        return await super().allocate(containers)


@fails("ALL13", quick_call_limit_seconds=0.1)
class IsSlowNowAndThen(Mutant):
    """Scans the machine in each tenth call."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.calls = 0

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        self.calls += 1
        if self.calls % 10 == 0:
            # Far above the limit: what judge and plugin wait for a processor meanwhile is not counted.
            await asyncio.sleep(1.0)
        return await super().allocate(containers)


@fails("ALL27", answer_seconds=20.0)
class StarvesBehindStreams(Mutant):
    """Has a pool of four threads for streams and calls."""

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        if self.streams >= 4:
            await asyncio.Event().wait()
        return await super().allocate(containers)


@fails("ALL28")
class RefusesWithATraceback(Mutant):
    """Lets an exception's text out."""

    def check_id(self, id_: str) -> None:
        if self.health_of(id_) != "Healthy":
            text = f'Traceback (most recent call last):\n  File "plugin.py", line 7\nKeyError: {id_[:64]!r}'
            raise RemoteError("NotFound", text)


@fails("ALL28")
class RefusesWithALongStory(Mutant):
    """Lists all that could have been asked for."""

    def check_id(self, id_: str) -> None:
        if self.health_of(id_) != "Healthy":
            raise RemoteError("NotFound", f"not one of {', '.join(f'dev-{n}' for n in range(100))}")


@fails("ALL29")
class RefusesWithStatusUnknown(Mutant):
    """Returns a plain error, as Go programs do."""

    def check_id(self, id_: str) -> None:
        if self.health_of(id_) != "Healthy":
            raise RemoteError("Unknown", f"no device {id_[:64]}")


@fails("ALL31", answer_seconds=20.0)
class LosesItsLockWithTheCaller(Mutant):
    """Does not release its lock when the call is cancelled."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.lock = asyncio.Lock()

    async def allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        await self.lock.acquire()
        await asyncio.sleep(0.5)
        self.lock.release()
        return await super().allocate(containers)


@fails("ALL32")
class AnswersWithTooMuch(Mutant):
    """Tells a long story for every device that comes after the second."""

    def make_listener(self) -> Listener:
        return Listener(self.folder / self.endpoint, self.bindings(), send_limit_bytes=1 << 30)

    def response(self, ids: Ids) -> ContainerResponse:
        envs = {f"STORY_{id_}": "x" * 3_000_000 for id_ in ids[2:]}
        return changed(super().response(ids), envs={"MUTANT_IDS": ",".join(ids), **envs})


@fails("ALL33")
class AllocatesHeldDevices(Mutant):
    """Allocates whatever the kubelet asks for."""

    def refuse(self, held: set[str]) -> None:
        """Accept every request."""
