"""Rules on paths and globs, and on who may claim a device: what is refused, and what is not."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.globs import covers, device_glob_fault, name_in_both, path_fault
from devplug.daemon.config.host_paths import DISK_NODES, dangerous_fault
from tests.daemon.hosts import messages, resources


def path(glob: str, rest: str = "") -> str:
    return resources(f'discover: {{path: "{glob}"}}, {rest}')


# ── paths and globs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("glob", "fault"),
    [
        ("", "is empty; write an absolute path"),
        ("ttyUSB0", '"ttyUSB0" is not absolute; write the path from / on'),
        ("/dev/../etc/passwd", '"/dev/../etc/passwd" has ".."; write the path without it'),
        ("~/dev/x", '"~/dev/x": the daemon has no home folder; write the path from / on'),
        ("/dev/$DEV", '"/dev/$DEV": environment variables are not replaced; write the path from / on'),
        ("/dev//x", '"/dev//x" is not in normal form; write "/dev/x"'),
        ("//dev/x", '"//dev/x" is not in normal form; write "/dev/x"'),
        ("/dev/x/", '"/dev/x/" is not in normal form; write "/dev/x"'),
        ("/dev/./x", '"/dev/./x" is not in normal form; write "/dev/x"'),
        ("/dev/x\0", '"/dev/x\\u0000" has control characters'),
        ("/dev/x\n", '"/dev/x\\n" has control characters'),
        ("/etc/passwd", '"/etc/passwd" is not below /dev'),
        ("/dev", '"/dev" is not below /dev'),
        ("/devices/x", '"/devices/x" is not below /dev'),
        ("^/dev/x$", "looks like a regular expression"),
        ("/dev/ttyUSB\\d", "looks like a regular expression"),
        ("/dev/(a|b)", "looks like a regular expression"),
        ("/dev/ttyUSB[0-9]+", "looks like a regular expression"),
        ("/dev/.*", "looks like a regular expression"),
        ("(a+)+$", "looks like a regular expression"),
        ("/dev/x{0,1}", '"/dev/x{0,1}" has braces, which a glob cannot have; write a list of globs'),
        ("/dev/**/x", '"/dev/**/x" has **, which goes no deeper here; write one * for each level'),
        ("/dev/x[0-9", '"/dev/x[0-9" has a "[" without "]"'),
    ],
)
def test_a_path_that_is_no_glob_below_dev_is_refused(glob: str, fault: str) -> None:
    assert fault in str(device_glob_fault(glob, ["/dev"]))


@pytest.mark.parametrize(
    "glob",
    [
        "/dev/fuse",
        "/dev/ttyUSB*",
        "/dev/tty[A-Z]*",
        "/dev/dfl-port.*",
        "/dev/x[!0-9]?",
        "/dev/c++",
        "/dev/a b",
    ],
)
def test_honest_globs_are_taken(glob: str) -> None:
    assert device_glob_fault(glob, ["/dev"]) is None
    assert messages(path(glob)) == []


def test_path_faults_are_found_in_the_file_too_with_the_key() -> None:
    assert messages(path("/dev//x")) == ['discover.path: "/dev//x" is not in normal form; write "/dev/x"']
    assert messages(resources("discover: {path: {glob: /dev/x*, exclude: [x1, /dev/x*]}}")) == [
        'discover.path.exclude[0]: "x1" is not absolute; write the path from / on',
        'discover.path.exclude[1]: "/dev/x*" leaves nothing of the glob',
    ]
    assert path_fault("/") is None


@pytest.mark.parametrize("glob", ["/dev/*", "/dev/?*", "/dev/*/*", "/dev/[!x]*"])
def test_a_glob_over_all_of_dev_needs_a_word_of_its_own(glob: str) -> None:
    wrong = f'discover.path: "{glob}" is every device of the machine; narrow it, or write allow: [wholeDev]'
    assert messages(path(glob)) == [wrong]
    assert messages(path(glob, "allow: [wholeDev]")) == []


def test_memory_is_never_given_out() -> None:
    message = 'discover.path: "/dev/mem" is the machine\'s own memory, which is never given out'
    assert messages(path("/dev/mem", "allow: [wholeDev, rawDisks]")) == [message]
    assert messages(path("/dev/m*", "allow: [rawDisks]")) == [f"{message}; exclude it"]
    assert messages(resources('discover: {path: {glob: "/dev/mem*", exclude: [/dev/mem]}}')) == []


@pytest.mark.parametrize("disk", ["sda", "sdb2", "nvme0n1p3", "xvda", "dm-12", "mmcblk1"])
def test_whole_disks_need_a_word_of_their_own(disk: str) -> None:
    message = f'discover.path: "/dev/{disk}" is a whole disk; write allow: [rawDisks]'
    assert messages(path(f"/dev/{disk}")) == [message]
    assert messages(path(f"/dev/{disk}", "allow: [rawDisks]")) == []


def test_a_glob_that_takes_disks_along_is_told_which() -> None:
    message = 'discover.path: "/dev/sda" is a whole disk; exclude it, or write allow: [rawDisks]'
    assert messages(path("/dev/s*")) == [message]
    assert messages(resources('discover: {path: {glob: "/dev/s[de]*", exclude: ["/dev/sd*"]}}')) == []
    assert messages(path("/dev/sg*")) == []


def test_a_set_that_is_not_closed_is_none() -> None:
    assert messages(path("/dev/[!]*")) == ['discover.path: "/dev/[!]*" has a "[" without "]"']
    assert covers("/dev/[!]a]x", "/dev/bx")
    assert not covers("/dev/[!]a]x", "/dev/]x")


@pytest.mark.parametrize(
    ("glob", "disk"),
    [("sd[!a]?", "sdba"), ("nvme?n[5-7]p3", "nvme0n5p3"), ("[s]??9", "sda9"), ("?d[f]", "sdf")],
)
def test_a_glob_of_unusual_disks_alone_is_refused_with_one_of_them(glob: str, disk: str) -> None:
    message = f'discover.path: "/dev/{disk}" is a whole disk; exclude it, or write allow: [rawDisks]'
    assert messages(path(f"/dev/{glob}")) == [message]
    assert messages(path(f"/dev/{glob}", "allow: [rawDisks]")) == []


@pytest.mark.parametrize(
    ("glob", "covered", "not_covered"),
    [
        ("/dev/x*", "/dev/x1", "/dev/x/1"),
        ("/dev/*", "/dev/x", "/dev/.x"),
        ("/dev/.*", "/dev/.x", "/dev/x"),
        ("/dev/*/event*", "/dev/input/event0", "/dev/event0"),
        ("/dev/x?", "/dev/x1", "/dev/x"),
        ("/dev/x[0-9]", "/dev/x1", "/dev/xa"),
        ("/dev/x[!0-9]", "/dev/xa", "/dev/x1"),
        ("/dev/x[]a]", "/dev/x]", "/dev/xb"),
        ("/dev/*a*b", "/dev/xaxxab", "/dev/xaxx"),
    ],
)
def test_a_glob_covers_paths_as_a_shell_does(glob: str, covered: str, not_covered: str) -> None:
    assert covers(glob, covered)
    assert not covers(glob, not_covered)
    assert not covers("/dev/x[z-a]", covered)


# ── two resources, one device ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("one", "other", "path_of_both"),
    [
        ("/dev/x", "/dev/x", "/dev/x"),
        ("/dev/x*", "/dev/x*", "/dev/x*"),
        ("/dev/x*", "/dev/x1", "/dev/x1"),
        ("/dev/x1", "/dev/x*", "/dev/x1"),
    ],
)
def test_a_device_that_two_resources_claim_names_both_lines(one: str, other: str, path_of_both: str) -> None:
    both = (f'discover: {{path: "{one}"}}', f'discover: {{path: "{other}"}}')
    assert messages(resources(*both)) == [
        (
            f'resources[1].discover.path: "{path_of_both}" belongs to another resource already; '
            "write overlap: "
            "shared in both, or exclude it (resources[0].discover.path, line 3)"
        )
    ]
    assert len(messages(resources(f"{both[0]}, overlap: shared", both[1]))) == 1
    assert messages(resources(*(f"{text}, overlap: shared" for text in both))) == []


def test_an_excluded_device_is_not_claimed() -> None:
    glob = 'discover: {path: {glob: "/dev/x*", exclude: [/dev/x1]}}'
    assert messages(resources(glob, "discover: {path: /dev/x1}")) == []


def test_one_resource_may_name_a_device_twice() -> None:
    assert messages(resources('discover: {path: ["/dev/x*", /dev/x1, /dev/x1]}')) == []


def test_a_bundle_claims_its_nodes_and_names_each_once() -> None:
    bundle = "discover: {bundle: {paths: [/dev/x, /dev/x, {path: /dev/y*}]}}"
    found = [
        text for text in messages(resources("discover: {path: /dev/x}", bundle)) if "not built" not in text
    ]
    assert found == [
        (
            'resources[1].discover.bundle.paths[0]: "/dev/x" belongs to another resource already; '
            "write overlap: "
            "shared in both, or exclude it (resources[0].discover.path, line 3)"
        ),
        (
            'resources[1].discover.bundle.paths[1]: "/dev/x" stands here twice '
            "(resources[1].discover.bundle.paths[0], "
            "line 4)"
        ),
        (
            'resources[1].discover.bundle.paths[2].path: "/dev/y*" is a glob; a bundle lists its '
            "nodes one by one"
        ),
    ]


PIECES = st.sampled_from(["*", "?", "s", "d", "a", "1", "[!a]", "[a-z]", "[0-9]", "[!s-z]"])
GLOBS = st.lists(PIECES, max_size=6).map("".join)
NAMES = st.text("sda1b0", min_size=1, max_size=6)


@given(GLOBS, GLOBS)
def test_a_name_that_is_found_is_covered_by_both(one: str, other: str) -> None:
    name = name_in_both(one, other)
    assert name is None or (fnmatchcase(name, one) and fnmatchcase(name, other))


@given(GLOBS, GLOBS, NAMES)
def test_where_both_cover_a_name_one_is_found(one: str, other: str, name: str) -> None:
    covered = fnmatchcase(name, one) and fnmatchcase(name, other)
    assert not covered or name_in_both(one, other) is not None


@pytest.mark.parametrize(
    "glob", ["/dev/ttyUSB*", "/dev/video[0-9]", "/dev/snd/*", "/dev/*video*", "/dev/d?i", "/dev/s[!d]*"]
)
def test_a_glob_that_covers_no_disk_is_taken(glob: str) -> None:
    assert dangerous_fault(glob, (), ["/dev"], raw_disks_allowed=False) is None


@given(NAMES)
def test_a_disk_is_found_in_the_glob_of_exactly_itself(name: str) -> None:
    is_disk = any(fnmatchcase(name, disk) for disk in DISK_NODES)
    assert any(name_in_both(name, disk) for disk in DISK_NODES) == is_disk
