"""Which transport is chosen, where, and what is loaded for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from devplug.wire.transport import GRPCIO, OWN, chosen, client_transport, server_transport


def said(program: str, **environment: str) -> str:
    others = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, env=others | environment
    )
    return done.stdout.decode().strip()


def test_our_own_transport_is_the_usual_one() -> None:
    assert (server_transport(), client_transport()) == (OWN, OWN)


def test_another_is_chosen_for_a_block() -> None:
    with chosen(server=GRPCIO, client=OWN):
        assert (server_transport(), client_transport()) == (GRPCIO, OWN)
    assert (server_transport(), client_transport()) == (OWN, OWN)


@pytest.mark.parametrize(("before", "after"), [({}, "ERROR"), ({"GRPC_VERBOSITY": "DEBUG"}, "DEBUG")])
def test_grpcio_is_quiet_unless_somebody_wants_to_hear_it(before: dict[str, str], after: str) -> None:
    program = "import os, devplug.wire.grpcio; print(os.environ['GRPC_VERBOSITY'])"
    assert said(program, **before) == after


HEAVY = ("grpc", "google", "ssl")

SERVED = """
import sys
sys.modules["ssl"] = None  # as the command does: nothing here needs it
import asyncio, tempfile, pathlib
import devplug
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected

class Plugin(devplug.DevicePlugin):
    resource_name = "example.com/a"

    def devices(self):
        return [devplug.Device("a")]

async def main():
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder:
        async with devplug.serve(Plugin(), plugin_dir=folder, registration="socket"):
            while not (found := list(pathlib.Path(folder).glob("devplug-*.sock"))):
                await asyncio.sleep(0)
            async with connected(found[0], ready_within_seconds=30) as peer:
                await peer.call(deviceplugin.ALLOCATE, [("a",)])

asyncio.run(main())
del sys.modules["ssl"]
"""


@pytest.mark.parametrize("program", ["import sys, devplug, devplug.wire.sockets", SERVED])
def test_a_plugin_loads_no_other_transport(program: str) -> None:
    loaded = said(f"{program}\nprint(*{{name.partition('.')[0] for name in sys.modules}})").split()
    assert "devplug" in loaded
    assert not set(HEAVY[:2]) & set(loaded)
    assert program is not SERVED or "ssl" not in loaded
