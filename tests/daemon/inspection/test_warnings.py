"""What is odd about a file, or about what it makes of this machine, with the sentence and its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from devplug.daemon.inspection.matches import inspected, sound_resources
from devplug.daemon.inspection.warnings import (
    NodeOwner,
    Remark,
    file_findings,
    folder_findings,
    host_findings,
    memory_findings,
)
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import Health
from tests.daemon.hosts import reading

NO_REMARKS: Mapping[int, Sequence[Remark]] = {}
NO_OWNERS: Mapping[str, NodeOwner] = {}


def of_file(resources: str) -> list[str]:
    file = reading(resources)
    assert file.config is not None
    assert file.problems == ()
    return [str(one) for one in file.located(file_findings(file.config, sound_resources(file)))]


def on_host(
    resources: str,
    *looked: Sequence[HostDevice],
    owners: Mapping[str, NodeOwner] = NO_OWNERS,
    remarks: Mapping[int, Sequence[Remark]] = NO_REMARKS,
    numa_nodes: Sequence[int] = (),
) -> list[str]:
    file = reading(resources)
    assert file.problems == ()
    rows = inspected(file, dict(enumerate(looked)))
    return [str(one) for one in file.located(host_findings(rows, owners, remarks, numa_nodes))]


def found(name: str, minor: int = 0, subsystem: str = "", health: Health | None = None) -> HostDevice:
    node = HostDeviceNode(f"/dev/{name}", (240, minor), subsystem=subsystem)
    facts = {"file": name, "hostPath": f"/dev/{name}"}
    return HostDevice(name, (node,), facts=facts, health=health or Health.healthy())


def test_a_numa_node_that_the_machine_lacks_is_told_with_those_that_it_has() -> None:
    text = "- {name: example.com/a, discover: {static: {ids: [a, b, c], numaNodes: {b: 1, c: 7}}}}"
    looked = [HostDevice("a"), HostDevice("b", numa_node=1), HostDevice("c", numa_node=7)]
    (told,) = on_host(text, looked, numa_nodes=(0,))
    assert '"b" is on NUMA node 1, which this machine does not have (it has 0)' in told
    assert told.endswith("(and 1 more)")
    assert on_host(text, looked, numa_nodes=(0, 1, 7)) == on_host(text, looked) == []


# ── the file alone ────────────────────────────────────────────────────────────────────────────────


def test_an_ordinary_file_has_no_warnings() -> None:
    text = """
        - name: example.com/serial
          discover: {usb: {vendor: "0403"}}
          expose: {deviceNodes: [tty], containerPath: "/dev/serial{index}"}
        - name: example.com/kvm
          discover: {path: /dev/kvm}
          share: {replicas: 100, maxPerContainer: 1}
          health: [{attribute: state, equals: running}]
    """
    assert of_file(text) == []


def test_two_resources_with_one_path_in_the_container_are_named_both() -> None:
    text = """
        - {name: a.b/c, discover: {usb: {vendor: "0403"}}, expose: {containerPath: "/dev/video{index}"}}
        - {name: a.b/d, discover: {path: /dev/x}, expose: {containerPath: /dev/video0}}
    """
    assert of_file(text) == [
        (
            'resources[1].expose.containerPath: "/dev/video0" is a path of another resource, too; a '
            "container that "
            "asks for both would get two devices under one path (resources[0].expose.containerPath, line 3)"
        )
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [("/dev/x{index}", "/dev/y{index}"), ("/dev/x/", "/dev/x/"), ("/dev/{file}", "/dev/{file}")],
)
def test_paths_that_need_not_be_the_same_are_fine(first: str, second: str) -> None:
    text = f"""
        - {{name: a.b/c, discover: {{path: "/dev/a*"}}, expose: {{containerPath: "{first}"}}}}
        - {{name: a.b/d, discover: {{path: "/dev/b*"}}, expose: {{containerPath: "{second}"}}}}
    """
    assert of_file(text) == []


def test_the_paths_of_single_nodes_count_too() -> None:
    nodes = "[{subsystem: tty, containerPath: /dev/a}, {subsystem: hidraw, containerPath: /dev/b}]"
    usb = 'discover: {usb: {vendor: "0403"}}'
    text = f"""
        - {{name: a.b/c, {usb}, expose: {{deviceNodes: {nodes}}}, share: {{maxPerContainer: 1}}}}
        - {{name: a.b/d, discover: {{path: /dev/x}}, expose: {{containerPath: /dev/b}}}}
    """
    (warning,) = of_file(text)
    assert warning.endswith("(resources[0].expose.deviceNodes[1].containerPath, line 3)")


@pytest.mark.parametrize(
    ("discover", "reason"),
    [
        ("path: /dev/ttyUSB*", "two programs on one serial line take each other's data"),
        ("path: /dev/serial/by-id/*", "two programs on one serial line take each other's data"),
        ("path: /dev/video*", "only one program can stream from a camera"),
        ("path: /dev/tpm0", "/dev/tpm0 opens once; discover /dev/tpmrm0 instead, which takes turns"),
        ("path: /dev/watchdog", "a watchdog opens once"),
        ("path: /dev/rtc0", "a clock opens once"),
        ("path: /dev/spidev0.*", "transfers of two programs mix on the bus"),
        ("path: /dev/gpiochip*", "each line has one owner"),
        ("path: /dev/vfio/12", "a VFIO group opens once"),
        ("path: /dev/snd/*", "most sound hardware plays for one program only"),
        ("path: /dev/bus/usb/001/*", "only one program can claim a USB interface"),
        ("sysfs: {subsystem: video4linux}", "only one program can stream from a camera"),
        (
            "sysfs: {subsystem: tpm}",
            ("/dev/tpm0 opens once; discover /dev/tpmrm0 instead, which takes turns"),
        ),
        ("pci: {driver: vfio-pci}", "a VFIO group opens once"),
        ("bundle: {paths: [/dev/x, /dev/ttyS1]}", "two programs on one serial line take each other's data"),
    ],
)
def test_sharing_what_one_program_can_use_says_what_happens_to_the_second(discover: str, reason: str) -> None:
    assert of_file(f"- {{name: a.b/c, discover: {{{discover}}}, share: {{replicas: 3}}}}") == [
        f"resources[0].share.replicas: up to 3 containers would have one device at once, and {reason}"
    ]


@pytest.mark.parametrize(
    "discover",
    [
        *(
            "path: /dev/kvm",
            "path: /dev/fuse",
            "path: /dev/net/tun",
            "path: /dev/tpmrm0",
            "path: /dev/vfio/vfio",
        ),
        *("sysfs: {subsystem: tpmrm}", "sysfs: {subsystem: drm}", "nvidia: {}", "path: /dev/dri/renderD128"),
    ],
)
def test_what_takes_turns_may_be_shared(discover: str) -> None:
    warnings = of_file(f"- {{name: a.b/c, discover: {{{discover}}}, share: {{replicas: 3}}}}")
    assert [one for one in warnings if "containers" in one] == []


def test_the_nodes_that_are_asked_for_decide_whether_a_usb_device_is_shareable() -> None:
    usb = 'discover: {{usb: {{vendor: "0403"}}}}'
    text = f"- {{{{name: a.b/c, {usb}, share: {{{{replicas: 2}}}}, expose: {{{{deviceNodes: [{{}}]}}}}}}}}"
    assert len(of_file(text.format("tty"))) == 1
    assert len(of_file(text.format("{file: 'ttyUSB*'}"))) == 1
    assert of_file(text.format("hidraw")) == []


def test_rules_that_open_a_device_say_what_devplugs_pod_needs() -> None:
    text = """
        - name: a.b/c
          discover: {path: /dev/x}
          health: [{open: true}, {exec: {command: [/bin/test]}}, {file: /x, equals: ok}]
          onRelease: {exec: {command: [/bin/wipe]}}
    """
    assert of_file(text) == [
        (
            "resources[0].health[0]: opening the device needs a devplug pod with access to devices; without "
            "access its answers are unknown"
        ),
        (
            "resources[0].health[1]: a command that opens the device needs a devplug pod with access to "
            "devices; without access its answers are unknown"
        ),
        (
            "resources[0].onRelease.exec: a command that opens the device needs a devplug pod with "
            "access to devices"
        ),
    ]


def test_nvidias_driver_needs_its_devices_in_devplugs_pod() -> None:
    assert of_file("- {name: a.b/c, discover: {nvidia: {}}}") == [
        (
            "resources[0].discover.nvidia: the NVIDIA driver can only be asked by a pod that has its "
            "devices: give devplug's pod the runtime class nvidia, or access to devices"
        )
    ]


def test_static_devices_that_give_nothing_are_for_tests_only() -> None:
    assert of_file("- {name: a.b/c, discover: {static: {ids: [a]}}}") == [
        (
            "resources[0].discover.static: no hardware is behind these devices, and a pod gets nothing with "
            "them: for tests only"
        )
    ]
    assert of_file("- {name: a.b/c, discover: {static: {ids: [a]}}, expose: {env: {L: '{ids}'}}}") == []


def test_resources_with_errors_get_no_warnings_on_top() -> None:
    file = reading("- {name: a.b/c, discover: {path: /dev/ttyS*}, share: {replicas: 3}, x: 1}")
    assert file.config is not None
    assert list(file_findings(file.config, sound_resources(file))) == []


def test_a_folder_whose_sockets_would_have_too_long_paths_is_refused_by_its_length() -> None:
    assert list(folder_findings("/" + "x" * 65, 107)) == []
    (finding,) = folder_findings("/" + "x" * 66, 107)
    assert finding.message == (
        f"sockets in /{'x' * 66} would have paths of up to 108 bytes; Unix sockets take 107: choose another "
        "--plugin-dir"
    )


def memory_of_file(*resources: str) -> list[str]:
    file = reading("\n".join(resources))
    assert file.config is not None
    return [str(one) for one in file.located(memory_findings(file.config))]


def test_a_thousand_resources_fit_into_the_daemon_sets_memory() -> None:
    assert memory_of_file(*(f"- {{name: a.b/c{n}, discover: {{path: /dev/x}}}}" for n in range(1_000))) == []


def test_devices_beyond_the_memory_limit_are_warned_of_with_the_limit_to_set() -> None:
    text = "- {name: a.b/c, discover: {static: {ids: [a, b]}}, share: {replicas: %d}}"
    assert memory_of_file(text % 33_000) == []
    assert memory_of_file(text % 60_000) == [
        (
            "resources: 1 resource with 120000 devices can take more than the 192 MiB of memory that the "
            "DaemonSet gives: set resources.limits.memory to 384Mi"
        )
    ]


def test_found_devices_count_for_the_memory_limit() -> None:
    file = reading("- {name: a.b/c, discover: {path: /dev/x*}, share: {replicas: 50_000}}".replace("_", ""))
    assert file.config is not None
    rows = inspected(file, {0: [found("x1", 1), found("x2", 2)]})
    (finding,) = memory_findings(file.config, rows)
    assert "1 resource with 100000 devices" in finding.message


# ── on a machine ──────────────────────────────────────────────────────────────────────────────────

PATH = '- {name: a.b/c, discover: {path: "/dev/x*"}}'


def test_what_another_resource_has_is_said_to_belong_to_it() -> None:
    text = """
        - {name: a.b/c, discover: {path: "/dev/x*"}}
        - {name: a.b/d, discover: {sysfs: {subsystem: x}}}
    """
    devices = [found("x1", 1), found("x2", 2)]
    assert on_host(text, devices, devices[:1]) == [
        (
            'resources[1].discover: "x1" belongs to a.b/c already, which stands first; write overlap: '
            "shared in both, "
            "or narrow one"
        )
    ]
    assert on_host(text, devices, devices) == [
        (
            "resources[1].discover: 2 devices belong to a.b/c already, which stands first; write overlap: "
            "shared in both, or narrow one"
        )
    ]


def test_devices_that_cannot_be_given_out_are_told_once_for_each_reason() -> None:
    sick = Health.unhealthy("it does not answer")
    devices = [found("x1", 1, health=sick), found("x2", 2, health=sick), found("x3", 3)]
    assert on_host(PATH, devices) == [
        'resources[0].discover: "x1" cannot be given out: it does not answer (and 1 more)'
    ]


def test_what_a_source_left_out_is_told_once_for_all_paths() -> None:
    remarks = [
        Remark("left out", f'"/dev/sd{letter}" is a whole disk; write allow: [rawDisks]', f"/dev/sd{letter}")
        for letter in "abc"
    ]
    assert on_host(PATH, [], remarks={0: [*remarks, Remark("the driver is asleep")]}) == [
        'resources[0].discover: "/dev/sda" is a whole disk; write allow: [rawDisks] (and 2 more)',
        "resources[0].discover: the driver is asleep",
    ]


@pytest.mark.parametrize(
    ("owner", "advice"),
    [
        (
            NodeOwner(0o20660, 0, 20),
            (
                "/dev/x has mode 0660 and owner 0:20 here and in the pod; one that does not run as root "
                "needs supplementalGroups: [20], or expose.strategy: cdi with owner or mode"
            ),
        ),
        (
            NodeOwner(0o20600, 0, 0),
            (
                "/dev/x has mode 0600 and owner 0:0 here and in the pod; one that does not run as root needs "
                "expose.strategy: cdi with owner or mode"
            ),
        ),
        (NodeOwner(0o20666, 0, 0), ""),
    ],
)
def test_a_node_that_stays_roots_is_told_with_what_other_users_need(owner: NodeOwner, advice: str) -> None:
    warnings = on_host(PATH, [found("x")], owners={"/dev/x": owner})
    assert warnings == ([f"resources[0]: {advice}"] if advice else [])


def test_who_only_reads_needs_only_the_right_to_read() -> None:
    text = "- {name: a.b/c, discover: {path: /dev/x}, expose: {permissions: r}}"
    assert on_host(text, [found("x")], owners={"/dev/x": NodeOwner(0o20644, 0, 0)}) == []


def test_with_cdi_the_mode_is_ours() -> None:
    text = '- {name: a.b/c, discover: {path: /dev/x}, expose: {strategy: cdi, mode: "0666"}}'
    assert on_host(text, [found("x")], owners={"/dev/x": NodeOwner(0o20600, 0, 0)}) == []


@pytest.mark.nightly  # takes 7 s
def test_a_list_that_the_kubelet_does_not_take_is_told_with_what_fits() -> None:
    text = '- {name: a.b/c, discover: {path: "/dev/x*"}, share: {replicas: 11000}}'
    devices = [found(f"x{number}{'x' * 50}", number) for number in range(6)]
    (warning,) = on_host(text, devices)
    assert warning.startswith("resources[0].share.replicas: 66000 devices make a list of ")
    fit = int(warning.partition("which is some ")[2].partition(":")[0])
    assert 50_000 < fit < 66_000
    assert on_host(text.replace("11000", f"{fit // 6 - 10}"), devices) == []


def test_nothing_here_and_fail_means_that_devplug_would_end() -> None:
    text = "- {name: a.b/c, discover: {path: /dev/x}, whenNone: fail}"
    assert on_host(text, []) == [
        "resources[0].whenNone: no device is here now, so devplug run would end with exit code 1"
    ]
    assert on_host(text, [found("x")]) == []


def test_what_is_found_decides_where_the_file_does_not_show_what_is_shared() -> None:
    text = '- {name: a.b/c, discover: {usb: {vendor: "0403"}}, share: {replicas: 2}}'
    assert on_host(text, [found("ttyUSB0", 0, "tty")]) == [
        (
            "resources[0].share.replicas: up to 2 containers would have one device at once, and two programs "
            "on one serial line take each other's data"
        )
    ]
    assert on_host(text, [found("hidraw0", 0, "hidraw")]) == []


def test_resources_that_were_not_looked_for_say_nothing() -> None:
    assert on_host("- {name: a.b/c, discover: {path: /dev/x}, whenNone: fail}") == []
