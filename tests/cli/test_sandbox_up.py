"""`devplug sandbox` as people use it: real sandboxes, real plugins, real kubectl."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devplug.sandbox.sandboxdir import SandboxDir
from tests.cli.programs import DEVPLUG, devplug, ended, environment, run, said_until, started

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

TTYS = "{version: 1, resources: [{name: example.com/tty, discover: {path: '%s/*'}}]}"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  restartPolicy: Never
  containers: [{name: c, image: i, resources: {limits: {example.com/tty: 1}}}]
"""
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


def kubectl(place: SandboxDir, *words: str, given: str = "") -> str:
    command = ["kubectl", "--kubeconfig", str(place.kubeconfig), *words]
    ran = subprocess.run(
        command, env=environment(), input=given, capture_output=True, text=True, check=False, timeout=40
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def sandbox(place: SandboxDir, *words: str) -> tuple[int, str, str]:
    command, *rest = words
    ran = devplug("sandbox", command, "--dir", place.folder, *rest)
    return ran.returncode, ran.stdout, ran.stderr


def amounts(place: SandboxDir, part: str) -> dict[str, str]:
    """The extended resources of the first node."""
    node: dict[str, Any] = json.loads(kubectl(place, "get", "node", "worker-0", "-o", "json"))
    return {name: amount for name, amount in node["status"][part].items() if "/" in name}


def wait_for(place: SandboxDir, what: str, path: str, value: str) -> None:
    kubectl(place, "wait", what, f"--for=jsonpath={path}={value}", "--timeout=30s")


@pytest.fixture(scope="module")
def up() -> Iterator[SandboxDir]:
    """A sandbox in the background, with two nodes."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))
    place = SandboxDir(folder / "sb")
    ran = run([*DEVPLUG, "sandbox", "up", "--nodes", "2", "--dir", str(place.folder), "--detach"])
    try:
        assert (ran.returncode, ran.stderr) == (0, "")
        assert f"export KUBECONFIG={place.kubeconfig}" in ran.stdout
        yield place
    finally:
        code, _, said = sandbox(place, "down")
        shutil.rmtree(folder)
        assert (code, said) == (0, "")


# ── up and down ──


def test_a_sandbox_says_how_to_reach_it_and_ends_well_with_ctrl_c(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    with started("sandbox", "up", "--dir", place.folder) as process:
        said = said_until(process, "sandbox describe", on_error=False)
        assert said.startswith("The sandbox is up, with 1 node; Ctrl-C ends it.\n")
        assert f"  export KUBECONFIG={place.kubeconfig}\n" in said
        assert f"  export DEVPLUG_SANDBOX_DIR={place.folder}\n" in said
        assert "worker-0   Ready" in kubectl(place, "get", "nodes")
        process.send_signal(signal.SIGINT)
        assert ended(process) == 0
    assert [entry.name for entry in place.folder.iterdir()] == ["lock"]


def test_a_sandbox_whose_folder_is_removed_ends(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    with started("sandbox", "up", "--dir", place.folder) as process:
        said_until(process, "sandbox describe", on_error=False)
        shutil.rmtree(place.folder)
        assert ended(process) == 0
    assert not place.folder.exists()


def test_every_node_tells_an_address_and_its_name(up: SandboxDir) -> None:
    addresses = "{range .items[*]}{.metadata.name} {.status.addresses[*]['type','address']}{'\\n'}{end}"
    assert kubectl(up, "get", "nodes", "-o", f"jsonpath={addresses}").splitlines() == [
        "worker-0 InternalIP Hostname 192.0.2.1 worker-0",
        "worker-1 InternalIP Hostname 192.0.2.2 worker-1",
    ]
    assert "192.0.2.2" in kubectl(up, "get", "nodes", "-o", "wide").splitlines()[2].split()


def test_a_second_sandbox_in_the_same_folder_is_refused(up: SandboxDir) -> None:
    code, said, why = sandbox(up, "up")
    assert (code, said) == (1, "")
    assert why.startswith(f"devplug: a sandbox is up in {up.folder} (process ")


def test_what_keeps_a_sandbox_in_the_background_from_starting_is_told(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said, why = sandbox(place, "up", "--detach", "--port", str(port))
    assert (code, said) == (1, "")
    assert str(port) in why
    assert "Traceback" not in why


def test_a_sandbox_in_the_background_runs_on_without_its_terminal(up: SandboxDir) -> None:
    record = up.running()
    assert record is not None
    assert os.getsid(record.pid) == record.pid
    assert "worker-1   Ready" in kubectl(up, "get", "nodes")


def test_objects_outlive_the_sandbox_in_a_state_file(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    for number in range(2):
        assert sandbox(place, "up", "--state", str(short_dir / "state"), "--detach")[0] == 0
        if number == 0:
            kubectl(place, "create", "configmap", "kept", "--from-literal=a=b")
        assert kubectl(place, "get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
        assert sandbox(place, "down")[0] == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_sandbox_with_tls_is_reached_by_kubectl_and_by_us(short_dir: Path) -> None:
    cert, key, place = short_dir / "cert", short_dir / "key", SandboxDir(short_dir / "sb")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=sandbox"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    made = run(["openssl", *words.split(), *more])
    assert made.returncode == 0, made.stderr
    assert sandbox(place, "up", "--tls-cert", str(cert), "--tls-key", str(key), "--detach")[0] == 0
    try:
        record = place.running()
        assert record is not None
        assert record.server.startswith("https://127.0.0.1:")
        assert "worker-0   Ready" in kubectl(place, "get", "nodes")
    finally:
        assert sandbox(place, "down")[::2] == (0, "")


# ── with a command ──


def test_a_sandbox_for_a_command_ends_with_it_and_has_its_exit_code(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    script = "kubectl get nodes -o name; echo {dir}; exit 5"
    code, said, why = sandbox(place, "up", "--", "sh", "-c", script)
    assert (code, said) == (5, f"node/worker-0\n{place.node('worker-0').plugin_dir}\n")
    assert why.startswith("The sandbox is up, with 1 node; the end of the command ends it.\n")
    assert "Next" not in why
    assert not place.is_claimed()


def test_a_sandbox_for_a_command_that_is_not_there_says_only_that(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    for command in ("up", "run"):
        code, said, why = sandbox(place, command, "--", "./no-such-program", "--verbose={dir}")
        assert (code, said) == (1, "")
        assert why.endswith(
            f"  export DEVPLUG_SANDBOX_DIR={place.folder}\n"
            f"devplug: cannot run ./no-such-program --verbose={place.node('worker-0').plugin_dir}: "
            "No such file or directory\n"
        )


def test_who_has_no_kubectl_is_told_where_it_is(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    words = ["sandbox", "up", "--dir", str(place.folder), "--", sys.executable, "-c", "pass"]
    (short_dir / "sh").symlink_to("/bin/sh")
    ran = run([*DEVPLUG, *words], PATH=str(short_dir))
    assert ran.returncode == 0
    assert ran.stderr.endswith(
        "There is no kubectl on the PATH; how to get one: https://kubernetes.io/docs/tasks/tools/\n"
    )


def test_down_ends_the_command_too(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    words = ["--", sys.executable, "-c", WAITS, "{dir}"]
    with started("sandbox", "up", "--dir", place.folder, *words) as process:
        said_until(process, "ready", on_error=False)
        assert sandbox(place, "down")[::2] == (0, "")
        assert ended(process) == 128 + signal.SIGTERM


def test_where_none_is_up_a_plugin_gets_a_sandbox_of_its_own(short_dir: Path) -> None:
    place = SandboxDir(short_dir / "sb")
    words = ["--", sys.executable, "-c", WAITS, "{dir}"]
    with started("sandbox", "run", "--dir", place.folder, *words) as process:
        said_until(process, "ready", on_error=False)
        assert "worker-0   Ready" in kubectl(place, "get", "nodes")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGINT
    assert "no sandbox was up; a new one was started, and ends with the program" in told
    assert f"  export KUBECONFIG={place.kubeconfig}\n" in told
    assert not place.is_claimed()


# ── a day with a plugin ──


def test_plugged_devices_reach_pods_and_everything_can_be_asked_for(up: SandboxDir, tmp_path: Path) -> None:
    file = tmp_path / "devplug.yaml"
    file.write_text(TTYS % up.devices)
    assert sandbox(up, "plug", "tty0", "tty1")[0] == 0
    with started("sandbox", "run", "--dir", up.folder, "--", *DEVPLUG, "run", "-c", file) as plugin:
        tty = "{.status.allocatable.example\\.com/tty}"
        wait_for(up, "node/worker-0", tty, "2")
        kubectl(up, "apply", "-f", "-", given=POD)
        wait_for(up, "pod/p", "{.status.phase}", "Running")
        code, said, _ = sandbox(up, "describe", "worker-0")
        assert code == 0
        assert "Pod default/p: Running\n  container c, in name only\n" in said
        assert re.search(rf"^    device  {up.devices}/tty\d \(rw\)  {up.devices}/tty\d$", said, re.MULTILINE)
        assert sandbox(up, "unplug", "tty1")[1] == "tty1: pulled out\n"
        wait_for(up, "node/worker-0", tty, "1")
        assert sandbox(up, "restart-kubelet", "worker-0")[1] == "worker-0: the kubelet has restarted\n"
        wait_for(up, "node/worker-0", tty, "1")
        assert sandbox(up, "reboot", "worker-0")[1] == "worker-0: rebooted\n"
        wait_for(up, "node/worker-0", tty, "1")
        kubectl(up, "delete", "pod", "p", "--wait=true")
        kubectl(up, "apply", "-f", "-", given=POD)
        wait_for(up, "pod/p", "{.status.phase}", "Running")
        assert sandbox(up, "end", "p", "--exit-code", "3")[1] == "pod default/p: ended with exit code 3\n"
        wait_for(up, "pod/p", "{.status.phase}", "Failed")
        plugin.send_signal(signal.SIGINT)
        assert ended(plugin) == 0
    wait_for(up, "node/worker-0", tty, "0")


def test_a_count_without_a_plugin_becomes_allocatable_and_goes_again(up: SandboxDir) -> None:
    ran = devplug("advertise", "worker-0", "example.com/seat=2", "--dir", up.folder)
    assert (ran.returncode, ran.stdout) == (0, "worker-0: example.com/seat 0 -> 2\n")
    wait_for(up, "node/worker-0", "{.status.allocatable.example\\.com/seat}", "2")
    ran = devplug("advertise", "worker-0", "--remove", "example.com/seat", "--dir", up.folder)
    assert ran.stdout == "worker-0: example.com/seat 2 -> removed\n"
    assert "example.com/seat" not in amounts(up, "capacity") | amounts(up, "allocatable")


def test_the_sandbox_is_a_cluster_for_those_who_know_its_kubeconfig_only(
    up: SandboxDir, tmp_path: Path
) -> None:
    copy = tmp_path / "config"
    shutil.copy(up.kubeconfig, copy)
    ran = devplug("advertise", "worker-1", "example.com/seat=1", "--kubeconfig", copy)
    assert (ran.returncode, ran.stdout) == (0, "worker-1: example.com/seat 0 -> 1\n")
    assert ran.stderr == "devplug: in the cluster of context devplug-sandbox\n"
