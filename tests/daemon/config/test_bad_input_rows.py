"""Bad input of a configuration: what the other tests of the file leave open, each with its sentence.

Bytes and YAML: `test_config_document`. Names, keys, types: `test_config_mistakes`. Paths and claims:
`test_config_paths`. Replicas, permissions, mounts, variables: `test_config_rules`. Reload: `test_reload`.
"""

from __future__ import annotations

import json

import pytest

from devplug.daemon.config.loader import read


def messages(text: str) -> list[str]:
    return [str(problem).removeprefix("resources[0].") for problem in read(text).problems]


def resource(rest: str, discover: str = "path: /dev/x") -> str:
    return f"version: 1\nresources:\n- {{name: a.b/c, discover: {{{discover}}}, {rest}}}\n"


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("0", "0 is out of range; write 1 or more"),
        ("-1", "-1 is out of range; write 1 or more"),
        ("1.5", "1.5 is not a whole number"),
        ("1e9", "1e9 is not a plain whole number; write 1000000000"),
        ("yes", "yes is not a whole number"),
        ('"3"', 'the text "3" is not a number; write 3 without quotes'),
    ],
)
def test_replicas_are_a_plain_number_from_one_on(written: str, advice: str) -> None:
    assert messages(resource(f"share: {{replicas: {written}}}")) == [f"share.replicas: {advice}"]


@pytest.mark.parametrize("name", ["memory", "ephemeral-storage", "pods"])
def test_a_resource_of_kubernetes_itself_is_no_name(name: str) -> None:
    assert messages(f"version: 1\nresources: [{{name: {name}, discover: {{path: /dev/x}}}}]") == [
        f'name: "{name}" needs a domain and a kind, as in "example.com/fpga"'
    ]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("6", 'YAML reads 6 as a number; write "6"'),
        ("m", '"m" is not possible; write one of r, rw, rwm, w'),
        ("wr", '"wr" is not possible; did you mean rw?'),
    ],
)
def test_permissions_are_a_text(written: str, advice: str) -> None:
    assert messages(resource(f"expose: {{permissions: {written}}}")) == [f"expose.permissions: {advice}"]


def test_ten_thousand_resources_are_refused_with_the_limit() -> None:
    text = "version: 1\nresources: [" + "{name: a.b/c}, " * 10_001 + "]"
    assert messages(text) == ["resources: has 10001 items; at most 1,000 are possible"]


def test_a_mount_has_an_absolute_path_in_the_container() -> None:
    assert messages(resource("expose: {mounts: [{hostPath: /opt/x, containerPath: data}]}")) == [
        'expose.mounts[0].containerPath: "data" is not absolute; write the path from / on'
    ]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("0s", "0s is out of range; write "),
        ("1ms", "1ms is out of range; write "),
        ("87600h", "87600h is out of range; write "),
        ("-1s", "is not a duration; write one such as "),
        ("30", "30 has no unit; write 30s if seconds are meant"),
    ],
)
def test_a_period_has_a_range_that_is_told(written: str, advice: str) -> None:
    found = messages(resource(f"health: [{{open: true, period: {written}}}]"))
    assert any(one.startswith(f"health[0].period: {advice}") for one in found)


def test_json_has_the_errors_of_yaml_at_places_of_its_own() -> None:
    value = {
        "version": 1,
        "resources": [{"name": "a.b/c", "discover": {"path": "dev/x"}, "share": {"replicas": 0}, "x": 1}],
    }
    written = json.dumps(value, indent=1)
    assert messages(written) == messages(json.dumps(value))
    assert [one.partition(":")[0] for one in messages(written)] == ["discover.path", "share.replicas", "x"]
    assert [problem.line for problem in read(written).problems] == [7, 10, 12]


def test_two_numa_nodes_for_one_device_in_two_selectors_are_an_id_that_exists_twice() -> None:
    text = resource("", "static: [{ids: [a], numaNodes: {a: 0}}, {ids: [a], numaNodes: {a: 1}}]")
    assert messages(text) == [
        (
            'discover.static[1].ids[0]: the ID "a" exists already '
            "(resources[0].discover.static[0].ids[0], line 3)"
        )
    ]


def test_a_claim_by_two_names_both_lines_and_what_helps() -> None:
    text = (
        "version: 1\nresources:\n- {name: a.b/c, discover: {path: /dev/x}}\n"
        "- {name: a.b/d, discover: {path: /dev/x}}\n"
    )
    (problem,) = read(text).problems
    assert problem.line == 4
    assert str(problem) == (
        'resources[1].discover.path: "/dev/x" belongs to another resource already; write overlap: '
        "shared in both, "
        "or exclude it (resources[0].discover.path, line 3)"
    )
