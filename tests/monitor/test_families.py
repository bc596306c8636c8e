"""What the exporter makes of a node's status: which samples there are, and which would say too much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.metrics.families import Sample
from devplug.monitor.families import node_families
from devplug.monitor.joining import UNKNOWN
from devplug.status.values import (
    DeviceStatus,
    Holder,
    NodeStatus,
    PodResourcesStatus,
    ResourceStatus,
    Takeover,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

HOLDER = Holder("ml", "train-0", "main")


def told(
    *resources: ResourceStatus, limit: int = 100, others_only: bool = False, answered_at: float | None = None
) -> Mapping[str, list[tuple[tuple[str, ...], float]]]:
    """The samples of each metric."""
    status = NodeStatus(
        name="n1",
        at=100.0,
        resources=resources,
        pod_resources=PodResourcesStatus(answered_at=answered_at, errors={"absent": 3}),
    )
    families = node_families(status, started_at=7.0, limit=limit, others_only=others_only)
    return {
        family.metric.name.removeprefix("devplug_"): [
            (sample.labels, sample.value) for sample in family.samples if isinstance(sample, Sample)
        ]
        for family in families
    }


def foreign(*devices: DeviceStatus) -> ResourceStatus:
    return ResourceStatus(name="v/gpu", devices=devices)


def ours(*devices: DeviceStatus, is_registered: bool = True, fault: str = "") -> ResourceStatus:
    return ResourceStatus(name="x/fpga", devices=devices, is_registered=is_registered, fault=fault, process=1)


def test_a_node_is_told_by_resource_and_by_device() -> None:
    families = told(
        ours(
            DeviceStatus(
                id="a", health=HEALTHY, since=5.0, numa_nodes=(0, 1), is_held=True, holders=(HOLDER,)
            ),
            DeviceStatus(id="b", health=UNHEALTHY, reason="unplugged", since=6.0),
        ),
        answered_at=98.0,
    )
    assert families["devices"] == [(("x/fpga", "healthy"), 1), (("x/fpga", "unhealthy"), 1)]
    assert families["devices_held"] == [(("x/fpga",), 1)]
    assert families["device_healthy"] == [(("x/fpga", "a"), 1), (("x/fpga", "b"), 0)]
    assert families["device_info"] == [(("x/fpga", "a", "0,1"), 1), (("x/fpga", "b", ""), 1)]
    assert families["device_held"] == [(("x/fpga", "a", "ml", "train-0", "main"), 1)]
    assert families["device_health_change_timestamp_seconds"] == [(("x/fpga", "a"), 5), (("x/fpga", "b"), 6)]
    assert families["podresources_age_seconds"] == [((), 2)]
    assert families["podresources_errors_total"] == [(("absent",), 3)]
    assert families["start_time_seconds"] == [((), 7)]
    assert families["exporter_processes"] == [((), 0)]
    assert "ready" not in families


def test_before_the_first_answer_there_is_no_age() -> None:
    assert told()["podresources_age_seconds"] == []


def test_a_held_device_that_the_kubelet_no_longer_gives_is_unhealthy() -> None:
    gone = DeviceStatus(id="g", health=UNKNOWN, reason="no longer among the devices", is_held=True)
    families = told(foreign(gone))
    assert families["device_healthy"] == [(("v/gpu", "g"), 0)]
    assert families["devices"] == [(("v/gpu", "healthy"), 0), (("v/gpu", "unhealthy"), 1)]


def test_of_a_device_whose_health_nobody_tells_none_is_told() -> None:
    families = told(foreign(DeviceStatus(id="g", health=UNKNOWN, is_held=True, holders=(HOLDER,))))
    assert families["device_healthy"] == []
    assert families["devices"] == []
    assert families["devices_held"] == [(("v/gpu",), 1)]
    assert families["device_held"] == [(("v/gpu", "g", "ml", "train-0", "main"), 1)]


def test_a_resource_without_devices_has_none_of_either_kind() -> None:
    assert told(ours())["devices"] == [(("x/fpga", "healthy"), 0), (("x/fpga", "unhealthy"), 0)]


def test_only_our_resources_are_registered_or_not() -> None:
    assert told(ours(), foreign())["registered"] == [(("x/fpga",), 1)]
    assert told(ours(is_registered=False, fault="no kubelet listens"))["registered"] == [(("x/fpga",), 0)]


def test_only_of_our_resources_it_is_told_whether_another_plugin_has_their_name() -> None:
    taken = replace(ours(), name="x/taken", takeover=Takeover(signs=("cut",), since=1.0, reason="another"))
    told_of = told(ours(), taken, foreign())["takeover_suspected"]
    assert told_of == [(("x/fpga",), 0), (("x/taken",), 1)]


def test_a_resource_that_waits_for_its_first_device_is_no_trouble() -> None:
    assert told(ours(is_registered=False))["registered"] == []


def test_with_others_only_our_resources_are_left_to_those_that_serve_them() -> None:
    device = DeviceStatus(id="a", health=HEALTHY)
    families = told(ours(device), foreign(device), others_only=True)
    assert families["device_healthy"] == [(("v/gpu", "a"), 1)]
    assert families["registered"] == []


def test_beyond_the_limit_only_counts_are_told() -> None:
    devices = [DeviceStatus(id=f"d{number}", health=HEALTHY) for number in range(9)]
    families = told(ours(*devices), foreign(devices[0]), limit=4)
    assert sum(len(families[name]) for name in ("device_healthy", "device_info")) == 8
    assert sum(value for _, value in families["device_series_omitted"]) == 6
    assert families["devices"][-2:] == [(("x/fpga", "healthy"), 9), (("x/fpga", "unhealthy"), 0)] or (
        (("x/fpga", "healthy"), 9) in families["devices"]
    )
    assert told(ours(*devices), limit=0)["device_info"] == []
