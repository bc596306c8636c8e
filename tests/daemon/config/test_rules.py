"""Rules on IDs, replicas, limits, and what needs `allow` in a container: what is refused, and what is not."""

from __future__ import annotations

import pytest

from devplug.devices import Device
from devplug.wire.values import LIST_LIMIT_BYTES, list_size_bytes
from tests.daemon.hosts import messages, resources


def path(glob: str, rest: str = "") -> str:
    return resources(f'discover: {{path: "{glob}"}}, {rest}')


def tty(rest: str) -> str:
    return path("/dev/ttyUSB*", rest)


# ── devices and replicas ──────────────────────────────────────────────────────────────────────────


def test_static_ids_obey_the_rules_of_device_ids() -> None:
    text = resources('discover: {static: {ids: [a, a, "x y", "", "-x"], numaNodes: {b: 0}}}')
    assert messages(text) == [
        'discover.static.ids[1]: the ID "a" exists already (resources[0].discover.static.ids[0], line 3)',
        'discover.static.ids[2]: "x y" contains " "',
        'discover.static.ids[3]: "" is empty',
        "discover.static.ids[4]: \"-x\" starts with '-'",
        'discover.static.numaNodes.b: "b" is not among the ids',
    ]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("-2", "discover.static.numaNodes.a: -2 is out of range; write -1 to 1023"),
        ("1024", "discover.static.numaNodes.a: 1024 is out of range; write -1 to 1023"),
        ('"0"', 'discover.static.numaNodes.a: the text "0" is not a number; write 0 without quotes'),
        ("0, a: 1", 'discover.static.numaNodes: the key "a" stands here again; the first is in line 3'),
    ],
)
def test_a_numa_node_is_a_number_and_minus_one_means_none(node: str, message: str) -> None:
    assert messages(resources(f"discover: {{static: {{ids: [a], numaNodes: {{a: {node}}}}}}}")) == [message]


def test_two_numa_nodes_for_one_device_in_two_selectors_are_an_id_that_exists_twice() -> None:
    twice = "static: [{ids: [a], numaNodes: {a: 0}}, {ids: [a], numaNodes: {a: 1}}]"
    other = "(resources[0].discover.static[0].ids[0], line 3)"
    assert messages(resources(f"discover: {{{twice}}}")) == [
        f'discover.static[1].ids[0]: the ID "a" exists already {other}'
    ]


def test_replicas_have_ids_of_their_own() -> None:
    long_id = "x" * 60
    text = resources(f'discover: {{static: {{ids: ["a::b", {long_id}]}}}}, share: {{replicas: 11}}')
    assert messages(text) == [
        'discover.static.ids[0]: "a::b" has "::", which separates the number of a replica',
        (
            f'discover.static.ids[1]: "{long_id}" is too long with "::10" for the last replica; at '
            "most 59 characters fit"
        ),
    ]


def test_more_replicas_than_one_list_takes_are_refused_with_the_number_that_fits() -> None:
    (message,) = messages(path("/dev/fuse", "share: {replicas: 1000000}"))
    assert message.startswith(
        "share.replicas: 1000000 replicas of one device are more than the kubelet takes"
    )
    fit = int(message.partition("at most ")[2].split()[0])
    assert message.endswith(f"at most {fit} fit with IDs of {len('fuse::999999')} bytes")
    size = list_size_bytes([Device("fuse::999999")])
    assert fit * size <= LIST_LIMIT_BYTES < (fit + 1) * size
    assert messages(path("/dev/fuse", f"share: {{replicas: {fit}}}")) == []


def test_all_static_devices_count_for_the_list() -> None:
    ids = ", ".join(f"d{number}" for number in range(100))
    (message,) = messages(resources(f"discover: {{static: {{ids: [{ids}]}}}}, share: {{replicas: 10000}}"))
    assert "10000 replicas of 100 devices are more" in message


def test_an_id_template_must_tell_devices_apart() -> None:
    assert messages(tty("id: port")) == [
        "id: all devices would have this one ID; add a variable, as in dev-{file}"
    ]
    assert messages(tty('id: "a b/{file}"')) == [
        'id: " " cannot stand in a device ID; use letters, digits and ._:@+-'
    ]
    assert messages(path("/dev/ttyS0", "id: console")) == []


# ── what a container gets ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("permissions", "advice"),
    [
        ('""', "r, rw, rwm, w"),
        *(
            (letters, f'"{letters}" is not possible; write one of r, rw, rwm, w')
            for letters in ("x", "m", "ww")
        ),
        *((letters, "did you mean") for letters in ("rwx", "mrw", "RW")),
        ("wr", '"wr" is not possible; did you mean rw?'),
        ("[r, w]", "write one text"),
        ("6", 'YAML reads 6 as a number; write "6"'),
    ],
)
def test_permissions_are_one_of_four_words(permissions: str, advice: str) -> None:
    (message,) = messages(tty(f"expose: {{permissions: {permissions}}}"))
    assert message.startswith("expose.permissions: ")
    assert advice in message


