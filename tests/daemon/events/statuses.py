"""Statuses of a daemon as values, in a few words."""

from __future__ import annotations

from devplug.status import ConfigStatus, DeviceStatus, Holder, ProcessStatus, ResourceStatus

A = "example.com/a"


def device(device_id: str, reason: str = "", *pods: str) -> DeviceStatus:
    """A device, Unhealthy if there is a reason; held by these pods of the namespace `default`."""
    return DeviceStatus(
        id=device_id,
        health="Unhealthy" if reason else "Healthy",
        reason=reason,
        is_held=bool(pods),
        holders=tuple(Holder("default", name, "main") for name in pods),
    )


def resource(
    *devices: DeviceStatus, name: str = A, fault: str = "", is_retired: bool = False
) -> ResourceStatus:
    """A resource that a kubelet has accepted, unless there is a fault."""
    return ResourceStatus(
        name=name, devices=devices, is_registered=not fault, fault=fault, is_retired=is_retired
    )


def config(applied_at: float = 1.0, *problems: str) -> ConfigStatus:
    """What became of the file."""
    return ConfigStatus(file="devplug.yaml", applied_at=applied_at, problems=problems)


def status(*resources: ResourceStatus, file: ConfigStatus | None = None) -> ProcessStatus:
    """A daemon with these resources."""
    return ProcessStatus(
        process=1, version="1", python="3", started_at=0, resources=resources, config=file or config()
    )
