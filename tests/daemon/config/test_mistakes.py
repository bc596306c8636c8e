"""Each way to get the file wrong, and the sentence that says what to change."""

from __future__ import annotations

import json

import pytest

from devplug.daemon.config.loader import read
from tests.daemon.hosts import messages

KNOWN_KEYS = (
    "name, id, serve, discover, expose, share, overlap, health, prefer, whenNone, whenUnplugged, "
    "whenUnhealthy, onRelease, onLost, nodeNames, nodeSelector, allow"
)


def resource(rest: str) -> str:
    return f'version: 1\nresources:\n- {{name: a.b/c, discover: {{path: "/dev/x*"}}, {rest}}}\n'


def discovering(what: str, rest: str = "") -> str:
    return f"version: 1\nresources:\n- {{name: a.b/c, discover: {{{what}}}, {rest}}}\n"


def named(name: str) -> str:
    return f"version: 1\nresources:\n- {{name: {name}, discover: {{path: /dev/x}}}}\n"


# ── the file as a whole ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the file is a list; write a map with version, driver, resources"),
        ("hello", 'the file is "hello"; write a map with version, driver, resources'),
        (
            "resources: [{name: a.b/c, discover: {path: /dev/x}}]",
            "version is missing: version of this format: 1",
        ),
        ("version: 2", "version: 2 is not possible; this devplug reads version 1"),
        ('version: "1"', 'version: the text "1" is not a number; write 1 without quotes'),
        ("version: 1.0", "version: 1.0 is not possible; this devplug reads version 1"),
        ("version: true", "version: true is not possible; this devplug reads version 1"),
        ("version: 1\nresources: []", "resources: is an empty list; write at least one item"),
        ("version: 1\nresources: {}", "resources: is a map; write a list: [...]"),
        ("version: 1\nresources: x", 'resources: is one value; write a list: ["x"]'),
        ("version: 1\nresources:", "resources: is nothing; write a list: [...]"),
        (
            "version: 1\nresources: [" + "a, " * 1001 + "]",
            "resources: has 1001 items; at most 1,000 are possible",
        ),
        ("version: 1\nresources: [7]", f"resources[0]: is 7; write a map with {KNOWN_KEYS}"),
    ],
)
def test_a_file_of_the_wrong_shape_is_told_what_to_write(text: str, message: str) -> None:
    assert message in messages(text)


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ('""', '"" needs a domain and a kind, as in "example.com/fpga"'),
        ("cpu", '"cpu" needs a domain and a kind, as in "example.com/fpga"'),
        ("hugepages-2Mi", '"hugepages-2Mi" needs a domain and a kind, as in "example.com/fpga"'),
        ("ephemeral-storage", '"ephemeral-storage" needs a domain and a kind, as in "example.com/fpga"'),
        ("a.b/c/d", 'has more than one "/"'),
        ("A.b/c", 'has the domain "A.b"'),
        ("kubernetes.io/x", 'contains "kubernetes.io/"'),
        ("a.kubernetes.io/x", 'contains "kubernetes.io/"'),
        ("xkubernetes.io/y", 'contains "kubernetes.io/"'),
        ("requests.x/y", 'starts with "requests."'),
        (f"{'a' * 245}/y", "has a domain of 245 characters; at most 244 fit"),
        (f"a.b/{'c' * 64}", "has a kind of 64 characters; at most 63 fit"),
        ("a.b/_x", 'has the kind "_x"'),
        ("a.b/x-", 'has the kind "x-"'),
        ('"a.b/x y"', 'has the kind "x y"'),
        ('"a.b/ü"', 'has the kind "\\u00fc"'),
    ],
)
def test_a_resource_name_that_the_kubelet_refuses_is_refused_here_with_the_rule(name: str, rule: str) -> None:
    (message,) = messages(named(name))
    assert message.startswith("name: ")
    assert rule in message


