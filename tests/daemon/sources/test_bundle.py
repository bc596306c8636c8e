"""Bundles: when one is there, what it is called, and what it hands out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from devplug.daemon.sources.bundle import BundleSource
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource, tree


def source(rest: str, host: Host | None = None) -> BundleSource:
    one = resource(rest)
    return BundleSource(one.name, one.discover.bundle, one.id, one.allow, host or Host())


def bundle(*members: str) -> str:
    return f"{{paths: [{', '.join(members)}]}}"


def find(discover: str, host: Host | None = None, more: str = "allow: []") -> tuple[HostDevice, ...]:
    return source(f"discover: {{bundle: {discover}}}, {more}", host).look()


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


# ── when a bundle is there ────────────────────────────────────────────────────────────────────────


def test_all_nodes_of_a_bundle_are_one_device(tmp_path: Path) -> None:
    for name in ("dsp0", "dsp0-ctl"):
        link(tmp_path / name)
    (found,) = find(bundle(f"{tmp_path}/dsp0", f"{tmp_path}/dsp0-ctl"))
    assert found.name == "dsp0"
    assert [(node.host_path, node.name) for node in found.nodes] == [
        (f"{tmp_path}/dsp0", "dsp0"),
        (f"{tmp_path}/dsp0-ctl", "dsp0-ctl"),
    ]


def test_a_bundle_is_not_there_while_a_node_is_missing(tmp_path: Path) -> None:
    one = source(f"discover: {{bundle: {bundle(f'{tmp_path}/a', f'{tmp_path}/b')}}}")
    link(tmp_path / "a")
    assert one.look() == ()
    link(tmp_path / "b")
    assert names(one.look()) == ["a"]


def test_a_bundle_is_there_without_a_node_that_is_optional(tmp_path: Path) -> None:
    one = source(
        f"discover: {{bundle: {bundle(f'{tmp_path}/a', f'{{path: {tmp_path}/fan, optional: true}}')}}}"
    )
    link(tmp_path / "a")
    assert [[node.name for node in found.nodes] for found in one.look()] == [["a"]]
    link(tmp_path / "fan")
    assert [[node.name for node in found.nodes] for found in one.look()] == [["a", "fan"]]


def test_a_bundle_whose_first_node_is_optional_is_called_by_one_that_must_be_there(tmp_path: Path) -> None:
    text = bundle(f"{{path: {tmp_path}/fan, optional: true}}", f"{tmp_path}/a")
    link(tmp_path / "a")
    (without,) = find(text)
    link(tmp_path / "fan")
    (both,) = find(text)
    assert (without.name, both.name) == ("a", "a")
    assert without.facts == both.facts == {"file": "a", "hostPath": f"{tmp_path}/a"}


def test_a_file_that_is_no_node_keeps_the_bundle_away_and_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link(tmp_path / "dev" / "a")
    (tmp_path / "dev" / "b").touch()
    one = source(f"discover: {{bundle: {bundle('/dev/a', '/dev/b')}}}", Host(tmp_path))
    with caplog.at_level(logging.INFO):
        assert (one.look(), one.look()) == ((), ())
    assert [record.__dict__["reason"] for record in caplog.records] == [
        '"/dev/b" is a regular file, not a device node'
    ]


@needs_mknod
def test_a_link_to_a_whole_disk_keeps_the_bundle_away_unless_it_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    block_node(tmp_path / "dev" / "sda")
    link(tmp_path / "dev" / "store", "sda")
    text = bundle("/dev/store")
    assert find(text, Host(tmp_path)) == ()
    assert [record.__dict__["reason"] for record in caplog.records] == [
        '"/dev/store" is a whole disk; write allow: [rawDisks]'
    ]
    assert names(find(text, Host(tmp_path), "allow: [rawDisks]")) == ["store"]


# ── what it is called ─────────────────────────────────────────────────────────────────────────────


def test_bundles_with_equal_file_names_are_called_by_their_paths_whichever_is_there(tmp_path: Path) -> None:
    both = f"[{bundle('/dev/x/port')}, {bundle('/dev/y/port')}]"
    link(tmp_path / "dev" / "y" / "port")
    assert names(find(both, Host(tmp_path))) == ["dev_y_port"]
    link(tmp_path / "dev" / "x" / "port")
    assert names(find(both, Host(tmp_path))) == ["dev_x_port", "dev_y_port"]


def test_a_template_names_a_bundle_and_stays_unique(tmp_path: Path) -> None:
    for name in ("a", "b"):
        link(tmp_path / "dev" / name)
    both = f"[{bundle('/dev/a')}, {bundle('/dev/b')}]"
    assert names(find(both, Host(tmp_path), 'id: "dsp-{file}"')) == ["dsp-a", "dsp-b"]
    for name in ("x/a", "y/a"):
        link(tmp_path / "dev" / name)
    equal = f"[{bundle('/dev/x/a')}, {bundle('/dev/y/a')}]"
    assert names(find(equal, Host(tmp_path), 'id: "dsp-{file}"')) == ["dsp-a@dev_x_a", "dsp-a@dev_y_a"]


def test_the_same_bundle_twice_is_one_device(tmp_path: Path) -> None:
    link(tmp_path / "a")
    one = bundle(f"{tmp_path}/a")
    selectors = source(f"discover: {{bundle: {one}}}").selectors
    assert names(BundleSource("example.com/a", selectors * 2).look()) == ["a"]


def test_a_member_has_the_name_that_the_file_gives_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        link(tmp_path / name)
    (found,) = find(bundle(f"{tmp_path}/a", f"{{path: {tmp_path}/b, name: control}}"))
    assert [node.name for node in found.nodes] == ["a", "control"]


# ── what sysfs knows of it ────────────────────────────────────────────────────────────────────────


def chip(root: Path, name: str, minor: int, numa_node: str) -> None:
    char_node(root / "dev" / name, minor)
    folder = f"sys/devices/chip{minor}/{name}"
    tree(root, {f"{folder}/uevent": "", f"{folder}/numa_node": f"{numa_node}\n"})
    tree(root, {f"sys/dev/char/240:{minor}": f"-> ../../devices/chip{minor}/{name}"})


@needs_mknod
@pytest.mark.parametrize(
    ("first", "second", "numa_node"),
    [("1", "1", 1), ("1", "-1", 1), ("-1", "0", 0), ("0", "1", None), ("-1", "-1", None)],
)
def test_a_bundle_is_on_the_numa_node_on_which_its_nodes_agree(
    tmp_path: Path, first: str, second: str, numa_node: int | None
) -> None:
    chip(tmp_path, "a", 1, first)
    chip(tmp_path, "b", 2, second)
    (found,) = find(bundle("/dev/a", "/dev/b"), Host(tmp_path))
    assert (found.numa_node, found.facts.get("numaNode")) == (numa_node, numa_node)


@needs_mknod
def test_the_hardware_of_a_bundle_is_that_of_its_first_node(tmp_path: Path) -> None:
    chip(tmp_path, "a", 1, "-1")
    link(tmp_path / "dev" / "known", "a")
    char_node(tmp_path / "dev" / "other", 9)
    host = Host(tmp_path)
    (found,) = find(bundle("/dev/known"), host)
    assert found.hardware == "/sys/devices/chip1/a"
    assert [(node.host_path, node.file_name) for node in found.nodes] == [("/dev/known", "a")]
    assert [one.hardware for one in find(bundle("/dev/other"), host)] == ["/dev/other"]


def test_behind_null_there_is_no_hardware(tmp_path: Path) -> None:
    link(tmp_path / "a")
    assert [one.hardware for one in find(bundle(f"{tmp_path}/a"))] == [""]


# ── hot-plug ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_bundle_is_announced_when_its_last_node_comes_and_when_one_goes(tmp_path: Path) -> None:
    link(tmp_path / "a")
    one = source(f"discover: {{bundle: {bundle(f'{tmp_path}/a', f'{tmp_path}/b')}}}")
    changes: list[Callable[[], object]] = [lambda: link(tmp_path / "b"), (tmp_path / "a").unlink]
    seen: list[list[str]] = []
    async for looked in one.looks():
        if not seen or names(looked) != seen[-1]:
            seen.append(names(looked))
            if not changes:
                break
            changes.pop(0)()
    assert seen == [[], ["a"], []]
