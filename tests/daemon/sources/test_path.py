"""Devices by path: which nodes count, what their IDs are, and how fast they appear and vanish."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from devplug.daemon.sources.device import HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from devplug.daemon.sources.path import PathSource
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource, source, tree


def names(one: PathSource) -> list[str]:
    return [found.name for found in one.look()]


def paths(one: PathSource) -> list[str]:
    return [node.host_path for found in one.look() for node in found.nodes]


# ── which nodes are devices ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ('"{}/x*"', ["x0", "x1"]),
        ('"{}/none/x*"', []),
        ('{{glob: "{0}/x*", exclude: ["{0}/x[1-9]"]}}', ["x0"]),
        ('["{0}/x0", "{0}/z*"]', ["x0", "z0"]),
    ],
    ids=["all that a glob covers", "no match", "excluded", "any selector of a list"],
)
def test_the_nodes_that_a_selector_covers_are_devices(
    tmp_path: Path, selector: str, found: list[str]
) -> None:
    """No hardware is behind the links, to major 1, so nothing is given out twice, and no root is needed."""
    for name in ("x0", "x1", "y0", "z0"):
        link(tmp_path / name)
    one = source(f"discover: {{path: {selector.format(tmp_path)}}}")
    assert paths(one) == [f"{tmp_path}/{name}" for name in found]


@needs_mknod
def test_a_node_and_a_link_to_it_are_one_device_with_the_links_path(tmp_path: Path) -> None:
    char_node(tmp_path / "tty0")
    link(tmp_path / "by-id" / "adapter", tmp_path / "tty0")
    one = source(f'discover: {{path: ["{tmp_path}/by-id/*", "{tmp_path}/tty*"]}}')
    assert paths(one) == [f"{tmp_path}/by-id/adapter"]


def test_two_links_to_one_terminal_are_one_device(tmp_path: Path) -> None:
    ends = os.openpty()
    try:
        for name in ("a", "b"):
            link(tmp_path / name, os.ttyname(ends[1]))
        assert names(source(f'discover: {{path: "{tmp_path}/*"}}')) == ["a"]
    finally:
        for end in ends:
            os.close(end)


@needs_mknod
def test_two_nodes_are_two_devices(tmp_path: Path) -> None:
    char_node(tmp_path / "x0", 0)
    char_node(tmp_path / "x1", 1)
    assert names(source(f'discover: {{path: "{tmp_path}/x*"}}')) == ["x0", "x1"]


@needs_mknod
def test_a_found_node_carries_what_proves_that_it_is_the_same(tmp_path: Path) -> None:
    block_node(tmp_path / "x0", 9)
    (found,) = source(f'discover: {{path: "{tmp_path}/x*"}}').look()
    assert found.nodes == (HostDeviceNode(f"{tmp_path}/x0", (240, 9), is_block=True),)


@needs_mknod
def test_a_found_device_has_the_numa_node_of_its_hardware(tmp_path: Path) -> None:
    char_node(tmp_path / "dev" / "chip0", 7)
    tree(tmp_path, {"sys/dev/char/240:7": "-> ../../devices/chip", "sys/devices/chip/numa_node": "1\n"})
    one = resource('discover: {path: "/dev/chip*"}')
    (found,) = PathSource(one.name, one.discover.path, host=Host(tmp_path)).look()
    assert (found.numa_node, dict(found.facts)) == (
        1,
        {"file": "chip0", "hostPath": "/dev/chip0", "numaNode": 1},
    )


@pytest.mark.parametrize("rest", ['path: "{}"', "bundle: [{{paths: [{}]}}]"], ids=["path", "bundle"])
def test_a_terminal_is_offered_with_a_warning_that_no_container_can_open_it(
    rest: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A program of the machine can, as the sandbox's pods do."""
    ends = os.openpty()
    try:
        path = os.ttyname(ends[1])
        one = source_of(resource(f"discover: {{{rest.format(path)}}}"), Host())
        assert [[node.host_path for node in found.nodes] for found in (*one.look(), *one.look())] == [
            [path]
        ] * 2
    finally:
        for end in ends:
            os.close(end)
    (record,) = caplog.records
    assert record.getMessage() == "a device is advertised that no container can open"
    assert f'"{path}" is a pseudo-terminal' in vars(record)["reason"]