def test_a_resource_that_exists_twice_names_both_lines() -> None:
    text = (
        "version: 1\nresources:\n- {name: a.b/c, discover: {path: /dev/x}}\n"
        "- {name: a.b/c, discover: {path: /dev/y}}\n"
    )
    assert messages(text) == [
        'resources[1].name: the resource "a.b/c" exists already (resources[0].name, line 3)'
    ]


# ── what YAML makes of things ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("0403", 'YAML reads 0403 as 259; write "0403"'),
        ("0755", 'YAML reads 0755 as 493; write "0755"'),
        ("0899", 'YAML reads 0899 as 899; write "0899"'),
        ("0o17", 'YAML reads 0o17 as 15; write "0o17"'),
        ("0x1f", 'YAML reads 0x1f as 31; write "0x1f"'),
        ("1_000", 'YAML reads 1_000 as 1000; write "1_000"'),
        ("1e3", 'YAML reads 1e3 as 1000.0; write "1e3"'),
        ("12:30:45", 'YAML reads 12:30:45 as 45045; write "12:30:45"'),
        ("42", 'YAML reads 42 as a number; write "42"'),
        ("1.10", 'YAML reads 1.10 as 1.1; write "1.10"'),
        (".inf", 'YAML reads .inf as inf; write ".inf"'),
        ("9" * 70, f'YAML reads {"9" * 45}... as a number; write "{"9" * 59}..."'),
        ("yes", 'YAML reads yes as true; write "yes"'),
        ("No", 'YAML reads No as false; write "No"'),
        ("on", 'YAML reads on as true; write "on"'),
        ("true", 'YAML reads true as a boolean; write "true"'),
        ("null", 'YAML reads null as nothing; write "null", or leave the key out'),
        ("~", 'YAML reads ~ as nothing; write "~", or leave the key out'),
        ("2024-01-31", 'YAML reads 2024-01-31 as a date; write "2024-01-31"'),
        ("", "is empty; write a value, or leave the key out"),
        ("[a]", "is a list; write one text"),
        ("{a: b}", "is a map; write one text"),
        ("{ids}", 'YAML reads {ids} as a map; write "{ids}"'),
        ("{attrs.x}", 'YAML reads {attrs.x} as a map; write "{attrs.x}"'),
    ],
)
def test_where_a_text_is_wanted_the_error_says_what_yaml_read_instead(written: str, advice: str) -> None:
    assert messages(resource(f"expose: {{env: {{A: {written}}}}}")) == [f"expose.env.A: {advice}"]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ('"3"', 'the text "3" is not a number; write 3 without quotes'),
        ("1.5", "1.5 is not a whole number"),
        ("1e9", "1e9 is not a plain whole number; write 1000000000"),
        ("1_000", "YAML reads 1_000 as 1000; write the plain number"),
        ("0755", "YAML reads 0755 as 493; write the plain number"),
        ("many", '"many" is not a whole number'),
        ("yes", "yes is not a whole number"),
        ("[1]", "is a list; write a whole number"),
        ("0", "0 is out of range; write 1 or more"),
        ("-1", "-1 is out of range; write 1 or more"),
        ("", "nothing is not a whole number"),
    ],
)
@pytest.mark.parametrize("key", ["replicas", "maxPerContainer"])
def test_where_a_count_is_wanted_only_a_plain_number_will_do(key: str, written: str, advice: str) -> None:
    assert messages(resource(f"share: {{{key}: {written}}}")) == [f"share.{key}: {advice}"]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("yes", "yes is neither true nor false; write true without quotes"),
        ("off", "off is neither true nor false; write false without quotes"),
        ('"true"', 'the text "true" is neither true nor false; write true without quotes'),
        ("True", "True is neither true nor false; write true without quotes"),
        ("1", "1 is neither true nor false; write true or false"),
        ("[]", "a list is neither true nor false; write true or false"),
    ],
)
def test_where_a_boolean_is_wanted_there_are_two_words(written: str, advice: str) -> None:
    text = resource(f"expose: {{mounts: [{{hostPath: /data, readOnly: {written}}}]}}")
    assert messages(text) == [f"expose.mounts[0].readOnly: {advice}"]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("10", "10 has no unit; write 10s if seconds are meant"),
        ('"10"', "10 has no unit; write 10s if seconds are meant"),
        ("soon", 'is not a duration; write one such as "500ms", "30s" or "1h30m"'),
        ("-1s", 'is not a duration; write one such as "500ms", "30s" or "1h30m"'),
        ("7d", "7d: a day has no fixed length; write 168h"),
        ("87600h", "87600h is out of range; write 0s to 168h, or forever"),
        ("yes", "yes is not a duration; write one such as 30s"),
        ("{}", "a map is not a duration; write one such as 30s"),
    ],
)
def test_a_duration_needs_a_unit_and_has_a_range(written: str, advice: str) -> None:
    text = resource(f"whenUnplugged: {{keepUnhealthyFor: {written}}}")
    assert messages(text) == [f"whenUnplugged.keepUnhealthyFor: {advice}"]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("0s", "0s is out of range; write "),
        ("1ms", "1ms is out of range; write "),
        ("87600h", "87600h is out of range; write "),
        ("10y", "is not a duration; write one such as "),
        ("-1s", "is not a duration; write one such as "),
        ("30", "30 has no unit; write 30s if seconds are meant"),
    ],
)
def test_a_health_rule_cannot_look_all_the_time_or_never(written: str, advice: str) -> None:
    found = messages(resource(f"health: [{{open: true, period: {written}}}]"))
    assert any(advice in one for one in found if one.startswith("health[0].period: "))


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("shared: {}", "shared: unknown key; did you mean share?"),
        ("when_none: fail", "when_none: unknown key; did you mean whenNone?"),
        ("expose: {containerpath: /x}", "expose.containerpath: unknown key; did you mean containerPath?"),
        ("env: {}", "env: unknown key; did you mean expose.env?"),
        ("replicas: 3", "replicas: unknown key; did you mean share.replicas?"),
        ("qqqqqq: 3", f"qqqqqq: unknown key; known here: {KNOWN_KEYS}"),
        ("expose: {mountPath: /x}", "expose.mountPath: unknown key; write expose.containerPath"),
        ("count: 3", "count: unknown key; write share.replicas"),
        (
            "failRequestsGreaterThanOne: true",
            "failRequestsGreaterThanOne: unknown key; write share.maxPerContainer: 1",
        ),
        ("migStrategy: single", "migStrategy: unknown key; write discover.nvidia.mig"),
        ("deviceListStrategy: [envvar]", "deviceListStrategy: unknown key; write expose.strategy"),
        ("failOnInitError: true", "failOnInitError: unknown key; write whenNone: fail"),
        ("rename: x", "rename: unknown key; write another name"),
        (
            "nodes: []",
            "nodes: unknown key; write expose.deviceNodes for files in /dev, or nodeNames for machines",
        ),
        ('"a b": 1', f'["a b"]: unknown key; known here: {KNOWN_KEYS}'),
    ],
)
def test_an_unknown_key_is_told_the_known_one(rest: str, message: str) -> None:
    assert [text.replace("resources[0][", "[") for text in messages(resource(rest))] == [message]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("", "discover: needs one of path, bundle, usb, pci, sysfs, net, nvidia, static"),
        ("path: /dev/x, static: {ids: [a]}", "discover: has path and static; write only one of them"),
        ("paths: /dev/x", "discover.paths: unknown key; did you mean path?"),
        ("udev: {}", "discover.udev: unknown key; write discover.sysfs"),
        (
            "usb: {name: x}",  # which is a key in another place
            "discover.usb.name: unknown key; known here: vendor, product, serial, interfaceClass",
        ),
        ("path: []", "discover.path: is an empty list; write at least one item"),
        (
            "path: {exclude: [/dev/x]}",
            "discover.path: glob is missing: path of device nodes below /dev; may have *, ? and [...]",
        ),
        (
            "path: {glob: /dev/x*, exclude: /dev/x1}",
            'discover.path.exclude: is one value; write a list: ["/dev/x1"]',
        ),
        ("path: ", "discover.path: is nothing; write a map with glob, exclude"),
        ("usb: {}", "discover.usb: needs at least one of vendor, product, serial, interfaceClass"),
        (
            'usb: {vendor: "403"}',
            'discover.usb.vendor: "403" is not possible; write 4 hex digits, as in "0403"',
        ),
        (
            'pci: {class: "1"}',
            'discover.pci.class: "1" is not possible; write 2, 4 or 6 hex digits, as in "1200"',
        ),
        (
            "nvidia: {mig: all}",
            'discover.nvidia.mig: "all" is not possible; write none or a profile, as in 1g.10gb',
        ),
        (
            "sysfs: {subsystem: tty, name: 'ttyS[0-9]+'}",
            (
                'discover.sysfs.name: "ttyS[0-9]+" looks like a regular expression; write a glob: * '
                "is any text, ? any character"
            ),
        ),
    ],
)
def test_discovery_has_one_kind_with_selectors_that_say_something(what: str, message: str) -> None:
    assert message in messages(discovering(what))


