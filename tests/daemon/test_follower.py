"""How a source that reads sysfs hears of changes: real devices and folders, on a clock that jumps."""

from __future__ import annotations

import asyncio
import itertools
import resource
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.daemon.sources.follower import follow, still_there
from devplug.linux.uevents import shared_uevents
from tests.daemon.hosts import link
from tests.kerneldevices import (
    KernelDevice,
    announce,
    loop_device,
    needs_uevents,
    own_network_namespace,
    tap_device,
    vcs_device,
)
from tests.virtualtime import now, on_virtual_time, passes
from tests.wire.fakes import open_descriptors

anyio_backend = on_virtual_time
NONE = {"no-subsystem-of-any-kernel"}
"""For stories without uevents, which other processes make at any time."""


class Looks:
    """A source's looks: when they were, and what came of them."""

    def __init__(self, found: Callable[[], tuple[HostDevice, ...]] = tuple) -> None:
        self._found = found
        self.at: list[float] = []
        self.yielded: list[tuple[HostDevice, ...]] = []

    def __call__(self) -> tuple[HostDevice, ...]:
        self.at.append(round(now(), 3))
        return self._found()

    @asynccontextmanager
    async def followed(
        self, subsystems: Collection[str] = NONE, globs: Collection[str] = (), resync_seconds: float = 30.0
    ) -> AsyncIterator[None]:
        """Follow them until the block is left; the first look is over when it is entered."""

        async def read() -> None:
            looks = follow(
                self,
                subsystems=subsystems,
                globs=globs,
                resync_seconds=resync_seconds,
                clock=asyncio.get_running_loop().time,
            )
            async for found in looks:
                self.yielded.append(found)

        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            await turns()
            yield
            reading.cancel()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def skip_if_deaf() -> None:
    """Skip where a look is due every 5 s anyway."""
    async with shared_uevents() as listener:
        if not listener.is_listening:
            pytest.skip("no uevents can be heard here")


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of descriptors as they were, after the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


# ── real devices ──


@pytest.mark.root
@needs_uevents
async def test_an_interface_is_looked_at_when_it_has_settled_after_a_second_and_at_once_when_it_goes() -> (
    None
):
    with own_network_namespace():
        looks = Looks()
        async with looks.followed({"net"}):
            await passes(10)
            with tap_device():
                await passes(10)
            await passes(5)
        assert looks.at == [0, 10.05, 11, 20]


@pytest.mark.root
@needs_uevents
async def test_other_subsystems_are_no_cause_for_a_look() -> None:
    """A new interface has queues of its own as well."""
    with own_network_namespace():
        looks = Looks()
        async with looks.followed({"vc"}):
            with tap_device():
                await passes(10)
            await passes(5)
        assert looks.at == [0]


@pytest.mark.root
@needs_uevents
async def test_with_no_subsystem_named_each_one_is_a_cause() -> None:
    looks = Looks()
    async with looks.followed(()):
        announce("/sys/devices/virtual/mem/null")
        await passes(0.6)
    assert len(looks.at) > 1


@pytest.mark.root
@needs_uevents
@pytest.mark.parametrize(
    ("make", "subsystem", "folder"),
    [(loop_device, "block", "/sys/class/block"), (vcs_device, "vc", "/sys/class/vc")],
)
async def test_a_device_of_the_kernel_is_found_and_lost(
    make: Callable[[], AbstractContextManager[KernelDevice]], subsystem: str, folder: str
) -> None:
    looks = Looks(lambda: tuple(HostDevice(path.name) for path in sorted(Path(folder).iterdir())))
    async with looks.followed({subsystem}):
        with make() as device:
            assert HostDevice(device.name) not in looks.yielded[-1]
            await passes(0.7)
            assert HostDevice(device.name) in looks.yielded[-1]
        await passes(0.7)
        assert HostDevice(device.name) not in looks.yielded[-1]


@pytest.mark.root
@needs_uevents
async def test_what_happens_during_a_look_is_shown_by_another_one() -> None:
    with own_network_namespace():

        def found() -> tuple[HostDevice, ...]:
            if len(looks.at) == 1:
                with tap_device():
                    pass
            return ()

        looks = Looks(found)
        async with looks.followed({"net"}):
            await passes(20)
        assert looks.at == [0, 0.05, 1]


# ── links and nodes that userspace makes ──


async def test_a_link_of_udev_is_looked_at_also_where_its_folder_did_not_exist(short_dir: Path) -> None:
    await skip_if_deaf()
    looks = Looks(lambda: tuple(HostDevice(path.name) for path in sorted(short_dir.glob("by-id/*"))))
    async with looks.followed(globs=[f"{short_dir}/by-id/usb-*"]):
        await passes(5)
        link(short_dir / "by-id" / "usb-a")
        await passes(5)
        link(short_dir / "by-id" / "usb-b")
        link(short_dir / "by-id" / "other")
        await passes(5)
        (short_dir / "by-id" / "usb-a").unlink()
        await passes(5)
        link(short_dir / "by-id" / "other-too")
        await passes(5)
    assert looks.at == [0, 5.05, 6, 10.05, 11, 15, 15.05, 16]
    assert [len(found) for found in looks.yielded] == [0, 1, 1, 3, 3, 2, 2, 2]


