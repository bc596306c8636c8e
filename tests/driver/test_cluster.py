"""Our driver reads claims of the sandbox's API server, over HTTP, as it would those of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from devplug.devices import Device
from devplug.driver.node_driver import ClusterClaims, KubeletSockets
from devplug.driver.offer import OfferedDevice
from devplug.k8s.account import chosen_account
from devplug.sandbox.registry import RESOURCE_CLAIMS
from devplug.wire import sockets
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName, PreparedClaim
from tests.driver.world import DRIVER, NODE, SERIAL, Node, decode, serving
from tests.sandbox.server.beds import Server, served
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


def allocate(server: Server) -> ClaimName:
    """Make a claim that is allocated, and reserved for a pod."""
    request = {"name": "r", "exactly": {"deviceClassName": "serial"}}
    claim: dict[str, Any] = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    result = {"request": "r", "driver": DRIVER, "pool": NODE, "device": "a"}
    status: dict[str, object] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
    }

    def make() -> ClaimName:
        made: Any = server.registry.create(RESOURCE_CLAIMS, "default", claim)
        server.registry.set_status(RESOURCE_CLAIMS, "default", "c", status)
        return ClaimName("default", made["metadata"]["uid"], "c")

    return server.do(make)


async def test_a_claim_of_the_cluster_is_prepared_until_it_is_gone(
    server: Server, short_dir: Path, tmp_path: Path
) -> None:
    """D16: the driver reads the claim itself."""
    file = tmp_path / "kubeconfig"
    file.write_text(server.kubeconfig)
    node = Node(short_dir)
    claim = allocate(server)

    def driver() -> KubeletSockets:
        made = KubeletSockets(
            DRIVER,
            NODE,
            {SERIAL: node.resource},
            claims,
            decode,
            kubelet_root=node.root,
            cdi_folder=node.cdi,
        )
        made.offer.replace({"a": OfferedDevice(SERIAL, Device("a"))})
        return made

    claims = ClusterClaims(lambda: chosen_account(str(file), None))
    async with AsyncExitStack() as stack, serving(driver()):
        stack.push_async_callback(claims.close)
        await until(node.registration_socket().exists)
        async with sockets.connected(node.socket()) as peer:

            async def prepared() -> PreparedClaim:
                return (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid]

            assert [one.device_name for one in (await prepared()).devices] == ["a"]
            assert await prepared() == await prepared()
            server.do(lambda: server.registry.delete(RESOURCE_CLAIMS, "default", "c"))
            assert "does not exist any more; delete the pod" in (await prepared()).error
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
    assert node.resource.released == ["a"]
