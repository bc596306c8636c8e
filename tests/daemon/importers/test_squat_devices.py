"""What squat's plugin gives to a container, a translated configuration gives, or says that it does not."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from devplug.daemon.config.types import Config
from devplug.daemon.container_response import share_of
from devplug.daemon.importers.translation import translated
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from devplug.errors import ConfigError
from tests.daemon.hosts import char_node, needs_mknod
from tests.daemon.importers.gomodel import squat_devices
from tests.daemon.importers.squatted import config_of, only, squat, warnings_of

NODES = ("ttyUSB0", "ttyUSB1", "ttyUSB10", "ttyACM0", "video0", "video[0", "my/cam-a", "my/cam-b", "own/x")
"""Below /dev; one folder is not known to any list of ours."""

GLOBS = st.sampled_from(
    [
        "ttyUSB*",
        "ttyUSB[0-1]",
        "ttyUSB[^0]",
        "tty*0",
        "tty???0",
        "video*",
        "my/*",
        "my/cam-[!a]",
        "*/x",
        "none*",
    ]
).map(lambda glob: f"/dev/{glob}")
LITERALS = st.sampled_from([*(name.replace("[", "\\[") for name in NODES), "none0"]).map(
    lambda name: f"/dev/{name}"
)


def a_path(paths: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(
        {"path": paths},
        optional={
            "mountPath": st.sampled_from(["/dev/all/", "/dev/one", "/dev/", "/dev/my/"]),
            "permissions": st.sampled_from(["r", "rw", "mrw", "wr"]),
            "limit": st.integers(1, 3),
            "optional": st.booleans(),
        },
    )


GROUPS = st.fixed_dictionaries(
    {
        "paths": st.one_of(
            a_path(st.one_of(GLOBS, LITERALS)).map(lambda one: [one]),
            st.lists(a_path(LITERALS), min_size=2, max_size=3),
            st.lists(a_path(st.one_of(GLOBS, LITERALS)), min_size=2, max_size=3),
        )
    },
    optional={"count": st.sampled_from([1, 1, 2])},
)
KEYS = ("devices", "name", "groups", "paths", "path", "usb", "vendor", "count", "type", "mountPath", "domain")


def groups_alike(extra: dict[str, object]) -> st.SearchStrategy[list[dict[str, object]]]:
    """Return groups that say the same beside their paths, as people write them."""
    one = st.one_of(GLOBS, LITERALS).map(lambda path: [{"path": path, **extra}])
    more = st.lists(LITERALS, min_size=2, max_size=3, unique=True).map(
        lambda paths: [{"path": path, **extra} for path in paths]
    )
    count = st.shared(st.sampled_from([1, 3]), key="count")
    return st.lists(
        st.fixed_dictionaries({"paths": st.one_of(one, more), "count": count}), min_size=1, max_size=3
    )


CONFIGS = st.one_of(
    st.lists(GROUPS, min_size=1, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "mountPath": st.sampled_from(["/dev/all/", "/dev/one", "/dev/"]),
            "permissions": st.sampled_from(["r", "mrw"]),
            "optional": st.just(value=True),
        },
    ).flatmap(groups_alike),
)
TREES = st.sets(st.sampled_from(NODES)).map(sorted)


def given_out(config: Config, tree: Collection[str]) -> Counter[frozenset[tuple[str, str, str]]]:
    """Return what each device of the one resource gives to a container on a machine with these nodes."""
    resource = only(config)
    with tempfile.TemporaryDirectory() as folder:
        for minor, name in enumerate(tree):
            char_node(Path(folder, "dev", name), minor)
        found = source_of(resource, Host(Path(folder))).look()
        shares = [share_of(one, 0, resource.expose) for one in found]
    return Counter(
        frozenset((node.host_path, node.container_path, node.permissions) for node in share.device_nodes)
        for share in shares
        for _ in range(resource.share.replicas)
    )


@needs_mknod
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS, TREES)
def test_devices_are_the_same_on_every_machine_unless_something_is_told(
    groups: list[dict[str, Any]], tree: list[str]
) -> None:
    found = squat(*groups)
    warnings = warnings_of(found)
    if found.config is None:
        assert warnings
        return
    config = config_of(found)
    if any("stands twice" in warning for warning in warnings):  # what it was is no longer a set of nodes
        return
    event("left out" if warnings else "whole")
    paths = [f"/dev/{name}" for name in tree]
    # Once m is said it is meant everywhere, as it is squat's default.
    is_mknod = "m" in only(config).expose.permissions
    expected = Counter(
        frozenset((host, inside, "rwm" if is_mknod else letters) for host, inside, letters in nodes)
        for nodes in squat_devices(groups, paths, by_id=not warnings)
    )
    given_to = given_out(config, tree)
    if warnings:
        assert set(given_to) <= set(expected)
    elif only(config).discover.bundle:  # two bundles stay two, also when what is there of them is the same
        assert set(given_to) == set(expected)
    else:
        assert given_to == expected


@needs_mknod
def test_the_model_and_the_translation_do_not_agree_by_finding_nothing() -> None:
    groups = [{"paths": [{"path": "/dev/ttyUSB*"}], "count": 2}]
    given_to = given_out(config_of(squat(*groups)), NODES)
    assert given_to == Counter(squat_devices(groups, [f"/dev/{name}" for name in NODES]))
    assert sum(given_to.values()) == 6


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(0, 99), st.text("a/*[{\\ ", max_size=5), GLOBS),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_whatever_stands_in_the_file_the_result_loads_or_the_reason_is_told(value: Any) -> None:
    source = json.dumps({"devices": [{"name": "ab", "groups": value}]})
    with suppress(ConfigError):  # nobody's configuration
        found = translated(source, "config.json")
        assert (found.config is None) == (found.text == "")
        if found.config is not None:
            config_of(found)
