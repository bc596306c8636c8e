"""`devplug manifests` as people use it: what is printed, what is written, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import UsageError
from click.testing import CliRunner, Result

from devplug import __version__
from devplug.cli.exits import BAD_INPUT, OK
from devplug.cli.manifests import manifests_command
from devplug.deploy.chart import starter
from devplug.deploy.names import Release
from devplug.errors import ConfigError
from tests.deploy.policies import granted
from tests.deploy.renderings import (
    CHART,
    by_name,
    container,
    kustomized,
    needs_helm,
    needs_kubectl,
    ours,
    pod_spec,
    rendered,
)

NEEDY = """\
version: 1
resources:
  - name: example.com/a
    discover:
      path: /dev/a*
    expose:
      strategy: cdi
    nodeSelector:
      lab: "true"
"""


def call(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(manifests_command, words, input=text, standalone_mode=False)


def objects_of(result: Result) -> dict[tuple[str, str], dict[str, Any]]:
    assert result.return_value == OK, result.output
    return by_name(yaml.safe_load_all(result.output))


@pytest.fixture
def needy(tmp_path: Path) -> str:
    (tmp_path / "needy.yaml").write_text(NEEDY)
    return str(tmp_path / "needy.yaml")


def test_no_text_of_a_configuration_becomes_yaml_of_a_comment(tmp_path: Path) -> None:
    rule = r'health: [{file: "/opt/x\nkind: Evil\u2028kind: Evil\n/y", equals: "1"}]'
    file = tmp_path / "devplug.yaml"
    file.write_text(f"version: 1\nresources:\n- {{name: a.b/c, discover: {{path: /dev/x}}, {rule}}}\n")
    for form in ("manifests", "chart-values"):
        done = CliRunner().invoke(manifests_command, ["-c", str(file), "--format", form])
        assert done.exit_code == OK
        assert "/opt/x kind: Evil kind: Evil" in done.stdout
        assert not any(line.startswith("kind: Evil") for line in done.stdout.splitlines())


def test_without_a_configuration_a_starter_is_deployed_and_said_to_be_one() -> None:
    result = call()
    assert "a starter" in result.output.splitlines()[0]
    assert objects_of(result) == ours(
        {"fullnameOverride": "devplug", "createNamespace": True}, Release("devplug", "devplug", __version__)
    )
    assert objects_of(result)["ConfigMap", "devplug"]["data"]["config.yaml"] == starter()


def test_the_file_goes_into_the_config_map_to_the_letter_and_the_grants_follow_from_it(needy: str) -> None:
    result = call("-c", needy)
    objects = objects_of(result)
    assert objects["ConfigMap", "devplug"]["data"] == {"config.yaml": NEEDY}
    assert granted(objects) == {"dev", "cdi", "token"}
    heads = [line for line in result.output.splitlines() if line.startswith("#")]
    assert any("/var/run/cdi" in line and "resources[0].expose.strategy" in line for line in heads)


def test_a_configuration_is_read_from_standard_input_too() -> None:
    assert granted(objects_of(call("-c", "-", text=NEEDY))) == {"dev", "cdi", "token"}


def test_what_is_wrong_with_a_configuration_is_told_with_its_lines(needy: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(NEEDY.replace("path:", "paht:"))
    result = call("-c", str(tmp_path / "wrong.yaml"))
    assert isinstance(result.exception, ConfigError)
    assert "5" in result.exception.lines()[0]


def test_flags_go_where_they_belong(needy: str) -> None:
    result = call(
        *("-c", needy, "--name", "plug", "-n", "kube-system", "--kubelet-root", "/var/lib/k0s/kubelet/"),
        *("--image", "registry.lab:5000/devplug:7", "--runtime-class", "kata", "--kube-events"),
    )
    objects = objects_of(result)
    assert ("DaemonSet", "plug") in objects
    assert ("Namespace", "kube-system") not in objects
    assert {one["metadata"].get("namespace", "kube-system") for one in objects.values()} == {"kube-system"}
    pod = pod_spec(objects)
    assert pod["runtimeClassName"] == "kata"
    assert container(objects)["image"] == "registry.lab:5000/devplug:7"
    assert "--kube-events" in container(objects)["args"]
    assert "/var/lib/k0s/kubelet/pod-resources" in json.dumps(pod["volumes"])


def test_an_image_may_have_a_digest() -> None:
    digest = "sha256:" + "0" * 64
    objects = objects_of(call("--image", f"a/b:1@{digest}"))
    assert container(objects)["image"] == f"a/b@{digest}"


def test_json_is_one_list_of_the_same_objects(needy: str) -> None:
    whole = json.loads(call("-c", needy, "-o", "json").output)
    assert whole["kind"] == "List"
    assert by_name(whole["items"]) == objects_of(call("-c", needy))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--format", "chart"), "need --to DIR"),
        (("--to", "x"), "the other formats are printed and take no --to"),
        (("--image", "a b"), "is no image"),
        (("--kubelet-root", "var"), "begin with /"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(manifests_command, words)
    assert result.exit_code == BAD_INPUT
    assert told in result.output


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = call("--format", "chart", "--to", str(tmp_path / "file"))
    assert result.return_value == BAD_INPUT
    assert "name another --to" in result.output


def test_the_chart_is_written_whole_with_the_configuration_as_its_default(needy: str, tmp_path: Path) -> None:
    folder = tmp_path / "devplug"
    assert call("-c", needy, "--format", "chart", "--to", str(folder)).return_value == OK
    there = {str(file.relative_to(CHART)) for file in CHART.rglob("*") if file.is_file()}
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == there
    values = yaml.safe_load((folder / "values.yaml").read_text())
    assert values["config"]["inline"] == NEEDY
    assert values["cdi"]["enabled"] is values["nodeLabels"]["enabled"] is True


@needs_helm
def test_the_values_for_the_chart_make_the_same_as_the_manifests(needy: str) -> None:
    values = yaml.safe_load(call("-c", needy, "--format", "chart-values").output)
    release = Release("devplug", "devplug", __version__, "Helm")
    same = rendered({**values, "createNamespace": True}, release)
    printed = objects_of(call("-c", needy))
    assert json.loads(json.dumps([*same.values()]).replace('"Helm"', '"devplug"')) == [
        printed[key] for key in same
    ]
    assert same.keys() == printed.keys()


@needs_kubectl
def test_a_base_for_a_configuration_is_written_and_builds(needy: str, tmp_path: Path) -> None:
    result = call("-c", needy, "--format", "kustomize", "--to", str(tmp_path / "base"))
    assert result.return_value == OK
    assert kustomized(tmp_path / "base") == objects_of(call("-c", needy))


@needs_kubectl
def test_kubectl_reads_what_is_printed(needy: str, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(call("-c", needy).output)
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    assert kustomized(tmp_path) == objects_of(call("-c", needy))


def test_the_help_has_examples() -> None:
    result = CliRunner().invoke(manifests_command, ["--help"])
    assert "kubectl apply -f -" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("--name", "A b: c"),
        ("--name", "x" * 64),
        ("--namespace", "-a"),
        ("--runtime-class", "a/b"),
        ("--kubelet-root", "/var\nx: y"),
        ("--image", "a\x1b[2J"),
    ],
)
def test_names_that_kubernetes_refuses_are_refused(words: tuple[str, str]) -> None:
    refused = call(*words).exception
    assert isinstance(refused, UsageError)
    assert words[0] in str(refused)


def test_names_of_kubernetes_are_taken() -> None:
    taken = call(
        "--name", "a-1", "--namespace", "b", "--runtime-class", "c.d-e", "--kubelet-root", "/data/k b"
    )
    assert taken.return_value == OK
