"""`devplug status` as people start it: a real daemon, an emulated kubelet and real exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devplug.cli.commands import commands
from devplug.cli.exits import exit_code_of
from devplug.testing import SyncKubelet
from tests.cli.programs import devplug, ended, run, said_until, started
from tests.cli.status.made import configured, meter, plug, read_until, served, unplug

NOBODY = 65534


@pytest.fixture(scope="module")
def devices() -> Iterator[Path]:
    """A folder with the devices of `on_node`."""
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def on_node(devices: Path) -> Iterator[SyncKubelet]:
    """A kubelet with a daemon that serves tty0 and tty1, of which a pod holds one."""
    file = configured(devices)
    plug(devices, "tty0")
    plug(devices, "tty1")
    with SyncKubelet() as kubelet, served(kubelet, file, tty=2):
        kubelet.admit(meter())
        yield kubelet


def status(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run `devplug status` in this process; return its exit code and what it printed on both streams."""
    capsys.readouterr()
    arguments = ["status", *map(str, words)]
    code = exit_code_of(lambda: commands.main(args=arguments, standalone_mode=False))
    return code, *capsys.readouterr()


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
    on_node: SyncKubelet, devices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device_id = held_device(on_node)
    unplug(devices, device_id)
    on_node.wait(lambda: on_node.allocatable["example.com/tty"] == 1)
    places = ("--plugin-dir", on_node.plugin_dir, "--kubelet-root", on_node.root)
    code, said, _ = status(capsys, *places, "--unhealthy")
    plug(devices, device_id)
    on_node.wait(lambda: on_node.allocatable["example.com/tty"] == 2)
    assert code == 1
    assert [line.split()[0] for line in said.splitlines()[3:5]] == [device_id, "unplugged"]


def test_programs_get_the_same_facts_in_their_forms(
    on_node: SyncKubelet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "lab-1")
    told = {
        form: status(capsys, "--kubelet-root", on_node.root, "-o", form)
        for form in ("json", "yaml", "csv", "wide")
    }
    assert {code for code, _, _ in told.values()} == {0}
    facts = json.loads(told["json"][1])
    assert facts["name"] == "lab-1"
    (resource,) = facts["resources"]
    held = [one["holders"] for one in resource["devices"] if one["is_held"]]
    assert held == [[{"namespace": "default", "pod": "meter-0", "container": "reader"}]]
    assert facts["processes"][0]["config"]["problems"] == []
    in_yaml = yaml.safe_load(told["yaml"][1])
    assert in_yaml["resources"] == facts["resources"]
    rows = list(csv.DictReader(io.StringIO(told["csv"][1])))
    assert [row["device"] for row in rows] == ["tty0", "tty1"]
    assert sorted(row["holders"] for row in rows) == ["", "default/meter-0/reader"]
    assert "hostPath=" in told["wide"][1]


