"""The command of a container: the program that stands for its image, its arguments and its variables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.nodes.containercommand import (
    expanded,
    field_value,
    host_paths,
    image_of,
    mapped,
    variables_of,
    words_of,
)
from tests.sandbox.containers.beds import pod

DIGEST = "sha256:" + "0" * 64
FULL = f"registry.k8s.io:443/e2e/sample-device-plugin:1.7@{DIGEST}"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (FULL, FULL),
        (FULL, f"sample-device-plugin@{DIGEST}"),
        (FULL, "registry.k8s.io:443/e2e/sample-device-plugin:1.7"),
        (FULL, "e2e/sample-device-plugin:1.7"),
        (FULL, "e2e/sample-device-plugin"),
        (FULL, "sample-device-plugin"),
        ("plugin", "plugin"),
        ("plugin", "plugin:latest"),
        ("plugin", "docker.io/library/plugin"),
        ("docker.io/library/plugin:latest", "plugin"),
        ("me/plugin:2", "docker.io/me/plugin:2"),
        ("localhost/plugin", "plugin"),
        ("localhost:5000/plugin", "localhost:5000/plugin:latest"),
    ],
)
def test_a_name_may_leave_out_what_it_likes(image: str, name: str) -> None:
    assert mapped(image, {name: ["right"], "other": ["wrong"]}) == ["right"]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (FULL, "plugin"),
        (FULL, "device-plugin"),
        (FULL, "e2e"),
        (FULL, "sample-device-plugin:1.8"),
        (FULL, "docker.io/e2e/sample-device-plugin"),
        ("plugin", "plugin:1"),
        ("localhost/plugin", "docker.io/localhost/plugin"),
    ],
)
def test_a_name_that_says_something_else_does_not_fit(image: str, name: str) -> None:
    assert mapped(image, {name: ["wrong"]}) is None


def test_the_name_that_says_most_wins() -> None:
    names = [
        f"e2e/plugin:1@{DIGEST}",
        f"e2e/plugin@{DIGEST}",
        "e2e/plugin:1",
        "e2e/plugin",
        f"plugin:1@{DIGEST}",
        f"plugin@{DIGEST}",
        "plugin:1",
        "plugin",
    ]
    images = {name: [name] for name in reversed(names)}
    for name in names:
        assert mapped(f"example.com/e2e/plugin:1@{DIGEST}", images) == [name]
        del images[name]


@given(st.text(max_size=40))
def test_a_name_that_is_the_image_itself_always_fits(image: str) -> None:
    assert mapped(image, {image: ["right"]}) == ["right"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("--node=$(NODE)", "--node=worker-0"),
        ("$(NODE)$(NODE)", "worker-0worker-0"),
        ("$$(NODE)", "$(NODE)"),
        ("$$$(NODE)", "$worker-0"),
        ("$(UNKNOWN) $(", "$(UNKNOWN) $("),
        ("$NODE ${NODE} $", "$NODE ${NODE} $"),
        ("$x$(NODE)", "$xworker-0"),
    ],
)
def test_references_are_replaced_as_kubernetes_does(written: str, value: str) -> None:
    assert expanded(written, {"NODE": "worker-0"}) == value


@given(st.text(alphabet="$()A b", max_size=20))
def test_a_text_that_was_escaped_comes_out_as_it_was(text: str) -> None:
    assert expanded(text.replace("$", "$$"), {"A": "wrong"}) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "plugin"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "one"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "worker-0"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7,fd00::7"),
    ],
)
def test_a_variable_may_have_a_field_of_its_pod(path: str, value: str) -> None:
    one = pod()
    one["status"]["podIPs"] = [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]
    assert field_value(one, path, "worker-0") == value


def test_variables_of_the_spec_win_over_those_of_plugins_and_may_refer_to_them() -> None:
    env: Any = [
        {"name": "OWN", "value": "of the spec"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "BOTH", "value": "$(OWN), $(NODE), $(DEVICE), $(LATER)"},
        {"name": "LATER", "value": ""},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    given = [("DEVICE", "d0"), ("OWN", "of a plugin")]
    assert variables_of({"env": env}, pod(), "worker-0", given) == {
        "DEVICE": "d0",
        "OWN": "of the spec",
        "NODE": "worker-0",
        "BOTH": "of the spec, worker-0, d0, $(LATER)",
        "LATER": "",
    }


def test_the_command_stands_in_for_the_image_and_for_its_own_command() -> None:
    container: Any = {"command": ["/plugin"], "args": ["--node=$(NODE)", "{dir}"]}
    command = ["python", "-m", "plugin"]
    known = {"NODE": "worker-0"}
    assert words_of(command, container, known) == command
    assert words_of([*command, "{args}"], container, known) == [*command, "--node=worker-0", "{dir}"]
    assert words_of(["a", "{args}"], {}, known) == ["a"]


@pytest.mark.parametrize(
    ("mounted", "paths"),
    [([], []), (["plugins"], ["/a"]), (["x"], []), (["x", "dev", "plugins", "missing"], ["/a", "/dev"])],
)
def test_a_container_has_the_paths_of_the_node_that_it_mounts(mounted: list[str], paths: list[str]) -> None:
    one = pod(volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in mounted])
    one["spec"]["volumes"] = [
        {"name": "plugins", "hostPath": {"path": "/a"}},
        {"name": "dev", "hostPath": {"path": "/dev"}},
        {"name": "x", "emptyDir": {}},
    ]
    assert host_paths(one, one["spec"]["containers"][0]) == paths


def test_an_image_is_found_in_containers_of_every_sort() -> None:
    one = pod()
    one["spec"]["initContainers"] = [{"name": "i", "image": "init"}]
    assert [image_of(one, name) for name in ("c", "i", "none")] == ["example.com/plugins/one:1.0", "init", ""]
