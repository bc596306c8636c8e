"""Edits of a served resource: no edit ends a registration or a stream, and none makes an Allocate fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.plugin.serving import Serving
from tests.daemon.hosts import link
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time

NAME = "example.com/a"
QUIET_SECONDS = 0.1
"""How long the file has to be quiet before it is read."""


def write(file: Path, rest: str, discover: str = "") -> None:
    discover = discover or f'{{path: "{file.parent}/by-id/*"}}'
    file.write_text(f"version: 1\nresources:\n- {{name: {NAME}, discover: {discover}, {rest}}}\n")


def env(number: int) -> str:
    return f'expose: {{env: {{EDIT: "{number}"}}}}'


class Node:
    """A kubelet, a daemon with one file, and what became of pods that were admitted one after the other."""

    def __init__(self, kubelet: Kubelet, serving: Serving, file: Path) -> None:
        self.kubelet = kubelet
        self.serving = serving
        self.file = file
        self.refusals: list[str] = []
        self.answers: list[tuple[float, str]] = []
        """When each pod was admitted, and its variable EDIT."""
        self._numbers = iter(range(10_000))

    async def admit(self, count: int = 1) -> None:
        """Admit a pod with one container, start that, and end the pod."""
        uid = f"uid-{next(self._numbers)}"
        status = await self.kubelet.run_pod(Pod(uid, uid, containers=(Container("main", {NAME: count}),)))
        if status.phase is not PodPhase.RUNNING:
            self.refusals.append(status.message)
        elif (options := status.containers[0].options) is not None:
            self.answers.append((now(), options.envs.get("EDIT", "")))
        self.kubelet.end_pod(uid)
        self.kubelet.remove_pod(uid)

    async def admit_every(self, seconds: float) -> None:
        while True:
            await self.admit()
            await passes(seconds)

    async def until_applied(self) -> None:
        """Wait until the file as it is now is in effect."""
        plugins = self.serving.plugins
        await until(lambda: self.serving.plugins != plugins)

    def is_uninterrupted(self) -> bool:
        """Whether no pod was refused, and there was one registration and one stream."""
        marks = self.kubelet.registrations(NAME), self.serving.counters[NAME].streams_opened
        assert (self.refusals, marks) == ([], (1, 1))
        return True


@asynccontextmanager
async def node(root: Path, rest: str, discover: str = "") -> AsyncIterator[Node]:
    for name in ("x0", "x1", "x2", "x3"):
        link(root / "by-id" / name)
    kubelet, file = Kubelet.under(root), root / "devplug.yaml"
    write(file, rest, discover)
    config = load(file.read_text(), str(file))
    pod_resources = root / "pod-resources" / "kubelet.sock"
    served = serve_config(config, plugin_dir=kubelet.plugin_dir, pod_resources=pod_resources, file=file)
    async with kubelet.running(), served as serving:
        await serving.wait_registered()
        await kubelet.wait(lambda: kubelet.allocatable().get(NAME))
        yield Node(kubelet, serving, file)


@pytest.fixture(autouse=True)
def _all_went_well(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged that an edit may not lead to."""
    yield
    messages = [record.getMessage() for record in caplog.get_records("call")]
    assert [one for one in messages if one.startswith(("devices() failed", "reload failed: the file"))] == []


@asynccontextmanager
async def admissions(one: Node, seconds: float) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        admitting = group.create_task(one.admit_every(seconds))
        yield
        admitting.cancel()


@pytest.mark.nightly  # the fifty edits below have these
async def test_edits_of_expose_interrupt_nothing(short_dir: Path) -> None:
    edits: dict[str, float] = {}
    async with node(short_dir, env(0)) as one:
        async with admissions(one, 0.02):
            for number in range(1, 21):
                write(one.file, env(number))
                edits[str(number)] = now()
                await passes(0.3)
        assert one.is_uninterrupted()
        # PodResources answers 100 questions a second, so a pod may wait while one edit follows another.
        waits = {
            edit: min(at - written for at, answer in one.answers if int(answer) >= int(edit))
            for edit, written in edits.items()
        }
        assert max(waits.values()) < 1.5
        assert [edit for _, edit in one.answers] == sorted((edit for _, edit in one.answers), key=int)


KINDS = {
    "expose": [
        'expose: {env: {A: "1"}}',
        'expose: {containerPath: "/dev/x{index}"}',
        "expose: {permissions: r}",
    ],
    "health": [
        'health: [{file: "STATE", equals: ok}]',
        "health: [{exec: {command: [/bin/true]}}]",
    ],
    "share": [
        "share: {replicas: 3}",
        "share: {replicas: 2, maxPerContainer: 1}",
    ],
    "onRelease": [
        "onRelease: {exec: {command: [/bin/true]}}",
        'onRelease: {exec: {command: [/bin/true, "2"]}}',
    ],
    "prefer": ["prefer: none", "prefer: linked", "prefer: aligned"],
    "whenUnplugged": ["whenUnplugged: {keepUnhealthyFor: 1s}", "whenUnplugged: {keepUnhealthyFor: 1m}"],
    "overlap": ["overlap: shared", "overlap: refuse"],
}