def test_json_has_the_errors_of_yaml_at_places_of_its_own() -> None:
    wrong = {"name": "a.b/c", "discover": {"path": "dev/x"}, "share": {"replicas": 0}, "x": 1}
    written = json.dumps({"version": 1, "resources": [wrong]}, indent=1)
    assert messages(written) == messages(json.dumps(json.loads(written)))
    assert [one.partition(":")[0] for one in messages(written)] == ["discover.path", "share.replicas", "x"]
    assert [problem.line for problem in read(written).problems] == [7, 10, 12]


# ── ways of serving ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        (
            "serve: dra",
            (
                "serve: dra needs a driver; write driver: devices.example.com above resources, in a domain "
                "of yours"
            ),
        ),
        ("serve: claims", 'serve: "claims" is not possible; write one of devicePlugin, dra'),
        (
            "whenUnhealthy: evict",
            "whenUnhealthy: evict needs serve: dra; a device plugin cannot evict pods",
        ),
    ],
)
def test_a_resource_that_cannot_be_served_so_is_told_why(keys: str, wrong: str) -> None:
    assert messages(resource(keys)) == [wrong]


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ("prefer: packed", "prefer: with serve: dra the scheduler chooses; write constraints in the claim"),
        ("whenNone: wait", "whenNone: wait is for device plugins; with serve: dra write empty or fail"),
        (
            "expose: {annotations: {a.b/c: x}}",
            (
                "expose.annotations: with serve: dra devices reach containers by CDI, which has no "
                "annotations; leave them out"
            ),
        ),
    ],
)
def test_what_only_a_device_plugin_does_is_refused_with_dra(keys: str, wrong: str) -> None:
    text = resource(f"serve: dra, {keys}").replace("resources:", "driver: devices.example.com\nresources:")
    assert messages(text) == [wrong]


@pytest.mark.parametrize("name", ["A.b", "a_b", "-a.b", "a..b", f"{'a' * 64}", "''", "a.b/c"])
def test_a_driver_s_name_is_a_dns_subdomain(name: str) -> None:
    (wrong,) = messages(
        f"version: 1\ndriver: {name}\nresources: [{{name: a.b/c, discover: {{path: /dev/x}}}}]\n"
    )
    assert 'a DNS subdomain of at most 63 characters, as in "devices.example.com"' in wrong


def test_a_driver_without_a_resource_of_its_own_is_fine() -> None:
    assert messages("version: 1\ndriver: a.b\nresources: [{name: a.b/c, discover: {path: /dev/x}}]\n") == []
