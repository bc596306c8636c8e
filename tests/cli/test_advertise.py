"""`devplug advertise` against a sandbox, and against a cluster through its kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from devplug.k8s.objects import fields
from devplug.sandbox.api.errors import forbidden
from devplug.sandbox.registry import NODES
from tests.cli.programs import devplug
from tests.sandbox.standin import StandIn, up_in

WIDGET = "example.com/widget"


@pytest.fixture
def standin(short_dir: Path) -> Iterator[StandIn]:
    with up_in(short_dir) as (_, standin):
        yield standin


def capacity(standin: StandIn) -> dict[str, object]:
    return fields(standin.registry.get(NODES, "", "worker-0"), "status", "capacity")


def kubeconfig(standin: StandIn, folder: Path) -> Path:
    """A kubeconfig of a cluster that does not know of sandboxes."""
    path = folder / "kubeconfig"
    cluster = {"name": "lab", "cluster": {"server": standin.url}}
    user = {"name": "me", "user": {"token": "mine"}}
    context = {"name": "lab", "context": {"cluster": "lab", "user": "me"}}
    config = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "lab"}
    path.write_text(json.dumps(config))
    return path


# ── the sandbox ──


def test_a_count_is_set_changed_and_removed_in_the_sandbox_that_is_up(standin: StandIn) -> None:
    place = standin.place.folder
    ran = devplug("advertise", "worker-0", f"{WIDGET}=2", "--dir", place)
    assert (ran.returncode, ran.stdout) == (0, f"worker-0: {WIDGET} 0 -> 2\n")
    assert ran.stderr == f"devplug: in the sandbox in {place}\n"
    assert capacity(standin) == {WIDGET: "2"}
    ran = devplug("advertise", "worker-0", "example.com/a=1", f"{WIDGET}=3", "--dir", place)
    assert ran.stdout == f"worker-0: example.com/a 0 -> 1\nworker-0: {WIDGET} 2 -> 3\n"
    assert capacity(standin) == {WIDGET: "3", "example.com/a": "1"}
    ran = devplug("advertise", "worker-0", "--remove", WIDGET, "--dir", place)
    assert ran.stdout == f"worker-0: {WIDGET} 3 -> removed\n"
    assert capacity(standin) == {"example.com/a": "1"}


def test_what_is_so_already_is_not_asked_for(standin: StandIn) -> None:
    for expected in ("0 -> 2", "stays 2"):
        ran = devplug("advertise", "worker-0", f"{WIDGET}=2", "--dir", standin.place.folder)
        assert ran.stdout == f"worker-0: {WIDGET} {expected}\n"
    assert [method for method, *_ in standin.seen].count("PATCH") == 1


def test_a_dry_run_asks_the_server_and_changes_nothing(standin: StandIn) -> None:
    ran = devplug("advertise", "worker-0", f"{WIDGET}=2", "--dry-run", "--dir", standin.place.folder)
    assert (ran.returncode, ran.stdout) == (0, f"worker-0: {WIDGET} 0 -> 2 (dry run)\n")
    assert standin.seen[-1][:2] == ("PATCH", "/secret/api/v1/nodes/worker-0/status?dryRun=All")
    assert capacity(standin) == {}


def test_a_node_that_is_not_there_is_told_with_those_that_are(standin: StandIn) -> None:
    ran = devplug("advertise", "worker-9", f"{WIDGET}=2", "--dir", standin.place.folder)
    assert ran.returncode == 1
    assert 'devplug: the sandbox has no node "worker-9"; it has worker-0, worker-1\n' in ran.stderr


def test_bad_input_is_refused_before_anybody_is_asked(standin: StandIn) -> None:
    ran = devplug("advertise", "worker-0", "widget=2", "--dir", standin.place.folder)
    assert ran.returncode == 2
    assert "needs a domain and a kind" in ran.stderr
    assert standin.seen == []


def test_what_a_plugin_serves_is_left_alone_unless_forced(standin: StandIn) -> None:
    standin.cluster.descriptions["worker-0"] = {"resources": [{"name": WIDGET}]}
    devplug("advertise", "worker-0", f"{WIDGET}=2", "--dir", standin.place.folder)
    words = ("advertise", "worker-0", f"{WIDGET}=3", "--dir", standin.place.folder)
    ran = devplug(*words)
    assert (ran.returncode, ran.stdout, capacity(standin)) == (1, "", {WIDGET: "2"})
    assert f"a device plugin serves {WIDGET}" in ran.stderr
    assert "--force" in ran.stderr
    ran = devplug(*words, "--force")
    assert (ran.returncode, capacity(standin)) == (0, {WIDGET: "3"})
    assert f"devplug: warning: worker-0: a device plugin serves {WIDGET}" in ran.stderr


# ── a cluster ──


def test_the_condition_that_a_daemon_leaves_is_removed_from_a_cluster(
    standin: StandIn, tmp_path: Path
) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "DevicesReady")]
    standin.registry.set_status(NODES, "", "worker-0", {"conditions": conditions})
    file = kubeconfig(standin, tmp_path)
    ran = devplug("advertise", "worker-0", "--remove", "DevicesReady", "--kubeconfig", file)
    assert (ran.returncode, ran.stdout) == (0, "worker-0: condition DevicesReady True -> removed\n")
    status = fields(standin.registry.get(NODES, "", "worker-0"), "status")
    assert status["conditions"] == conditions[:1]


def test_what_the_kubelet_of_a_cluster_counts_is_left_alone(standin: StandIn, tmp_path: Path) -> None:
    owned: dict[str, object] = {"f:capacity": {f"f:{WIDGET}": {}}, "f:conditions": {'k:{"type":"Ready"}': {}}}
    metadata = {
        "name": "worker-0",
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": owned}}],
    }
    standin.registry.delete(NODES, "", "worker-0")
    standin.registry.create(NODES, "", {"metadata": metadata, "status": {"capacity": {WIDGET: "2"}}})
    ran = devplug("advertise", "worker-0", f"{WIDGET}=5", "--kubeconfig", kubeconfig(standin, tmp_path))
    assert (ran.returncode, capacity(standin)) == (1, {WIDGET: "2"})
    assert f"a device plugin serves {WIDGET}" in ran.stderr


def test_a_cluster_is_reached_by_its_kubeconfig(standin: StandIn, tmp_path: Path) -> None:
    file = kubeconfig(standin, tmp_path)
    ran = devplug("advertise", "worker-0", f"{WIDGET}=2", "--kubeconfig", file, "--dir", tmp_path / "none")
    assert (ran.returncode, ran.stdout) == (0, f"worker-0: {WIDGET} 0 -> 2\n")
    assert ran.stderr == "devplug: in the cluster of context lab\n"
    assert capacity(standin) == {WIDGET: "2"}


def test_a_context_that_is_named_means_the_cluster_even_if_a_sandbox_is_up(
    standin: StandIn, tmp_path: Path
) -> None:
    variables = {"KUBECONFIG": str(kubeconfig(standin, tmp_path))}
    words = ["advertise", "worker-0", f"{WIDGET}=2", "--dir", str(standin.place.folder), "--dry-run"]
    ran = devplug(*words, "--context", "lab", **variables)
    assert ran.stderr == "devplug: in the cluster of context lab\n"
    assert (ran.stdout, capacity(standin)) == (f"worker-0: {WIDGET} 0 -> 2 (dry run)\n", {})
    ran = devplug(*words, "--context", "nowhere", **variables)
    assert ran.returncode == 1
    assert "cannot use context nowhere" in ran.stderr


def test_a_cluster_without_the_node_says_how_to_find_the_names(standin: StandIn, tmp_path: Path) -> None:
    ran = devplug("advertise", "x", f"{WIDGET}=2", "--kubeconfig", kubeconfig(standin, tmp_path))
    assert ran.returncode == 1
    assert 'the cluster of context lab has no node "x"; kubectl get nodes names them' in ran.stderr


def test_a_right_that_is_missing_is_named(standin: StandIn, tmp_path: Path) -> None:
    standin.refusal = forbidden("nodes", "worker-0", 'User "u" cannot get resource "nodes"')
    ran = devplug("advertise", "worker-0", f"{WIDGET}=2", "--kubeconfig", kubeconfig(standin, tmp_path))
    assert ran.returncode == 1
    assert 'refuses (403 nodes "worker-0" is forbidden' in ran.stderr
    assert "--verb=get,patch --resource=nodes,nodes/status" in ran.stderr


def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    words = ["advertise", "x", f"{WIDGET}=2", "--dir", str(tmp_path / "none")]
    ran = devplug(*words, KUBECONFIG="/nowhere/config")
    assert ran.returncode == 1
    assert "cannot use /nowhere/config" in ran.stderr
    assert "no sandbox is up either" in ran.stderr
    assert "cannot use /a:/b" in devplug(*words, KUBECONFIG="/a:/b").stderr
