"""The real kubelet's calls, as they were recorded, get the answers that it accepted, from our driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from devplug.devices import Device
from devplug.driver.node_driver import KubeletSockets
from devplug.driver.offer import OfferedDevice
from devplug.wire.deviceplugin import Method
from devplug.wire.dra import PREPARE, UNPREPARE
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import connected
from tests.driver.world import NODE, SERIAL, Node, refusal, serving
from tests.golden.player import records
from tests.virtualtime import on_virtual_time
from tests.waiting import until

DATA = Path(__file__).parent.parent / "golden" / "data" / "dra"
TIMELINES = ("prepare", "prepare_errors", "unprepare_errors", "kubelet_restart", "rolling_update", "v1beta1")
ROOT = "/var/lib/kubelet"
SERVED: tuple[Method[Any, Any], ...] = (
    GET_INFO,
    NOTIFY_REGISTRATION_STATUS,
    *PREPARE.values(),
    *UNPREPARE.values(),
)
METHODS = {method.path: method for method in SERVED}
DEVICES = tuple(f"{kind}-{number}" for kind in ("dev", "gpu") for number in range(4))

Json = Any


anyio_backend = on_virtual_time


def reply_of(lines: list[Json], number: int) -> Json:
    """The reply to the call in a line; None for a call that the recorded driver let fail."""
    call = lines[number]
    for line in lines[number + 1 :]:
        if call["call"] in {line.get("reply"), line.get("fail")} and line["driver"] == call["driver"]:
            return line if "reply" in line else None
    raise LookupError(call)


class RecordedKubelet:
    """The kubelet of a timeline: it calls our drivers, which come and go as the recorded ones did."""

    def __init__(self, lines: list[Json], root: Path) -> None:
        self.lines = lines
        self.node = Node(root)
        self.drivers: dict[tuple[str, str], AsyncExitStack] = {}
        self.compared = 0

    async def play(self) -> None:
        for number, line in enumerate(self.lines):
            key = line.get("driver", ""), line.get("instance", "")
            if line.get("note") == "registration socket created":
                await self._start(*key)
            elif line.get("note") == "stopped" and key in self.drivers:
                await self.drivers.pop(key).aclose()
            elif "call" in line and key in self.drivers and line["call"] in METHODS:
                await self._call(line, reply_of(self.lines, number))

    async def _start(self, name: str, instance: str) -> None:
        driver = KubeletSockets(
            name,
            NODE,
            {self.node.resource.resource_name: self.node.resource},
            self.node.claims,
            lambda _: pytest.fail("there are no parameters"),
            kubelet_root=self.node.root,
            host_root=Path(ROOT),
            cdi_folder=self.node.cdi,
            pod_uid=instance,
            boot="boot",
        )
        driver.offer.replace({one: OfferedDevice(SERIAL, Device(one)) for one in DEVICES})
        self.drivers[name, instance] = AsyncExitStack()
        await self.drivers[name, instance].enter_async_context(serving(driver))
        await until(self._socket(name, instance, "registration").exists)

    def _socket(self, name: str, instance: str, call: str) -> Path:
        suffix = f"-{instance}" if instance else ""
        if "registration" in call:
            return self.node.root / "plugins_registry" / f"{name}{suffix}-reg.sock"
        return self.node.root / "plugins" / name / f"dra{suffix}.sock"

    async def _call(self, line: Json, reply: Json) -> None:
        method = METHODS[line["call"]]
        request = method.request.decode(bytes.fromhex(line["request_hex"]))
        want: Json = None if reply is None else method.response.decode(bytes.fromhex(reply["response_hex"]))
        if method.name == "NodePrepareResources":
            self._allocate(line, want or {})
        if method.name == "NodeUnprepareResources":
            self.node.resource.release_errors += [refusal(text) for text in (want or {}).values() if text]
        async with connected(self._socket(line["driver"], line.get("instance", ""), line["call"])) as peer:
            got = await peer.call(method, request)
        if method.name.startswith("Node") and not self._is_meant(request, want):
            assert got.keys() == {claim.uid for claim in request}
            assert not any(getattr(answer, "error", answer) for answer in got.values())
        elif method is GET_INFO and want.supported_versions != got.supported_versions:
            assert (got.type, got.name, got.endpoint) == (want.type, want.name, want.endpoint)
        else:
            self.compared += 1
            assert got == want

    def _is_meant(self, request: Json, want: Json) -> bool:
        """Whether a well-behaved driver could give the recorded answer."""
        return (
            want is not None
            and want.keys() == {claim.uid for claim in request}
            and all(
                isinstance(one, str) or one.error or (one.devices and one.devices[0].pool_name == NODE)
                for one in want.values()
            )
        )

    def _allocate(self, line: Json, want: Mapping[str, Any]) -> None:
        """Have the claims of a call allocated as its answer shows, and refused where it shows that."""
        for claim in line["request"]["claims"]:
            answer = want.get(claim["uid"])
            devices = [one for one in answer.devices if one.pool_name == NODE] if answer else []
            results = [
                {
                    "request": one.request_names[0],
                    "driver": line["driver"],
                    "pool": NODE,
                    "device": one.device_name,
                }
                for one in devices
            ] or [{"request": "gpu", "driver": line["driver"], "pool": NODE, "device": "dev-0"}]
            if answer and answer.error:
                self.node.resource.prepare_errors.append(refusal(answer.error))
            taken = {one["device"] for one in results}
            for other in self.node.claims.objects.values():
                held = other["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]
                if taken & {one["device"] for one in held}:
                    other["status"] = {}  # its pod was gone
            self.node.claims.objects[claim["namespace"], claim["name"]] = {
                "metadata": {key: claim[key] for key in ("namespace", "name", "uid")},
                "status": {
                    "allocation": {"devices": {"results": results}},
                    "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
                },
            }


@pytest.mark.parametrize("name", TIMELINES)
async def test_the_recorded_calls_get_the_answers_that_the_kubelet_accepted(
    name: str, short_dir: Path
) -> None:
    """D04, D15, D19, D22, D24, D27, D28: also after errors, restarts, force deletion and an update."""
    lines = list(records(DATA / f"{name}.jsonl.xz"))
    kubelet = RecordedKubelet(lines, short_dir)
    async with asyncio.timeout(1000):
        await kubelet.play()
    assert kubelet.compared >= 3
    assert kubelet.node.cdi_names() == []
    assert not kubelet.drivers
