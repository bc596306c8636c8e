"""The errors of an author's `allocate`: what the kubelet and the log get of them; they change nothing."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import AllocationError, ContainerResponse, Device, Health, UnhealthyDeviceError
from devplug.errors import RemoteError
from devplug.kubelet.pods import PodPhase
from tests.kubelet.fakes import pod
from tests.plugin.allocating import ADVICE, EITHER, InThread
from tests.plugin.fakes import Listed, Steered, allocatable, devices, raising, registered, served


def raised(error: BaseException) -> Callable[[object], Any]:
    def fail(_: object) -> Any:
        raise error

    return fail


# ── the author's refusals ──


@EITHER
async def test_an_allocation_error_is_the_text_in_the_pod_and_no_more(
    short_dir: Path, kind: type[InThread]
) -> None:
    refusing = kind(raised(AllocationError("licence server is full")))
    async with served(short_dir, refusing, devices("a")) as plugin:
        before = plugin.inventory.version
        for _ in range(3):  # the same object, raised again
            assert await plugin.refusal(["a"]) == "FailedPrecondition allocate: licence server is full"
        assert plugin.inventory.version == before
        assert plugin.inventory.snapshot.devices["a"].health == Health.healthy()


async def test_a_refusals_text_is_cut_to_one_line_of_two_hundred_bytes(short_dir: Path) -> None:
    async with served(
        short_dir, Steered(raising(AllocationError("no\n" + "ü" * 500))), devices("a")
    ) as plugin:
        with pytest.raises(RemoteError) as caught:
            await plugin.allocate(["a"])
    assert caught.value.text.startswith("allocate: no ü")
    assert len(caught.value.text.encode()) <= 200


async def test_an_unhealthy_device_error_marks_the_device_until_the_next_list(short_dir: Path) -> None:
    async def refuse(devices: Sequence[Device]) -> None:
        raise UnhealthyDeviceError("link down", devices[0])

    steered = Steered(refuse)
    listed = devices("a", "b")
    async with served(short_dir, steered, listed) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        text = f'FailedPrecondition allocate: device "a" is unhealthy (link down); {ADVICE}'
        assert await plugin.refusal(["a", "b"]) == text
        marked = await anext(lists)
        assert [(device.id, device.health) for device in marked] == [("a", "Unhealthy"), ("b", "Healthy")]
        assert await plugin.refusal(["a"]) == text
        assert steered.calls == [("a", "b")]  # the second request did not reach it
        await plugin.inventory.replace(listed)
        assert [device.health for device in await anext(lists)] == ["Healthy", "Healthy"]


async def test_an_unhealthy_device_error_without_devices_only_refuses(short_dir: Path) -> None:
    steered = Steered(raising(UnhealthyDeviceError("no link at all")))
    async with served(short_dir, steered, devices("a")) as plugin:
        assert await plugin.refusal(["a"]) == f"FailedPrecondition allocate: no link at all; {ADVICE}"
        assert plugin.inventory.snapshot.devices["a"].health == Health.healthy()


async def test_the_replacement_of_a_refused_pod_gets_another_device(short_dir: Path) -> None:
    async def refuse_the_first(given: Sequence[Device]) -> None:
        if len(steered.calls) == 1:
            raise UnhealthyDeviceError("link down", *given)

    class Two(Steered):
        async def devices(self) -> list[Device]:
            return devices("a", "b")

    steered = Two(refuse_the_first)
    async with registered(short_dir, steered) as (kubelet, _):
        first = await kubelet.admit(pod("first"))
        assert first.phase is PodPhase.FAILED
        assert "is unhealthy (link down); delete and recreate the pod" in first.message
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert (await kubelet.run_pod(pod("second"))).phase is PodPhase.RUNNING
        assert steered.calls[0] != steered.calls[1]


# ── the author's mistakes ──


@pytest.mark.parametrize(
    "mistake",
    [
        ValueError("secret-token"),
        KeyError("secret-token"),
        TimeoutError("secret-token"),
        OSError(2, "secret-token"),
        RemoteError("Unavailable", "secret-token"),
        StopIteration("secret-token"),
        SystemExit("secret-token"),
        asyncio.CancelledError("secret-token"),
        BaseExceptionGroup("secret-token", [SystemExit(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
@EITHER
async def test_any_other_error_is_an_incident_whose_text_stays_in_the_log(
    short_dir: Path, caplog: pytest.LogCaptureFixture, kind: type[InThread], mistake: BaseException
) -> None:
    async with served(short_dir, kind(raised(mistake)), devices("a")) as plugin:
        before = plugin.inventory.version
        text = await plugin.refusal(["a"])
        found = re.fullmatch("Internal allocate: internal error, incident ([0-9a-f]{6})", text)
        assert found, text
        assert plugin.inventory.version == before
    (record,) = [r for r in caplog.records if "the plugin's code raised an error in a call" in r.message]
    assert vars(record)["incident"] == found.group(1)
    assert "secret-token" in caplog.text


@EITHER
@pytest.mark.parametrize("answer", ["text", 7, [ContainerResponse()], {"envs": {}}, None], ids=repr)
async def test_an_answer_of_another_type_is_an_incident(
    short_dir: Path, caplog: pytest.LogCaptureFixture, kind: type[InThread], answer: object
) -> None:
    async with served(short_dir, kind(lambda _: answer), devices("a")) as plugin:
        assert (await plugin.refusal(["a"])).startswith("Internal allocate: internal error, incident ")
    assert f"allocate returned {type(answer).__name__}, not a ContainerResponse" in caplog.text


async def test_an_answer_that_the_kubelet_could_not_take_is_refused_with_its_size(short_dir: Path) -> None:
    much = ContainerResponse(annotations={"X": "x" * 5_000_000})
    async with served(short_dir, InThread(lambda _: much), devices("a")) as plugin:
        text = await plugin.refusal(["a"])
    assert re.fullmatch(r"Internal the plugin's answer has 50000\d\d bytes; the kubelet takes 4194304", text)


@EITHER
async def test_code_that_is_too_slow_is_cut_off_with_the_time_it_had(
    short_dir: Path, kind: type[InThread]
) -> None:
    release = threading.Event()
    slow = kind(lambda _: release.wait() if kind is InThread else asyncio.Event().wait())
    slow.allocate_timeout_seconds = 0.1
    async with served(short_dir, slow, devices("a")) as plugin:
        before = plugin.inventory.version
        assert await plugin.refusal(["a"]) == "DeadlineExceeded allocate: no answer in 0.1s"
        assert plugin.inventory.version == before
        release.set()


async def test_prepare_and_allocate_share_one_deadline(short_dir: Path) -> None:
    class Slow(Listed):
        allocate_timeout_seconds = 0.1

        async def prepare(self, devices: Sequence[Device], /) -> None:
            await asyncio.Event().wait()

    async with served(short_dir, Slow(), devices("a")) as plugin:
        assert await plugin.refusal(["a"]) == "DeadlineExceeded allocate: no answer in 0.1s"


# ── code that hangs ──


class HangingOnTheLoop(Listed):
    allocate_timeout_seconds = 0.1

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        await asyncio.Event().wait()
        raise AssertionError


class HangingInAThread(Listed):
    allocate_timeout_seconds = 0.1

    def __init__(self) -> None:
        self.ends = threading.Event()

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        self.ends.wait()
        return ContainerResponse.of(devices)


@pytest.mark.parametrize("kind", [HangingOnTheLoop, HangingInAThread])
async def test_the_log_has_the_line_at_which_a_call_hangs(
    short_dir: Path, caplog: pytest.LogCaptureFixture, kind: type[Listed]
) -> None:
    hanging = kind()
    async with served(short_dir, hanging, devices("a")) as plugin:
        await plugin.refusal(["a"])
        if isinstance(hanging, HangingInAThread):
            hanging.ends.set()
    (line,) = [one.__dict__["line"] for one in caplog.records if "hangs in a call" in one.message]
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+ in {kind.__name__}\.allocate", line)


# ── the answer of a superclass ──


class InAThread(Listed):
    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse.of(devices, envs={"A": "1"})


class Adding(Listed):
    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return await super().allocate(devices)


class AddingToAThread(InAThread):
    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:  # type: ignore[override]
        return await super().allocate(devices)


@pytest.mark.parametrize("kind", [Adding, AddingToAThread])
async def test_the_answer_of_a_superclass_can_be_awaited(kind: type[Listed]) -> None:
    """Whether it is `def` or `async def`; `make check` has mypy read these classes."""
    response = await kind().allocate(devices("a"))
    assert isinstance(response, ContainerResponse)
