"""A file's text to a configuration: what good files become, and every mistake of a bad one at its place."""

from __future__ import annotations

import math
import textwrap

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.config.selectors import PathSelector
from devplug.daemon.config.templates import Template, Writing, parse_template, render_all, render_one
from devplug.daemon.config.types import Config, Permissions, Resource
from devplug.errors import ConfigError
from devplug.k8s.resource_names import ResourceName
from tests.daemon.hosts import config

EXAMPLES = """\
version: 1
resources:
- {name: example.com/serial, discover: {usb: [{vendor: "0403"}, {vendor: "1a86"}]}, expose: {deviceNodes: [tty], containerPath: "/dev/serial{index}", env: {PORTS: "{containerPaths}"}}}
- {name: example.com/camera, discover: {sysfs: {subsystem: video4linux, attributes: {index: "0"}}}, expose: {containerPath: "/dev/video{index}"}, whenUnplugged: {keepUnhealthyFor: 5m}}
- {name: example.com/kvm, discover: {path: /dev/kvm}, share: {replicas: 100, maxPerContainer: 1}}
- {name: example.com/fuse, discover: {path: /dev/fuse}, share: {replicas: 100, maxPerContainer: 1}}
- {name: example.com/tun, discover: {path: /dev/net/tun}, share: {replicas: 100, maxPerContainer: 1}}
- {name: example.com/fpga, discover: {pci: {class: "1200"}}, expose: {deviceNodes: [{file: "dfl-port.*"}]}, health: [{exec: {command: [/opt/selftest, "{pciAddress}"]}, period: 30s}]}
- {name: nvidia.com/gpu.shared, discover: {nvidia: {model: "*L4*"}}, share: {replicas: 4, maxPerContainer: 1}, nodeSelector: {gpu-sharing: "on"}}
- {name: example.com/tpm, discover: {sysfs: {subsystem: tpmrm}}, share: {replicas: 8, maxPerContainer: 1}}
- {name: example.com/vf, discover: {pci: {virtualFunctionOf: "0000:3b:00.0", driver: vfio-pci}}, expose: {env: {PCIDEVICE_EXAMPLE_COM_VF: "{pciAddresses}"}}}
- {name: example.com/dsp, discover: {bundle: {paths: [/dev/dsp0, /dev/dsp0-ctl, {path: /dev/dsp0-fan, optional: true}]}}}
"""  # noqa: E501 -- one resource to a line


def errors(text: str) -> list[str]:
    """Return the lines of the error that `text` is refused with."""
    with pytest.raises(ConfigError) as refused:
        load(textwrap.dedent(text), "f.yaml")
    return refused.value.lines()


def one_resource(text: str) -> Resource:
    (resource,) = config(text).resources
    return resource


# ── good files ────────────────────────────────────────────────────────────────────────────────────


def test_a_short_file_has_the_defaults_in_every_other_place() -> None:
    resource = one_resource("- name: example.com/fuse\n  discover: {path: /dev/fuse}")
    assert resource.name == ResourceName("example.com/fuse")
    assert isinstance(resource.name, ResourceName)
    assert resource.discover.kind == "path"
    assert resource.discover.path == (PathSelector(glob="/dev/fuse"),)
    assert resource.id is None
    assert resource.expose.permissions == "rw"
    assert resource.expose.container_path is None
    assert resource.expose.env == {}
    assert (resource.share.replicas, resource.share.max_per_container) == (1, None)
    assert resource.prefer == "auto"
    assert resource.when_none == "empty"
    assert resource.when_unplugged.keep_unhealthy_for_seconds == 600
    assert resource.node_names == ()
    assert resource.allow == ()


def test_the_keys_of_a_resource_arrive_as_values() -> None:
    resource = one_resource("""
        - name: example.com/serial
          id: "port-{file}"
          discover:
            path:
              - /dev/ttyS0
              - glob: /dev/ttyUSB*
                exclude: [/dev/ttyUSB9]
          expose:
            containerPath: "/dev/serial{index}"
            permissions: r
            env:
              PORTS: "{containerPaths}"
              "PORT_{index}": "{containerPath}"
            annotations: {example.com/ports: "{count}"}
            mounts:
              - hostPath: "/data/{file}"
                containerPath: /data
                readOnly: true
          share: {replicas: 2, maxPerContainer: 3}
          overlap: shared
          whenNone: wait
          whenUnplugged: {keepUnhealthyFor: forever}
          prefer: none
          nodeNames: ["lab-*"]
          allow: [hostMounts]
    """)
    assert resource.discover.path == (
        PathSelector(glob="/dev/ttyS0"),
        PathSelector(glob="/dev/ttyUSB*", exclude=("/dev/ttyUSB9",)),
    )
    assert resource.id == parse_template("port-{file}")
    assert resource.expose.env == {
        parse_template("PORTS"): parse_template("{containerPaths}"),
        parse_template("PORT_{index}"): parse_template("{containerPath}"),
    }
    assert resource.expose.annotations == {"example.com/ports": parse_template("{count}")}
    (mount,) = resource.expose.mounts
    assert (str(mount.host_path), str(mount.container_path), mount.read_only) == (
        "/data/{file}",
        "/data",
        True,
    )
    permissions: Permissions = resource.expose.permissions
    assert permissions == "r"
    assert (resource.share.replicas, resource.share.max_per_container) == (2, 3)
    assert resource.when_unplugged.keep_unhealthy_for_seconds == math.inf
    assert (resource.prefer, resource.when_none, resource.overlap) == ("none", "wait", "shared")
    assert resource.node_names == ("lab-*",)
    assert resource.allow == ("hostMounts",)


