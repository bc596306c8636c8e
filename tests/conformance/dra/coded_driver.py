"""A script of devplug's SDK that is served by claims, as authors write it: the judge's subject."""

from __future__ import annotations

from devplug import Device, DevicePlugin, Health, run


class Coded(DevicePlugin):
    """Four devices, and one that is broken."""

    resource_name = "example.com/coded"

    def devices(self) -> list[Device]:
        right = [
            Device(name, device_nodes=["/dev/null"], attributes={"number": number})
            for number, name in enumerate("abcd")
        ]
        return [*right, Device("broken", health=Health.unhealthy("it does not answer"))]


if __name__ == "__main__":
    run(Coded(), dra="coded.example.com")