def test_mknod_needs_a_word_of_its_own() -> None:
    assert messages(tty("expose: {permissions: rwm}")) == [
        "expose.permissions: m lets the container make device nodes of its own; write rw, or allow: [mknod]"
    ]
    assert messages(tty("expose: {permissions: rwm}, allow: [mknod]")) == []


@pytest.mark.parametrize(
    ("container_path", "fault"),
    [
        ("dev/x{index}", '"dev/xindex" is not absolute; write the path from / on'),
        ("/dev/../x{index}", 'has ".."'),
        ("/dev//x{index}", "is not in normal form"),
        ("/proc/x{index}", '"/proc/x{index}" is the container\'s own; write another path'),
        ("/sys/{file}", '"/sys/{file}" is the container\'s own; write another path'),
        ("/", '"/" is the container\'s own; write another path'),
        ("/dev/x{containerPath}", "{containerPath} has no value here"),
        (
            "/dev/{serial}",
            "{serial} has no value here; known here: {file} {hostPath} {id} {index} {numaNode}",
        ),
        ("/dev/{files}", "{files} stands for all devices; write {file}"),
        ("/dev/x", 'two devices in one container would both be "/dev/x"'),
    ],
)
def test_a_path_in_the_container_is_absolute_and_the_devices_own(container_path: str, fault: str) -> None:
    found = messages(tty(f'expose: {{containerPath: "{container_path}"}}'))
    assert any(text.startswith("expose.containerPath: ") and fault in text for text in found)


@pytest.mark.parametrize(
    "text",
    [
        tty('expose: {containerPath: "/dev/x{index}"}'),
        tty("expose: {containerPath: /dev/serial/}"),
        tty("expose: {containerPath: /dev/x}, share: {maxPerContainer: 1}"),
        path("/dev/fuse", "expose: {containerPath: /dev/x}, share: {replicas: 5}"),
    ],
)
def test_a_path_in_the_container_that_no_two_devices_take_is_fine(text: str) -> None:
    assert messages(text) == []


@pytest.mark.parametrize(
    ("host_path", "what"),
    [
        ("/", "is the whole machine"),
        ("/proc", "may give access to /proc"),
        ("/sys/class", "may give access to /sys"),
        ("/etc", "may give access to /etc"),
        ("/run/udev", "may give access to /run"),
        ("/var/run", "may give access to /var/run"),
        ("/var/lib/kubelet/pods", "may give access to /var/lib/kubelet"),
        ("/var/lib", "may give access to /var/lib"),
        ("/dev", "may give access to /dev"),
        ("/data/app.sock", "is a socket, through which a container can command a service of the host"),
        ("/{file}", "may give access to /proc"),
        ("/var/{file}", "may give access to /var/run"),
        ("/var/lib/{file}/x", "may give access to /var/lib/kubelet"),
    ],
)
def test_a_host_path_that_gives_away_the_machine_needs_a_word_of_its_own(host_path: str, what: str) -> None:
    rest = f'expose: {{mounts: [{{hostPath: "{host_path}", containerPath: /data}}]}}'
    assert messages(tty(rest)) == [
        f'expose.mounts[0].hostPath: "{host_path}" {what}; write allow: [hostMounts] if you must'
    ]
    assert messages(tty(f"{rest}, allow: [hostMounts]")) == []


def test_honest_mounts_are_taken_and_two_in_one_place_are_not() -> None:
    text = tty(
        'expose: {containerPath: "/dev/{file}", mounts: [{hostPath: /opt/lib}, {hostPath: "/data/{id}", '
        'containerPath: /opt/lib}, {hostPath: /srv/x, containerPath: "/dev/{file}"}, {hostPath: x}, '
        "{hostPath: /opt/x, containerPath: data}]}"
    )
    assert messages(text) == [
        (
            'expose.mounts[1].containerPath: "/opt/lib" is taken in the container '
            "(resources[0].expose.mounts[0], line 3)"
        ),
        (
            'expose.mounts[2].containerPath: "/dev/{file}" is taken in the container '
            "(resources[0].expose.containerPath, line 3)"
        ),
        'expose.mounts[3].hostPath: "x" is not absolute; write the path from / on',
        'expose.mounts[4].containerPath: "data" is not absolute; write the path from / on',
    ]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ('""', "the name of the variable is empty"),
        ('"A=B"', '"=" cannot stand in the name of a variable'),
        ('"A B"', '" " cannot stand in the name of a variable'),
        ('"ü"', '"\\u00fc" cannot stand in the name of a variable'),
        ('"{file}"', 'the name "{file}" must start with a letter, as in PORT_{file}'),
        ('"X_{files}"', "in the name: {files} stands for all devices; write {file}"),
        ("LD_PRELOAD", 'the variable "LD_PRELOAD" decides which programs and libraries run'),
        ("PATH", 'the variable "PATH" decides which programs and libraries run'),
        ('"LD_{file}"', 'the variable "LD_{file}" decides which programs and libraries run'),
        ('"PA{file}"', 'the variable "PA{file}" decides which programs and libraries run'),
    ],
)
def test_the_name_of_an_environment_variable_has_rules(name: str, fault: str) -> None:
    found = messages(tty(f"expose: {{env: {{{name}: x}}}}"))
    assert len(found) == 1
    assert fault in found[0]


