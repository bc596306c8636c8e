"""What is asked of an API server, over a real socket, and what is said where it refuses a part or all."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

from devplug.cli.kubectl import devices
from devplug.cli.why import why
from devplug.k8s.account import chosen_account
from devplug.k8s.client import EVENTS, NODES, ApiServer, connected
from devplug.k8s.errors import ClusterError, NotThereError, RefusedError
from devplug.k8s.objects import text
from devplug.monitor.cluster_reader import cluster_lists, evidence_on
from tests.cli.programs import run
from tests.monitor.why.claims import CLASS, asking, claim, gpus, holding, slice_on
from tests.monitor.why.pods import node

T = TypeVar("T")
PREFIX = "/secret-7f3a"
PODS_OF = "/api/v1/namespaces/default/pods"
_CLAIMS = "/apis/resource.k8s.io/v1"
CLAIMS_OF_ALL, SLICES_OF = f"{_CLAIMS}/resourceclaims", f"{_CLAIMS}/resourceslices"
CLAIMS_OF = f"{_CLAIMS}/namespaces/default/resourceclaims"
EVENTS_OF = "/api/v1/namespaces/default/events"
POD = {
    "metadata": {"name": "mine", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "c"}], "nodeName": "worker-0"},
    "status": {"phase": "Running", "aFieldOfTomorrow": 1},
}


@dataclass
class Cluster:
    """An API server that answers what it is told to, as long as the block of `cluster` lasts."""

    answers: dict[str, tuple[int, object]] = field(default_factory=dict)
    """Status and body by path; what has no answer is forbidden."""
    seen: list[tuple[str, str, dict[str, list[str]], Any]] = field(default_factory=list)
    file: str = ""

    def ask(self, question: Callable[[ApiServer], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with connected(lambda: chosen_account(self.file, None)) as server:
                return await question(server)

        return asyncio.run(asked())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    it = Cluster()
    with _served(it) as port:
        server = {"server": f"http://127.0.0.1:{port}{PREFIX}"}
        config = {
            "clusters": [{"name": "a", "cluster": server}],
            "contexts": [{"name": "a", "context": {"cluster": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        it.file = str(tmp_path / "kubeconfig")
        yield it


@contextmanager
def _served(cluster: Cluster) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            assert url.path.startswith(PREFIX)
            path = url.path.removeprefix(PREFIX)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            cluster.seen.append((self.command, path, parse_qs(url.query), body))
            code, answer = cluster.answers.get(path, (403, refusal(403, "you may not")))
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(code)
            self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_PATCH = do_GET  # noqa: N815 -- names of the library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refusal(code: int, message: str) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def listed(*items: object) -> tuple[int, object]:
    return 200, {"items": list(items), "metadata": {}}


# ── questions ──


def test_the_path_of_the_servers_url_stays_before_every_question(cluster: Cluster) -> None:
    cluster.answers["/api/v1/nodes/worker-0"] = (200, {"metadata": {"name": "worker-0"}})
    found = cluster.ask(lambda server: server.get(NODES, "worker-0"))
    assert found == {"metadata": {"name": "worker-0"}}


def test_objects_keep_fields_that_no_library_knows(cluster: Cluster) -> None:
    cluster.answers["/api/v1/nodes"] = listed({"metadata": {"name": "a"}, "tomorrow": {"x": 1}})
    (found,) = cluster.ask(lambda server: server.list(NODES))
    assert found["tomorrow"] == {"x": 1}


def test_a_selector_is_sent_as_it_is_written(cluster: Cluster) -> None:
    cluster.answers["/api/v1/nodes"] = listed()
    cluster.ask(lambda server: server.list(NODES, labels="a=b,c in (d, e),!f", fields={"metadata.name": "x"}))
    ((_, _, query, _),) = cluster.seen
    assert query["labelSelector"] == ["a=b,c in (d, e),!f"]
    assert query["fieldSelector"] == ["metadata.name=x"]


def test_what_is_made_and_changed_is_sent_whole(cluster: Cluster) -> None:
    cluster.answers[EVENTS_OF] = (201, {"metadata": {"name": "e"}})
    cluster.answers["/api/v1/nodes/worker-0/status"] = (200, {"metadata": {"name": "worker-0"}})
    event: dict[str, object] = {"metadata": {"name": "e", "namespace": "default"}, "reason": "Broken"}
    cluster.ask(lambda server: server.create(EVENTS, event, namespace="default"))
    cluster.ask(lambda server: server.patch_status(NODES, "worker-0", {"status": {"conditions": []}}))
    (post, patch) = cluster.seen
    assert post == ("POST", EVENTS_OF, {}, {"apiVersion": "v1", "kind": "Event", **event})
    assert patch[::3] == ("PATCH", {"status": {"conditions": []}})


def test_what_is_not_there_and_what_is_refused_are_told_apart(cluster: Cluster) -> None:
    cluster.answers["/api/v1/nodes/gone"] = (404, refusal(404, 'nodes "gone" not found'))
    with pytest.raises(NotThereError, match="there is no Node gone"):
        cluster.ask(lambda server: server.get(NODES, "gone"))
    with pytest.raises(RefusedError, match=r"403 you may not.*--verb=get,list --resource=pods,nodes,events"):
        cluster.ask(lambda server: server.get(NODES, "other"))


def test_the_secret_in_a_url_is_in_no_error(cluster: Cluster) -> None:
    cluster.answers["/api/v1/nodes"] = (502, "<h1>Bad gateway</h1>")
    with pytest.raises(ClusterError, match="502 Bad Gateway") as raised:
        cluster.ask(lambda server: server.list(NODES))
    assert "secret" not in str(raised.value)


# ── what the rules are given ──

RESOURCES = "/apis/resource.k8s.io/v1"
TAKEN = holding("theirs", "gpu-0")


def test_evidence_is_of_this_pod_and_not_of_an_earlier_one_of_its_name(cluster: Cluster) -> None:
    events = [
        {"reason": name, "involvedObject": {"uid": uid}} for name, uid in (("New", "u"), ("Old", "before"))
    ]
    cluster.answers |= {
        f"{PODS_OF}/mine": (200, POD),
        EVENTS_OF: listed(*events),
        "/api/v1/nodes": listed({"metadata": {"name": "worker-0"}}),
        "/api/v1/pods": listed(POD),
    }
    evidence = cluster.ask(lambda server: evidence_on(server, "default", "mine"))
    assert evidence.pod == POD
    assert [one["reason"] for one in evidence.events] == ["New"]
    assert (len(evidence.nodes or ()), len(evidence.pods or ()), evidence.unread) == (1, 1, ())
    (query,) = [query for _, path, query, _ in cluster.seen if path == EVENTS_OF]
    assert query["fieldSelector"] == ["involvedObject.name=mine"]


def test_who_may_read_only_pods_is_told_what_was_not_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers[f"{PODS_OF}/mine"] = (200, POD)
    assert asked_why(cluster, "mine") == 0
    said = capsys.readouterr().out
    assert "default/mine is Running" in said
    assert said.count("not read: the API server refuses (403 you may not)") == 1


def test_who_may_not_read_the_pod_gets_exit_code_2_and_the_right_that_is_missing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked_why(cluster, "mine") == 2
    assert "ask an administrator of the cluster for the right: kubectl create" in capsys.readouterr().err


CLAIM_ANSWERS = {
    f"{PODS_OF}/mine": (200, asking()),
    EVENTS_OF: listed(),
    "/api/v1/nodes": listed(node()),
    "/api/v1/pods": listed(asking()),
    f"{RESOURCES}/namespaces/default/resourceclaimtemplates": listed(),
    f"{RESOURCES}/deviceclasses": listed(CLASS),
    f"{RESOURCES}/resourceslices": listed(slice_on("worker-0", *gpus(1))),
}


def test_a_pod_whose_claims_get_no_devices_is_told_in_a_table_which_and_why(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """D76, D79."""
    pytest.importorskip("cel_expr_python", reason="needs the extra [dra]: pip install 'devplug[dra]'")
    cluster.answers |= CLAIM_ANSWERS | {f"{RESOURCES}/resourceclaims": listed(claim(), TAKEN)}
    assert asked_why(cluster, "mine") == 1
    said = capsys.readouterr().out
    assert "the scheduler said no: worker-0, the only node that it may go to, lacks devices" in said
    assert "EXCLUDED BECAUSE" in said
    assert "held: other/theirs" in said
    assert "free claim other/theirs" in said


def test_who_may_not_read_the_claims_of_all_namespaces_is_told_what_that_means(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers |= CLAIM_ANSWERS
    cluster.answers[f"{RESOURCES}/namespaces/default/resourceclaims"] = listed(claim())
    del cluster.answers[f"{RESOURCES}/resourceslices"]
    assert asked_why(cluster, "mine") == 1
    said = capsys.readouterr().out
    assert "not read: resourceclaims: the API server refuses (403 you may not)" in said
    assert "devices that claims of other namespaces hold look free" in said
    assert "not read: resourceslices: the API server refuses (403 you may not)" in said
    assert "--resource=resourceclaims,resourceclaimtemplates,deviceclasses,resourceslices" in said


def asked_why(cluster: Cluster, pod: str) -> int:
    return why(
        pod,
        namespace=None,
        kubeconfig=cluster.file,
        context=None,
        folder=None,
        kubelet_root="/nowhere",
        output="table",
        color="never",
    )


def test_who_may_read_one_namespace_sees_its_pods_and_that_nodes_were_not_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = {"name": "c", "resources": {"limits": {"example.com/a": "1"}}}
    cluster.answers[PODS_OF] = listed(POD | {"spec": {"containers": [asks]}})
    code = devices(
        namespace=None,
        labels="",
        wants_nodes=True,
        wants_pods=True,
        kubeconfig=cluster.file,
        context=None,
        output="json",
        color="never",
    )
    told = capsys.readouterr()
    assert code == 0
    assert "refuses (403" in told.err
    shown = json.loads(told.out)
    assert "nodes" not in shown
    assert [one["resource"] for one in shown["pods"]] == ["example.com/a"]


def test_who_may_read_nothing_gets_the_error(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="refuses"):
        cluster.ask(lambda server: cluster_lists(server, namespace=""))


@pytest.mark.parametrize(
    ("namespace", "labels", "wants_nodes", "wants_pods", "expected"),
    [
        ("", "", True, True, [SLICES_OF, CLAIMS_OF_ALL, "/api/v1/nodes", "/api/v1/pods"]),
        ("default", "", True, True, [SLICES_OF, CLAIMS_OF_ALL, "/api/v1/nodes", "/api/v1/pods", PODS_OF]),
        ("", "a=b", True, True, [SLICES_OF, CLAIMS_OF_ALL, "/api/v1/nodes", "/api/v1/pods", "/api/v1/pods"]),
        ("default", "a=b", False, True, [SLICES_OF, CLAIMS_OF, PODS_OF]),
        ("default", "a=b", True, False, [SLICES_OF, CLAIMS_OF_ALL, "/api/v1/nodes", "/api/v1/pods"]),
    ],
)
def test_nothing_is_asked_that_is_not_shown(
    cluster: Cluster, namespace: str, labels: str, wants_nodes: bool, wants_pods: bool, expected: list[str]
) -> None:
    cluster.answers |= dict.fromkeys(expected, listed())
    cluster.ask(
        lambda server: cluster_lists(
            server, namespace=namespace, labels=labels, wants_nodes=wants_nodes, wants_pods=wants_pods
        )
    )
    assert sorted(path for _, path, *_ in cluster.seen) == sorted(expected)
    selected = {path for _, path, query, _ in cluster.seen if "labelSelector" in query}
    assert selected == ({expected[-1] if wants_pods else "/api/v1/nodes"} if labels else set())


@pytest.mark.parametrize("has_claims", [False, True])
def test_that_claims_cannot_be_read_is_told_where_a_pod_has_some(
    cluster: Cluster, *, has_claims: bool
) -> None:
    used = [{"name": "a", "resourceClaimName": "b"}] if has_claims else []
    cluster.answers[PODS_OF] = listed({**POD, "spec": {"resourceClaims": used}})
    lists = cluster.ask(lambda server: cluster_lists(server, namespace="default", wants_nodes=False))
    assert [one for one in lists.unread if "devplug-view-claims" in one] == list(lists.unread)
    assert bool(lists.unread) is has_claims


def test_who_may_read_claims_of_one_namespace_only_sees_those(cluster: Cluster) -> None:
    cluster.answers |= {"/api/v1/nodes": listed(), "/api/v1/pods": listed(), CLAIMS_OF: listed(claim("c"))}
    lists = cluster.ask(lambda server: cluster_lists(server, namespace="default"))
    assert [text(one, "metadata", "name") for one in lists.claims] == ["c"]


# ── the commands ──

COMMANDS = """
import sys
from devplug.cli.exits import exit_code_of
from devplug.cli.why import why_command
from devplug.cli.kubectl import main
sys.argv[0:1] == ["-c"] and sys.argv[1] == "devices" and (sys.argv.pop(1), main())
sys.exit(exit_code_of(lambda: why_command.main(standalone_mode=False)))
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a/b", "-n", "c"], "the pod is of namespace a, and -n says c; name one"),
        (["a/b/c"], "name a pod, as in default/my-pod"),
        (["a/"], "name a pod"),
        (["x", "--dir", "/nowhere"], "no sandbox is up in /nowhere; start one: devplug sandbox up"),
        (["devices", "--nodes", "--pods"], "both tables are shown without --nodes and --pods"),
        (["devices", "-o", "csv"], "-o csv prints one table; choose it with --nodes or --pods"),
    ],
)
def test_bad_input_says_what_to_write(words: list[str], said: str) -> None:
    ran = run([sys.executable, "-c", COMMANDS, *words])
    assert ran.returncode == 2
    assert said in ran.stderr