async def test_what_flaps_comes_twice_a_second_and_leaves_at_once(short_dir: Path) -> None:
    looks = Looks(lambda: tuple(HostDevice(path.name) for path in sorted(short_dir.glob("tty*"))))
    flapping = short_dir / "ttyUSB0"
    async with looks.followed(globs=[f"{short_dir}/tty*"]):
        for _ in range(600):
            flapping.touch()
            await passes(0.05)
            flapping.unlink()
            await passes(0.051)
            assert looks.yielded[-1] == ()
        came = sum(one != () == before for before, one in itertools.pairwise(looks.yielded))
        assert 30 < came < 60 * 2 + 10


def test_what_is_still_there_is_what_has_its_place_its_time_and_its_nodes() -> None:
    node, other = HostDeviceNode("/dev/a", (1, 2)), HostDeviceNode("/dev/b", (1, 3))
    known = HostDevice("a", (node,), hardware="/sys/devices/a", plugged=7)
    assert still_there([known], [replace(known, nodes=(other, node), facts={"serial": "x"})]) == (known,)
    for changed in (
        replace(known, name="b"),
        replace(known, nodes=(other,)),
        replace(known, plugged=8),
        replace(known, hardware="/sys/devices/b"),
    ):
        assert still_there([known], [changed]) == ()


async def test_where_inotify_is_refused_there_is_a_look_every_second(
    short_dir: Path, limits: tuple[int, int]
) -> None:
    looks = Looks()
    async with shared_uevents():
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        async with looks.followed(globs=[f"{short_dir}/tty*"]):
            await passes(20)
    assert 18 <= len(looks.at) <= 21


# ── without a cause ──


async def test_an_hour_in_which_nothing_happens_has_a_look_every_30_seconds() -> None:
    await skip_if_deaf()
    looks = Looks(lambda: (HostDevice("a"),))
    async with looks.followed():
        await passes(3600 + 1)
    assert looks.at == [30.0 * at for at in range(121)]
    assert looks.yielded == [(HostDevice("a"),)] * 121


async def test_a_source_may_want_its_resync_sooner() -> None:
    looks = Looks()
    async with looks.followed(resync_seconds=1):
        await passes(5.5)
    assert looks.at == [0, 1, 2, 3, 4, 5]


async def test_while_nothing_can_be_heard_there_is_a_look_every_5_seconds(limits: tuple[int, int]) -> None:
    await skip_if_deaf()
    looks = Looks()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    async with looks.followed():
        await passes(11)
        assert looks.at == [0, 5, 10]
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await passes(60)
        assert looks.at == [0, 5, 10, 15, 16, 46]


# ── a look that fails ──


async def test_a_look_that_fails_is_told_once_tried_again_and_yields_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await skip_if_deaf()

    def found() -> tuple[HostDevice, ...]:
        if 2 <= len(looks.at) <= 4:
            Path("/missing/devices").read_text()
        return (HostDevice(str(len(looks.at))),)

    looks = Looks(found)
    async with looks.followed():
        await passes(80)
    assert looks.at == [0, 30, 35, 40, 45, 75]
    assert looks.yielded == [(HostDevice("1"),), (HostDevice("5"),), (HostDevice("6"),)]
    assert [(record.message, vars(record)["path"]) for record in caplog.records] == [
        ("cannot read the devices of this machine; those found last stay listed", "/missing/devices")
    ]


async def test_an_error_of_another_kind_is_not_hidden() -> None:
    def found() -> tuple[HostDevice, ...]:
        raise ValueError

    async with aclosing(follow(found)) as looks:
        with pytest.raises(ValueError):
            await anext(looks)


# ── the end ──


@pytest.mark.parametrize("end", ["closed", "cancelled"])
async def test_nothing_is_left_open_when_nobody_follows_any_more(short_dir: Path, end: str) -> None:
    before = open_descriptors()
    looks = Looks()
    if end == "closed":
        async with aclosing(follow(looks, globs=[f"{short_dir}/*"])) as followed:
            await anext(followed)
            assert open_descriptors() > before
    else:
        async with looks.followed(globs=[f"{short_dir}/*"]):
            assert open_descriptors() > before
    assert open_descriptors() == before


async def test_sources_share_their_descriptors(short_dir: Path) -> None:
    one, other = Looks(), Looks()
    async with one.followed(globs=[f"{short_dir}/*"]):
        count = open_descriptors()
        async with other.followed(globs=[f"{short_dir}/*"]):
            assert open_descriptors() == count
