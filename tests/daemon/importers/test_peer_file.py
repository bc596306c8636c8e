"""Whose configuration a file is, and what in a manifest is one, with the lines that people see."""

from __future__ import annotations

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.importers.translation import translated
from devplug.errors import ConfigError

SQUAT = "devices:\n- name: fuse\n  groups:\n  - paths:\n    - path: /dev/fuse\n"
SMARTER = "- devicematch: ^fuse$\n  nummaxdevices: 1\n"
NVIDIA = "version: v1\n"

DAEMON_SET = """\
# from a repository
---
apiVersion: v1
kind: Namespace
metadata: {name: devices}
---
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - name: other
        args: [--devices]
      - name: plugin
        command: [generic-device-plugin, --domain=example.org]
        args:
        - --log-level
        - debug
        - --device
        - |
          name: serial
          groups:
            - paths:
                - path: /dev/ttyUSB*
            - paths:
                - path: dev/ttyACM*
        - '--device={"name": "fuse", "groups": [{"count": 10, "paths": [{"path": "/dev/fuse"}]}]}'
        - --device
        - "name: [broken"
---
"""

CONFIG_MAP = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  data:
    motd: hello
    default: |
      version: v1
      sharing:
        timeSlicing:
          resources:
          - {name: gpu, replicas: 2}
    mps: |-
      version: v1
      sharing:
        mps:
          resources: []
"""


def names(text: str) -> list[str]:
    return [resource.name for resource in load(text, "translated.yaml").resources]


@pytest.mark.parametrize(
    ("source", "peer"),
    [
        (SQUAT, "squat"),
        ("device: []\ndevices: []\n", "squat"),
        ("{name: ab, groups: []}", "squat"),
        (SMARTER, "smarter"),
        (NVIDIA, "nvidia"),
        ("sharing: {}", "nvidia"),
    ],
)
def test_a_peer_is_recognised_by_its_content(source: str, peer: str) -> None:
    assert translated(source, "x").peer == peer


def test_flags_in_a_daemonset_are_a_configuration() -> None:
    found = translated(DAEMON_SET, "x")
    assert names(found.text) == ["example.org/serial", "example.org/fuse"]
    assert "# from spec.template.spec.containers[1].args[3], line 22" in found.text
    messages = {(one.problem.line, one.problem.column): one.problem.message for one in found.remarks}
    assert "is not absolute" in messages[27, 19]
    assert "is not YAML" in messages[30, 11]


def test_a_flag_of_the_command_line_goes_before_the_manifest() -> None:
    assert names(translated(DAEMON_SET, "x", domain="a.b").text) == ["a.b/serial", "a.b/fuse"]


def test_of_several_configurations_in_a_config_map_one_is_chosen() -> None:
    with pytest.raises(ConfigError, match=r"several configurations \(default, mps\); choose one with --key"):
        translated(CONFIG_MAP, "x")
    found = translated(CONFIG_MAP, "x", key="default")
    assert load(found.text, "y").resources[0].share.replicas == 2
    (warning,) = (one.problem for one in translated(CONFIG_MAP, "x", key="mps").remarks)
    assert (warning.line, warning.column) == (18, 11)
    with pytest.raises(ConfigError, match="it has default, mps"):
        translated(CONFIG_MAP, "x", key="other")


def test_a_configuration_beside_a_manifest_without_one_is_found() -> None:
    source = f"---\n{SQUAT}---\napiVersion: v1\nkind: Service\n"
    assert names(translated(source, "x").text) == ["squat.ai/fuse"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "the file is empty; write a configuration of squat"),
        ("# nothing\n---\n", "the file is empty"),
        ("devices: [", "this is not YAML"),
        ("devices: &a []\n", "anchors are not supported"),
        (b"\xff\xfe", "UTF-16"),
        (b"---\ndevices: []\n---\n\xff", "is not UTF-8"),
        ("hello: world", "no configuration that is known here; write a configuration of squat"),
        ("version: 1\nresources: []\n", "a configuration of devplug already"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: [{args: [--config]}]}", "known here"),
        (f"{SQUAT}---\n{SMARTER}", "configurations of smarter and squat; choose one with --from"),
        (SQUAT.replace("devices", "devices: []\ndevices"), "stands here again"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_write(source: bytes | str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace("(", r"\(")):
        translated(source, "x")


def test_from_chooses_between_peers() -> None:
    assert translated("imex: {}\ndevices: []", "x", peer="nvidia").peer == "nvidia"
