"""GetPreferredAllocation on a socket: when the plugin is asked, and what its answer may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.errors import NotOfferedError
from devplug.exchange import PluginOptions, PreferenceRequest
from devplug.kubelet.pods import Container, Pod, PodPhase
from tests.kubelet.fakes import RESOURCE, healthy, pod, registered, running, unhealthy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kubelet.fakes import Ids

PREFERS = PluginOptions(preferred_allocation_available=True)


async def test_the_plugin_is_not_asked_unless_it_offers_that(short_dir: Path) -> None:
    """C57."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.admit(pod("u"))
        assert plugin.called("GetPreferredAllocation") == []


async def test_the_plugin_is_asked_even_if_all_available_devices_are_needed(short_dir: Path) -> None:
    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy("a"), options=PREFERS) as plugin,
    ):
        await kubelet.admit(pod("u"))
        assert [call.method for call in plugin.calls[2:]] == ["GetPreferredAllocation", "Allocate"]


async def test_the_preferred_devices_are_allocated(short_dir: Path) -> None:
    """C59."""

    async def last(request: PreferenceRequest) -> Sequence[Ids]:
        return [("ghost", *sorted(request.available)[-request.size :])]

    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy(*"abc"), options=PREFERS) as plugin,
    ):
        plugin.on_prefer = last
        await kubelet.admit(pod("u", 2))
        assert plugin.called("Allocate") == [("b", "c")]


async def test_the_plugin_is_told_all_that_it_needs_to_choose(short_dir: Path) -> None:
    """C58: the app wants three, and must have what its init container had."""
    init, app = Container("i", {RESOURCE: 1}), Container("c", {RESOURCE: 3})

    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy(*"abcd") + unhealthy("e"), options=PREFERS) as plugin,
    ):
        await kubelet.admit(Pod("u", "u", init_containers=(init,), containers=(app,)))
        assert [call.request for call in plugin.calls if call.request is not None] == [
            PreferenceRequest(("a", "b", "c", "d"), (), 1),
            PreferenceRequest(("a", "b", "c", "d"), ("a",), 3),
        ]


async def test_an_answer_without_containers_is_no_preference(short_dir: Path) -> None:
    """C59."""

    async def nothing(_: PreferenceRequest) -> Sequence[Ids]:
        return []

    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy("a"), options=PREFERS) as plugin,
    ):
        plugin.on_prefer = nothing
        assert (await kubelet.admit(pod("u"))).phase is PodPhase.PENDING


async def test_an_error_refuses_the_pod(short_dir: Path) -> None:
    """C60."""

    async def fail(_: PreferenceRequest) -> Sequence[Ids]:
        raise NotOfferedError("not here")

    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy("a"), options=PREFERS) as plugin,
    ):
        plugin.on_prefer = fail
        message = (await kubelet.admit(pod("u"))).message
        assert message == (
            "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed "
            "with err: rpc error: code = Unimplemented desc = not here, which is unexpected"
        )
        assert plugin.called("Allocate") == []
