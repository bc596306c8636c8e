"""Entries of smarter-device-manager keep their resource names where the names are known beforehand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.loader import load
from devplug.daemon.config.types import Resource
from devplug.daemon.importers.draft import Grade
from devplug.daemon.importers.translation import Translation, translated


def smarter(*entries: tuple[str, int]) -> Translation:
    lines = "".join(f"- devicematch: '{regex}'\n  nummaxdevices: {count}\n" for regex, count in entries)
    return translated(lines, "conf.yaml")


def resources_of(found: Translation) -> tuple[Resource, ...]:
    return load(found.text, "translated.yaml").resources


def told(found: Translation, grade: Grade) -> list[str]:
    return [one.problem.message for one in found.remarks if one.grade is grade]


def test_one_node_keeps_its_resource_name_and_its_count() -> None:
    found = smarter(("^rtc0$", 20), ("^net/tun$", 1))
    rtc, tun = resources_of(found)
    assert (rtc.name, rtc.discover.path[0].glob, rtc.share.replicas) == (
        "smarter-devices/rtc0",
        "/dev/rtc0",
        20,
    )
    assert (tun.name, tun.discover.path[0].glob) == ("smarter-devices/net_tun", "/dev/net/tun")
    assert found.is_whole


def test_a_few_names_are_a_resource_each_and_wait_for_their_node() -> None:
    found = smarter(("^video[0-1]$", 2))
    assert [(one.name, one.when_none, one.share.replicas) for one in resources_of(found)] == [
        ("smarter-devices/video0", "wait", 2),
        ("smarter-devices/video1", "wait", 2),
    ]
    assert found.is_whole


def test_names_that_nobody_knows_are_one_resource_and_pods_must_change() -> None:
    found = smarter(("^ttyUSB[0-9]*$", 1))
    (resource,) = resources_of(found)
    assert resource.name == "smarter-devices/ttyUSB"
    assert [one.glob for one in resource.discover.path] == [
        "/dev/ttyUSB",
        "/dev/ttyUSB[0-9]",
        "/dev/ttyUSB[0-9][0-9]",
        "/dev/ttyUSB[0-9][0-9][0-9]",
    ]
    assert "let pods ask for that" in told(found, Grade.WARNING)[0]
    assert "below 1,000" in told(found, Grade.NOTE)[0]
    assert not found.is_whole


def test_a_folder_is_given_whole() -> None:
    (resource,) = resources_of(smarter(("^snd$", 20)))
    assert (resource.name, resource.expose.directories) == ("smarter-devices/snd", ("/dev/snd",))


@pytest.mark.parametrize(
    ("regex", "count", "reason"),
    [
        ("ttyUSB0", 1, "anchor it"),
        ("nvidia-gpu", 10, "Jetson"),
        ("^a$", 0, "makes no device"),
        ("", 1, "gives out everything"),
        ("^x_$", 1, "the kubelet refuses it"),
        ("^mem$", 1, "the machine's own memory"),
    ],
)
def test_what_cannot_be_said_is_left_out_with_its_reason(regex: str, count: int, reason: str) -> None:
    found = smarter((regex, count), ("^fuse$", 1))
    assert [one.name for one in resources_of(found)] == ["smarter-devices/fuse"]
    assert any(reason in message for message in told(found, Grade.WARNING))


def test_the_same_node_twice_is_one_resource() -> None:
    found = smarter(("^fuse$", 1), ("^(fuse|kvm)$", 5))
    assert [one.name for one in resources_of(found)] == ["smarter-devices/fuse", "smarter-devices/kvm"]
    assert any("before this one" in message for message in told(found, Grade.WARNING))


def test_a_glob_and_a_name_in_it_share_the_device() -> None:
    found = smarter(("^video.*$", 1), ("^video0$", 1))
    assert {one.overlap for one in resources_of(found)} == {"shared"}


def test_two_globs_with_one_prefix_have_two_names() -> None:
    found = smarter(("^tty[A-Z]+0$", 1), ("^tty[a-z]+0$", 1))
    assert [one.name for one in resources_of(found)] == ["smarter-devices/tty", "smarter-devices/tty-2"]


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.sampled_from(
                    ["tty", "net/", "mem", "sd", ".*", "[0-9]*", "[^a]", "(a|b)", "_", "[*?]", "\\{", "$"]
                ),
                max_size=4,
            ).map(lambda parts: f"^{''.join(parts)}$"),
            st.sampled_from([0, 1, 20, 999_999]),
        ),
        max_size=4,
    )
)
def test_whatever_the_entries_are_the_result_loads_or_is_nothing(entries: list[tuple[str, int]]) -> None:
    found = smarter(("^fuse$", 1), *entries)
    names = {one.name for one in resources_of(found)}
    assert "smarter-devices/fuse" in names
    assert len(names) > len(entries) or found.remarks


def test_keys_that_are_unknown_and_entries_that_are_no_maps_are_told() -> None:
    source: Any = "- devicematch: ^fuse$\n  nummaxdevices: 1\n  mode: rw\n- what\n"
    found = translated(source, "conf.yaml")
    assert any("does not know this key" in message for message in told(found, Grade.NOTE))
    assert any("has a map" in message for message in told(found, Grade.WARNING))
