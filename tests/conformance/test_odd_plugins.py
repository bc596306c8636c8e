"""What the judge says of plugins that are right in their own way, and of faults that are another check's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from devplug.conformance.checks import all_checks
from devplug.conformance.checks.changes import ONE_CALL_LIMIT
from devplug.conformance.runner import judge
from devplug.conformance.streams import FALLS, clients_of
from devplug.conformance.testbed import TestBed
from devplug.conformance.verdicts import FailedError, Outcome, SkippedError, check, chosen
from devplug.devices import ContainerResponse, DeviceNode
from devplug.errors import InvalidRequestError, PluginError, RemoteError
from devplug.linux.notifier import within
from devplug.wire.values import AdvertisedDevice, PreferenceRequest
from tests.conformance.mutants import mutants
from tests.conformance.right import RightPlugin
from tests.conformance.trials import TIMES, subject_of, trial_of


class GivesOneAtATime(RightPlugin):
    """Gives a pod one device, as where each is a whole accelerator."""

    def check_request(self, containers: Sequence[tuple[str, ...]]) -> None:
        if sum(map(len, containers)) > 1:
            raise InvalidRequestError("one device is all that a pod can have")
        super().check_request(containers)


class HasManyDevices(RightPlugin):
    """Lists more devices than are asked for at once."""

    def devices(self) -> list[AdvertisedDevice]:
        more = (AdvertisedDevice(f"more-{number}", "Healthy", None) for number in range(ONE_CALL_LIMIT))
        return [*super().devices(), *more]


class HasNoDevices(RightPlugin):
    """Serves a machine where nothing is plugged in."""

    def devices(self) -> list[AdvertisedDevice]:
        return []


class NeverLists(RightPlugin):
    """Opens its stream and says nothing."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        await self.stopping.wait()
        yield []


class EndsItsFirstStream(RightPlugin):
    """Ends a stream before it has sent a list."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.stopping.is_set():
            yield []


class HasOneStream(RightPlugin):
    """Ends every stream but the kubelet's at once."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams_opened == 1:
            async for devices in super().lists():
                yield devices


class HasThreeStreams(RightPlugin):
    """Ends the fourth stream of its life at once."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams_opened <= 3:
            async for devices in super().lists():
                yield devices


class ListsLessElsewhere(RightPlugin):
    """Lists one device on every stream but the first."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        is_first = self.streams_opened == 1
        async for devices in super().lists():
            yield devices if is_first else devices[:1]


class FallsForGood(RightPlugin):
    """Ends all streams with the first that ends, and does not register again."""

    is_over = False

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        sent = None
        try:
            while not self.is_over:
                if self.devices() != sent:
                    sent = self.devices()
                    yield sent
                await within(self.poll_seconds, self.stopping.wait())
        finally:
            self.is_over = True

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return not self.is_over and super().is_wanting(is_same_kubelet, opened)


