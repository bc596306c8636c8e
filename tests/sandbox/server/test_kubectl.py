"""The real kubectl against the server: what its users type, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.registry import NODES, PODS
from tests.sandbox.jsons import KUBECTL as RECORDED
from tests.sandbox.jsons import printed
from tests.sandbox.server.beds import TOKEN, Kubectl, Server, pod, registry_of_test, served


@pytest.fixture
def server() -> Iterator[Server]:
    registry = registry_of_test("other")
    registry.create(NODES, "", {"metadata": {"name": "worker-0"}, "status": {"capacity": {"cpu": "4"}}})
    with served(registry) as running:
        yield running


@pytest.fixture
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(tmp_path_factory.mktemp("kubectl"), server.kubeconfig)


def test_a_pod_is_applied_changed_read_and_deleted(kubectl: Kubectl) -> None:
    manifest = json.dumps(pod())
    applied = kubectl("apply", "--validate=false", "-f", "-", told=manifest)
    assert (applied.stdout, applied.stderr) == ("pod/a created\n", "")
    assert kubectl("apply", "--validate=false", "-f", "-", told=manifest).stdout == "pod/a unchanged\n"
    more = json.dumps({**pod(), "metadata": {"name": "a", "labels": {"app": "x"}}})
    assert kubectl("apply", "--validate=false", "-f", "-", told=more).stdout == "pod/a configured\n"
    assert kubectl("label", "pod", "a", "tier=2").stdout == "pod/a labeled\n"
    assert kubectl("annotate", "pod", "a", "note=x").stdout == "pod/a annotated\n"
    assert kubectl("get", "pods", "-l", "app=x,tier=2", "-o", "name").stdout == "pod/a\n"
    table = kubectl("get", "pods").stdout.splitlines()
    assert table[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert table[1].split()[:4] == ["a", "0/1", "Pending", "0"]
    dry = kubectl("delete", "pod", "a", "--dry-run=server")
    assert dry.stdout == 'pod "a" deleted (server dry run)\n'
    deleted = kubectl("delete", "pod", "a")
    assert deleted.stdout == 'pod "a" deleted\n'
    assert kubectl("get", "pods").stderr == "No resources found in default namespace.\n"


def test_what_is_wrong_is_printed_as_it_was_recorded(kubectl: Kubectl) -> None:
    for file, recording in (("frac", "30-invalid-fraction"), ("over", "31-invalid-overcommit")):
        manifest = (RECORDED / f"{file}.yaml").read_text()
        applied = kubectl("apply", "--validate=false", "-f", "-", told=manifest)
        assert applied.returncode == 1
        assert applied.stderr.strip() in printed(f"{recording}.txt")


def test_a_dry_run_on_the_server_creates_nothing(kubectl: Kubectl) -> None:
    tried = kubectl("create", "--validate=false", "--dry-run=server", "-f", "-", told=json.dumps(pod()))
    assert tried.stdout == "pod/a created (server dry run)\n"
    assert kubectl("get", "pods", "-o", "name").stdout == ""


def test_patches_of_each_form_reach_a_status(kubectl: Kubectl) -> None:
    json_patch = '[{"op":"add","path":"/status/capacity/example.com~1widget","value":"2"}]'
    merge = '{"status":{"capacity":{"example.com/gadget":"3"}}}'
    for form, patch in (
        ("json", json_patch),
        ("merge", merge),
        ("strategic", '{"metadata":{"labels":{"a":"b"}}}'),
    ):
        done = kubectl("patch", "node", "worker-0", "--subresource=status", f"--type={form}", "-p", patch)
        assert done.returncode == 0, done.stderr
    read = kubectl("get", "node", "worker-0", "-o", "json")
    assert json.loads(read.stdout)["status"]["capacity"] == {
        "cpu": "4",
        "example.com/widget": "2",
        "example.com/gadget": "3",
    }


def test_typed_commands_that_send_protobuf_are_understood(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "n").stdout == "namespace/n created\n"
    assert kubectl("create", "quota", "q", "--hard=requests.example.com/fpga=1").stdout == (
        "resourcequota/q created\n"
    )
    assert kubectl("create", "configmap", "c", "--from-literal=a=b").stdout == "configmap/c created\n"
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}").stdout == "b"


def test_what_the_sandbox_has_not_is_refused_in_words(kubectl: Kubectl) -> None:
    deployed = kubectl("create", "deployment", "d", "--image=x")
    assert "the devplug sandbox runs pods and DaemonSets for devices" in deployed.stderr
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {}}
    applied = kubectl("apply", "--validate=false", "-f", "-", told=json.dumps(manifest))
    assert 'deployments.apps "d" is forbidden: the devplug sandbox runs' in applied.stderr
    assert kubectl("get", "deployments").stderr == "No resources found in default namespace.\n"
    sided = kubectl("apply", "--server-side", "--validate=false", "-f", "-", told=json.dumps(pod()))
    assert "use kubectl apply without --server-side" in sided.stderr


def test_what_needs_a_runtime_is_refused_in_words(server: Server, kubectl: Kubectl) -> None:
    server.do(lambda: server.registry.create(PODS, "default", pod("p", nodeName="worker-0")))
    server.do(lambda: server.registry.set_status(PODS, "default", "p", {"phase": "Running"}))
    words = "is not in the devplug sandbox: it has no container runtime"
    assert f"pods/exec {words}" in kubectl("exec", "p", "--", "ls").stderr
    assert f"pods/attach {words}" in kubectl("attach", "p").stderr
    assert f"pods/portforward {words}" in kubectl("port-forward", "p", ":80").stderr


def test_who_waits_and_who_watches_is_told(server: Server, kubectl: Kubectl) -> None:
    server.do(lambda: server.registry.create(PODS, "default", pod("p", nodeName="worker-0")))
    watching = kubectl.begun("get", "pod", "p", "-w")
    assert watching.stdout is not None
    assert watching.stdout.readline().split()[0] == "NAME"
    assert watching.stdout.readline().split()[2] == "Pending"
    waiting = kubectl.begun("wait", "pod/p", "--for=condition=Ready", "--timeout=30s")
    server.until(lambda: len(server.registry._waiting.get("pods", ())) == 2)
    ready: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.do(lambda: server.registry.set_status(PODS, "default", "p", ready))
    assert watching.stdout.readline().split()[2] == "Running"
    assert waiting.communicate(timeout=30)[0] == "pod/p condition met\n"
    watching.terminate()
    watching.communicate(timeout=30)


def test_discovery_and_the_version_are_what_kubectl_expects(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.2" in kubectl("version").stdout
    assert "resourcequotas" in kubectl("api-resources", "-o", "name").stdout
    assert kubectl("get", "--raw", "/readyz").stdout == "ok"
    assert json.loads(kubectl("get", "--raw", f"/{TOKEN}/api/v1").stdout)["groupVersion"] == "v1"
    assert kubectl("get", "all,nodes,namespaces", "-A").returncode == 0


def test_the_token_is_for_all_that_there_is_and_says_who_it_is(server: Server, kubectl: Kubectl) -> None:
    assert kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").stdout == "devplug-sandbox"
    asked: tuple[tuple[str, ...], ...] = (
        ("create", "pods"),
        ("get", "/metrics"),
        ("*", "*"),
        ("patch", "nodes", "--subresource=status"),
        ("list", "deployments.apps"),
    )
    for words in asked:
        can = kubectl("auth", "can-i", *words)
        assert (can.returncode, can.stdout) == (0, "yes\n"), (words, can)
    cannot = kubectl("auth", "can-i", "create", "deployments.apps")
    assert cannot.returncode == 1
    assert cannot.stdout.startswith("no - the devplug sandbox runs pods and DaemonSets for devices")
    assert kubectl("auth", "can-i", "--list").stdout.splitlines()[1].split() == ["*.*", "[]", "[]", "[*]"]
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    made = server.ask("POST", reviews, {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}})
    assert (made.code, made.json["status"]) == (201, {"allowed": True})
    assert server.ask("GET", reviews).code == 405


def test_long_lists_come_in_pieces_and_namespaces_are_apart(server: Server, kubectl: Kubectl) -> None:
    def fill() -> None:
        for number in range(7):
            server.registry.create(PODS, "other", pod(f"p{number}"))

    server.do(fill)
    listed = kubectl("get", "pods", "-n", "other", "--chunk-size=3", "-o", "name")
    assert listed.stdout.split() == [f"pod/p{number}" for number in range(7)]
    assert kubectl("get", "pods", "-o", "name").stdout == ""
    assert len(kubectl("get", "pods", "-A", "--no-headers", "--chunk-size=2").stdout.splitlines()) == 7
    assert (
        kubectl("get", "pods", "-A", "--field-selector=metadata.name=p3", "-o", "name").stdout == "pod/p3\n"
    )
    assert kubectl("delete", "pods", "--all", "-n", "other", "--now").returncode == 0
