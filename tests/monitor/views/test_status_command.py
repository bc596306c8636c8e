"""`devplug status` as people start it: a real daemon, an emulated kubelet and real exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cli.programs import devplug, ended, run, said_until, started
from tests.monitor.views.made import configured, meter, plug, read_until, served, unplug

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from devplug.testing import SyncKubelet

NOBODY = 65534


@pytest.fixture
def on_node(kubelet: SyncKubelet, short_dir: Path) -> Iterator[SyncKubelet]:
    """A kubelet with a daemon that serves tty0 and tty1, of which a pod holds one."""
    file = configured(short_dir)
    plug(short_dir, "tty0")
    plug(short_dir, "tty1")
    with served(kubelet, file, tty=2):
        kubelet.admit(meter())
        yield kubelet


def held_device(kubelet: SyncKubelet) -> str:
    (allocation,) = kubelet.allocations
    (device_id,) = allocation.device_ids
    return device_id


def test_a_node_is_shown_with_its_devices_and_who_holds_them(on_node: SyncKubelet) -> None:
    ran = devplug("status", "--kubelet-root", on_node.root)
    lines = ran.stdout.splitlines()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert lines[0].split() == ["RESOURCE", "CAPACITY", "ALLOCATABLE", "HELD", "KUBELET"]
    assert lines[1].split()[:5] == ["example.com/tty", "2", "2", "1", "registered"]
    assert sum("default/meter-0 (reader)" in line for line in lines) == 1
    assert [line.split()[0] for line in lines[3:5]] == ["tty0", "tty1"]
    assert lines[5].startswith("daemon ready; config read ")


def test_an_unhealthy_device_that_is_held_makes_the_exit_code_1(
    on_node: SyncKubelet, short_dir: Path
) -> None:
    device_id = held_device(on_node)
    unplug(short_dir, device_id)
    on_node.wait(lambda: on_node.allocatable["example.com/tty"] == 1)
    ran = devplug("status", "--plugin-dir", on_node.plugin_dir, "--kubelet-root", on_node.root, "--unhealthy")
    assert ran.returncode == 1
    assert [line.split()[0] for line in ran.stdout.splitlines()[3:5]] == [device_id, "unplugged"]


def test_programs_get_the_same_facts_in_their_forms(on_node: SyncKubelet) -> None:
    told = {
        form: devplug("status", "--kubelet-root", on_node.root, "-o", form, NODE_NAME="lab-1")
        for form in ("json", "yaml", "csv", "wide")
    }
    assert {one.returncode for one in told.values()} == {0}
    facts = json.loads(told["json"].stdout)
    assert facts["name"] == "lab-1"
    (resource,) = facts["resources"]
    held = [one["holders"] for one in resource["devices"] if one["is_held"]]
    assert held == [[{"namespace": "default", "pod": "meter-0", "container": "reader"}]]
    assert facts["processes"][0]["config"]["problems"] == []
    in_yaml = yaml.safe_load(told["yaml"].stdout)
    assert in_yaml["resources"] == facts["resources"]
    rows = list(csv.DictReader(io.StringIO(told["csv"].stdout)))
    assert [row["device"] for row in rows] == ["tty0", "tty1"]
    assert sorted(row["holders"] for row in rows) == ["", "default/meter-0/reader"]
    assert "hostPath=" in told["wide"].stdout


def test_a_resource_that_is_not_there_makes_the_exit_code_1(on_node: SyncKubelet) -> None:
    ran = devplug("status", "--kubelet-root", on_node.root, "-r", "gpu")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "devplug: no resource matches gpu; there are: example.com/tty\n"
    assert devplug("status", "--kubelet-root", on_node.root, "-r", "tt*").returncode == 0


def test_a_bad_edit_of_the_configuration_is_shown_with_its_line(
    kubelet: SyncKubelet, short_dir: Path
) -> None:
    file = configured(short_dir)
    with served(kubelet, file, tty=0) as daemon:
        file.write_text("version: 1\nresources: [{name: bad}]\n")
        said_until(daemon, "bad")
        ran = devplug("status", "--kubelet-root", kubelet.root)
    assert ran.returncode == 1
    assert "    daemon ready" not in ran.stdout
    assert f"    {file}:" in ran.stdout.splitlines()
    assert any(line.startswith("    ") and "resources[0]" in line for line in ran.stdout.splitlines())


def test_a_daemon_without_a_kubelet_is_not_ready(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir()
    with started("run", "-c", configured(short_dir), "--kubelet-root", short_dir):
        ran = devplug("status", "--kubelet-root", short_dir)
        while ran.returncode == 2:
            ran = devplug("status", "--kubelet-root", short_dir)
    assert ran.returncode == 1
    assert "NOT REGISTERED: " in ran.stdout
    assert "daemon NOT ready: example.com/tty: " in ran.stdout
    assert "the kubelet does not tell who holds what" in ran.stdout


def test_without_a_kubelet_it_is_said_where_one_could_be(tmp_path: Path) -> None:
    ran = devplug("status", "--kubelet-root", tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"devplug: no kubelet here ({tmp_path}/device-plugins does not exist); ")
    assert "--dir" in ran.stderr
    assert devplug("status", "--kubelet-root", tmp_path, "-w").stderr == ran.stderr


def test_where_nobody_answers_it_is_said_who_was_asked(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    ran = devplug("status", "--kubelet-root", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"no devplug daemon answers in {tmp_path}/device-plugins" in ran.stderr
    assert f"the kubelet at {tmp_path}/pod-resources/kubelet.sock" in ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to become another user")
def test_who_may_not_look_is_told_to_run_as_root(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir(mode=0o700)
    short_dir.chmod(0o755)
    # Others may have no right to read the interpreter: what is needed is loaded before the user changes.
    program = (
        "import os, sys, devplug.cli.looking.status; from devplug.cli import main\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"sys.argv = ['devplug', 'status', '--kubelet-root', '{short_dir}']; main()"
    )
    ran = run([sys.executable, "-c", program])
    assert (ran.returncode, ran.stderr) == (2, f"devplug: no right to look into {folder}: run as root\n")


# ── sandboxes ─────────────────────────────────────────────────────────────────────────────────────


def test_the_nodes_of_a_sandbox_are_shown_one_below_the_other(short_dir: Path) -> None:
    place = short_dir / "sb"
    with started("sandbox", "up", "--dir", place, "--nodes", "2") as sandbox:
        read_until(sandbox, "KUBECONFIG")
        root = place / "nodes" / "worker-1"
        plugin = (sys.executable, "-m", "devplug", "run", "-c", configured(short_dir))
        with started("run", *map(str, plugin[4:]), "--kubelet-root", root) as daemon:
            said_until(daemon, "registered")
            both = devplug("status", "--dir", place)
            while "daemon ready" not in both.stdout:  # it registers first, and can be asked then
                both = devplug("status", DEVPLUG_SANDBOX_DIR=str(place))
            one = devplug("status", "--dir", place, "--node", "worker-1", "-o", "json")
            listed = devplug("status", "--dir", place, "-o", "json")
            inside = devplug(
                "status", "-o", "json", DEVPLUG_SANDBOX_DIR=str(place), DEVPLUG_KUBELET_ROOT=str(root)
            )
            unknown = devplug("status", "--dir", place, "--node", "worker-9")
        sandbox.terminate()
        assert ended(sandbox) == 0
    lines = both.stdout.splitlines()
    assert [line for line in lines if line.startswith("on ")] == ["on worker-0", "on worker-1"]
    assert lines.index("") < lines.index("on worker-1")
    assert both.returncode == 1  # no daemon on worker-0
    assert one.returncode == 0
    assert json.loads(one.stdout)["name"] == "worker-1"
    assert [node["name"] for node in json.loads(listed.stdout)["nodes"]] == ["worker-0", "worker-1"]
    assert json.loads(inside.stdout)["resources"] == json.loads(one.stdout)["resources"]
    assert unknown.returncode == 2
    assert "the sandbox has no node worker-9; it has worker-0, worker-1" in unknown.stderr


def test_a_sandbox_that_is_not_up_is_named(tmp_path: Path) -> None:
    ran = devplug("status", "--dir", tmp_path)
    assert ran.returncode == 2
    assert f"no sandbox is up in {tmp_path}; start one: devplug sandbox up" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dir", "/x", "--kubelet-root", "/y"), "--dir is for a sandbox"),
        (("--node", "worker-0"), "--node is for the nodes of a sandbox"),
        (("-w", "-o", "csv"), "CSV has no way to tell changes"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], said: str) -> None:
    ran = devplug("status", *words)
    assert ran.returncode == 2
    assert said in ran.stderr
