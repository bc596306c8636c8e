"""What classes and claims configure: merged, checked, and never more than an administrator allows."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.driver.claims import ClaimRefusedError, Parameters
from devplug.driver.parameters import DeviceConfig, configured, merged
from tests.driver.world import decode

NODE = DeviceNode("/dev/ttyUSB0", "/dev/ttyUSB0", "rw")


def of(source: str, **content: object) -> Parameters:
    return Parameters(content, f"config.{source}", source == "class")


def test_what_comes_later_counts_and_variables_are_put_together() -> None:
    """D88: class before claim."""
    found = merged(
        [
            of("class", permissions="rw", env={"A": "1", "B": "1"}, containerPath="/dev/x"),
            of("claim", permissions="r", env={"B": "2"}),
        ],
        decode,
    )
    assert found == DeviceConfig("r", takes_away=False, env={"A": "1", "B": "2"}, container_path="/dev/x")
    assert merged([], decode) == DeviceConfig(takes_away=True)


def test_all_problems_of_all_parameters_are_told_at_once() -> None:
    parameters = [
        of("class", colour="red"),
        of("claim", permissions="x", env={"A=B": "", "C": "\0"}, containerPath="dev/x"),
    ]
    with pytest.raises(ClaimRefusedError) as caught:
        merged(parameters, decode)
    assert str(caught.value).split("; ") == [
        "config.class: colour: unknown key",
        'config.claim: permissions: "x" is not possible',
        "write some of r, w and m",
        "config.claim: env: the name \"A=B\" must be printable ASCII without '='",
        "config.claim: env.C: has a NUL byte",
        'config.claim: containerPath: "dev/x" is not absolute',
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/dev/../x", 'is not in normal form; write "/x"'),
        ("//dev", "is not absolute"),
        ("/dev/\n", "has characters that do not print"),
        ("/", "is a folder that each container has"),
        ("/usr", "is a folder that each container has"),
        ("/etc/", "is a folder that each container has"),
        ("/proc/x", "is in a folder that the runtime makes"),
        ("/dev/pts/", "is in a folder that the runtime makes"),
        ("/dev/urandom", "is a file that each container has"),
        ("/etc/passwd", "is a file that each container has"),
        *(
            (path, "is in a folder of the container's programs and their settings")
            for path in (
                *(
                    "/bin/sh",
                    "/usr/bin/env",
                    "/lib64/ld-linux-x86-64.so.2",
                    "/etc/nsswitch.conf",
                    "/etc/sudoers",
                ),
                *("/etc/ld.so.conf.d/x.conf", "/usr/lib/python3/sitecustomize.py", "/root/.profile"),
            )
        ),
    ],
)
def test_a_container_path_is_absolute_and_plain(path: str, text: str) -> None:
    assert [text in problem for problem in DeviceConfig(container_path=path).problems()] == [True]
    assert not list(DeviceConfig(container_path="/dev/ports/").problems())


LOADING = (
    *("PATH", "LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "_JAVA_OPTIONS", "PERLLIB"),
    *(
        "PYTHONUSERBASE",
        "LUA_INIT",
        "LUA_INIT_5_4",
        "DOTNET_STARTUP_HOOKS",
        "OPENSSL_CONF",
        "GIT_SSH_COMMAND",
    ),
    *("LESSOPEN", "PHPRC", "GEM_PATH", "ZDOTDIR", "PERL5DB", "PERL5LIB", "RUBYOPT", "HOME", "EDITOR"),
)


@pytest.mark.parametrize(
    "name", ["DEVICE_PATH", "PORTS", "NODE_NAME", "OLD_PATH", "PYTHON", "MY_HOME", "JAVA"]
)
def test_parameters_set_other_variables(name: str) -> None:
    assert merged([of("claim", env={name: "x"})], decode).env == {name: "x"}


@pytest.mark.parametrize("name", LOADING)
def test_parameters_set_no_variable_that_loads_code(name: str) -> None:
    for source in ("class", "claim"):
        with pytest.raises(ClaimRefusedError, match=f'"{name}" decides which programs and libraries run'):
            merged([of(source, env={name: "x"})], decode)


def test_a_value_of_parameters_is_bounded() -> None:
    assert not list(DeviceConfig(env={"A": "x" * 32768}).problems())
    assert list(DeviceConfig(env={"A": "x" * 32769}).problems()) == ["env.A: is longer than 32768 bytes"]


def test_a_folder_of_a_claim_makes_no_standard_node_of_a_devices_name() -> None:
    with pytest.raises(ClaimRefusedError, match='"/dev/random" is a file that each container has'):
        configured(
            ContainerResponse(device_nodes=[DeviceNode("/dev/x", "/opt/random")]),
            DeviceConfig(container_path="/dev/"),
        )


@pytest.mark.parametrize("limit", [{"permissions": "r"}, {}])
def test_a_claim_takes_permissions_away_and_never_adds_any(limit: Mapping[str, object]) -> None:
    """Anybody writes claims; a class is an administrator's."""
    with pytest.raises(ClaimRefusedError, match="a claim cannot add"):
        configured(
            ContainerResponse(device_nodes=[NODE]),
            merged([of("class", **limit), of("claim", permissions="rwm")], decode),
        )


def test_a_class_may_add_permissions() -> None:
    given = configured(
        ContainerResponse(device_nodes=[NODE]), merged([of("class", permissions="rwm")], decode)
    )
    assert given.device_nodes[0].permissions == "rwm"
    taken = configured(ContainerResponse(device_nodes=[NODE]), merged([of("claim", permissions="r")], decode))
    assert taken.device_nodes[0].permissions == "r"


def test_a_path_is_for_one_node_or_a_folder_for_several() -> None:
    two = ContainerResponse(device_nodes=[NODE, "/dev/video0"])
    with pytest.raises(ClaimRefusedError, match=re.escape('the device has 2 nodes; write "/dev/x/"')):
        configured(two, DeviceConfig(container_path="/dev/x"))
    given = configured(two, DeviceConfig(container_path="/dev/x/"))
    assert [node.container_path for node in given.device_nodes] == ["/dev/x/ttyUSB0", "/dev/x/video0"]
    one = configured(ContainerResponse(device_nodes=[NODE]), DeviceConfig(container_path="/dev/x"))
    assert one.device_nodes == (DeviceNode("/dev/ttyUSB0", "/dev/x"),)


def test_the_rest_of_a_response_stays_but_for_annotations() -> None:
    mount = Mount("/opt/lib")
    response = ContainerResponse(
        mounts=[mount], envs={"A": "1"}, annotations={"a": "b"}, cdi_devices=["x.example.com/gpu=0"]
    )
    assert configured(response, DeviceConfig(env={"B": "2"})) == ContainerResponse(
        mounts=[mount], envs={"A": "1", "B": "2"}, cdi_devices=["x.example.com/gpu=0"]
    )
