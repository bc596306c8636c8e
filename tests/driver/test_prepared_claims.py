"""The claims in use outlive their driver: state file, CDI files, and two instances that share both."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from devplug.cdi.spec import CdiOwner, CdiSpec
from devplug.devices import ContainerResponse
from devplug.driver.claim_spec import claim_spec, file_name
from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.prepared_claims import Entry, PreparedClaims
from devplug.errors import KubeletError
from devplug.linux.boot import boot_id
from tests.driver.world import DRIVER, SERIAL
from tests.virtualtime import now, on_virtual_time

anyio_backend = on_virtual_time


@pytest.fixture
def cdi(tmp_path: Path) -> Path:
    folder = tmp_path / "cdi"
    folder.mkdir()
    return folder


def store(tmp_path: Path, boot: str = "boot") -> PreparedClaims:
    return PreparedClaims(DRIVER, tmp_path / "plugin", tmp_path / "cdi", boot)


def use(uid: str) -> tuple[CdiSpec, ClaimUse]:
    wanted = ClaimUse("ns", "c", uid, (DeviceUse("r", "a", SERIAL, "A"),))
    spec, named = claim_spec(DRIVER, wanted, [ContainerResponse(device_nodes=["/dev/x"])], [CdiOwner()])
    assert spec is not None
    return spec, named


async def published(claims: PreparedClaims, *uids: str) -> None:
    async with claims.locked():
        for uid in uids:
            spec, named = use(uid)
            await claims.begin(named)
            await claims.publish(named, spec)


async def known(claims: PreparedClaims) -> Sequence[str]:
    async with claims.locked():
        return sorted(claims.claims)


async def test_what_a_killed_driver_left_beside_its_state_is_removed(tmp_path: Path, cdi: Path) -> None:
    await published(store(tmp_path), "u1")
    remains = tmp_path / "plugin" / ".prepared_claims.json.0123abcd"
    remains.touch()
    assert await known(store(tmp_path)) == ["u1"]
    assert not remains.exists()


async def test_what_is_prepared_is_known_to_the_next_driver(tmp_path: Path, cdi: Path) -> None:
    first = store(tmp_path)
    await published(first, "u1")
    second = store(tmp_path)
    assert await known(second) == ["u1"]
    assert second.claims == first.claims
    assert second.is_prepared(second.claims["u1"])
    assert second.held_ids(SERIAL) == {"A"}


async def test_a_driver_knows_the_claims_before_it_has_the_lock(tmp_path: Path, cdi: Path) -> None:
    first, second = store(tmp_path), store(tmp_path)
    await published(first, "u1")
    async with first.locked():
        second.recall()
        assert second.held_ids(SERIAL) == {"A"}
    (tmp_path / "plugin" / "prepared_claims.json").write_bytes(b"{")
    third = store(tmp_path)
    third.recall()
    assert third.held_ids(SERIAL) == {"A"}, "its CDI file tells, too"
    assert await known(third) == ["u1"]


async def test_a_state_that_cannot_be_read_is_put_aside_and_rebuilt(tmp_path: Path, cdi: Path) -> None:
    await published(store(tmp_path), "u1", "u2")
    state = tmp_path / "plugin" / "prepared_claims.json"
    for content in (b"", b"{", b'{"version":1,"claims":[],"more":1}', b"\xff"):
        state.write_bytes(content)
        assert await known(store(tmp_path)) == ["u1", "u2"]
        assert state.with_name("prepared_claims.json.unreadable").read_bytes() == content


async def test_the_cdi_file_counts_where_both_say_something(tmp_path: Path, cdi: Path) -> None:
    await published(store(tmp_path), "u1")
    state = tmp_path / "plugin" / "prepared_claims.json"
    document = json.loads(state.read_text())
    document["claims"][0]["devices"][0]["device_id"] = "WRONG"
    state.write_text(json.dumps(document))
    again = store(tmp_path)
    await known(again)
    assert again.held_ids(SERIAL) == {"A"}
    (cdi / file_name(DRIVER, "u1")).unlink()
    assert not again.is_prepared(again.claims["u1"])


async def test_after_a_reboot_nothing_is_prepared_and_all_is_still_in_use(tmp_path: Path, cdi: Path) -> None:
    """The paths in a file of another boot may be those of other devices."""
    await published(store(tmp_path), "u1")
    again = store(tmp_path, "another boot")
    assert await known(again) == ["u1"]
    assert not again.is_prepared(again.claims["u1"])
    assert list(cdi.iterdir()) == []


async def test_files_of_others_stay_and_what_a_dead_writer_left_is_removed(tmp_path: Path, cdi: Path) -> None:
    foreign = cdi / file_name(DRIVER, "u1")
    foreign.write_text("kind: x")
    (cdi / "nvidia.yaml").touch()
    (cdi / ".devplug-c1a100000000-7-01234567.tmp").touch()
    (cdi / file_name(DRIVER, "u2")).write_bytes(bytes(99))  # as after a power cut
    assert await known(store(tmp_path)) == []
    assert sorted(path.name for path in cdi.iterdir()) == [foreign.name, "nvidia.yaml"]


async def test_who_gets_the_lock_knows_what_the_other_instance_did(tmp_path: Path, cdi: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    await published(one, "u1")
    assert await known(other) == ["u1"]
    async with other.locked():
        other.unpublish("u1")
        await other.end("u1")
    assert await known(one) == []


async def test_an_instance_waits_for_the_other_one_s_work_and_not_for_ever(tmp_path: Path, cdi: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    async with one.locked():
        begin = now()
        with pytest.raises(KubeletError, match="another instance of the driver is still at work"):
            await known(other)
        assert now() - begin >= 20
    assert await known(other) == []


async def test_a_folder_that_takes_no_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "plugin").touch()
    with pytest.raises(KubeletError, match=r"cannot use .*plugin"):
        await known(store(tmp_path))


def test_the_boot_has_a_name() -> None:
    assert boot_id() == boot_id() != ""


# ── a CDI file that another program removes ──


async def test_a_removed_cdi_file_is_restored_at_the_next_start(
    tmp_path: Path, cdi: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await published(store(tmp_path), "u1", "u2")
    file = cdi / file_name(DRIVER, "u1")
    content = file.read_bytes()
    file.unlink()
    again = store(tmp_path)
    assert await known(again) == ["u1", "u2"]
    assert file.read_bytes() == content
    assert again.is_prepared(again.claims["u1"])
    (warning,) = [one for one in caplog.records if "has removed the CDI file" in one.message]
    assert vars(warning)["claim_uid"] == "u1"


def empty(file: Path) -> None:
    file.write_bytes(b"")


def add_memory(file: Path) -> None:
    file.write_text(file.read_text() + "# - path: /dev/mem\n")


def name_another_boot(file: Path) -> None:
    file.write_text(file.read_text().replace("boot", "root"))


def name_another_device(file: Path) -> None:
    file.write_text(file.read_text().replace('"name": "', '"name": "x'))


def replace_by_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def replace_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "change", [empty, add_memory, name_another_boot, name_another_device, replace_by_link, replace_by_pipe]
)
async def test_a_changed_cdi_file_is_restored_from_the_state(
    tmp_path: Path, cdi: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Path], None]
) -> None:
    running = store(tmp_path)
    await published(running, "u1")
    file = cdi / file_name(DRIVER, "u1")
    content, use = file.read_bytes(), running.claims["u1"]
    change(file)
    assert running.lost() == ["u1"]
    async with running.locked():
        await running.restore("u1")
    assert (file.read_bytes(), running.claims["u1"], running.lost()) == (content, use, [])
    change(file)
    again = store(tmp_path)
    again.recall()
    assert again.claims["u1"] == use
    assert await known(again) == ["u1"]
    assert (file.read_bytes(), again.claims["u1"]) == (content, use)
    told = [one for one in caplog.records if "has changed the CDI file" in one.message]
    assert [vars(one)["claim_uid"] for one in told] == ["u1", "u1"]


async def test_a_removed_cdi_file_of_an_earlier_boot_is_not_restored(tmp_path: Path, cdi: Path) -> None:
    await published(store(tmp_path), "u1")
    (cdi / file_name(DRIVER, "u1")).unlink()
    again = store(tmp_path, "another boot")
    assert await known(again) == ["u1"]
    assert not again.is_prepared(again.claims["u1"])
    assert list(cdi.iterdir()) == list((tmp_path / "plugin" / "cdi").iterdir()) == []


async def test_a_claim_that_has_ended_leaves_no_copy(tmp_path: Path, cdi: Path) -> None:
    claims = store(tmp_path)
    await published(claims, "u1")
    async with claims.locked():
        claims.unpublish("u1")
        assert claims.lost() == []
        await claims.end("u1")
    assert list(cdi.iterdir()) == list((tmp_path / "plugin" / "cdi").iterdir()) == []


async def test_a_copy_that_the_state_does_not_know_is_removed(tmp_path: Path, cdi: Path) -> None:
    """As after an earlier release of ours, which does not know copies, has ended the claim."""
    await published(store(tmp_path), "u1", "u2")
    for uid in ("u1", "u2"):
        (cdi / file_name(DRIVER, uid)).unlink()
    state = tmp_path / "plugin" / "prepared_claims.json"
    other = msgspec.json.encode(Entry(ClaimUse("ns", "c", "u2", (DeviceUse("r", "b", SERIAL, "B"),))))
    state.write_bytes(state.read_bytes() + b'{"ended":"u1"}\n' + other + b"\n")
    assert await known(store(tmp_path)) == ["u2"]
    assert list(cdi.iterdir()) == list((tmp_path / "plugin" / "cdi").iterdir()) == []


async def test_a_file_of_an_earlier_release_gets_a_copy(tmp_path: Path, cdi: Path) -> None:
    await published(store(tmp_path), "u1")
    copies = tmp_path / "plugin" / "cdi"
    (copies / file_name(DRIVER, "u1")).unlink()
    await known(store(tmp_path))
    (cdi / file_name(DRIVER, "u1")).unlink()
    again = store(tmp_path)
    await known(again)
    assert again.is_prepared(again.claims["u1"])


async def test_a_copy_that_cannot_be_written_is_an_error_that_names_the_folder(
    tmp_path: Path, cdi: Path
) -> None:
    claims = store(tmp_path)
    await known(claims)
    (tmp_path / "plugin" / "cdi").touch()
    with pytest.raises(KubeletError, match=r"cannot write .*/plugin/cdi: Not a directory"):
        await published(claims, "u1")
