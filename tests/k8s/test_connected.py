"""Who asks an API server, and how it is reached: over TLS, by a proxy, with tokens that a plugin prints."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devplug.k8s.account import chosen_account
from devplug.k8s.client import NODES, connected
from devplug.k8s.errors import ClusterError, RefusedError
from devplug.k8s.objects import text
from tests.daemon.apiserver import api_server

NODE = "machine-7"
NAME_IN_TLS = "kubernetes.test"

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for certificates")


def written(folder: Path, server: str, user: dict[str, Any] | None = None, **cluster: object) -> str:
    """Write a kubeconfig with one context, and return its path."""
    content = {
        "clusters": [{"name": "a", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "a", "user": user or {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file = folder / "config"
    file.write_text(json.dumps(content))
    return str(file)


async def node(kubeconfig: str, name: str = NODE) -> str:
    """Return the name of a Node that was asked for."""
    async with connected(lambda: chosen_account(kubeconfig, None)) as server:
        return text(await server.get(NODES, name), "metadata", "name")


async def why_not(kubeconfig: str) -> str:
    with pytest.raises(ClusterError) as caught:
        await node(kubeconfig)
    return str(caught.value)


# ── TLS ──


def certificate(folder: Path, name: str) -> tuple[str, str]:
    """Make a certificate that is its own authority, and return it and its key in base64."""
    key, made = folder / f"{name}.key", folder / f"{name}.crt"
    extension = f"subjectAltName=DNS:{name}"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(made)]
    words = ["openssl", "req", "-x509", *kind, *files, "-subj", f"/CN={name}", "-addext", extension]
    subprocess.run(words, check=True, capture_output=True)
    return b64encode(made.read_bytes()).decode(), b64encode(key.read_bytes()).decode()


@pytest.fixture
def secured(tmp_path: Path) -> tuple[ssl.SSLContext, dict[str, Any], dict[str, Any]]:
    """TLS of a server that wants a certificate, and what a kubeconfig says of the server and of a user."""
    authority, _ = certificate(tmp_path, NAME_IN_TLS)
    mine, key = certificate(tmp_path, "me")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / f"{NAME_IN_TLS}.crt", tmp_path / f"{NAME_IN_TLS}.key")
    tls.load_verify_locations(tmp_path / "me.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.maximum_version = ssl.TLSVersion.TLSv1_2  # which refuses within the handshake
    cluster = {"certificate-authority-data": authority, "tls-server-name": NAME_IN_TLS}
    return tls, cluster, {"client-certificate-data": mine, "client-key-data": key}


@needs_openssl
async def test_a_user_is_known_by_a_certificate_and_the_server_by_the_name_that_is_said(
    tmp_path: Path, secured: tuple[ssl.SSLContext, dict[str, Any], dict[str, Any]]
) -> None:
    tls, cluster, user = secured
    async with api_server(tmp_path / "unused", tls) as server:
        server.label(NODE)
        url = f"https://127.0.0.1:{server.port}"
        assert await node(written(tmp_path, url, user, **cluster)) == NODE
        files = {"client-certificate": "me.crt", "client-key": "me.key"}
        trust = {"certificate-authority": f"{NAME_IN_TLS}.crt", "tls-server-name": NAME_IN_TLS}
        assert await node(written(tmp_path, url, files, **trust)) == NODE
        assert await node(written(tmp_path, url, user, **{"insecure-skip-tls-verify": True})) == NODE
        assert f"cannot ask the API server 127.0.0.1:{server.port}: " in await why_not(
            written(tmp_path, url, **cluster)
        )
        untrusted = f"cannot ask the API server 127.0.0.1:{server.port}: its certificate is not trusted"
        assert untrusted in await why_not(
            written(tmp_path, url, user, **trust | {"tls-server-name": "a.test"})
        )
        assert untrusted in await why_not(
            written(tmp_path, url, user, **trust | {"certificate-authority": "me.crt"})
        )


@needs_openssl
async def test_a_proxy_that_the_kubeconfig_names_leads_to_a_server_that_only_it_reaches(
    tmp_path: Path, secured: tuple[ssl.SSLContext, dict[str, Any], dict[str, Any]]
) -> None:
    tls, cluster, user = secured
    async with api_server(tmp_path / "unused", tls) as server, proxying(server.port) as (heads, proxy):
        server.label(NODE)
        through = {**cluster, "proxy-url": f"http://me:w%20rd@127.0.0.1:{proxy}"}
        assert await node(written(tmp_path, "https://api.test:6443", user, **through)) == NODE
        (head,) = heads
        assert head.startswith(b"CONNECT api.test:6443 HTTP/1.1\r\nHost: api.test:6443\r\n")
        assert b"Proxy-Authorization: Basic " + b64encode(b"me:w rd") in head
        said = await why_not(written(tmp_path, "https://forbidden.test", user, **through))
        assert f"the proxy 127.0.0.1:{proxy} answers 403 Forbidden" in said


@asynccontextmanager
async def proxying(port: int) -> AsyncIterator[tuple[list[bytes], int]]:
    """A proxy whose connections all lead to this port; the heads that it got, and its own port."""
    heads: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if b"forbidden" in heads[-1]:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as both:
            both.create_task(pump(reader, outer))
            both.create_task(pump(inner, writer))

    async with asyncio.TaskGroup() as tasks:

        def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.create_task(serve(reader, writer))

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        try:
            yield heads, server.sockets[0].getsockname()[1]
        finally:
            server.close()


# ── credentials ──

PLUGIN = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" > {folder}/info
echo x >> {folder}/runs
token=$NAME-$(wc -l < {folder}/runs)-$1
echo "{{\\"kind\\": \\"ExecCredential\\", \\"status\\": {{\\"token\\": \\"$token\\"}}}}"
"""


