"""Access from inside the cluster: https, a CA and a mounted token."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devplug.k8s.account import mounted_account
from devplug.k8s.client import NODES, connected
from devplug.k8s.errors import ClusterError
from devplug.k8s.objects import text
from devplug.sandbox.scripted_api_server import ScriptedApiServer, scripted_api_server
from devplug.sandbox.server.listener import ServingError, Tls

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
RIGHTS = "get nodes"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedApiServer]:
    tls = Tls.made_in(tmp_path / "tls")
    async with scripted_api_server("worker", lambda: None, tls=tls) as started:
        yield started


@pytest.fixture
def folder(server: ScriptedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert server.account is not None
    mounted = tmp_path / "serviceaccount"
    server.account.write(mounted)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.account.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.account.port))
    return mounted


async def node(folder: Path) -> str:
    async with connected(lambda: mounted_account(folder, RIGHTS)) as cluster:
        return text(await cluster.get(NODES, "worker"), "metadata", "name")


async def test_a_pod_reaches_the_server_with_what_is_mounted(folder: Path) -> None:
    assert await node(folder) == "worker"


async def test_the_mounted_account_is_valid_after_an_outage(server: ScriptedApiServer, folder: Path) -> None:
    await server.stop()
    await server.start()
    assert await node(folder) == "worker"


async def test_another_authority_does_not_trust_the_server(folder: Path, tmp_path: Path) -> None:
    other = Tls.made_in(tmp_path / "other")
    (folder / "ca.crt").write_bytes(other.cert_file.read_bytes())
    with pytest.raises(ClusterError, match="its certificate is not trusted"):
        await node(folder)


async def test_a_wrong_token_is_refused(folder: Path) -> None:
    (folder / "token").write_text("guessed")
    with pytest.raises(ClusterError, match="401"):
        await node(folder)


async def test_only_the_owner_reads_token_and_key(folder: Path, tmp_path: Path) -> None:
    for file in (folder / "token", tmp_path / "tls" / "apiserver.key"):
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077


def test_a_machine_without_openssl_gets_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServingError, match="No such file or directory; install openssl"):
        Tls.made_in(tmp_path / "tls")
