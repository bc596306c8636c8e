"""Which devices are one: replicas by their IDs, ours and other plugins'."""

from __future__ import annotations

from devplug.monitor.found import found_devices
from tests.monitor.page.nodes import device, held, resource, sick


def test_replicas_of_ours_are_one_device() -> None:
    (kvm,) = found_devices(resource(held("kvm::0"), device("kvm::1"), replicas=2))
    assert (kvm.id, len(kvm.devices), kvm.held) == ("kvm", 2, 1)


def test_an_id_of_ours_that_only_looks_like_a_replica_stays_itself() -> None:
    assert [one.id for one in found_devices(resource(device("a::0"), device("a::1")))] == ["a::0", "a::1"]


def test_replicas_of_another_plugin_are_known_by_their_looks() -> None:
    found = found_devices(resource(device("GPU-1::0"), device("GPU-1::1"), device("GPU-2"), process=None))
    assert [(one.id, len(one.devices)) for one in found] == [("GPU-1", 2), ("GPU-2", 1)]


def test_the_worst_replica_says_how_the_device_is() -> None:
    unknown = device("x::1", health="Unknown")
    (found,) = found_devices(resource(device("x::0"), unknown, sick("x::2"), replicas=3))
    assert found.worst.health == "Unhealthy"
    (found,) = found_devices(resource(device("x::0"), unknown, replicas=2))
    assert found.worst.health == "Unknown"