def test_the_keys_of_a_device_of_several_nodes_arrive_as_values() -> None:
    resource = one_resource("""
        - name: example.com/dongle
          discover:
            usb:
              - {vendor: "0403", product: "6001", serial: "A*", interfaceClass: "ff"}
              - {vendor: "1A86"}
          expose:
            deviceNodes:
              - tty
              - {subsystem: video4linux, file: "video*", name: eye, containerPath: /dev/eye, optional: true}
            strategy: cdi
            owner: {uid: 1000, gid: 20}
            mode: "0660"
            directories: [/dev/snd]
            cdiDevices: ["vendor.com/class={serial}"]
          health:
            - {attribute: power/runtime_status, equals: "active*", period: 1m, timeout: 500ms}
            - {exec: {command: [/opt/check, "{serial}"]}, failureThreshold: 5, successThreshold: 2}
          onRelease: {exec: {command: [/opt/scrub, "{id}"], timeout: 2m}}
          onLost: {exec: {command: [/opt/tell, "{id}"]}}
          nodeSelector: {lab: "yes"}
    """)
    first, second = resource.discover.usb
    assert (first.vendor, first.product, first.serial, first.interface_class) == ("0403", "6001", "A*", "ff")
    assert (second.vendor, second.product) == ("1A86", None)
    expose = resource.expose
    assert expose.device_nodes is not None
    assert [(one.subsystem, one.file, one.name, one.optional) for one in expose.device_nodes] == [
        ("tty", None, None, False),
        ("video4linux", "video*", "eye", True),
    ]
    assert expose.owner is not None
    assert (expose.strategy, expose.owner.uid, expose.owner.gid, expose.mode) == ("cdi", 1000, 20, "0660")
    assert expose.directories == ("/dev/snd",)
    assert expose.cdi_devices == (parse_template("vendor.com/class={serial}"),)
    attribute, command = resource.health
    assert (attribute.attribute, attribute.equals) == ("power/runtime_status", "active*")
    assert (attribute.period_seconds, attribute.timeout_seconds) == (60, 0.5)
    assert command.exec is not None
    assert command.exec.command == (parse_template("/opt/check"), parse_template("{serial}"))
    assert (command.failure_threshold, command.success_threshold) == (5, 2)
    assert resource.on_release is not None
    assert resource.on_release.exec.timeout_seconds == 120
    assert resource.on_lost is not None
    assert (resource.on_lost.exec.command[0].source, resource.on_lost.exec.timeout_seconds) == (
        "/opt/tell",
        30,
    )
    assert resource.node_selector == {"lab": "yes"}


def test_a_template_of_the_file_is_ready_to_render() -> None:
    resource = one_resource("""
        - name: example.com/serial
          discover: {path: "/dev/ttyUSB*"}
          expose: {env: {IDS: "{ids}", "P_{index}": "{hostPath}"}, containerPath: "/dev/{file}"}
    """)
    facts: dict[str, str | int] = {"id": "a", "index": 0, "file": "ttyUSB0", "hostPath": "/dev/ttyUSB0"}
    path = resource.expose.container_path
    assert isinstance(path, Template)
    assert render_one(path, facts, Writing.PATH) == "/dev/ttyUSB0"
    (ids, own) = resource.expose.env.items()
    assert (str(ids[0]), render_all(ids[1], [facts])) == ("IDS", "a")
    assert (render_one(own[0], facts, Writing.NAME), render_one(own[1], facts)) == ("P_0", "/dev/ttyUSB0")


def test_static_devices_have_their_ids_and_numa_nodes() -> None:
    resource = one_resource("""
        - name: example.com/test
          discover: {static: {ids: [a, b], numaNodes: {a: 1, b: -1}}}
    """)
    (static,) = resource.discover.static
    assert resource.discover.kind == "static"
    assert static.ids == ("a", "b")
    assert static.numa_nodes == {"a": 1, "b": -1}


def test_json_is_read_as_well_tabs_and_all() -> None:
    text = '{\n\t"version": 1,\n\t"resources": [{"name": "a.b/c", "discover": {"path": "/dev\\/fuse"}}]\n}\n'
    assert load(text, "f.json").resources[0].discover.path == (PathSelector(glob="/dev/fuse"),)


