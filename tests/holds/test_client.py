"""One question over a real socket: whichever version the kubelet serves, and whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.holds.client import (
    Trouble,
    UnansweredError,
    ask,
    checkpoint_pods,
    read_checkpoint,
    retry_wait_seconds,
)
from devplug.holds.ledger import Ledger
from devplug.kubelet.checkpoint import Checkpoint, encode
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected, socket_identity
from devplug.wire.values import PodResources
from tests.holds.listings import KUBELET, pod
from tests.holds.nodes import NONE, OLD, V1, answering, listing
from tests.kubelet.fakes import Clock, healthy, registered
from tests.kubelet.fakes import pod as new_pod
from tests.kubelet.monitors import monitored, socket_below
from tests.kubelet.test_checkpoint import checkpoints

PODS = (pod("p", "a"),)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda values: (
        st.lists(values)
        | st.dictionaries(
            st.sampled_from(
                ["Data", "PodDeviceEntries", "PodUID", "ContainerName", "ResourceName", "DeviceIDs", "0"]
            ),
            values,
        )
    ),
)


async def trouble(path: Path, *, timeout_seconds: float = 30) -> UnansweredError:
    with pytest.raises(UnansweredError) as caught:
        await ask(path, timeout_seconds=timeout_seconds)
    return caught.value


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_kubelet_of_today_answers_by_v1(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet:
        await kubelet.admit(new_pod("u", count=0))
        answer = await ask(socket_below(short_dir), timeout_seconds=30)
        assert [one.name for one in answer.pods] == ["u"]
        assert answer.is_v1
        assert answer.kubelet == socket_identity(socket_below(short_dir))


@pytest.mark.parametrize(("versions", "is_v1"), [(V1, True), (OLD, False), (V1 + OLD, True)])
async def test_an_old_kubelet_is_asked_by_v1alpha1(
    short_dir: Path, versions: tuple[object, ...], is_v1: bool
) -> None:
    path = socket_below(short_dir)
    async with answering(path, listing(*PODS), versions=versions):
        answer = await ask(path, timeout_seconds=30)
        assert (answer.pods, answer.is_v1) == (PODS, is_v1)


async def test_an_answer_of_nearly_sixteen_mebibytes_is_read(short_dir: Path) -> None:
    path = socket_below(short_dir)
    many = PodResources("x" * (2**24 - 100), "default")
    async with answering(path, listing(many)):
        assert (await ask(path, timeout_seconds=30)).pods == (many,)


# ── no answers ────────────────────────────────────────────────────────────────────────────────────


async def test_a_larger_answer_is_a_trouble_of_its_own(short_dir: Path) -> None:
    path = socket_below(short_dir)
    async with answering(path, listing(PodResources("x" * 2**24, "default"))):
        error = await trouble(path)
    assert error.trouble is Trouble.TOO_LARGE
    assert str(error).startswith("the kubelet's answer is larger than devplug accepts: ")


async def test_a_refusal_by_the_rate_limit_is_told_from_a_large_answer(short_dir: Path) -> None:
    path = socket_below(short_dir)
    async with monitored(short_dir, clock=Clock()):
        async with connected(path) as peer:
            for _ in range(10):
                await peer.call(LIST, None)
        error = await trouble(path)
    assert error.trouble is Trouble.RATE_LIMITED
    assert str(error) == "monitors ask the kubelet too often: rejected by rate limit"


async def test_without_a_socket_nobody_is_dialled(short_dir: Path) -> None:
    path = socket_below(short_dir)
    error = await trouble(path)
    assert error.trouble is Trouble.ABSENT
    assert str(error) == f"{path} is not there: no kubelet runs, or mount its folder"


async def test_a_socket_without_a_kubelet_is_unreachable(short_dir: Path) -> None:
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    error = await trouble(path)
    assert error.trouble is Trouble.UNREACHABLE
    assert str(error).startswith(f"no kubelet answers at {path}: ")


async def test_a_kubelet_that_hangs_has_its_time(short_dir: Path) -> None:
    path = socket_below(short_dir)

    async def serve() -> Sequence[PodResources]:
        await asyncio.Event().wait()
        raise AssertionError

    async with answering(path, serve):
        error = await trouble(path, timeout_seconds=0.05)
    assert error.trouble is Trouble.TIMED_OUT
    assert str(error) == f"the kubelet at {path} did not answer in time"


async def test_a_server_of_something_else_is_told_apart(short_dir: Path) -> None:
    path = socket_below(short_dir)
    async with answering(path, listing(*PODS), versions=NONE):
        error = await trouble(path)
    assert error.trouble is Trouble.UNSERVED
    assert str(error) == f"the kubelet at {path} serves neither PodResources v1 nor v1alpha1"


async def test_bytes_that_are_no_answer_are_a_trouble_too(short_dir: Path) -> None:
    path = socket_below(short_dir)
    garbled = replace(LIST, response=replace(LIST.response, encode=lambda _: b"\xff\xff\xff"))
    async with answering(path, listing(*PODS), versions=(garbled,)):
        error = await trouble(path)
    assert error.trouble is Trouble.OTHER
    assert "cannot decode the answer to List" in str(error)


async def test_an_answer_is_not_taken_for_that_of_the_next_kubelet(short_dir: Path) -> None:
    path = socket_below(short_dir)

    async def serve() -> Sequence[PodResources]:
        path.unlink()
        path.touch()
        return PODS

    async with answering(path, serve):
        error = await trouble(path)
    assert error.trouble is Trouble.REPLACED


# ── how soon again ────────────────────────────────────────────────────────────────────────────────


def test_the_wait_doubles() -> None:
    assert [retry_wait_seconds(failures, 0) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert retry_wait_seconds(1, 1) == 1.2


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only uid 0 can become another user")
async def test_who_may_not_look_is_told_so_and_not_that_nobody_is_there(short_dir: Path) -> None:
    path = socket_below(short_dir)
    async with answering(path, listing(*PODS)):
        short_dir.chmod(0o700)
        os.seteuid(65534)
        try:
            error = await trouble(path)
        finally:
            os.seteuid(0)
    assert error.trouble is Trouble.UNREACHABLE
    assert str(error).startswith(f"no right to look for {path}: run as root")


# ── the checkpoint ────────────────────────────────────────────────────────────────────────────────


async def test_the_checkpoint_names_what_each_container_was_given(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a", "b")):
        path = kubelet.plugin_dir / CHECKPOINT_NAME
        assert read_checkpoint(path) == ()
        await kubelet.admit(new_pod("u"))
        assert read_checkpoint(path) == (replace(pod("u", "a"), namespace=""),)
    path.write_bytes(path.read_bytes()[:-10])
    assert read_checkpoint(path) is None
    path.unlink()
    assert read_checkpoint(path) is None


@given(checkpoints)
def test_every_id_of_every_checkpoint_is_named(checkpoint: Checkpoint) -> None:
    named = {
        (one.name, container.name, devices.resource_name, device_id)
        for one in checkpoint_pods(encode(checkpoint))
        for container in one.containers
        for devices in container.devices
        for device_id in devices.device_ids
    }
    assert named == {
        (entry.pod_uid, entry.container_name, entry.resource_name, device_id)
        for entry in checkpoint.entries or ()
        for ids in (entry.device_ids or {}).values()
        for device_id in ids or ()
    }


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_in_the_file_is_a_checkpoint_or_none(content: bytes) -> None:
    with suppress(ValueError):
        Ledger().listed((), 0, KUBELET, checkpoint_pods(content))
