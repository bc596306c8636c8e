"""What users of a real cluster type beyond the recorded session works here too, or says why it does not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.sandbox.kubectl.stage import Stage, why_kubectl_is_missing

MANIFESTS = Path(__file__).parents[1] / "data" / "manifests"
"""Written in the manner of what vendors and projects publish for their plugins."""

DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec: {containers: [{name: c, image: example/plugin:1}]}
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A sandbox of two nodes, for all tests of this file; each has pods with names of its own."""
    if why := why_kubectl_is_missing():
        pytest.skip(why)
    with (
        tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder,
        Stage(Path(folder), "--nodes=2") as it,
    ):
        yield it


def applied(stage: Stage, name: str, spec: str, kind: str = "Pod", version: str = "v1") -> str:
    """Apply an object; return what kubectl says."""
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    return stage.applied(text)


def test_a_kind_that_is_nowhere_is_no_match_as_in_a_real_cluster(stage: Stage) -> None:
    said = applied(stage, "typo", "{containers: [{name: c, image: x}]}", "Pood")
    assert 'no matches for kind "Pood" in version "v1"' in said
    assert "ensure CRDs are installed first" in said


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
        ("RuntimeClass", "node.k8s.io/v1"),
        ("PriorityClass", "scheduling.k8s.io/v1"),
        ("Deployment", "apps/v1"),
        ("LimitRange", "v1"),
    ],
)
def test_kinds_that_tutorials_apply_too_are_refused_in_words(stage: Stage, kind: str, version: str) -> None:
    said = applied(stage, "one", "{}", kind, version)
    assert "Error from server (Forbidden)" in said
    assert (
        f"the devplug sandbox runs pods and DaemonSets for devices, and nothing in it makes a {kind}" in said
    )
    assert stage.kubectl("get", kind).startswith("No resources found")


def test_the_namespaces_of_every_cluster_stay(stage: Stage) -> None:
    for name in ("default", "kube-public", "kube-system"):
        why = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert stage.kubectl("delete", "namespace", name) == f"Error from server (Forbidden): {why}\n"
    assert stage.kubectl("describe", "namespace", "default").endswith(
        "Status:       Active\n\nNo resource quota.\n\nNo LimitRange resource.\n"
    )


def test_a_pod_of_a_system_class_has_its_priority_and_another_class_is_refused(stage: Stage) -> None:
    spec = "{priorityClassName: %s, containers: [{name: c, image: x:1}]}"
    assert applied(stage, "urgent", spec % "system-node-critical") == "pod/urgent created\n"
    assert "Priority:             2000001000\n" in stage.kubectl("describe", "pod", "urgent")
    assert applied(stage, "ours", spec % "high").endswith(
        'pods "ours" is forbidden: no PriorityClass with name high was found\n'
    )


def test_a_vendors_daemons_are_taken_as_they_are_written(stage: Stage) -> None:
    assert stage.applied((MANIFESTS / "vendor.yaml").read_text()) == "daemonset.apps/vendor-plugin created\n"
    in_system = ("-n", "kube-system")
    rolled_out = stage.kubectl("rollout", "status", "ds/vendor-plugin", *in_system, "--timeout=30s")
    assert "successfully rolled out" in rolled_out
    told = stage.kubectl("describe", "pod", "-l", "name=vendor-plugin", *in_system)
    for line in (
        "Priority Class Name:  system-node-critical\n",
        "Service Account:      vendor-plugin\n",
        "Liveness:   http-get http://:metrics/health delay=5s timeout=1s period=10s #success=1 #failure=3\n",
        "Restart Count:  0\n",
        "NODE_NAME:   (v1:spec.nodeName)\n",
    ):
        assert line in told
    assert stage.kubectl("delete", "ds", "vendor-plugin", *in_system).startswith("daemonset.apps")


