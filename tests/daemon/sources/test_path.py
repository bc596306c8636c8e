"""Devices by path: which nodes count, what their IDs are, and how fast they appear and vanish."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devplug.daemon.sources.device import HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from devplug.daemon.sources.path import PathSource
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource, source, tree

if TYPE_CHECKING:
    from collections.abc import Callable


def names(one: PathSource) -> list[str]:
    return [found.name for found in one.look()]


def paths(one: PathSource) -> list[str]:
    return [node.host_path for found in one.look() for node in found.nodes]


# ── which nodes are devices ───────────────────────────────────────────────────────────────────────


def test_every_node_that_the_glob_covers_is_a_device(tmp_path: Path) -> None:
    for name in ("x0", "x1", "y0"):
        link(tmp_path / name)
    assert paths(source(f'discover: {{path: "{tmp_path}/x*"}}')) == [f"{tmp_path}/x0", f"{tmp_path}/x1"]


def test_a_glob_without_any_match_finds_nothing(tmp_path: Path) -> None:
    assert source(f'discover: {{path: "{tmp_path}/none/x*"}}').look() == ()


def test_an_excluded_node_is_no_device(tmp_path: Path) -> None:
    for name in ("x0", "x1", "x2"):
        link(tmp_path / name)
    one = source(f'discover: {{path: {{glob: "{tmp_path}/x*", exclude: ["{tmp_path}/x[12]"]}}}}')
    assert paths(one) == [f"{tmp_path}/x0"]


def test_any_selector_of_a_list_may_match(tmp_path: Path) -> None:
    for name in ("x0", "y0", "z0"):
        link(tmp_path / name)
    one = source(f'discover: {{path: ["{tmp_path}/x*", "{tmp_path}/z*"]}}')
    assert paths(one) == [f"{tmp_path}/x0", f"{tmp_path}/z0"]


def test_two_links_to_null_are_two_devices(tmp_path: Path) -> None:
    """No hardware is behind major 1, so nothing is given out twice, and tests need no root."""
    link(tmp_path / "a")
    link(tmp_path / "b")
    assert names(source(f'discover: {{path: "{tmp_path}/*"}}')) == ["a", "b"]


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


def test_the_id_is_the_file_name(tmp_path: Path) -> None:
    link(tmp_path / "x0")
    assert names(source(f"discover: {{path: {tmp_path}/x0}}")) == ["x0"]


def test_the_id_begins_with_the_first_folder_that_has_a_wildcard(tmp_path: Path) -> None:
    for bus in ("001", "002"):
        link(tmp_path / "bus" / bus / "005")
    assert names(source(f'discover: {{path: "{tmp_path}/bus/*/*"}}')) == ["001_005", "002_005"]


def test_a_template_makes_the_id(tmp_path: Path) -> None:
    link(tmp_path / "x0")
    assert names(source(f'id: "port-{{file}}", discover: {{path: "{tmp_path}/x*"}}')) == ["port-x0"]


def test_a_device_without_a_value_for_the_template_has_the_usual_id(tmp_path: Path) -> None:
    link(tmp_path / "x0")
    assert names(source(f'id: "n{{numaNode}}", discover: {{path: "{tmp_path}/x*"}}')) == ["x0"]


def test_a_long_file_name_is_cut_to_an_id(tmp_path: Path) -> None:
    link(tmp_path / ("x" * 200))
    (name,) = names(source(f'discover: {{path: "{tmp_path}/*"}}'))
    assert (len(name), name[:53]) == (63, "x" * 52 + "-")


def test_a_file_name_with_odd_characters_becomes_an_id(tmp_path: Path) -> None:
    link(tmp_path / "a b,c")
    (name,) = names(source(f'discover: {{path: "{tmp_path}/*"}}'))
    assert name.startswith("a_b_c-")


def test_ids_do_not_depend_on_the_order_of_appearance(tmp_path: Path) -> None:
    one = source(f'discover: {{path: "{tmp_path}/*"}}')
    for name in ("c", "a", "b"):
        link(tmp_path / name)
        one.look()
    assert names(one) == names(source(f'discover: {{path: "{tmp_path}/*"}}')) == ["a", "b", "c"]


def test_two_devices_of_one_name_have_two_ids(tmp_path: Path) -> None:
    link(tmp_path / "a" / "x0")
    link(tmp_path / "b" / "x0")
    first, second = names(source(f'discover: {{path: ["{tmp_path}/a/x*", "{tmp_path}/b/x*"]}}'))
    assert first == "x0"
    assert second.startswith("x0@")


def test_a_device_does_not_take_over_the_id_of_one_that_is_gone(tmp_path: Path) -> None:
    """A pod may hold that ID, and would be told that its device is back."""
    link(tmp_path / "a" / "x0")
    link(tmp_path / "b" / "x0")
    one = source(f'discover: {{path: ["{tmp_path}/a/x*", "{tmp_path}/b/x*"]}}')
    _, second = names(one)
    (tmp_path / "a" / "x0").unlink()
    assert names(one) == [second]


def test_a_device_that_comes_back_has_its_id_again(tmp_path: Path) -> None:
    link(tmp_path / "a" / "x0")
    link(tmp_path / "b" / "x0")
    one = source(f'discover: {{path: ["{tmp_path}/a/x*", "{tmp_path}/b/x*"]}}')
    before = names(one)
    (tmp_path / "a" / "x0").unlink()
    one.look()
    link(tmp_path / "a" / "x0")
    assert names(one) == before


# ── coming and going ──────────────────────────────────────────────────────────────────────────────


def follow(one: PathSource, *changes: Callable[[], object]) -> list[list[str]]:
    """Return the looks before and after each change; the next change waits for the look that shows it."""

    async def scenario() -> list[list[str]]:
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

    async def bounded() -> list[list[str]]:
        async with asyncio.timeout(30):
            return await scenario()

    return asyncio.run(bounded())


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