def plugin(folder: Path, content: str = PLUGIN, version: str = "v1") -> dict[str, Any]:
    file = folder / "plugin"
    file.write_text(content.format(folder=folder))
    file.chmod(0o755)
    env = [{"name": "NAME", "value": "mine"}]
    api = f"client.authentication.k8s.io/{version}"
    return {"exec": {"apiVersion": api, "command": "./plugin", "args": ["word"], "env": env}}


async def test_a_plugin_prints_the_token_for_as_long_as_the_server_takes_it(tmp_path: Path) -> None:
    async with api_server(tmp_path / "unused") as server:
        server.label(NODE)
        config = written(tmp_path, f"http://127.0.0.1:{server.port}", plugin(tmp_path))
        async with connected(lambda: chosen_account(config, None)) as asking:
            for _ in range(2):
                await asking.get(NODES, NODE)
            server.refusals["get"] = (401, "")
            with pytest.raises(RefusedError):
                await asking.get(NODES, NODE)
        used = [request.authorization for request in server.requests]
    assert used == [f"Bearer mine-{number}-word" for number in (1, 1, 1, 2)]
    info = json.loads((tmp_path / "info").read_text())
    assert info == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("#!/bin/sh\necho sign in first >&2; exit 3\n", "plugin ended with 3: sign in first"),
        ("#!/bin/sh\necho no JSON\n", "plugin printed no token"),
        ("#!/nowhere\n", "cannot run the credential plugin"),
    ],
)
async def test_a_plugin_that_gives_no_token_is_named(tmp_path: Path, content: str, said: str) -> None:
    config = written(tmp_path, "http://127.0.0.1:1", plugin(tmp_path, content))
    assert said in await why_not(config)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, ""),
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "tokenFile": "file"}, "Bearer of-the-file"),
        ({"username": "me", "password": "word"}, f"Basic {b64encode(b'me:word').decode()}"),
    ],
)
async def test_a_user_is_known_by_what_the_kubeconfig_says(
    tmp_path: Path, user: dict[str, Any], expected: str
) -> None:
    (tmp_path / "file").write_text("of-the-file\n")
    async with api_server(tmp_path / "unused") as server:
        server.label(NODE)
        await node(written(tmp_path, f"http://127.0.0.1:{server.port}", user))
        assert [request.authorization for request in server.requests] == [expected]


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"server": "10.0.0.1:6443"}, "its server is no URL as in https://10.0.0.1:6443"),
        ({"server": "http://a.test:port"}, "cannot use the account of the cluster of context a"),
        ({"server": "http://a.test", "proxy-url": "socks5://b.test"}, "its proxy is not one of HTTP"),
        ({"server": "https://a.test", "certificate-authority": "/nowhere"}, "No such file or directory"),
        ({"server": "https://a.test", "certificate-authority-data": "#"}, "cannot use the account"),
    ],
)
async def test_what_a_kubeconfig_says_wrongly_of_a_server_is_told(
    tmp_path: Path, cluster: dict[str, Any], said: str
) -> None:
    assert said in await why_not(written(tmp_path, **cluster))


# ── requests ──


async def test_a_name_is_no_path(tmp_path: Path) -> None:
    async with api_server(tmp_path / "config") as server:
        with pytest.raises(ClusterError):
            await node(str(tmp_path / "config"), "../secrets?a=b")
        (request,) = server.requests
    assert (request.path, request.query) == ("/api/v1/nodes/..%2Fsecrets%3Fa%3Db", {})


async def test_a_watch_goes_on_from_the_last_change_it_has_told(tmp_path: Path) -> None:
    async with (
        api_server(tmp_path / "config") as server,
        connected(lambda: chosen_account(str(tmp_path / "config"), None)) as asking,
    ):
        server.label(NODE)
        fields = {"metadata.name": NODE}
        async with aclosing(asking.watch(NODES, seconds=60, fields=fields)) as changes:
            assert (await anext(changes))[0] == "ADDED"
            version = text(server.nodes[NODE], "metadata", "resourceVersion")
            server.end_watches()
            async with asyncio.TaskGroup() as group:
                change = group.create_task(anext(changes))
                await server.wait(lambda: len(server.requests) == 2 and server.watches)
                server.label(NODE, a="b")
            assert (await change)[0] == "MODIFIED"
        assert [request.query.get("resourceVersion") for request in server.requests] == [None, version]