# ── what is left out ──────────────────────────────────────────────────────────────────────────────


def test_a_regular_file_is_left_out_and_named_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link(tmp_path / "x0")
    (tmp_path / "x1").touch()
    one = source(f'discover: {{path: "{tmp_path}/x*"}}')
    with caplog.at_level(logging.INFO):
        assert names(one) == ["x0"]
        assert names(one) == ["x0"]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == "a path that the configuration covers is left out"
    assert vars(record)["resource_name"] == "example.com/a"
    assert vars(record)["path"] == f"{tmp_path}/x1"
    assert vars(record)["reason"].endswith(" is a regular file, not a device node")


@needs_mknod
def test_the_machines_memory_is_left_out_under_another_name(tmp_path: Path) -> None:
    char_node(tmp_path / "x0", 1, major=1)
    assert source(f'discover: {{path: "{tmp_path}/x*"}}').look() == ()


@needs_mknod
class TestAWholeDev:
    """`allow: [wholeDev]`, on a /dev made for it."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Host:
        dev = tmp_path / "dev"
        block_node(dev / "sda", 0)
        block_node(dev / "nvme0n1p2", 1)
        block_node(dev / "loop0", 2)
        char_node(dev / "mem", 1, major=1)
        char_node(dev / "ttyS0", 4)
        link(dev / "root", "sda")
        link(dev / "disk" / "by-id" / "ata-1", "../../sda")
        return Host(tmp_path)

    def found(self, host: Host, glob: str, allow: str) -> list[str]:
        one = resource(f'discover: {{path: "{glob}"}}, allow: [{allow}]')
        return paths(PathSource(one.name, one.discover.path, allow=one.allow, host=host))

    def test_has_neither_memory_nor_disks(self, host: Host) -> None:
        assert self.found(host, "/dev/*", "wholeDev") == ["/dev/loop0", "/dev/ttyS0"]

    def test_has_no_disks_behind_links_either(self, host: Host) -> None:
        assert self.found(host, "/dev/*/*/*", "wholeDev") == []

    def test_has_disks_if_they_are_allowed(self, host: Host) -> None:
        # /dev/root, the first of two paths to one disk.
        expected = ["/dev/loop0", "/dev/nvme0n1p2", "/dev/root", "/dev/ttyS0"]
        assert self.found(host, "/dev/*", "wholeDev, rawDisks") == expected


@needs_mknod
def test_a_link_to_a_whole_disk_is_refused_by_name_unless_disks_are_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    block_node(tmp_path / "dev" / "sda")
    link(tmp_path / "dev" / "mine" / "data", "../sda")
    one = resource('discover: {path: "/dev/mine/*"}')
    assert PathSource(one.name, one.discover.path, host=Host(tmp_path)).look() == ()
    (record,) = caplog.records
    assert vars(record)["reason"] == '"/dev/mine/data" is a whole disk; write allow: [rawDisks]'
    allowed = PathSource(one.name, one.discover.path, allow=["rawDisks"], host=Host(tmp_path))
    assert paths(allowed) == ["/dev/mine/data"]


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("made", "rest", "ids"),
    [
        ("x0", "discover: {{path: {}/x0}}", "x0"),
        ("bus/001/005 bus/002/005", 'discover: {{path: "{}/bus/*/*"}}', "001_005 002_005"),
        ("x0", 'id: "port-{{file}}", discover: {{path: "{}/x*"}}', "port-x0"),
        ("x0", 'id: "n{{numaNode}}", discover: {{path: "{}/x*"}}', "x0"),
        ("x" * 200, 'discover: {{path: "{}/*"}}', f"{'x' * 52}-*"),
        ("a,b", 'discover: {{path: "{}/*"}}', "a_b-*"),
    ],
    ids=[
        "the file name",
        "from the first folder with a wildcard on",
        "as a template makes it",
        "as usual where the template has no value",
        "a long name cut",
        "odd characters replaced",
    ],
)
def test_the_id_is(tmp_path: Path, made: str, rest: str, ids: str) -> None:
    for name in made.split():
        link(tmp_path / name)
    found = names(source(rest.format(tmp_path)))
    assert all(fnmatchcase(name, wanted) for name, wanted in zip(found, ids.split(), strict=True))
    assert max(map(len, found)) <= 63


def test_ids_do_not_depend_on_the_order_of_appearance(tmp_path: Path) -> None:
    one = source(f'discover: {{path: "{tmp_path}/*"}}')
    for name in ("c", "a", "b"):
        link(tmp_path / name)
        one.look()
    assert names(one) == names(source(f'discover: {{path: "{tmp_path}/*"}}')) == ["a", "b", "c"]


def test_two_devices_of_one_name_have_two_ids_that_stay_theirs(tmp_path: Path) -> None:
    """A pod may hold the ID of one that is gone, and would be told that its device is back."""
    for folder in ("a", "b"):
        link(tmp_path / folder / "x0")
    one = source(f'discover: {{path: ["{tmp_path}/a/x*", "{tmp_path}/b/x*"]}}')
    first, second = names(one)
    assert first == "x0"
    assert second.startswith("x0@")
    (tmp_path / "a" / "x0").unlink()
    assert names(one) == [second]
    link(tmp_path / "a" / "x0")
    assert names(one) == [first, second]


# ── coming and going ──────────────────────────────────────────────────────────────────────────────


def follow(one: PathSource, *changes: Callable[[], object]) -> list[list[str]]:
    """Return the looks before and after each change; the next change waits for the look that shows it."""

    async def followed() -> list[list[str]]:
        seen: list[list[str]] = []
        left = list(changes)
        async for looked in one.looks():
            shown = [found.name for found in looked]
            if not seen or shown != seen[-1]:
                seen.append(shown)
                if not left:
                    return seen
                left.pop(0)()
        raise AssertionError(seen)

    return asyncio.run(asyncio.wait_for(followed(), 30))


def test_a_node_that_appears_and_vanishes_is_seen_at_once(tmp_path: Path) -> None:
    one = source(f'discover: {{path: "{tmp_path}/x*"}}')
    seen = follow(one, lambda: link(tmp_path / "x0"), (tmp_path / "x0").unlink)
    assert seen == [[], ["x0"], []]


def test_a_terminal_that_appears_and_vanishes_is_seen_at_once() -> None:
    ends: list[int] = []
    opened: list[str] = []

    def plug() -> None:
        ends.extend(os.openpty())
        opened.append(Path(os.ttyname(ends[1])).name)

    def unplug() -> None:
        while ends:
            os.close(ends.pop())

    try:
        before, plugged, *_ = follow(source('discover: {path: "/dev/pts/[0-9]*"}'), plug, unplug)
    finally:
        unplug()
    assert opened[0] not in before
    assert opened[0] in plugged


def test_a_folder_that_is_made_later_is_followed(tmp_path: Path) -> None:
    one = source(f'discover: {{path: "{tmp_path}/by-id/x*"}}')
    assert follow(one, lambda: link(tmp_path / "by-id" / "x0")) == [[], ["x0"]]


@needs_mknod
def test_the_target_of_a_link_is_followed(tmp_path: Path) -> None:
    char_node(tmp_path / "nodes" / "tty0")
    link(tmp_path / "by-id" / "a", tmp_path / "nodes" / "tty0")
    one = source(f'discover: {{path: "{tmp_path}/by-id/*"}}')
    seen = follow(one, (tmp_path / "nodes" / "tty0").unlink, lambda: char_node(tmp_path / "nodes" / "tty0"))
    assert seen == [["a"], [], ["a"]]