def test_device_nodes_may_be_below_other_folders_if_the_caller_says_so() -> None:
    text = "version: 1\nresources:\n- {name: a.b/c, discover: {path: /srv/x/*}}\n"
    with pytest.raises(ConfigError, match='"/srv/x/\\*" is not below /dev'):
        load(text, "f.yaml")
    assert load(text, "f.yaml", roots=["/dev", "/srv"]).resources[0].discover.path[0].glob == "/srv/x/*"
    with pytest.raises(ConfigError, match="every device of the machine"):
        load(text, "f.yaml", roots=["/srv/x"])


def test_equal_files_are_equal_configurations() -> None:
    text = "version: 1\nresources:\n- {name: a.b/c, discover: {path: /dev/x}, expose: {env: {A: '{ids}'}}}\n"
    assert load(text, "one") == load(text.encode(), "other")
    assert load(text, "one") != load(text.replace("ids", "files"), "one")


def test_a_configuration_cannot_be_changed() -> None:
    loaded = load("version: 1\nresources:\n- {name: a.b/c, discover: {path: /dev/x}}\n", "f")
    with pytest.raises(AttributeError):
        loaded.resources = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.resources[0].expose.env["x"] = "y"  # type: ignore[index]


# ── the examples of the documentation ─────────────────────────────────────────────────────────────


def test_the_ten_examples_of_the_surface_load_with_one_kind_each() -> None:
    loaded = load(EXAMPLES, "f.yaml")
    assert isinstance(loaded, Config)
    assert [(resource.discover.kind, resource.share.replicas) for resource in loaded.resources] == [
        *(("usb", 1), ("sysfs", 1)),
        *[("path", 100)] * 3,
        *(("pci", 1), ("nvidia", 4), ("sysfs", 8), ("pci", 1), ("bundle", 1)),
    ]


# ── all mistakes at once ──────────────────────────────────────────────────────────────────────────


def test_ten_mistakes_in_one_file_are_ten_lines_each_with_its_place() -> None:
    text = """\
    version: 1
    resources:
      - name: example.com/serial
        discover:
          usb: {vendor: 0403}
        expose:
          env:
            IDS: "{id}"
            PORTS: {containerPaths}
          mountPath: /dev/serial
        share:
          replicas: 1.5
      - name: example.com/serial
        discover:
          path: /dev/ttyUSB0/
        whenUnplugged:
          keepUnhealthyFor: 10
      - discover:
          path: /dev/kvm
        expose:
          permissions: rwx
    """
    assert errors(text) == [
        'f.yaml:5:21: error: resources[0].discover.usb.vendor: YAML reads 0403 as 259; write "0403"',
        "f.yaml:8:14: error: resources[0].expose.env.IDS: {id} stands for one device; write {ids}",
        (
            "f.yaml:9:16: error: resources[0].expose.env.PORTS: YAML reads {containerPaths} as a map; write "
            '"{containerPaths}"'
        ),
        "f.yaml:10:7: error: resources[0].expose.mountPath: unknown key; write expose.containerPath",
        "f.yaml:12:17: error: resources[0].share.replicas: 1.5 is not a whole number",
        (
            'f.yaml:13:11: error: resources[1].name: the resource "example.com/serial" exists already '
            "(resources[0].name, line 3)"
        ),
        (
            'f.yaml:15:13: error: resources[1].discover.path: "/dev/ttyUSB0/" is not in normal form; write '
            '"/dev/ttyUSB0"'
        ),
        (
            "f.yaml:17:25: error: resources[1].whenUnplugged.keepUnhealthyFor: 10 has no unit; write 10s if "
            "seconds are meant"
        ),
        (
            "f.yaml:18:5: error: resources[2]: name is missing: what pods write under limits, as in "
            "example.com/serial"
        ),
        'f.yaml:21:20: error: resources[2].expose.permissions: "rwx" is not possible; did you mean rw?',
    ]


def test_one_mistake_is_reported_once_and_nothing_is_said_about_what_it_hides() -> None:
    assert errors("version: 1\nresources: [{name: x, discover: {path: [7]}, id: '{file'}]") == [
        'f.yaml:2:20: error: resources[0].name: "x" needs a domain and a kind, as in "example.com/fpga"',
        'f.yaml:2:41: error: resources[0].discover.path[0]: YAML reads 7 as a number; write "7"',
        'f.yaml:2:50: error: resources[0].id: has a "{" without its partner; write {{ for a brace of its own',
    ]


def test_yaml_mistakes_and_those_of_the_grammar_come_together() -> None:
    assert errors(
        "version: 1\nversion: 2\nresources:\n- &a {name: a.b/c, discover: {path: /dev/x}, zzz: 1}\n"
    ) == [
        'f.yaml:2:1: error: the key "version" stands here again; the first is in line 1',
        "f.yaml:4:3: error: resources[0]: &a: anchors are not supported; leave it out",
        (
            "f.yaml:4:46: error: resources[0].zzz: unknown key; known here: name, id, serve, "
            "discover, expose, share, overlap, health, prefer, whenNone, whenUnplugged, whenUnhealthy, "
            "onRelease, onLost, nodeNames, nodeSelector, allow"
        ),
    ]
