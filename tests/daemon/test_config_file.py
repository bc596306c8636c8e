"""An edited file: what it changes is served anew, what it leaves alone is not touched, a bad one waits."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.config_file import places_on_the_way
from devplug.daemon.service import serve_config
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.plugin.serving import Serving
from tests.daemon.hosts import char_node, link, needs_mknod
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time
A = "- {name: example.com/a, discover: {static: {ids: [a0, a1]}}}"
B = "- {name: example.com/b, discover: {static: {ids: [b0]}}}"
C = "- {name: example.com/c, discover: {static: {ids: [c0, c1, c2]}}}"


def text(*resources: str) -> str:
    return "version: 1\nresources:\n" + "\n".join(resources) + "\n"


def edit(file: Path, *resources: str) -> None:
    file.write_text(text(*resources))


@asynccontextmanager
async def served(
    root: Path, *resources: str, file: Path | None = None
) -> AsyncIterator[tuple[Kubelet, Serving, Path]]:
    """A kubelet with its monitoring socket, and a daemon that serves a file, by default one with these."""
    kubelet, file = Kubelet.under(root), file or root / "devplug.yaml"
    if resources:
        edit(file, *resources)
    monitoring = root / "pod-resources" / "kubelet.sock"
    config = load(file.read_text(), str(file))
    served = serve_config(config, plugin_dir=kubelet.plugin_dir, pod_resources=monitoring, file=file)
    async with kubelet.running(), served as serving:
        await serving.wait_registered()
        await kubelet.wait(lambda: all(one.resource_name in kubelet.capacity() for one in serving.plugins))
        yield kubelet, serving, file


def pod(name: str, **counts: int) -> Pod:
    limits = {f"example.com/{kind}": count for kind, count in counts.items()}
    return Pod(f"uid-{name}", name, containers=(Container("main", limits),))


async def test_a_resource_that_is_added_is_served_and_the_others_are_not_touched(short_dir: Path) -> None:
    async with served(short_dir, A) as (kubelet, _, file):
        with kubelet.changes() as changes:
            edit(file, A, B)
            async for change in changes:
                if change.kind is ChangeKind.LISTED:
                    break
                assert change.resource_name != "example.com/a"
        assert kubelet.capacity() == {"example.com/a": 2, "example.com/b": 1}


async def test_a_resource_that_is_changed_is_served_as_it_is_now(short_dir: Path) -> None:
    async with served(short_dir, A, B) as (kubelet, _, file):
        edit(file, A, B.replace("[b0]", "[b0, b1, b2]"))
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 3)
        assert kubelet.allocatable()["example.com/a"] == 2


async def test_a_resource_that_is_removed_and_that_nobody_holds_is_gone(short_dir: Path) -> None:
    async with served(short_dir, A, B) as (kubelet, serving, file):
        edit(file, A)
        await kubelet.wait(lambda: not kubelet.allocatable().get("example.com/b"))
        await until(lambda: [one.resource_name for one in serving.plugins] == ["example.com/a"])


async def test_a_removed_resource_lists_what_a_pod_holds_until_it_is_released(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(short_dir, A, B) as (kubelet, serving, file):
        assert (await kubelet.run_pod(pod("holder", b=1))).phase is PodPhase.RUNNING
        edit(file, A)
        words = "containers hold devices of a resource that the file does not serve this way any more"
        await until(lambda: words in caplog.text)
        assert {one.id: one.health for one in kubelet.devices("example.com/b")} == {"b0": "Healthy"}
        assert (await kubelet.run_pod(pod("late", b=1))).phase is not PodPhase.RUNNING
        assert {one.resource_name for one in serving.plugins} == {"example.com/a", "example.com/b"}
        edit(file, A, B)
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 1)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ("version: 1\nresources: [", "yaml"),
        (text("- {name: example.com/a, discover: {static: {ids: [a0]}}, colour: red}"), "colour"),
        ("", "empty"),
    ],
)
async def test_a_bad_edit_keeps_what_is_served_and_says_what_is_wrong(
    short_dir: Path, bad: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(short_dir, A) as (kubelet, _, file):
        file.write_text(bad)
        words = "reload failed: the file has mistakes; the previous configuration stays in effect"
        await until(lambda: words in caplog.text)
        assert kubelet.allocatable() == {"example.com/a": 2}
        edit(file, A, C)
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 2, "example.com/c": 3})
    assert word in caplog.text.lower()


async def test_a_file_that_vanishes_keeps_what_is_served(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(short_dir, A) as (kubelet, _, file):
        file.unlink()
        await until(lambda: "No such file" in caplog.text)
        assert kubelet.allocatable() == {"example.com/a": 2}


async def test_an_edit_that_could_not_be_read_for_want_of_descriptors_is_applied_once_there_are_some(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No event tells of that, the look after the last one is over, and the resync is half a minute away."""
    async with served(short_dir, A) as (kubelet, _, file):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with file.open("w") as edited:
            edited.write(text(A, B))
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            await until(lambda: "Too many open files" in caplog.text)
            await passes(5.0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        there_are_some = now()
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 1)
        assert now() < there_are_some + 2.0


def config_map(folder: Path, generation: str, content: str) -> None:
    """Publish a ConfigMap as the kubelet does (pkg/volume/util/atomic_writer.go)."""
    data = folder / f"..{generation}"
    data.mkdir(parents=True)
    (data / "config.yaml").write_text(content)
    link = folder / "..data_tmp"
    link.symlink_to(data.name)
    link.replace(folder / "..data")
    if not (folder / "config.yaml").is_symlink():
        (folder / "config.yaml").symlink_to("..data/config.yaml")