def test_a_resource_that_is_not_there_makes_the_exit_code_1(
    on_node: SyncKubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "devplug: no resource matches gpu; there are: example.com/tty\n"
    assert status(capsys, "--kubelet-root", on_node.root, "-r", "gpu") == (1, "", why)
    assert status(capsys, "--kubelet-root", on_node.root, "-r", "tt*")[0] == 0


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
    assert any(
        line.startswith(f"    {file}:2:") and "resources[0]" in line for line in ran.stdout.splitlines()
    )
    assert ran.stdout.count(str(file)) == ran.stdout.count(" error: ")


def test_a_daemon_without_a_kubelet_is_not_ready(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir()
    with started("run", "-c", configured(short_dir), "--plugin-dir", folder, "--kubelet-root", short_dir):
        code, said = 2, ""
        while code == 2:
            code, said, _ = status(capsys, "--plugin-dir", folder, "--kubelet-root", short_dir)
    assert code == 1
    assert "NOT REGISTERED: " in said
    assert "daemon NOT ready: example.com/tty: " in said
    assert "the kubelet does not tell who holds what" in said


def test_without_a_kubelet_it_is_said_where_one_could_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ("--plugin-dir", tmp_path / "device-plugins", "--kubelet-root", tmp_path)
    code, _, why = status(capsys, *places)
    assert code == 2
    assert why.startswith(f"devplug: no kubelet here ({tmp_path}/device-plugins does not exist); ")
    assert "--dir" in why
    assert status(capsys, *places, "-w") == (2, "", why)


def test_where_nobody_answers_it_is_said_who_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "device-plugins").mkdir()
    places = ("--plugin-dir", tmp_path / "device-plugins", "--kubelet-root", tmp_path)
    code, said, why = status(capsys, *places)
    assert (code, said) == (2, "")
    assert f"no devplug daemon answers in {tmp_path}/device-plugins" in why
    assert f"the kubelet at {tmp_path}/pod-resources/kubelet.sock" in why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to become another user")
def test_who_may_not_look_is_told_to_run_as_root(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir(mode=0o700)
    short_dir.chmod(0o755)
    # Others may have no right to read the interpreter: what is needed is loaded before the user changes.
    program = (
        "import os, sys, devplug.cli.status.report; from devplug.cli import main\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"sys.argv = ['devplug', 'status', '--plugin-dir', '{folder}']; main()"
    )
    ran = run([sys.executable, "-c", program])
    assert (ran.returncode, ran.stderr) == (2, f"devplug: no right to look into {folder}: run as root\n")


# ── sandboxes ─────────────────────────────────────────────────────────────────────────────────────


def test_the_nodes_of_a_sandbox_are_shown_one_below_the_other(
    short_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = short_dir / "sb"
    with started("sandbox", "up", "--dir", place, "--nodes", "2") as sandbox:
        read_until(sandbox, "KUBECONFIG")
        root = place / "nodes" / "worker-1"
        plugin = (sys.executable, "-m", "devplug", "run", "-c", configured(short_dir))
        with started("run", *map(str, plugin[4:]), "--kubelet-root", root) as daemon:
            said_until(daemon, "registered")
            both = status(capsys, "--dir", place)
            monkeypatch.setenv("DEVPLUG_SANDBOX_DIR", str(place))
            while "daemon ready" not in both[1]:  # it registers first, and can be asked then
                both = status(capsys)
            one = status(capsys, "--dir", place, "--node", "worker-1", "-o", "json")
            listed = status(capsys, "--dir", place, "-o", "json")
            unknown = status(capsys, "--dir", place, "--node", "worker-9")
            monkeypatch.setenv("DEVPLUG_KUBELET_ROOT", str(root))
            inside = status(capsys, "-o", "json")
        sandbox.terminate()
        assert ended(sandbox) == 0
    lines = both[1].splitlines()
    assert [line for line in lines if line.startswith("on ")] == ["on worker-0", "on worker-1"]
    assert lines.index("") < lines.index("on worker-1")
    assert both[0] == 1  # no daemon on worker-0
    assert one[0] == 0
    assert json.loads(one[1])["name"] == "worker-1"
    assert [node["name"] for node in json.loads(listed[1])["nodes"]] == ["worker-0", "worker-1"]
    assert json.loads(inside[1])["resources"] == json.loads(one[1])["resources"]
    assert unknown[0] == 2
    assert "the sandbox has no node worker-9; it has worker-0, worker-1" in unknown[2]


def test_a_sandbox_that_is_not_up_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, why = status(capsys, "--dir", tmp_path)
    assert code == 2
    assert f"no sandbox is up in {tmp_path}; start one: devplug sandbox up" in why


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dir", "/x", "--kubelet-root", "/y"), "--dir names a sandbox"),
        (("--node", "worker-0"), "--node needs --dir"),
        (("-w", "-o", "csv"), "CSV cannot show changes"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, why = status(capsys, *words)
    assert code == 2
    assert said in why