def rests(kinds: Iterator[str]) -> Iterator[str]:
    texts = {kind: cycle([*some, ""]) for kind, some in KINDS.items()}
    for kind in kinds:
        yield next(texts[kind])


@pytest.mark.parametrize("kind", KINDS)
async def test_no_edit_of_a_key_interrupts_anything(short_dir: Path, kind: str) -> None:
    (short_dir / "state").write_text("ok")
    async with node(short_dir, "") as one:
        async with admissions(one, 0.02):
            for rest in [*KINDS[kind], "", *KINDS[kind]]:
                write(one.file, rest.replace("STATE", f"{short_dir}/state"))
                await passes(0.3)
        assert one.is_uninterrupted()


async def test_fifty_edits_of_every_kind_interrupt_nothing(short_dir: Path) -> None:
    (short_dir / "state").write_text("ok")
    async with node(short_dir, "") as one:
        async with admissions(one, 0.02):
            for _, rest in zip(range(50), rests(cycle(KINDS)), strict=False):
                write(one.file, rest.replace("STATE", f"{short_dir}/state"))
                await passes(0.15)
        assert one.is_uninterrupted()


async def test_no_edit_of_discover_interrupts_anything(short_dir: Path) -> None:
    """The kubelet may have chosen a device that the new configuration does not find."""
    async with node(short_dir, env(0)) as one:
        async with admissions(one, 0.02):
            for names in ("x[01]", "x[23]", "*", "x3", "x[0-2]", "*"):
                write(one.file, env(1), f'{{path: "{short_dir}/by-id/{names}"}}')
                await passes(0.4)
        assert one.is_uninterrupted()


# ── an edit that waits ──

in_real_time = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""The clock of the others stands while a process runs."""


@in_real_time
async def test_an_edit_waits_for_its_first_checks_and_the_old_one_answers(short_dir: Path) -> None:
    go = short_dir / "go"
    waits = f"until [ -e {go} ]; do sleep 0.01; done"
    rule = f'health: [{{exec: {{command: [/bin/sh, -c, "{waits}"]}}, timeout: 20s, period: 1m}}]'
    async with node(short_dir, env(0)) as one:
        write(one.file, f"{env(1)}, {rule}")
        await until(lambda: one.serving.waiting == (NAME,))
        await one.admit()
        go.touch()
        await until(lambda: one.serving.waiting == ())
        await one.admit()
        assert [edit for _, edit in one.answers] == ["0", "1"]
        assert one.is_uninterrupted()


@in_real_time
async def test_an_edit_that_is_taken_back_while_it_waits_never_is_in_effect(short_dir: Path) -> None:
    rule = "health: [{exec: {command: [/bin/sleep, '19']}, timeout: 20s, period: 1m}]"
    async with node(short_dir, env(0)) as one:
        write(one.file, f"{env(1)}, {rule}")
        await until(lambda: one.serving.waiting == (NAME,))
        write(one.file, env(0))
        await until(lambda: one.serving.waiting == ())
        await one.admit()
        write(one.file, env(2))
        await one.until_applied()
        await one.admit()
        assert [edit for _, edit in one.answers] == ["0", "2"]
        assert one.is_uninterrupted()


async def test_an_edit_that_cannot_be_served_leaves_the_old_one(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(short_dir, env(0)) as one:
        write(one.file, f"{env(1)}, whenNone: fail", f'{{path: "{short_dir}/none/*"}}')
        await until(lambda: "reload failed for a resource" in caplog.text)
        await one.admit()
        assert [edit for _, edit in one.answers] == ["0"]
        assert one.is_uninterrupted()


async def test_a_resource_without_devices_stays_registered_over_an_edit(short_dir: Path) -> None:
    """`whenNone: wait` is for the first registration."""
    async with node(short_dir, "whenUnplugged: {keepUnhealthyFor: 0s}") as one:
        for link_ in (short_dir / "by-id").iterdir():
            link_.unlink()
        await one.kubelet.wait(lambda: one.kubelet.capacity().get(NAME) == 0)
        write(one.file, env(1))
        await passes(5)
        link(short_dir / "by-id" / "x9")
        await one.kubelet.wait(lambda: one.kubelet.allocatable().get(NAME) == 1)
        await one.admit()
        assert [edit for _, edit in one.answers] == ["1"]
        assert one.is_uninterrupted()