async def test_a_config_map_is_followed_when_its_links_are_swapped(short_dir: Path) -> None:
    folder = short_dir / "etc"
    config_map(folder, "1", text(A))
    async with served(short_dir, file=folder / "config.yaml") as (kubelet, _, _):
        config_map(folder, "2", text(A, B))
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 1)
        config_map(folder, "3", text(B))
        await kubelet.wait(lambda: not kubelet.allocatable().get("example.com/a"))


async def test_a_file_that_is_renamed_into_its_place_is_followed(short_dir: Path) -> None:
    async with served(short_dir, A) as (kubelet, _, file):
        fresh = short_dir / "new"
        fresh.write_text(text(B))
        fresh.replace(file)
        await kubelet.wait(lambda: kubelet.allocatable().get("example.com/b") == 1)


async def test_a_touched_file_changes_nothing(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(short_dir, A) as (kubelet, _, file):
        with kubelet.changes() as changes:
            os.utime(file)
            file.write_text("# a comment\n" + text(A))
            file.write_text("# a comment\n" + text(A, B))
            async for change in changes:
                assert change.resource_name != "example.com/a"
                if change.kind is ChangeKind.LISTED:
                    break


def test_every_link_on_the_way_to_a_file_is_watched(tmp_path: Path) -> None:
    config_map(tmp_path / "real", "1", "")
    (tmp_path / "etc").symlink_to(tmp_path / "real")
    root = str(tmp_path)
    assert places_on_the_way(tmp_path / "etc" / "config.yaml") == [
        f"{root}/etc",
        f"{root}/real/config.yaml",
        f"{root}/real/..data",
        f"{root}/real/..1/config.yaml",
    ]


def test_links_that_lead_in_a_circle_end_somewhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert places_on_the_way(tmp_path / "a")[-1] in {f"{tmp_path}/a", f"{tmp_path}/b"}


# ── what an edit must not do ──────────────────────────────────────────────────────────────────────


def chips(name: str, root: Path, rest: str = "") -> str:
    return f'- {{name: example.com/{name}, discover: {{path: "{root}/by-id/*"}}, {rest}}}'.replace(", }", "}")


@needs_mknod
async def test_a_renamed_resource_does_not_give_out_what_a_pod_holds_under_the_old_name(
    short_dir: Path,
) -> None:
    for minor in (0, 1):
        link(short_dir / "by-id" / f"chip{minor}", char_node(short_dir / "nodes" / f"chip{minor}", minor))
    async with served(short_dir, chips("a", short_dir)) as (kubelet, _, file):
        assert (await kubelet.run_pod(pod("holder", a=1))).phase is PodPhase.RUNNING
        (held,) = [allocation.device_ids[0] for allocation in kubelet.allocations()]
        edit(file, chips("b", short_dir))
        (other,) = {"chip0", "chip1"} - {held}
        await kubelet.wait(lambda: {one.id for one in kubelet.devices("example.com/b")} == {other})
        assert [one.id for one in kubelet.devices("example.com/a")] == [held]


async def test_another_number_of_replicas_does_not_drop_what_is_held(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    async with served(short_dir, chips("a", short_dir, "share: {replicas: 4}")) as (kubelet, _, file):
        for name in ("p", "q", "r"):
            await kubelet.run_pod(pod(name, a=1))
        edit(file, chips("a", short_dir, "share: {replicas: 2}"))
        await kubelet.wait(lambda: len(kubelet.devices("example.com/a")) == 3)
        assert {one.id: one.health for one in kubelet.devices("example.com/a")} == {
            "x0::0": "Healthy",
            "x0::1": "Healthy",
            "x0::2": "Healthy",
        }


@pytest.mark.parametrize(
    "bad",
    [
        "- {name: example.com/b, discover: {path: /dev/devplug-none}, whenNone: fail}",
        '- {name: example.com/b, discover: {path: "/dev/tty[0-9]*"}, share: {replicas: 9000}}',
    ],
    ids=["no device", "too many for one list"],
)
async def test_a_changed_resource_that_cannot_be_served_stays_as_it_was(
    short_dir: Path, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(short_dir, A, B) as (kubelet, _, file):
        edit(file, A, bad)
        await until(lambda: "reload failed for a resource" in caplog.text)
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 2, "example.com/b": 1})


async def test_an_added_resource_that_cannot_be_served_touches_no_other(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(short_dir, A) as (kubelet, serving, file):
        edit(file, A, "- {name: example.com/b, discover: {path: /dev/none}, whenNone: fail}")
        await until(lambda: "reload failed for a resource" in caplog.text)
        assert [one.resource_name for one in serving.plugins] == ["example.com/a"]
        assert kubelet.allocatable() == {"example.com/a": 2}


async def test_what_failed_to_be_cleaned_is_not_given_out_after_an_edit(short_dir: Path) -> None:
    (short_dir / "broken").touch()
    command = f'onRelease: {{exec: {{command: [/bin/sh, -c, "test ! -e {short_dir}/broken"]}}}}'
    b = f"- {{name: example.com/b, discover: {{static: {{ids: [b0]}}}}, {command}}}"
    async with served(short_dir, A, b) as (kubelet, _, file):
        assert (await kubelet.run_pod(pod("one", b=1))).phase is PodPhase.RUNNING
        kubelet.remove_pod("uid-one")
        assert (await kubelet.run_pod(pod("two", b=1))).phase is PodPhase.FAILED
        await kubelet.wait(lambda: kubelet.devices("example.com/b")[0].health == "Unhealthy")
        edit(file, A, b.replace("[b0]", "[b0, b1]"))
        await kubelet.wait(lambda: len(kubelet.devices("example.com/b")) == 2)
        assert {one.id: one.health for one in kubelet.devices("example.com/b")} == {
            "b0": "Unhealthy",
            "b1": "Healthy",
        }
