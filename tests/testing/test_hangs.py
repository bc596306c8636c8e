"""What a test is told when something hangs, and that its end comes all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from devplug import ContainerResponse, Device, DevicePlugin
from devplug.errors import KubeletError
from devplug.testing import SyncKubelet

NAME = "example.com/a"


HANGS_AFTER_SECONDS = 3
"""What hangs for ever is given up after this; until then the plugin's code has to have begun."""


class Plain(DevicePlugin):
    resource_name = NAME
    allocate_timeout_seconds = 60

    def devices(self) -> list[Device]:
        return [Device("a")]


def test_code_that_waits_for_ever_is_told_by_its_line() -> None:
    class Waiting(Plain):
        async def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
            await asyncio.Event().wait()
            raise AssertionError

    with SyncKubelet() as kubelet:
        kubelet.start(Waiting())
        with pytest.raises(TimeoutError) as caught:
            kubelet.admit({NAME: 1}, timeout_seconds=HANGS_AFTER_SECONDS)
    assert "pod pod-1 was neither refused nor started: no answer within 3 s" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert "Waiting.allocate" in str(caught.value)
    assert "pod          default/pod-1 is Pending" in str(caught.value)


def test_code_that_blocks_a_thread_is_told_by_its_line() -> None:
    goes_on = threading.Event()

    class Blocking(Plain):
        def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
            goes_on.wait(60)
            return ContainerResponse()

    with SyncKubelet() as kubelet:
        kubelet.start(Blocking())
        with pytest.raises(TimeoutError) as caught:
            kubelet.admit({NAME: 1}, timeout_seconds=HANGS_AFTER_SECONDS)
        goes_on.set()
    assert "code in a thread is at" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert "Blocking.allocate" in str(caught.value)


def test_code_that_blocks_the_loop_is_told_by_its_line() -> None:
    goes_on = threading.Event()

    class Blocking(Plain):
        async def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
            goes_on.wait(60)
            return ContainerResponse()

    with SyncKubelet() as kubelet:
        kubelet.start(Blocking())
        with pytest.raises(TimeoutError) as caught:
            kubelet.admit({NAME: 1}, timeout_seconds=HANGS_AFTER_SECONDS)
        goes_on.set()
    assert "an `async def` blocks the loop, write `def`" in str(caught.value)
    assert "goes_on.wait(60)" in str(caught.value)
    assert "the kubelet does not answer" in str(caught.value)


def test_a_thread_of_the_plugin_does_not_hold_the_end() -> None:
    goes_on = threading.Event()

    class Busy(Plain):
        async def devices(self) -> AsyncIterator[list[Device]]:  # type: ignore[override]  # one of its forms
            yield [Device("a")]
            await asyncio.to_thread(goes_on.wait, 15)

    with SyncKubelet() as kubelet:
        kubelet.start(Busy())
    assert not goes_on.is_set()
    goes_on.set()


def test_a_plugin_that_never_lists_anything_is_not_waited_for_longer_than_wanted() -> None:
    class Silent(Plain):
        async def devices(self) -> list[Device]:  # type: ignore[override]  # one of its forms
            await asyncio.Event().wait()
            return []

    with (
        pytest.raises(TimeoutError, match=r"no list of example.com/a within 0.2 s"),
        SyncKubelet() as kubelet,
    ):
        kubelet.start(Silent(), timeout_seconds=0.2)


class Clinging(Plain):
    """Does not end when it is told to."""

    async def devices(self) -> AsyncIterator[list[Device]]:  # type: ignore[override]  # one of its forms
        try:
            yield [Device("a")]
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()


def test_a_plugin_that_does_not_end_is_told_by_its_line_and_ended() -> None:
    with SyncKubelet():
        threads = threading.active_count() - 1  # with the one of gRPC, that lasts as long as the process
    kubelet = SyncKubelet(end_seconds=HANGS_AFTER_SECONDS)
    with pytest.raises(TimeoutError) as caught, kubelet:
        kubelet.start(Clinging())
    root = kubelet.root
    assert "Clinging.devices" in str(caught.value)
    assert not root.exists()
    assert threading.active_count() <= threads


def test_the_blocks_own_error_stays_and_the_one_of_the_end_is_a_note() -> None:
    with (  # noqa: PT012 -- what the end adds to the error is the point
        pytest.raises(AssertionError, match="of the test") as caught,
        SyncKubelet(end_seconds=HANGS_AFTER_SECONDS) as kubelet,
    ):
        kubelet.start(Clinging())
        raise AssertionError("of the test")
    (note,) = caught.value.__notes__
    assert note.startswith("and when all of it was ended: ")
    assert "Clinging.devices" in note


def test_a_wait_in_vain_tells_what_the_condition_raised() -> None:
    with SyncKubelet() as kubelet, pytest.raises(TimeoutError) as caught:
        kubelet.wait(lambda: kubelet.allocatable[NAME] == 1, timeout_seconds=0)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "the node has no resources and no pods" in str(caught.value)


def test_a_resource_that_is_not_there_yet_can_be_waited_for() -> None:
    with SyncKubelet() as kubelet:
        comes = threading.Thread(target=kubelet.start, args=(Plain(),))
        comes.start()
        kubelet.wait(lambda: kubelet.allocatable[NAME] == 1)
        comes.join()


def test_a_kubelet_that_has_ended_says_so() -> None:
    with SyncKubelet() as kubelet:
        kubelet.start(Plain())
        pod = kubelet.admit({NAME: 1})
    for late in (
        lambda: pod.phase,
        lambda: kubelet.capacity,
        kubelet.restart,
        lambda: kubelet.start(Plain()),
    ):
        with pytest.raises(KubeletError, match="this kubelet does not run"):
            late()
    with pytest.raises(KubeletError, match="this kubelet does not run"):
        kubelet.admit({NAME: 1})