def test_loader_variables_need_a_word_of_their_own() -> None:
    assert messages(tty("expose: {env: {LD_PRELOAD: /x.so, PATH: /bin}}, allow: [loaderEnv]")) == []
    assert messages(tty("expose: {env: {OLD_PATH: x, PATHS: y, 'PORT_{index}': z}}")) == []
    for name in ("PATH", "LD_AUDIT", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GLIBC_TUNABLES"):
        (found,) = messages(tty(f"expose: {{env: {{{name}: x}}}}"))
        assert "decides which programs and libraries run" in found


@pytest.mark.parametrize(
    "path", ["/dev/urandom", "/dev/null", "/dev/pts/x", "/etc/passwd", "/sys/x", "/proc/x"]
)
def test_no_path_of_the_containers_own_is_taken(path: str) -> None:
    (found,) = messages(tty(f"expose: {{containerPath: {path}}}, share: {{maxPerContainer: 1}}"))
    assert "is the container's own; write another path" in found


@pytest.mark.parametrize(
    "path",
    ["/usr/bin", "/usr/lib", "/etc/ld.so.conf.d", "/usr/lib/x86_64-linux-gnu", "/lib64", "/etc", "/root"],
)
@pytest.mark.parametrize("mount", ["hostPath: /opt/x, containerPath: {path}", "hostPath: {path}"])
def test_a_mount_over_programs_of_the_container_needs_a_word(mount: str, path: str) -> None:
    mounts = f"expose: {{mounts: [{{{mount.format(path=path)}}}]}}"
    (found,) = messages(tty(mounts))
    assert "write allow: [hostMounts] if you must" in found
    assert messages(tty(f"{mounts}, allow: [hostMounts]")) == []


def test_a_mount_of_one_library_is_taken() -> None:
    assert messages(tty("expose: {mounts: [{hostPath: /opt/x.so, containerPath: /usr/lib/x.so}]}")) == []


def test_values_of_variables_and_annotations_have_a_limit() -> None:
    assert messages(tty(f"expose: {{env: {{A: {'x' * 32768}}}}}")) == []
    assert messages(tty(f"expose: {{env: {{A: {'x' * 32769}}}}}")) == [
        "expose.env.A: is 32769 bytes long; at most 32768 are possible"
    ]
    many = ", ".join(f"a{number}: {'x' * 30_000}" for number in range(9))
    assert messages(tty(f"expose: {{annotations: {{{many}}}}}")) == [
        "expose.annotations: have 270018 bytes together; at most 262144 are possible"
    ]
    assert messages(tty('expose: {env: {A: "x\\0"}}')) == ["expose.env.A: has a NUL byte"]


@pytest.mark.parametrize("name", ['""', '"a b"', '"/x"', '"A.b/c"', '"a/b/c"', "-x", "x" * 64])
def test_an_annotation_has_a_name_that_kubernetes_takes(name: str) -> None:
    (message,) = messages(tty(f"expose: {{annotations: {{{name}: x}}}}"))
    assert "is not an annotation's name; write one such as example.com/ports" in message


def test_a_health_rule_must_be_able_to_judge() -> None:
    rules = "[{file: x}, {exec: {command: [ls]}, min: 3}, {open: false}, {attribute: t, min: 5, max: 4}]"
    found = [text for text in messages(tty(f"health: {rules}")) if "not built" not in text]
    assert found == [
        "health[0]: does not say what is healthy; add equals, min or max",
        'health[0].file: "x" is not absolute; write the path from / on',
        "health[1]: equals, min and max go with attribute or file only; leave them out",
        (
            'health[1].exec.command[0]: "ls" is not the absolute path of a program; no shell and '
            "no PATH are used"
        ),
        "health[2].open: false checks nothing; write true, or leave the rule out",
        "health[3].min: is greater than max; nothing would be healthy",
    ]


def test_machine_names_are_globs() -> None:
    assert messages(tty('nodeNames: ["lab-*"]')) == []
    assert messages(tty('nodeNames: ["^lab.*$"]')) == [
        (
            'nodeNames[0]: "^lab.*$" looks like a regular expression; write a glob: * is any '
            "text, ? any character"
        )
    ]
