"""Our transport and gRPC written by others: for Go, which a kubelet has, and for Node, in JavaScript."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from bench.subjects import MissingError, built
from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, connected
from tests.wire.fakes import LIST, Plugin

NODE_PEER = Path(__file__).parent / "peer.js"
MODULES = os.environ.get("NODE_PATH") or str(Path(__file__).parents[2] / "build" / "node" / "node_modules")
HOW = "npm install --prefix build/node @grpc/grpc-js"


def environment() -> dict[str, str]:
    return os.environ | {"NODE_PATH": MODULES}


def node() -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    looked = subprocess.run(
        ["node", "-e", 'require("@grpc/grpc-js")'], env=environment(), capture_output=True, check=False
    )
    if looked.returncode:
        pytest.skip(f"there is no @grpc/grpc-js; to have it: {HOW}")
    return ["node", str(NODE_PEER)]


def go() -> list[str]:
    try:
        return [str(built())]
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=[go, node])
def program(request: pytest.FixtureRequest) -> list[str]:
    """How a peer is started, or why there is none."""
    words: list[str] = request.param()
    return words


@asynccontextmanager
async def peer(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=environment())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_calls_our_server(program: list[str], short_dir: Path) -> None:
    plugin = Plugin()
    plugin.answers.put_nowait(LIST * 10_000)
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    request = deviceplugin.ALLOCATE.request.encode([("a", "b")])
    async with peer(*program, "call", str(listener.path), request.hex()) as process:
        assert process.stdout is not None
        seen = json.loads(await process.stdout.readline())
        assert seen["error"] is None
        (response,) = deviceplugin.ALLOCATE.response.decode(bytes.fromhex(seen["answer"]))
        assert response.envs == {"IDS": "a,b"}
        assert seen["nope"] == [12, "unknown method Nope for service v1beta1.DevicePlugin"]
        assert seen["size"] == len(deviceplugin.LIST_AND_WATCH.response.encode(LIST * 10_000))
        await plugin.left.wait()
    await listener.close()


async def test_our_client_calls_it(program: list[str], short_dir: Path) -> None:
    path = short_dir / "p.sock"
    answer = deviceplugin.ALLOCATE.response.encode([ContainerResponse(envs={"A": "b"})])
    async with peer(*program, "serve", str(path), answer.hex()) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        async with connected(path, ready_within_seconds=60) as ours:
            assert (await ours.call(deviceplugin.ALLOCATE, [("a",)]))[0].envs == {"A": "b"}
            with pytest.raises(RemoteError) as caught:
                await ours.call(deviceplugin.ALLOCATE, [], timeout_seconds=60)
            assert (caught.value.status, caught.value.text) == ("NotFound", "nothing é")
            async with aclosing(ours.stream(deviceplugin.LIST_AND_WATCH, None)) as lists:
                assert await anext(lists)
