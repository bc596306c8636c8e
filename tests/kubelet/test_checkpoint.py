"""The checkpoint file: its bytes, its checksum, what is read of a damaged one, and when it is written."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from devplug.devices import ContainerResponse
from devplug.kubelet.allocation import CheckpointWriter, DeviceAllocations, Need, assignments_of
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.checkpoint import (
    Checkpoint,
    CheckpointEntry,
    CheckpointError,
    checksum,
    decode,
    encode,
    rendering,
)
from devplug.kubelet.pluginfolder import DAMAGED_NAME, PluginFolder
from devplug.kubelet.resources import disconnected, dropped, listed
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.deviceplugin import CONTAINER_RESPONSE
from devplug.wire.values import AdvertisedDevice
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    happened,
    healthy,
    pod,
    registered,
    running,
    served,
    unhealthy,
)

REAL_FILE = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},'
    b'"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],'
    b'"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}'
)
"""A file that a kubelet wrote, as a public guide shows it."""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ids: SearchStrategy[tuple[str, ...] | None] = st.none() | st.lists(text, max_size=3).map(tuple)
checkpoints = st.builds(
    Checkpoint,
    st.none()
    | st.lists(
        st.builds(
            CheckpointEntry,
            text,
            text,
            text,
            st.none() | st.dictionaries(st.integers(-(2**63), 2**63 - 1), ids, max_size=4),
            st.none() | st.binary(max_size=8),
        ),
        max_size=3,
    ).map(tuple),
    st.none() | st.dictionaries(text, ids, max_size=3),
)


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_real_file_is_read_and_written_byte_for_byte() -> None:
    """C80."""
    checkpoint = decode(REAL_FILE)
    assert encode(checkpoint) == REAL_FILE
    assert checksum(checkpoint) == 3660592824


def test_the_rendering_is_the_dump_of_the_go_value() -> None:
    """C80."""
    assert rendering(decode(REAL_FILE)) == (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)["
        "{PodUID:(string)bf52b2cd-b611-4e79-86b1-280b283185c3 ContainerName:(string)check "
        "ResourceName:(string)nvidia.com/gpu DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[tegra]] "
        "AllocResp:([]uint8)[10 31 10 22 78 86 73 68 73 65 95 86 73 83 73 66 76 69 95 68 69 86 73 67 69 83 "
        "18 5 116 101 103 114 97]}] RegisteredDevices:(map[string][]string)map[nvidia.com/gpu:[tegra]]}"
    )


@pytest.mark.parametrize(
    ("checkpoint", "data"),
    [
        (Checkpoint(None, {}), '{"PodDeviceEntries":null,"RegisteredDevices":{}}'),
        (Checkpoint((), {"a/b": ()}), '{"PodDeviceEntries":[],"RegisteredDevices":{"a/b":[]}}'),
        (
            Checkpoint(None, {"a/b": ("<\u2028>",)}),
            '{"PodDeviceEntries":null,"RegisteredDevices":{"a/b":["\\u003c\\u2028\\u003e"]}}',
        ),
    ],
)
def test_the_layout_is_that_of_go(checkpoint: Checkpoint, data: str) -> None:
    """C82."""
    assert encode(checkpoint) == f'{{"Data":{data},"Checksum":{checksum(checkpoint)}}}'.encode()


def test_numa_nodes_are_sorted_as_text_in_the_file_and_as_numbers_in_the_checksum() -> None:
    entry = CheckpointEntry("u", "c", RESOURCE, {2: ("b",), 10: ("c",), -1: ("a",)}, b"")
    checkpoint = Checkpoint((entry,), {})
    assert b'"DeviceIDs":{"-1":["a"],"10":["c"],"2":["b"]},"AllocResp":""' in encode(checkpoint)
    assert "map[-1:[a] 2:[b] 10:[c]]" in rendering(checkpoint)


@given(checkpoints)
def test_whatever_is_written_is_read_again(checkpoint: Checkpoint) -> None:
    assert decode(encode(checkpoint)) == checkpoint


@given(checkpoints, st.data())
def test_no_damage_raises_anything_but_a_checkpoint_error(
    checkpoint: Checkpoint, data: st.DataObject
) -> None:
    content = bytearray(encode(checkpoint))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CheckpointError):
        decode(bytes(content))


# ── tolerance ─────────────────────────────────────────────────────────────────────────────────────


def variant(**changes: object) -> bytes:
    """Return a sound file with other JSON around the same data."""
    document = json.loads(REAL_FILE)
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(json.loads(REAL_FILE), indent=2).encode() + b"\n",
        REAL_FILE.replace(b'"Data"', b'"data"').replace(b'"PodUID"', b'"PODUID"'),
        variant(Extra={"deep": [1.5, None]}),
        REAL_FILE.replace(b'"check"', b'"ch\\u0065ck"'),
        REAL_FILE.replace(b'"-1"', b'"-01"'),
    ],
)
def test_layout_case_and_unknown_keys_do_not_matter(content: bytes) -> None:
    assert decode(content) == decode(REAL_FILE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xef\xbb\xbf" + REAL_FILE,
        REAL_FILE.replace(b"3660592824", b"-1"),
        REAL_FILE.replace(b"3660592824", b"3660592824.0"),
        REAL_FILE.replace(b"3660592824", b'"3660592824"'),
        REAL_FILE.replace(b"3660592824", b"18446744073709551616"),
        REAL_FILE.replace(b'{"-1":["tegra"]}', b'["tegra"]'),
        REAL_FILE.replace(b'"-1"', b'"none"'),
        REAL_FILE.replace(b"Ch8K", b"C!8K"),
        REAL_FILE.replace(b'"check"', b"7"),
        REAL_FILE.replace(b'"check"', b"NaN"),
        b"[" * 100_000,
    ],
)
def test_what_go_cannot_read_is_an_error(content: bytes) -> None:
    with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
        decode(content)


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"{}",
        REAL_FILE.replace(b"3660592824", b"3660592825"),
        REAL_FILE.replace(b"3660592824", b"null"),
        REAL_FILE.replace(b'"tegra"]},"Alloc', b'"tegrb"]},"Alloc'),
        REAL_FILE.replace(b'"check"', b'"che\xffk"'),
    ],
)
def test_a_checksum_that_does_not_match_is_corruption(content: bytes) -> None:
    """C83."""
    with pytest.raises(CheckpointError, match=r"^checkpoint is corrupted$"):
        decode(content)


# ── when ──────────────────────────────────────────────────────────────────────────────────────────


def read(folder: Path) -> Checkpoint:
    return decode((folder / CHECKPOINT_NAME).read_bytes())


async def test_every_list_replaces_the_file(short_dir: Path) -> None:
    """C81: also a list that says nothing new."""
    async with served(short_dir, healthy("b", "a") + unhealthy("c")) as (kubelet, plugin):
        path = short_dir / CHECKPOINT_NAME
        before = path.stat()
        assert stat.S_IMODE(before.st_mode) == 0o600
        with path.open("rb") as still_open, kubelet.changes() as changes:
            plugin.send(plugin.devices)
            await happened(changes, ChangeKind.LISTED)
            assert path.stat().st_ino != before.st_ino
            assert still_open.read() == path.read_bytes()
        assert read(short_dir) == Checkpoint(None, {RESOURCE: ("a", "b")})
        assert sorted(one.name for one in short_dir.iterdir()) == ["kubelet.sock", CHECKPOINT_NAME, "p.sock"]


async def test_a_container_with_new_devices_is_written_with_its_response(short_dir: Path) -> None:
    """C81, C84."""
    devices = (AdvertisedDevice("a", "Healthy", (0, 1)), AdvertisedDevice("b", "Healthy"))

    async with running(short_dir) as kubelet, registered(kubelet, devices):
        await kubelet.admit(pod("u", 2))
        response = CONTAINER_RESPONSE.encode(ContainerResponse(envs={"DEVS_P": "a,b"}))
        grouped = {0: ("a",), 1: ("a",), -1: ("b",)}
        entry = CheckpointEntry("u", "c", RESOURCE, grouped, response)
        assert read(short_dir) == Checkpoint((entry,), {RESOURCE: ("a", "b")})


async def test_neither_a_disconnect_nor_the_end_of_a_pod_is_written(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        before = (short_dir / CHECKPOINT_NAME).stat().st_ino
        kubelet.drop_stream(RESOURCE)
        kubelet.remove_pod("u")
        kubelet.device_manager.free_inactive()
        assert kubelet.allocations() == ()
        assert (short_dir / CHECKPOINT_NAME).stat().st_ino == before


async def test_an_expired_resource_leaves_the_file(short_dir: Path) -> None:
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        assert read(short_dir) == Checkpoint(None, {})


@pytest.mark.parametrize(
    "content",
    [
        b'{"Data":{"PodDeviceEntries":[{"DeviceIDs":{"' + b"9" * 5000 + b'":["a"]}}]},"Checksum":1}',
        b'{"Data":{},"Checksum":' + b"9" * 5000 + b"}",
        b'{"Data":{"RegisteredDevices":{"\\ud800":["a"]}},"Checksum":1}',
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"\\udfff"}]},"Checksum":1}',
    ],
    ids=["a long node", "a long checksum", "half a character in a name", "half a character in a text"],
)
def test_what_python_cannot_work_out_is_a_checkpoint_error_too(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode(content)


async def test_a_damaged_file_is_kept_aside(short_dir: Path) -> None:
    damaged = REAL_FILE.replace(b"3660592824", b"3660592825")
    (short_dir / CHECKPOINT_NAME).write_bytes(damaged)
    (short_dir / DAMAGED_NAME).write_bytes(b"an older one")

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.wait(lambda: kubelet.allocatable().get(RESOURCE) == 1)
    assert (short_dir / CHECKPOINT_NAME).read_bytes() != damaged
    assert (short_dir / DAMAGED_NAME).read_bytes() == damaged


def test_a_checkpoint_that_is_a_pipe_or_far_too_large_is_not_waited_for(short_dir: Path) -> None:
    os.mkfifo(short_dir / CHECKPOINT_NAME)
    with pytest.raises(OSError, match="not a regular file"):
        PluginFolder(short_dir).read_checkpoint()
    (short_dir / CHECKPOINT_NAME).unlink()
    with (short_dir / CHECKPOINT_NAME).open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(OSError, match="it has 1073741824 bytes"):
        PluginFolder(short_dir).read_checkpoint()


async def test_a_damaged_file_is_ignored_and_overwritten_at_the_next_write(short_dir: Path) -> None:
    """C83."""
    damaged = REAL_FILE.replace(b"3660592824", b"3660592825")
    (short_dir / CHECKPOINT_NAME).write_bytes(damaged)

    async with running(short_dir) as kubelet:
        assert str(kubelet.device_manager.checkpoint_error) == "checkpoint is corrupted"
        assert kubelet.allocations() == ()
        assert (short_dir / CHECKPOINT_NAME).read_bytes() == damaged
        async with registered(kubelet, healthy("a")):
            assert read(short_dir) == Checkpoint(None, {RESOURCE: ("a",)})


async def test_an_entry_whose_response_cannot_be_decoded_is_lost_alone(short_dir: Path) -> None:
    entries = (
        CheckpointEntry("bad", "c", RESOURCE, {-1: ("a",)}, b"\xff"),
        CheckpointEntry("good", "c", RESOURCE, {-1: ("b",)}, b""),
    )
    (short_dir / CHECKPOINT_NAME).write_bytes(encode(Checkpoint(entries, {})))

    async with running(short_dir) as kubelet:
        assert [held.pod_uid for held in kubelet.allocations()] == ["good"]


async def test_a_checkpoint_that_cannot_be_written_refuses_the_pod(short_dir: Path) -> None:
    folder = short_dir / "plugins"
    async with running(folder) as kubelet, registered(kubelet, healthy("a")) as plugin:
        folder.rename(short_dir / "moved")
        message = (await kubelet.admit(pod("u"))).message
        assert 'failed to write checkpoint file "kubelet_internal_checkpoint": ' in message
        # A list does not mind.
        with kubelet.changes() as changes:
            plugin.send(healthy("a", "b"))
            await happened(changes, ChangeKind.LISTED)
        assert kubelet.capacity() == {RESOURCE: 2}


names = st.sampled_from([RESOURCE, OTHER_RESOURCE])
few_ids = st.lists(st.sampled_from(["d0", "d1", "d<2>", "é"]), max_size=3, unique=True).map(tuple)
pods = st.sampled_from(["u0", "u1", "u2"])

steps = st.one_of(
    st.tuples(st.just("list"), names, few_ids),
    st.tuples(st.just("disconnect"), names, st.just(())),
    st.tuples(st.just("drop"), names, st.just(())),
    st.tuples(st.just("end"), pods, st.just(())),
    st.tuples(pods, names, few_ids),
)


def take(step: tuple[str, str, Sequence[str]], allocations: DeviceAllocations) -> None:
    """Change the allocations; a step that begins with a pod gives IDs to it."""
    what, name, device_ids = step
    if what == "list":
        allocations.update(name, listed(allocations.state(name), healthy(*device_ids)))
    elif what == "disconnect":
        allocations.update(name, disconnected(allocations.state(name)))
    elif what == "drop":
        allocations.update(name, dropped(allocations.state(name)))
    elif what == "end":
        allocations.free_inactive({held.key[0] for held in allocations.assignments} - {name})
    else:
        response = ContainerResponse(envs={"DEVICES": " ".join(device_ids)})
        allocations.assign(Need(what, "c", name, len(device_ids)), device_ids, response, compat=False)


def anew(allocations: DeviceAllocations) -> bytes:
    """Return the file of allocations, made without any memory."""
    entries = tuple(
        CheckpointEntry(
            *held.key, held.devices_per_numa, CONTAINER_RESPONSE.encode(held.allocation.container_response)
        )
        for held in allocations.assignments
    )
    registered = {
        name: tuple(sorted(state.healthy))
        for name, state in allocations.resources.items()
        if state.healthy is not None
    }
    return encode(Checkpoint(entries or None, registered))


@given(st.lists(steps, max_size=30))
def test_a_file_is_the_same_whatever_was_kept_of_those_before(
    taken: Sequence[tuple[str, str, Sequence[str]]],
) -> None:
    allocations, recorder = DeviceAllocations(), CheckpointWriter(CONTAINER_RESPONSE.encode)
    for step in taken:
        take(step, allocations)
        content = recorder.content(allocations)
        assert content == anew(allocations)
        assert tuple(assignments_of(decode(content), CONTAINER_RESPONSE.decode)) == allocations.assignments


def test_an_entry_that_comes_first_changes_no_more_than_itself_and_the_checksum() -> None:
    """All others are kept, and go on from another checksum."""
    allocations, recorder = DeviceAllocations(), CheckpointWriter(CONTAINER_RESPONSE.encode)
    allocations.update(RESOURCE, listed(allocations.state(RESOURCE), healthy(*(f"d{n}" for n in range(40)))))
    for number in reversed(range(40)):
        take((f"u{number:02}", RESOURCE, [f"d{number}"]), allocations)
        assert recorder.content(allocations) == anew(allocations)
