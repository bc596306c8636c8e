"""What `devplug sandbox` asks of the sandbox that is up, and what it prints, without the sandbox itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from devplug.cli.commands import commands
from devplug.cli.exits import exit_code_of
from devplug.k8s.objects import Object
from tests.cli.programs import devplug
from tests.sandbox.standin import StandIn, up_in


class Ask(Protocol):
    def __call__(self, *words: str) -> tuple[int, str, str]: ...


@pytest.fixture
def ask(standin: StandIn, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command in this process, which is faster by half a second; returns exit code and outputs."""

    def asked(*words: str) -> tuple[int, str, str]:
        arguments = ["sandbox", *words, "--dir", str(standin.place.folder)]
        code = exit_code_of(lambda: commands.main(arguments, standalone_mode=False))
        return code, *capsys.readouterr()

    return asked


@pytest.fixture
def standin(short_dir: Path) -> Iterator[StandIn]:
    with up_in(short_dir) as (_, standin):
        yield standin


def test_a_kubelet_is_restarted_on_the_node_that_is_named(standin: StandIn, ask: Ask) -> None:
    said = ask("restart-kubelet", "worker-1")
    assert said == (0, "worker-1: the kubelet has restarted\n", "")
    assert standin.cluster.called == [("restart", "worker-1")]


def test_a_kubelet_is_restarted_on_all_nodes_if_none_is_named(standin: StandIn, ask: Ask) -> None:
    assert ask("restart-kubelet")[0] == 0
    assert standin.cluster.called == [("restart", "worker-0"), ("restart", "worker-1")]


def test_the_api_server_is_taken_from_a_node_and_brought_back(standin: StandIn, ask: Ask) -> None:
    assert ask("disconnect", "worker-1")[1] == "worker-1: the API server is away\n"
    assert ask("reconnect", "worker-1")[1] == "worker-1: the API server is back\n"
    assert standin.cluster.called == [("disconnect", "worker-1"), ("reconnect", "worker-1")]


def test_what_the_sandbox_refuses_is_said_in_one_line(standin: StandIn, ask: Ask) -> None:
    assert ask("reboot", "worker-0") == (1, "", "devplug: worker-0 does not come back\n")
    code, _, said = ask("reboot", "worker-9")
    assert (code, said) == (1, 'devplug: the sandbox has no node "worker-9"; it has worker-0, worker-1\n')


def test_devices_are_plugged_in_and_pulled_out(standin: StandIn, ask: Ask) -> None:
    folder = standin.place.devices
    assert ask("plug", "tty0", "tty1") == (
        0,
        f"tty0: was plugged in already, {folder}/tty0\ntty1: plugged in, {folder}/tty1\n",
        "",
    )
    assert ask("unplug") == (0, "tty0\n", "")
    assert ask("unplug", "tty0") == (0, "tty0: pulled out\n", "")
    assert ask("unplug", "tty0", "tty1")[:2] == (1, "tty0: pulled out\ntty1: was not plugged in\n")


def test_a_pod_is_ended_as_it_was_asked_for(standin: StandIn, ask: Ask) -> None:
    assert ask("end", "p")[1] == "pod default/p: ended with exit code 0\n"
    said = ask("end", "p", "-n", "lab", "-c", "main", "--exit-code", "3")
    assert said == (0, "container main of pod lab/p: ended with exit code 3\n", "")
    assert standin.cluster.called == [("end", "default", "p", None, 0), ("end", "lab", "p", "main", 3)]


def test_a_pod_that_is_not_there_cannot_be_ended(standin: StandIn, ask: Ask) -> None:
    assert ask("end", "gone") == (1, "", 'devplug: pods "gone" not found\n')


# ── describe ──


def test_a_description_for_programs_is_what_the_nodes_say(standin: StandIn, ask: Ask) -> None:
    code, said, _ = ask("describe", "-o", "json")
    assert code == 0
    assert json.loads(said) == {"nodes": [{"node": "worker-0"}, {"node": "worker-1"}]}
    assert ask("describe", "worker-1", "-o", "yaml")[1] == "nodes:\n  - node: worker-1\n"


