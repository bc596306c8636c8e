"""The status of a plugin whose devices pods get by claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug import Device, Health, serve
from devplug.plugin.serving import Serving
from devplug.status import DeviceStatus
from tests.plugin.fakes import Listed
from tests.waiting import until

DEVICES = (
    Device("well"),
    Device("sick", health=Health.unhealthy("worn out")),
    Device("unsure", health=Health.unknown("nobody says")),
)


class Three(Listed):
    async def devices(self) -> list[Device]:
        return list(DEVICES)


async def told(serving: Serving) -> dict[str, DeviceStatus]:
    await until(lambda: serving.statuses()[0].devices)
    (status,) = serving.statuses()
    return {device.id: device for device in status.devices}


@pytest.mark.parametrize(("evicts", "effect"), [(False, "NoSchedule"), (True, "NoExecute")])
async def test_a_device_that_is_unhealthy_has_the_effect_of_its_taint(
    short_dir: Path, *, evicts: bool, effect: str
) -> None:
    async with serve(plugin_dir=short_dir / "device-plugins") as serving:
        serving.add(Three(), dra="devices.example.com", evicts=evicts)
        taints = {name: device.taint for name, device in (await told(serving)).items()}
        assert taints == {"well": "", "sick": effect, "unsure": ""}
        (driver,) = serving.drivers.statuses()
        assert (driver.name, driver.is_registered, driver.slices) == ("devices.example.com", False, 0)
        assert driver.fault


async def test_a_device_plugins_devices_have_neither_driver_nor_taint(short_dir: Path) -> None:
    async with serve(Three(), plugin_dir=short_dir / "device-plugins") as serving:
        assert [one.taint for one in (await told(serving)).values()] == ["", "", ""]
        assert serving.statuses()[0].driver == ""
        assert serving.drivers.statuses() == ()
