"""IDs are a promise: each host of the recorded table gives the IDs that it gave when it was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from devplug.daemon.config.types import Config
from devplug.devices import device_id_fault
from tests.daemon import idhosts
from tests.daemon.hosts import needs_mknod

TTYS = "discover: {sysfs: {subsystem: tty}}"
PROMISE = (
    "A pod that holds a device is refused after an update, or a reboot, if the device has another ID then. "
    "Make these as they were; or, for a good reason, give the format a new version, keep these for "
    "version 1, and record the new ones with `python -m tests.daemon.idhosts`."
)


def broken(host: str, folder: Path, was: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what of a host is other than it was: one line each."""
    made = {**idhosts.OURS, **idhosts.OTHERS}[host](folder)
    now = {asked: idhosts.ids_of(made, asked) for asked in idhosts.ASKED[host]}
    return [
        f"{host}: {asked}: {place}: was {was.get(asked, {}).get(place)}, is {now.get(asked, {}).get(place)}"
        for asked in {**was, **now}
        for place in {**was.get(asked, {}), **now.get(asked, {})}
        if was.get(asked, {}).get(place) != now.get(asked, {}).get(place)
    ]


@needs_mknod
@pytest.mark.parametrize("host", idhosts.OURS)
def test_a_made_host_gives_the_ids_that_are_recorded(host: str, tmp_path: Path) -> None:
    assert broken(host, tmp_path, idhosts.recorded()[host]) == [], PROMISE


@needs_mknod
@pytest.mark.shared
@pytest.mark.skipif(not idhosts.ARCHIVES.is_dir(), reason=f"no machines in {idhosts.ARCHIVES}")
@pytest.mark.parametrize("host", idhosts.OTHERS)
def test_a_real_host_gives_the_ids_that_are_recorded(host: str, tmp_path: Path) -> None:
    assert broken(host, tmp_path, idhosts.recorded()[host]) == [], PROMISE


def test_the_table_is_of_the_version_that_the_configuration_has() -> None:
    table = json.loads(idhosts.TABLE.read_text())
    (version,) = get_args(get_type_hints(Config)["version"])
    assert table["configVersion"] == version


def test_what_is_recorded_is_what_is_asked_and_an_id_of_kubernetes_each() -> None:
    recorded = idhosts.recorded()
    assert {host: set(asked) for host, asked in recorded.items()} == {
        host: set(asked) for host, asked in idhosts.ASKED.items()
    }
    ids = [id_ for asked in recorded.values() for places in asked.values() for id_ in places.values()]
    assert [id_ for id_ in ids if device_id_fault(id_)] == []


def test_no_two_devices_of_one_resource_share_an_id() -> None:
    for asked in idhosts.recorded().values():
        for places in asked.values():
            assert len(set(places.values())) == len(places)


@needs_mknod
def test_a_changed_id_is_told_with_what_it_was(tmp_path: Path) -> None:
    recorded = idhosts.recorded()["adapters"]
    (port,) = [place for place in recorded[TTYS] if place.endswith("ttyUSB0")]
    was = {**recorded, TTYS: {**recorded[TTYS], port: "ttyUSB0"}}
    (line,) = broken("adapters", tmp_path, was)
    assert line == f"adapters: {TTYS}: {port}: was ttyUSB0, is 0403:6001:A50285BI.ttyUSB0"