def test_of_a_bundle_all_is_taken_but_what_only_a_cluster_has(stage: Stage) -> None:
    said = stage.applied((MANIFESTS / "bundle.yaml").read_text())
    assert [line for line in said.splitlines() if line.endswith(" created")] == [
        "namespace/edge-devices created",
        "serviceaccount/edge-plugin created",
        "clusterrole.rbac.authorization.k8s.io/edge-plugin created",
        "clusterrolebinding.rbac.authorization.k8s.io/edge-plugin created",
        "configmap/edge-plugin created",
        "daemonset.apps/edge-plugin created",
        "pod/uses-video created",
    ]
    others = [line for line in said.splitlines() if not line.endswith(" created")]
    warnings = [line for line in others if line.startswith("Warning: ")]
    refused = [line for line in others if line not in warnings]
    assert set(warnings) == {
        "Warning: the devplug sandbox keeps roles and enforces none; start it with --rbac for that"
    }
    assert len(refused) == 1
    assert "nothing in it makes a Service work; leave it out, or use a cluster" in refused[0]
    in_edge = ("-n", "edge-devices")
    assert "rolled out" in stage.kubectl("rollout", "status", "ds/edge-plugin", *in_edge, "--timeout=30s")
    assert "Pending" in stage.kubectl("get", "pod", "uses-video", *in_edge)
    assert stage.kubectl("delete", "ns", "edge-devices") == 'namespace "edge-devices" deleted\n'


def test_a_container_gets_another_image_while_it_is_there(stage: Stage) -> None:
    assert applied(stage, "renewed", "{containers: [{name: main, image: x:1}]}") == "pod/renewed created\n"
    assert "condition met" in stage.kubectl("wait", "--for=condition=Ready", "pod/renewed", "--timeout=30s")
    assert stage.kubectl("set", "image", "pod/renewed", "main=x:2") == "pod/renewed image updated\n"
    restarts = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    assert "condition met" in stage.kubectl("wait", restarts, "pod/renewed", "--timeout=30s")
    told = stage.kubectl("describe", "pod", "renewed")
    assert "Image:          x:2\n" in told
    assert "Killing" in told
    assert "Container main definition changed, will be restarted" in told


def test_a_node_is_cordoned_drained_and_used_again(stage: Stage) -> None:
    assert stage.applied(DAEMONS) == "daemonset.apps/plugin created\n"
    assert "successfully rolled out" in stage.kubectl("rollout", "status", "ds/plugin", "--timeout=30s")
    assert stage.kubectl("rollout", "history", "ds/plugin") == (
        "daemonset.apps/plugin \nNo rollout history found.\n"
    )
    assert "cannot delete DaemonSet-managed Pods" in stage.kubectl("drain", "worker-1")
    drained = stage.kubectl("drain", "worker-1", "--ignore-daemonsets", "--force", "--timeout=30s")
    assert drained.endswith("node/worker-1 drained\n")
    assert "Ready,SchedulingDisabled" in stage.kubectl("get", "node", "worker-1")
    assert stage.kubectl("uncordon", "worker-1") == "node/worker-1 uncordoned\n"
    assert "SchedulingDisabled" not in stage.kubectl("get", "nodes")


def test_what_needs_a_container_runtime_says_that_there_is_none(stage: Stage) -> None:
    assert applied(stage, "inside", "{containers: [{name: c, image: x:1}]}") == "pod/inside created\n"
    assert "condition met" in stage.kubectl("wait", "--for=condition=Ready", "pod/inside", "--timeout=30s")
    for command in (
        ["exec", "inside", "--", "ls"],
        ["attach", "inside"],
        ["port-forward", "inside", "8080:80"],
        ["debug", "inside", "--image=x", "--profile=general"],
    ):
        assert "is not in the devplug sandbox: it has no container runtime" in stage.kubectl(*command), (
            command
        )
    debugged = stage.kubectl("debug", "node/worker-0", "--image=x", "--profile=general")
    assert "Creating debugging pod" in debugged
    assert stage.kubectl("top", "nodes") == "error: Metrics API not available\n"


def test_a_kubelets_metrics_are_where_a_cluster_has_them(stage: Stage) -> None:
    metrics = stage.asked("/api/v1/nodes/worker-1/proxy/metrics", "text/plain")
    assert "# TYPE kubelet_topology_manager_admission_requests_total counter\n" in metrics
    for path in ("nodes/worker-1/proxy/pods", "nodes/worker-7/proxy/metrics"):
        with pytest.raises(HTTPError) as refused:
            stage.asked(f"/api/v1/{path}")
        assert "nodes/proxy is not in the devplug sandbox" in refused.value.read().decode()
