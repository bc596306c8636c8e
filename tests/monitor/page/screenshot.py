"""The picture of the documentation, of a made-up node with an hour behind it.

`python -m tests.monitor.page.screenshot [FILE]`
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import devplug
from devplug.status import ConfigStatus, DeviceStatus, Holder, NodeStatus, ProcessStatus
from tests.browser import browser
from tests.monitor.page.madeup import made_up
from tests.monitor.page.nodes import Source, device, held, node, resource, sick

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "ui.png"

METER = Holder("lab", "meter-0", "reader")
SOLVER = Holder("lab", "solver-x2x8z", "main")
LIMIT_BYTES = 150_000

_FTDI = "usb-FTDI_FT232R_USB_UART_A6008isP"
_CP2102 = "usb-Silicon_Labs_CP2102_0001"


def hour(now: float) -> list[NodeStatus]:
    """How the node was at some moments of the last hour."""
    begin = now - 3500

    def at(minutes_ago: float, ftdi: DeviceStatus, fpga: DeviceStatus, *more: DeviceStatus) -> NodeStatus:
        fpgas = [
            held("fpga-0", SOLVER, numa_nodes=(0,), since=begin),
            replace(fpga, id="fpga-1", numa_nodes=(0,)),
            held("fpga-2", SOLVER, numa_nodes=(1,), since=begin),
            device("fpga-3", numa_nodes=(1,), since=begin),
        ]
        runners = [Holder("ci", f"runner-{n}", "vm") for n in range(4)]
        kvm = [
            device(f"kvm::{n}", since=begin, is_held=n < 4, holders=(runners[n],) if n < 4 else ())
            for n in range(10)
        ]
        since: dict[str, Any] = {"is_registered": True, "registered_at": begin}
        config = ConfigStatus(file="/etc/devplug/config.yaml", applied_at=begin)
        return node(
            resource(*fpgas, name="example.com/fpga", **since),
            resource(*kvm, name="example.com/kvm", replicas=10, **since),
            resource(ftdi, *more, name="example.com/serial", **since),
            at=now - minutes_ago * 60,
            processes=(
                ProcessStatus(
                    process=4711, version=devplug.__version__, python="3.12", started_at=begin, config=config
                ),
            ),
        )

    well = held(_FTDI, METER, since=begin)
    cp2102 = device(_CP2102, since=now - 19 * 60)
    spare = device("fpga-1", since=begin)
    hot = sick("fpga-1", "self-test: 91 °C, limit 85", since=now - 40 * 60)
    cool = device("fpga-1", since=now - 31 * 60)
    unplugged = sick(_FTDI, "unplugged", is_held=True, holders=(METER,), since=now - 130)
    return [
        at(58, well, spare),
        at(40, well, hot),
        at(31, well, cool),
        at(19, well, cool, cp2102),
        at(2.1, unplugged, cool, cp2102),
        at(0, unplugged, cool, cp2102),
    ]


def take(file: Path, *, width: int = 1180, height: int = 800, is_dark: bool = False) -> None:
    first, *rest = hour(time.time())
    source = Source(first)
    with made_up(source) as (url, change), browser() as page:
        page.look(width=width, height=height, is_dark=is_dark)
        page.open(url)
        drawn = "document.getElementById('boards').dataset.drawn"
        page.wait(drawn)
        for status in rest:
            before = page.value(drawn)
            change(partial(source.be, status))
            page.wait(f"{drawn} !== '{before}'")
        page.wait("document.querySelector('.tile.unhealthy')")
        page.picture(file)
    size = file.stat().st_size
    assert size < LIMIT_BYTES, f"{file} has {size} bytes"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    take(Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