class LosesItsSocket(RightPlugin):
    """Removes its socket's file as soon as the kubelet has dialled it."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        self.listener.path.unlink(missing_ok=True)
        async for devices in super().lists():
            yield devices

    async def stay_reachable(self) -> None:
        await self.stopping.wait()

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return not is_same_kubelet


class PrefersFreeDevices(RightPlugin):
    """Steers away from devices that PodResources lists, and allocates whatever the kubelet asks for."""

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[tuple[str, ...]]:
        held = await self.held()
        return [(*sorted({*request.available} - held),)[: request.size] for request in requests]

    def refuse(self, held: set[str]) -> None:
        """Accept every request."""


class SharesOneNode(RightPlugin):
    """Gives each container the same device node, and a held device to a second container."""

    def response(self, ids: tuple[str, ...]) -> ContainerResponse:
        return ContainerResponse(device_nodes=[DeviceNode("/dev/null", "/dev/shared", "rw")])

    def refuse(self, held: set[str]) -> None:
        """Accept every request."""


PATIENCE: Final = {"answer_seconds": 10.0, "change_seconds": 10.0}
SAID: Final[Mapping[type[RightPlugin], Mapping[str, tuple[Outcome, str]]]] = {
    GivesOneAtATime: {"STR22": (Outcome.PASSED, "dev-0")},
    HasManyDevices: {"STR22": (Outcome.SKIPPED, "Allocate did not give out the device that was taken away")},
    HasNoDevices: {
        "STR02": (Outcome.SKIPPED, "the list stayed empty"),
        "STR20": (Outcome.SKIPPED, "0 healthy devices are listed, and 1 are needed"),
        "ALL01": (Outcome.SKIPPED, "0 healthy devices are listed"),
    },
    PrefersFreeDevices: {"ALL33": (Outcome.PASSED, "dev-0 is held, and dev-1 is preferred")},
    SharesOneNode: {"ALL33": (Outcome.SKIPPED, "dev-0 and dev-1 get the same device nodes")},
    RightPlugin: {"ALL33": (Outcome.PASSED, "dev-0 is held, and refused with FailedPrecondition")},
    HasOneStream: {
        "STR11": (Outcome.FAILED, "a second stream ended without a list: EOF"),
        "STR13": (Outcome.SKIPPED, "does not serve several streams at once (STR11)"),
        "STR25": (Outcome.SKIPPED, "the second stream got no list (STR11)"),
    },
    HasThreeStreams: {"STR13": (Outcome.FAILED, "a new one got no list: EOF")},
    ListsLessElsewhere: {"STR11": (Outcome.FAILED, "the second stream lists 1 devices, the first 5")},
    LosesItsSocket: {
        "REG17": (Outcome.SKIPPED, "the socket's mode cannot be read"),
        "RES06": (Outcome.SKIPPED, "there is no file mutant.sock to remove"),
    },
}


async def verdicts_on(
    plugin_class: type[RightPlugin], *ids: str, **more: Any
) -> Mapping[str, tuple[Outcome, str]]:
    """Return what the judge says, by check."""
    times = {**PATIENCE, **more.pop("times", {})}
    verdicts = await trial_of(plugin_class, chosen(all_checks(), only=ids), times, **more)
    return {one.check.id: (one.outcome, one.seen) for one in verdicts}


@pytest.mark.parametrize("plugin_class", SAID)
async def test_a_check_says_what_it_saw_or_which_check_is_about_it(plugin_class: type[RightPlugin]) -> None:
    said = SAID[plugin_class]
    verdicts = await verdicts_on(plugin_class, *said)
    assert {id_: outcome for id_, (outcome, _) in verdicts.items()} == {
        id_: outcome for id_, (outcome, _) in said.items()
    }, verdicts
    assert [words for id_, (_, words) in said.items() if words not in verdicts[id_][1]] == [], verdicts


@pytest.mark.parametrize(
    ("plugin_class", "limit_seconds", "words"),
    [
        (NeverLists, 0.5, "no list came within 0.5 s of the stream's opening"),
        (EndsItsFirstStream, 10.0, "the stream ended before any list came: EOF"),
    ],
)
async def test_a_stream_without_a_list_is_told_from_one_that_ended(
    plugin_class: type[RightPlugin], limit_seconds: float, words: str
) -> None:
    times = {"first_list_limit_seconds": limit_seconds}
    verdicts = await verdicts_on(plugin_class, "STR01", "STR02", is_up=clients_of, times=times)
    assert verdicts == {"STR01": (Outcome.FAILED, words), "STR02": (Outcome.SKIPPED, "no list came")}


@pytest.mark.parametrize(
    ("id_", "words"),
    [
        ("STR24", "a stream ended when others were opened or cancelled (STR11, STR13)"),
        ("HOS09", FALLS["for good"]),
    ],
)
async def test_a_plugin_that_falls_with_a_stream_is_skipped_where_that_would_look_like_another_fault(
    id_: str, words: str
) -> None:
    verdicts = await verdicts_on(FallsForGood, id_, times={"return_seconds": 1.0, "settle_seconds": 2.0})
    assert verdicts == {id_: (Outcome.SKIPPED, words)}


async def test_a_plugin_that_is_not_there_when_it_registers_is_not_asked_for_its_options() -> None:
    verdicts = await verdicts_on(
        mutants()["RegistersBeforeItServes"],
        *("REG02", "REG06"),
        is_up=lambda bed: any(attempt.ended_at for attempt in bed.kubelet.attempts),
        times={"dial_seconds": 0.2},
    )
    assert verdicts["REG02"][0] is Outcome.FAILED
    assert verdicts["REG02"][1].startswith(
        "nobody answered at the plugin's socket: failed to dial device plugin"
    )
    assert verdicts["REG06"] == (Outcome.SKIPPED, "nobody listened at the plugin's socket (REG02)")


@pytest.mark.parametrize(
    ("unplug", "words"),
    [
        (("/no/such/command",), "cannot run /no/such/command: No such file or directory"),
        (("false",), "false ended with 1"),
        ((), "no commands were given that take a device away and bring it back (--unplug)"),
    ],
)
async def test_a_command_that_takes_no_device_away_is_no_fault_of_the_plugin(
    unplug: tuple[str, ...], words: str
) -> None:
    subject = replace(subject_of("right"), unplug=unplug)
    verdicts = await verdicts_on(RightPlugin, "STR20", subject=subject)
    assert verdicts == {"STR20": (Outcome.SKIPPED, words)}


def raising(id_: str, error: Exception | None) -> Any:
    """Return a check that ends with an error, or not at all."""

    @check(id_, all_checks()[0].severity, "a rule", why="why", change="change", source="source", lane="odd")
    async def function(_: TestBed) -> None:
        """Raise, or wait."""
        if error is None:
            await asyncio.Event().wait()
        else:
            raise error

    return function


async def test_a_check_that_meets_an_error_or_no_end_is_a_verdict_and_no_crash() -> None:
    errors = (
        FailedError("it is wrong"),
        SkippedError("nothing to see"),
        RemoteError("Unavailable", "gone"),
        PluginError("cannot run it"),
        None,
    )
    checks = [raising(f"ALL{90 + number}", error) for number, error in enumerate(errors)]
    verdicts = await judge(subject_of("right"), checks, times=replace(TIMES, check_seconds=0.5))
    assert [(one.outcome, one.seen) for one in verdicts] == [
        (Outcome.FAILED, "it is wrong"),
        (Outcome.SKIPPED, "nothing to see"),
        (Outcome.FAILED, f"a call failed: {errors[2]}"),
        (Outcome.FAILED, "cannot run it"),
        (Outcome.FAILED, "the check did not end within 0.5 s"),
    ]
