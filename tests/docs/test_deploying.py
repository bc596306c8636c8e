"""The table of docs/deploying.md says what the manifests of such a file grant a pod beyond the least."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.deploy.manifests import values_for
from devplug.deploy.security_context import needs_of
from devplug.driver.node_driver import TURNS_NAME
from devplug.driver.prepared_claims import COPIES_NAME, LOCK_NAME, STATE_NAME
from devplug.holds import names
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet_dir import CDI_DIR, CHECKPOINT_NAME, KUBELET_SOCKET
from devplug.plugin.resource_lock import LOCK_FOLDER
from devplug.status import STATUS_SOCKETS
from tests.deploy.renderings import Objects, container, ours
from tests.docs.pages import DOCS, spans_of
from tests.kubelet.fakes import running

PAGE: Final = (DOCS / "deploying.md").read_text(encoding="utf-8")
ROWS: Final = {
    row[0]: row[1:]
    for line in PAGE.partition("| The configuration has |")[2].partition("\n\n")[0].splitlines()[2:]
    for row in [line.strip("| ").split(" | ")]
}
LEFT: Final = PAGE.partition("| What stays | Until |")[2].partition("\n\n")[0]
"""The table of what an uninstalled devplug leaves."""

PLAIN: Final = "{version: 1, resources: [{name: example.com/a, discover: {path: /dev/a}}]}"


def config(discover: str = "path: /dev/a", rest: str = "", head: str = "") -> str:
    return f"{{version: 1, {head} resources: [{{name: example.com/a, discover: {{{discover}}}, {rest}}}]}}"


FILES: Final = {
    "only `discover.static`": config("static: {ids: [a]}"),
    "`expose.strategy: cdi`": config(rest="expose: {strategy: cdi}"),
    "`driver`": config(rest="serve: dra", head="driver: devices.example.com,"),
    "`discover.net`": config("net: {interface: eth0}"),
    "`discover.nvidia`": config("nvidia: {}"),
    "`discover.nvidia` with `mig`": config("nvidia: {mig: 1g.10gb}"),
    "`nodeSelector`": config(rest="nodeSelector: {a: b}"),
    "`health` with `file` elsewhere than in /dev, /proc, /sys": config(
        rest="health: [{file: '/run/board/{id}', equals: ok}]"
    ),
    "`health` with `open` or `exec`, `onRelease`, `onLost`": config(rest="health: [{open: true}]"),
}
"""A file for each row of the table."""


def granted(text: str) -> Mapping[str, Any]:
    return values_for(needs_of(load(text, "c.yaml")))


def leaves(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def test_each_row_has_a_file_here() -> None:
    assert FILES.keys() == ROWS.keys()


@pytest.mark.parametrize("row", FILES)
def test_the_values_of_a_row_are_those_that_such_a_file_needs(row: str) -> None:
    told = {span.partition(":")[0] for span in spans_of(ROWS[row][-1])}
    needed = {leaf for leaf in leaves(granted(FILES[row])) if not leaf.startswith("updateStrategy.")}
    if "with `mig`" in row:  # beside what the row above has
        needed -= {*leaves(granted(FILES["`discover.nvidia`"]))}
    assert told == needed


def folders(objects: Objects) -> set[str]:
    return {one["mountPath"] for one in container(objects)["volumeMounts"]}


def test_the_row_of_a_driver_has_all_folders_and_rights_and_no_more() -> None:
    said = " ".join(ROWS["`driver`"])
    driver, plain = (ours(granted(text)) for text in (FILES["`driver`"], PLAIN))
    added = {
        path.replace("/var/lib/kubelet/", "").replace("devices.example.com", "DRIVER")
        for path in folders(driver) - folders(plain)
    }
    assert added == {
        span for span in spans_of(ROWS["`driver`"][0]) if "/" in span or span == "plugins_registry"
    }
    (role,) = (one for (kind, _), one in driver.items() if kind == "ClusterRole")
    for rule in role["rules"]:
        for resource in rule["resources"]:
            assert re.search(rf"{', '.join(rule['verbs'])} [a-z ]*{resource}\b", said), rule
    kinds = {kind for kind, _ in driver} - {kind for kind, _ in plain}
    assert kinds == {
        "ClusterRole",
        "ClusterRoleBinding",
        "DeviceClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    assert all(word in said for word in ("a token", "DeviceClass", "ValidatingAdmissionPolicy"))


@pytest.mark.parametrize(
    "name",
    [
        names.FILE_NAME,
        "held-*.json",
        f"{LOCK_FOLDER}/",
        STATUS_SOCKETS.rpartition("/")[2],
        STATE_NAME,
        LOCK_NAME,
        TURNS_NAME,
        f"{COPIES_NAME}/",
        "devplug-*.sock",
        "-reg.sock",
        "dra*.sock",
        ".devplug-*.tmp",
        CDI_DIR,
    ],
)
def test_uninstalling_names_each_file_that_stays(name: str) -> None:
    assert name in LEFT


async def test_a_daemon_that_ended_leaves_no_file_that_uninstalling_does_not_name(short_dir: Path) -> None:
    """Of a device plugin with a held device and `onRelease`, after an orderly end."""
    (short_dir / "dev").mkdir()
    (short_dir / "dev" / "a").symlink_to("/dev/null")
    rest = f"discover: {{path: {short_dir}/dev/a}}, onRelease: {{exec: {{command: [/bin/true]}}}}"
    text = f"{{version: 1, resources: [{{name: example.com/a, {rest}}}]}}"
    async with running(short_dir / "device-plugins") as kubelet:
        socket = short_dir / "pod-resources" / "kubelet.sock"
        config = load(text, "test", roots=["/tmp"])
        async with serve_config(config, plugin_dir=kubelet.plugin_dir, pod_resources=socket):
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a"))
            await kubelet.run_pod(Pod("u", "u", containers=(Container("c", {"example.com/a": 1}),)))
        left = [
            path.relative_to(kubelet.plugin_dir)
            for path in kubelet.plugin_dir.rglob("*")
            if path.name not in {CHECKPOINT_NAME, KUBELET_SOCKET, LOCK_FOLDER}
        ]
    assert left
    named = [span.rpartition("/")[2] or span for span in spans_of(LEFT)]
    assert [str(path) for path in left if not any(fnmatch(path.name, one) for one in named)] == []
