"""What the API server knows, asked over real sockets: labels and their changes, trouble, lists."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.cluster import label_changes
from devplug.k8s.account import mounted_account
from devplug.k8s.client import DEVICE_CLASSES, Retries, connected
from devplug.k8s.errors import ClusterError
from tests.daemon.apiserver import ApiServer, api_server, refusal
from tests.waiting import until

NODE = "machine-7"
SOON = Retries(first_seconds=0.001, most_seconds=0.01)
UNUSED = ("devplug.daemon.cluster", "devplug.daemon.placement", "devplug.daemon.daemon", "devplug.cli")


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    service = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    for name in ("KUBECONFIG", *service, "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a kubeconfig, once there is a server; no ServiceAccount is in it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return tmp_path


@asynccontextmanager
async def watching(
    folder: Path, watch_seconds: float = 300, retries: Retries = SOON
) -> AsyncIterator[tuple[ApiServer, AsyncGenerator[Mapping[str, str]]]]:
    """An API server with one Node, and what its labels are said to be."""
    async with (
        api_server(folder / "kubeconfig") as server,
        aclosing(
            label_changes(NODE, account=folder, retries=retries, watch_seconds=watch_seconds)
        ) as changes,
    ):
        server.label(NODE, gpu="on")
        yield server, changes


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, getattr(record, "reason", record.getMessage()))
        for record in caplog.records
        if record.name == "devplug.daemon.cluster"
    ]


async def test_the_labels_are_told_first_and_then_at_each_change(folder: Path) -> None:
    async with watching(folder) as (server, changes):
        assert await anext(changes) == {"gpu": "on"}
        async with asyncio.TaskGroup() as group:
            change = group.create_task(_next(changes))
            await server.wait(lambda: server.watches)
            server.label("another-machine", gpu="broken")
            server.label(NODE, gpu="on")
            server.label(NODE, gpu="off", zone="b")
            assert await change == {"gpu": "off", "zone": "b"}
        server.label(NODE)
        assert await anext(changes) == {}


async def _next(changes: AsyncGenerator[Mapping[str, str]]) -> Mapping[str, str]:
    return await anext(changes)


async def test_one_watch_is_asked_for_and_only_for_this_machine(folder: Path) -> None:
    async with watching(folder) as (server, changes):
        await anext(changes)
        await after(server, changes, lambda: server.watches, lambda: server.label(NODE, a="b"))
        assert [request.path for request in server.requests] == [f"/api/v1/nodes/{NODE}", "/api/v1/nodes"]
        assert server.requests[1].query["fieldSelector"] == f"metadata.name={NODE}"
        assert int(server.requests[1].query["timeoutSeconds"]) > 0
        assert {request.authorization for request in server.requests} == {"Bearer from-kubeconfig"}


async def after(
    server: ApiServer,
    changes: AsyncGenerator[Mapping[str, str]],
    claim: Callable[[], object],
    do: Callable[[], None],
) -> Mapping[str, str]:
    """Return the next labels, for which something is done once something is so."""
    async with asyncio.TaskGroup() as group:
        change = group.create_task(_next(changes))
        await server.wait(claim)
        do()
        return await change


async def test_a_watch_that_the_server_ends_goes_on(folder: Path) -> None:
    async with watching(folder) as (server, changes):
        await anext(changes)
        await after(server, changes, lambda: server.watches, lambda: server.label(NODE, n="1"))
        server.end_watches()
        await server.wait(lambda: not server.watches)
        assert await after(server, changes, lambda: server.watches, lambda: server.label(NODE, n="2")) == {
            "n": "2"
        }


async def test_a_watch_of_which_nothing_is_heard_is_begun_anew(folder: Path) -> None:
    async with watching(folder, watch_seconds=0.02) as (server, changes):
        await anext(changes)

        def lost() -> None:
            # As over a dead connection: the change is not told to the open watches.
            server.nodes[NODE]["metadata"]["labels"] = {"n": "unheard"}

        assert await after(server, changes, lambda: server.watches, lost) == {"n": "unheard"}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}},
        {"type": "MODIFIED", "object": "nonsense"},
    ],
    ids=["gone", "nonsense"],
)
async def test_a_watch_that_ends_with_an_error_is_begun_anew(folder: Path, event: dict[str, Any]) -> None:
    async with watching(folder) as (server, changes):
        await anext(changes)

        def broken() -> None:
            server.end_watches(event)
            server.nodes[NODE]["metadata"]["labels"] = {"n": "2"}

        assert await after(server, changes, lambda: server.watches, broken) == {"n": "2"}


async def test_while_the_server_is_in_trouble_the_last_labels_stand_and_it_is_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with watching(folder) as (server, changes):
        await anext(changes)

        def trouble() -> None:
            server.refusals["get"] = (503, "<h1>overloaded</h1>")
            server.end_watches({"type": "ERROR", "object": {"code": 500, "message": "etcd"}})

        async with asyncio.TaskGroup() as group:
            change = group.create_task(_next(changes))
            await server.wait(lambda: server.watches)
            trouble()
            seen = len(server.requests)
            await server.wait(lambda: len(server.requests) > seen + 3)
            assert not change.done()
            del server.refusals["get"]
            server.label(NODE, n="after")
            assert await change == {"n": "after"}
        await after(server, changes, lambda: server.watches, lambda: server.label(NODE, n="last"))
    levels = [level for level, _ in said(caplog)]
    assert levels == ["WARNING", "WARNING", "INFO"], said(caplog)
    assert "503" in said(caplog)[1][1]
    assert said(caplog)[2][1] == "the labels of this Node are read again"


async def test_a_watch_that_is_forbidden_leaves_the_labels_as_they_are_asked_for(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(folder) as (server, changes):
        server.refusals["watch"] = refusal(403, "cannot watch nodes")
        await anext(changes)
        await after(server, changes, lambda: len(server.requests) > 3, lambda: server.label(NODE, n="2"))
    ((level, reason),) = said(caplog)
    assert level == "WARNING"
    assert "let the ServiceAccount get, list and watch nodes" in reason


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (401, "let the ServiceAccount get, list and watch nodes"),
        (403, "let the ServiceAccount get, list and watch nodes"),
        (404, 'the cluster has no Node "machine-7"; set NODE_NAME from the pod\'s spec.nodeName'),
        (500, "gave no usable answer"),
    ],
)
async def test_what_is_wrong_at_start_is_one_error_with_what_to_do_until_it_is_mended(
    folder: Path, caplog: pytest.LogCaptureFixture, code: int, advice: str
) -> None:
    async with watching(folder) as (server, changes):
        server.refusals["get"] = refusal(code, "no")
        labels = await after(server, changes, lambda: len(server.requests) > 3, server.refusals.clear)
        assert labels == {"gpu": "on"}
    ((level, reason),) = said(caplog)
    assert level == "ERROR"
    assert advice in reason


async def test_a_node_that_is_deleted_and_made_again_is_followed_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(folder) as (server, changes):
        await anext(changes)
        async with asyncio.TaskGroup() as group:
            change = group.create_task(_next(changes))
            await server.wait(lambda: server.watches)
            server.delete(NODE)
            seen = len(server.requests)
            await server.wait(lambda: len(server.requests) > seen + 2)
            server.label(NODE, made="again")
            assert await change == {"made": "again"}
    assert 'the Node "machine-7" was deleted' in said(caplog)[0][1]


async def test_nobody_at_the_address_is_asked_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with api_server(folder / "kubeconfig") as server:
        pass
    where = f"the API server 127.0.0.1:{server.port}"
    async with (
        aclosing(label_changes(NODE, account=folder, retries=SOON)) as changes,
        asyncio.TaskGroup() as group,
    ):
        change = group.create_task(_next(changes))
        await until(lambda: said(caplog))
        async with api_server(folder / "kubeconfig") as server:
            server.label(NODE, a="b")
            assert await change == {"a": "b"}
    ((level, reason),) = said(caplog)
    assert level == "ERROR"
    assert reason == f"cannot ask {where}: nothing listens there; the program that should is not running"


async def test_without_any_account_the_error_says_what_to_mount(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        aclosing(label_changes(NODE, account=tmp_path, retries=SOON)) as changes,
        asyncio.TaskGroup() as group,
    ):
        change = group.create_task(_next(changes))
        await until(lambda: said(caplog))
        change.cancel()
    ((level, reason),) = said(caplog)
    assert level == "ERROR"
    assert reason == (
        "no ServiceAccount is mounted and KUBECONFIG is not set; give the pod a ServiceAccount that may get, "
        "list and watch nodes"
    )
    assert "are served once they can be read" in caplog.text


@pytest.mark.parametrize(
    "content", ["{", "clusters: []", "- a", None], ids=["cut", "empty", "list", "absent"]
)
async def test_a_broken_kubeconfig_is_an_error_that_names_it(folder: Path, content: str | None) -> None:
    if content is not None:
        (folder / "kubeconfig").write_text(content)
    with pytest.raises(ClusterError, match=f"cannot use the account in {folder}/kubeconfig: .*; mend"):
        await listed(folder)


def test_nothing_of_it_is_imported_before_somebody_asks() -> None:
    imports = "; ".join(f"import {name}" for name in UNUSED)
    check = "import sys; print([name for name in ('h11', '_ssl') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['ssl'] = None; {imports}; {check}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"


async def test_its_requests_are_not_logged_one_by_one(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with watching(folder) as (_, changes):
        await anext(changes)
    assert caplog.records == []


# ── the pod's own account, over TLS ──


def _certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    made = f"-keyout {folder}/key -out {folder}/ca.crt -days 2 -subj /CN=stand-in"
    extensions = "-addext subjectAltName=IP:127.0.0.1 -addext keyUsage=critical,digitalSignature,keyCertSign"
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes {made} {extensions}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return folder / "ca.crt"


def _has_openssl() -> bool:
    try:
        return subprocess.run(["openssl", "version"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _has_openssl(), reason="needs openssl for a certificate")
async def test_the_pods_account_is_used_before_any_kubeconfig_and_its_token_is_read_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(_certificate(folder), folder / "key")
    (folder / "namespace").write_text("default")
    (folder / "token").write_text("first")
    async with api_server(folder / "kubeconfig", tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.label(NODE, a="b")
        async with aclosing(label_changes(NODE, account=folder, retries=SOON, watch_seconds=0.02)) as changes:
            assert await anext(changes) == {"a": "b"}

            def renewed() -> None:
                (folder / "token").write_text("second")
                server.nodes[NODE]["metadata"]["labels"] = {"a": "c"}

            assert await after(server, changes, lambda: server.watches, renewed) == {"a": "c"}
            assert server.requests[0].authorization == "Bearer first"
            assert server.requests[-1].authorization == "Bearer second"


# ── lists ──


async def listed(folder: Path) -> list[str]:
    """Return the names of all DeviceClasses."""
    async with connected(lambda: mounted_account(folder, "list deviceclasses")) as server:
        found: Any = await server.list(DEVICE_CLASSES, rights="list deviceclasses")
        return [one["metadata"]["name"] for one in found]


async def test_a_long_list_is_read_page_by_page(folder: Path) -> None:
    async with api_server(folder / "kubeconfig") as server:
        server.classes["v1"] = [None] * 1100
        assert await listed(folder) == [f"c{number}" for number in range(1100)]
        assert len(server.requests) == 3


async def test_objects_that_may_not_be_listed_are_an_error_with_what_to_do(folder: Path) -> None:
    async with api_server(folder / "kubeconfig") as server:
        server.refusals["list"] = refusal(403, "forbidden")
        with pytest.raises(ClusterError, match="let the ServiceAccount list deviceclasses"):
            await listed(folder)


def test_waits_grow_to_their_limit_and_are_never_all_alike() -> None:
    retries = Retries(1, 60)
    assert 0.5 <= retries.wait_seconds(1) <= 1
    assert 4 <= retries.wait_seconds(4) <= 8
    assert all(30 <= retries.wait_seconds(failures) <= 60 for failures in (7, 100, 10_000))
    assert len({retries.wait_seconds(3) for _ in range(10)}) > 1