DESCRIPTION: Object = {
    "node": "worker-0",
    "is_kubelet_running": False,
    "capacity": {"cpu": "2", "example.com/tty": "3", "example.com/licence": "2"},
    "allocatable": {"cpu": "2", "example.com/tty": "1"},
    "resources": [
        {
            "name": "example.com/tty",
            "devices": [
                {
                    "id": "a",
                    "health": "Healthy",
                    "is_usable": True,
                    "numa_nodes": [0, 1],
                    "held_by": "lab/p/c",
                },
                {"id": "b", "health": "Unhealthy", "is_usable": False, "numa_nodes": [], "held_by": ""},
                {"id": "c", "health": "", "is_usable": False, "numa_nodes": [], "held_by": "lab/p/c"},
                {"id": "d", "health": "Healthy", "is_usable": False, "numa_nodes": [], "held_by": ""},
            ],
        }
    ],
    "claims": [
        {
            "namespace": "lab",
            "name": "gpus",
            "used_by": ["lab/p", "lab/q"],
            "drivers": [
                {"name": "a.example.com", "devices": [{"pool": "worker-0", "device": "gpu-0"}]},
                {"name": "b.example.com", "devices": []},
            ],
        }
    ],
    "pods": [
        {
            "namespace": "lab",
            "name": "p",
            "phase": "Running",
            "reason": "",
            "containers": [
                {
                    "name": "c",
                    "is_running": True,
                    "is_in_name_only": True,
                    "device_nodes": [
                        {"host_path": "/dev/a", "container_path": "/dev/tty0", "permissions": "rw"}
                    ],
                    "mounts": [{"host_path": "/srv", "container_path": "/lib/x", "read_only": True}],
                    "envs": [{"name": "TTY", "value": "/dev/tty0"}],
                    "annotations": {"example.com/x": "y", "io.kubernetes.container.hash": "1"},
                    "cdi_devices": ["example.com/tty=a"],
                },
                {"name": "d", "is_running": False, "is_in_name_only": False},
            ],
        },
        {"namespace": "lab", "name": "q", "phase": "Failed", "reason": "UnexpectedAdmissionError"},
    ],
}
SHOWN = """\
Node worker-0 (its kubelet does not run)
RESOURCE             CAPACITY  ALLOCATABLE
example.com/licence  2         -
example.com/tty      3         1

RESOURCE         DEVICE  HEALTH                NUMA  HELD BY
example.com/tty  a       Healthy               0,1   lab/p/c
example.com/tty  b       Unhealthy             -     -
example.com/tty  c       not listed            -     lab/p/c
example.com/tty  d       Healthy, plugin gone  -     -

CLAIM     DRIVER         PREPARED        USED BY
lab/gpus  a.example.com  worker-0/gpu-0  lab/p, lab/q
lab/gpus  b.example.com  nothing yet     lab/p, lab/q

Pod lab/p: Running
  container c, in name only
    WHAT        IN THE CONTAINER    ON THE NODE
    device      /dev/tty0 (rw)      /dev/a
    mount       /lib/x (read-only)  /srv
    env         TTY=/dev/tty0
    annotation  example.com/x=y
    cdi         example.com/tty=a
  container d, not running: nothing given

Pod lab/q: Failed (UnexpectedAdmissionError)
"""


def test_a_description_for_people_has_devices_claims_holders_and_what_containers_get(
    standin: StandIn, ask: Ask
) -> None:
    standin.cluster.descriptions["worker-0"] = DESCRIPTION
    assert ask("describe", "worker-0") == (0, SHOWN, "")


def test_a_node_without_resources_is_shown_with_what_to_do(standin: StandIn, ask: Ask) -> None:
    code, said, _ = ask("describe")
    hint = "no resources; start a plugin: devplug sandbox run -- ./my-plugin --dir {dir}"
    assert (code, said) == (0, f"Node worker-0\n{hint}\n\nNode worker-1\n{hint}\n")


# ── none is up ──


@pytest.mark.parametrize(
    "words",
    [["restart-kubelet"], ["reboot"], ["plug", "x"], ["unplug"], ["unplug", "x"], ["describe"], ["end", "p"]],
)
def test_where_no_sandbox_is_up_every_operation_says_how_to_start_one(
    short_dir: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sandbox", *words, "--dir", str(short_dir / "sb")]
    code = exit_code_of(lambda: commands.main(arguments, standalone_mode=False))
    said = f"devplug: no sandbox is up in {short_dir}/sb; start one: devplug sandbox up\n"
    assert (code, *capsys.readouterr()) == (1, "", said)


def test_the_folder_may_be_named_by_the_environment(short_dir: Path) -> None:
    ran = devplug("sandbox", "down", DEVPLUG_SANDBOX_DIR=str(short_dir / "sb"))
    assert (ran.returncode, ran.stdout) == (1, "")
    told = f"no sandbox is up in {short_dir}/sb; the folder of another one goes with --dir"
    assert ran.stderr == f"devplug: {told}\n"


# ── bad input of up ──


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--image", "x"],
            "--image takes NAME=COMMAND, as in my-plugin='./my-plugin --dir {dir}', not \"x\"",
        ),
        (["--image", "x="], "--image takes NAME=COMMAND"),
        (["--image", "x='a"], "No closing quotation"),
        (["--tls-cert", "/dev/null"], "--tls-cert and --tls-key need each other; give both"),
        (["--tls-cert", "/nowhere", "--tls-key", "/dev/null"], "cannot read /nowhere: No such file"),
        (["--policy", "strict"], "'strict' is not one of"),
        (["--nodes", "0"], "not in the range"),
    ],
)
def test_bad_input_of_up_is_refused_before_anything_starts(
    short_dir: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sandbox", "up", *words, "--dir", str(short_dir / "sb")]
    assert exit_code_of(lambda: commands.main(arguments, standalone_mode=False)) == 2
    assert said in capsys.readouterr().err
    assert not (short_dir / "sb").exists()


def test_a_second_sandbox_in_the_background_is_refused_where_one_is_up(standin: StandIn, ask: Ask) -> None:
    code, _, said = ask("up", "--detach")
    assert code == 1
    assert said.startswith(f"devplug: a sandbox is up in {standin.place.folder}; end it with")
