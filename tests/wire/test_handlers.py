"""What one listener serves: services of several APIs at once, and a gate before their calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug import errors
from devplug.errors import RemoteError
from devplug.wire import deviceplugin, pluginregistration, podresources
from devplug.wire.sockets import Binding, Listener, connected, unary
from devplug.wire.values import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PluginInfo,
    PluginOptions,
    PodName,
    PodResources,
    RegistrationStatus,
)
from tests.wire.fakes import LIST, Plugin, allocate_raw, refusal, served

pytestmark = pytest.mark.usefixtures("pairing")

POD = PodResources("p", "n", (ContainerResources("c", (ContainerDevices("a.io/b", ("x",), (1,)),)),))
POD_V1ALPHA1 = PodResources("p", "n", (ContainerResources("c", (ContainerDevices("a.io/b", ("x",)),)),))


class Gate:
    """Lets everything pass that a test does not close it for, and counts."""

    def __init__(self) -> None:
        self.is_open = True
        self.calls = 0

    def admit_call(self) -> None:
        self.calls += 1
        if not self.is_open:
            raise errors.LimitError("rejected by rate limit")


async def list_pods(_: None) -> Sequence[PodResources]:
    return [POD]


async def get_pod(pod: PodName) -> PodResources:
    if pod != PodName("p", "n"):
        raise errors.KubeletError(f"pod {pod.name} in namespace {pod.namespace} not found")
    return POD


async def get_allocatable(_: None) -> AllocatableResources:
    return AllocatableResources(cpu_ids=(0, 1))


def pod_resources_bindings() -> tuple[Binding, ...]:
    return (
        unary(podresources.LIST, list_pods),
        unary(podresources.GET, get_pod),
        unary(podresources.GET_ALLOCATABLE_RESOURCES, get_allocatable),
        unary(podresources.V1ALPHA1_LIST, list_pods),
    )


async def test_one_listener_serves_two_versions_of_an_api(short_dir: Path) -> None:
    listener = Listener(short_dir / "kubelet.sock", pod_resources_bindings())
    await listener.bind()
    async with connected(listener.path) as peer:
        assert await peer.call(podresources.LIST, None) == (POD,)
        assert await peer.call(podresources.V1ALPHA1_LIST, None) == (POD_V1ALPHA1,)
        assert await peer.call(podresources.GET, PodName("p", "n")) == POD
        allocatable = await peer.call(podresources.GET_ALLOCATABLE_RESOURCES, None)
        assert allocatable == AllocatableResources(cpu_ids=(0, 1))
        with pytest.raises(RemoteError) as caught:
            await peer.call(podresources.GET, PodName("q", "n"))
        assert (caught.value.status, caught.value.text) == ("Unknown", "pod q in namespace n not found")
    await listener.close()


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/v1.PodResourcesLister/Watch", "unknown method Watch for service v1.PodResourcesLister"),
        ("/v1alpha1.PodResourcesLister/Get", "unknown method Get for service v1alpha1.PodResourcesLister"),
        ("/v1beta1.DevicePlugin/Allocate", "unknown service v1beta1.DevicePlugin"),
    ],
)
async def test_what_none_of_the_services_has_is_refused_by_its_name(
    short_dir: Path, path: str, refused: str
) -> None:
    listener = Listener(short_dir / "kubelet.sock", pod_resources_bindings())
    await listener.bind()
    assert await allocate_raw(listener.path, b"", path) == f"UNIMPLEMENTED {refused}"
    await listener.close()


async def test_one_socket_registers_a_plugin_and_serves_it(short_dir: Path) -> None:
    """A plugin in plugins_registry that gives no endpoint is called on the socket that it was found by."""
    info = PluginInfo("DevicePlugin", "a.io/b", "", ("v1beta1",))
    told = []

    async def get_info(_: None) -> PluginInfo:
        return info

    async def notify(status: RegistrationStatus) -> None:
        told.append(status)

    bindings = (
        unary(pluginregistration.GET_INFO, get_info),
        unary(pluginregistration.NOTIFY_REGISTRATION_STATUS, notify),
        *Plugin().bindings(),
    )
    listener = Listener(short_dir / "p.sock", bindings)
    await listener.bind()
    async with connected(listener.path) as peer:
        assert await peer.call(pluginregistration.GET_INFO, None) == info
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        status = RegistrationStatus(plugin_registered=False, error="no")
        await peer.call(pluginregistration.NOTIFY_REGISTRATION_STATUS, status)
    assert told == [status]
    await listener.close()


# ── the gate ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_is_not_admitted_is_refused_with_the_words_of_the_gate(short_dir: Path) -> None:
    gate, plugin = Gate(), Plugin()
    async with served(short_dir / "p.sock", plugin, admit_call=gate.admit_call) as peer:
        gate.is_open = False
        caught = await refusal(peer)
        assert (caught.status, caught.text) == ("ResourceExhausted", "rejected by rate limit")
        assert not plugin.entered.is_set()
        gate.is_open = True
        assert (await peer.call(deviceplugin.ALLOCATE, [("a",)]))[0].envs == {"IDS": "a"}
        assert gate.calls == 2


async def test_a_request_that_cannot_be_decoded_passes_the_gate_by(short_dir: Path) -> None:
    """As in Go's gRPC: it decodes first, and calls its interceptor with the message."""
    gate, path = Gate(), short_dir / "p.sock"
    gate.is_open = False
    async with served(path, Plugin(), admit_call=gate.admit_call):
        assert await allocate_raw(path, b"\xff") == "INVALID_ARGUMENT malformed AllocateRequest"
        assert gate.calls == 0


async def test_one_gate_counts_the_calls_of_all_clients_and_services(short_dir: Path) -> None:
    gate = Gate()
    listener = Listener(short_dir / "kubelet.sock", pod_resources_bindings(), admit_call=gate.admit_call)
    await listener.bind()
    for method in (podresources.LIST, podresources.V1ALPHA1_LIST):
        async with connected(listener.path) as peer:
            await peer.call(method, None)
    assert gate.calls == 2
    await listener.close()


async def test_unknown_methods_and_streams_pass_the_gate_by(short_dir: Path) -> None:
    gate, plugin, path = Gate(), Plugin(), short_dir / "p.sock"
    gate.is_open = False
    plugin.answers.put_nowait(LIST)
    async with served(path, plugin, admit_call=gate.admit_call) as peer:
        for method in ("/v1beta1.DevicePlugin/Reset", "/v1.PodResourcesLister/List"):
            assert (await allocate_raw(path, b"", method)).startswith("UNIMPLEMENTED unknown ")
        async with aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as answers:
            assert await anext(answers) == LIST
        assert gate.calls == 0
