"""What a claim has, no other claim and no pod gets: other drivers, other daemons, other ways of serving."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.daemon.hosts import needs_mknod
from tests.ownership.claims import DRIVER, DraNode, dra_node
from tests.ownership.machine import Stick
from tests.ownership.node import Described, path, usb
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST, STRANGER = Stick("first", "S"), Stick("stranger", "T")
plugin, claims = usb(ANY), usb(ANY, serve="dra")


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_claim_of_a_former_driver_keeps_its_stick(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """Rules 1 and 2: the driver was renamed while the daemon was down."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (name,) = here.published()
        claim = here.allocate("first", name)
        assert await here.prepare(claim) == ""
        await (here.kill() if is_killed else here.stop())
        here.driver = "new.example.com"
        await here.start(claims)
        assert here.published() == []
        here.driver = DRIVER
        assert await here.unprepare(claim) == ""
        here.driver = "new.example.com"
        await until(lambda: here.published() == [name])
        assert await here.prepare(here.allocate("second", name)) == ""


@pytest.mark.parametrize(("seconds", "restarts"), [(0, False), (70, False), (0, True), (1300, True)])
async def test_claim_whose_finalizer_was_removed_keeps_its_stick(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, *, seconds: float, restarts: bool
) -> None:
    """Rule 7: the object is gone, and its container may still run."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (name,) = here.published()
        first = here.allocate("first", name)
        assert await here.prepare(first) == ""
        if restarts:
            await here.stop()
            await here.start(claims)
        await passes(seconds)
        here.delete("first")
        assert "may still run" in await here.prepare(here.allocate("second", name))
        assert await here.unprepare(first) == ""
        assert await here.prepare(here.allocate("third", name)) == ""


@pytest.mark.parametrize("driver", ["", "new.example.com"], ids=["no driver", "another driver"])
async def test_claim_keeps_its_stick_when_its_resource_becomes_a_device_plugin(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    """Rules 1 and 2: the file was edited while the daemon was down."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (name,) = here.published()
        assert await here.prepare(here.allocate("first", name)) == ""
        await here.stop()
        here.driver = driver
        await here.start(plugin)
        assert await here.run("q", ANY) is None


async def test_claim_does_not_get_the_stick_of_a_pod_in_a_rollout(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6: the old daemon serves the resource as a device plugin, the new daemon by claims."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        here.driver = ""
        await here.start(plugin)
        async with here.other_daemon(DRIVER, claims):
            (name,) = here.published()
            await here.must_run("p", ANY)
            claim = here.allocate("first", name)
            assert await here.prepare(claim)


async def test_pod_does_not_get_the_stick_of_a_claim_in_a_rollout(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6: the old daemon serves the resource by claims, the new daemon as a device plugin."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (name,) = here.published()
        async with here.other_daemon("", plugin):
            here.driver = DRIVER
            assert await here.prepare(here.allocate("first", name)) == ""
            assert await here.run("q", ANY) is None


@pytest.mark.parametrize("is_killed", [False, True], ids=["edit", "kill"])
async def test_claims_of_replicas_end_after_an_edit_of_replicas(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """Rule 8: the stick is cleaned after its last use."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        cleaned = usb(ANY, serve="dra", **here.cleaning())
        await here.start({**cleaned, "share": {"replicas": 2}})
        given = [here.allocate(name, name) for name in here.published()]
        assert [await here.prepare(claim) for claim in given] == ["", ""]
        await (here.restart(cleaned, is_killed=True) if is_killed else here.edit(cleaned))
        assert [await here.unprepare(claim) for claim in given] == ["", ""]
        assert here.cleaned() == ["first"]


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
async def test_stick_of_a_pod_stays_healthy_when_its_resource_moves_to_claims(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    """Rule 4."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(plugin)
        await here.must_run("p", ANY)
        await (here.restart(claims) if is_restarted else here.edit(claims))
        assert here.health("p") == {"Healthy"}
        assert here.capacity() == {ANY: 1}
        here.end("p")
        await until(lambda: len(here.published()) == 2)


def edits(here: DraNode) -> dict[str, Described]:
    """Return what the resource of claims becomes while its stick is away."""
    cleaned = here.cleaning()
    return {
        "same": usb(ANY, serve="dra", **cleaned),
        "renamed": usb(OTHER, serve="dra", **cleaned),
        "another id": usb(ANY, serve="dra", id="k-{serial}", **cleaned),
        "path": path(ANY, "/dev/ttyUSB*", serve="dra", **here.cleaning(path(ANY, "/dev/ttyUSB*"))),
        "device plugin": usb(ANY, **cleaned),
        "renamed device plugin": usb(OTHER, **cleaned),
    }


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
@pytest.mark.parametrize(
    "edit",
    [
        "another id",
        "renamed device plugin",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("same", "renamed", "path", "device plugin")
        ),
    ],
)
async def test_stick_that_is_away_when_its_claim_ends_is_cleaned_when_it_is_back(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, edit: str, *, is_restarted: bool
) -> None:
    """Rule 8: whatever it is called by then, and however it is served."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(edits(here)["same"])
        (name,) = here.published()
        claim = here.allocate("first", name)
        assert await here.prepare(claim) == ""
        here.machine.unplug(FIRST)
        await here.quiet()
        assert await here.unprepare(claim) == ""
        assert here.cleaned() == []
        edited = edits(here)[edit]
        await (here.restart(edited) if is_restarted else here.edit(edited))
        here.machine.plug(FIRST, "2")
        await here.quiet()
        assert here.cleaned() == ["first"]
        if "device plugin" in edit:
            await here.must_run("p", str(edited["name"]))
        else:
            (name,) = here.published()
            assert await here.prepare(here.allocate("second", name)) == ""
        assert here.cleaned() == ["first"]


def mark(resource_name: str) -> str:
    return hashlib.sha256(resource_name.encode()).hexdigest()[:12]


@pytest.mark.parametrize("name", [ANY, OTHER], ids=["same name", "renamed"])
async def test_stick_that_an_older_daemon_left_to_clean_is_cleaned(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Rule 8: an older daemon wrote device IDs alone, in a file of their own."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        cleaned = {"serve": "dra", **here.cleaning()}
        await here.start(usb(ANY, **cleaned))
        here.machine.unplug(FIRST)
        await here.stop()
        (names,) = here.memory()
        ((device_id, _),) = json.loads(names.read_text())["resources"][ANY]["names"].values()
        file = names.with_name(f"dirty-{mark(ANY)}.json")
        file.write_text(json.dumps([device_id]))
        await here.start(usb(ANY, **cleaned))
        assert not file.exists()
        await here.restart(usb(name, **cleaned))
        here.machine.plug(FIRST, "2")
        await here.quiet()
        assert here.cleaned() == ["first"]
        (published,) = here.published()
        assert await here.prepare(here.allocate("first", published)) == ""


@pytest.mark.parametrize("damage", ["damaged", "missing"])
async def test_lost_records_of_claims_clean_what_no_claim_has(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Rule 8."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY, serve="dra", **here.cleaning()))
        name, other = here.published()
        first, second = here.allocate("first", name), here.allocate("second", other)
        assert [await here.prepare(one) for one in (first, second)] == ["", ""]
        here.machine.unplug(FIRST)
        await here.quiet()
        assert [await here.unprepare(first)] == [""]
        await here.stop()
        state = short_dir / "plugins" / DRIVER / "prepared_claims.json"
        state.write_text("[") if damage == "damaged" else state.unlink()
        await here.start()
        here.machine.plug(FIRST, "1")
        await here.quiet()
        assert here.cleaned() == ["first"]
        assert here.published() == [name, other]
        assert await here.prepare(here.allocate("third", name)) == ""
        assert here.cleaned() == ["first"]


async def test_claim_with_admin_access_neither_waits_nor_makes_others_wait(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 2: it only looks at a device."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, serve="dra", **here.cleaning()))
        (name,) = here.published()
        first, watcher = here.allocate("first", name), here.allocate("watcher", name, admin=True)
        assert [await here.prepare(one) for one in (watcher, first)] == ["", ""]
        assert await here.unprepare(first) == ""
        assert here.cleaned() == ["first"]
        await here.edit(usb(OTHER, **here.cleaning()))
        await here.must_run("p", OTHER)
        assert await here.unprepare(watcher) == ""
        assert here.cleaned() == ["first"]


async def test_replica_of_a_watched_stick_is_cleaned_after_its_last_use(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 2 and 8."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, serve="dra", share={"replicas": 2}, **here.cleaning()))
        used, watched = here.published()
        first, watcher = here.allocate("first", used), here.allocate("watcher", watched, admin=True)
        assert [await here.prepare(one) for one in (first, watcher)] == ["", ""]
        assert await here.unprepare(first) == ""
        assert here.cleaned() == ["first"]


async def test_watched_stick_that_is_unplugged_is_listed_no_more(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 2: and its CDI file does not lead to the next stick of its device number."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY, serve="dra", whenUnplugged={"keepUnhealthyFor": "0s"}))
        name, _ = here.published()
        assert await here.prepare(here.allocate("watcher", name, admin=True)) == ""
        here.machine.unplug(FIRST)
        await here.quiet()
        assert len(here.slices()) == 1
        (file,) = (short_dir / "cdi").iterdir()
        assert "unplugged" in file.read_text()


async def test_lost_records_clean_no_stick_of_a_claim_that_somebody_watches(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 2 and 8."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, serve="dra", **here.cleaning()))
        (name,) = here.published()
        assert await here.prepare(here.allocate("first", name)) == ""
        await here.stop()
        (short_dir / "plugins" / DRIVER / "prepared_claims.json").write_text("[")
        await here.start()
        assert await here.prepare(here.allocate("watcher", name, admin=True)) == ""
        await here.quiet()
        assert here.cleaned() == []


@pytest.mark.parametrize(
    ("holder", "edit"),
    [
        ("pod", usb(ANY, serve="dra")),
        ("pod", usb(OTHER, serve="dra")),
        ("claim", usb(OTHER, serve="dra")),
        ("claim", usb(ANY, serve="dra", id="k-{serial}")),
    ],
    ids=["now for claims", "renamed, for claims", "renamed", "another id"],
)
async def test_refused_claim_names_who_holds_the_stick(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, holder: str, edit: Described
) -> None:
    """Rule 5: a claim has got the stick by its new name, which is withheld."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(edit)
        (new_name,) = here.published()
        late = here.allocate("late", new_name)
        await here.restart(usb(ANY) if holder == "pod" else claims)
        if holder == "pod":
            await here.must_run("first", ANY)
        else:
            (name,) = here.published()
            assert await here.prepare(here.allocate("first", name)) == ""
        await here.edit(edit)
        by = "default/first" if holder == "pod" else "ResourceClaim default/first"
        assert f"is held as {ANY} 0403:6001:S by {by}; " in await here.prepare(late)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
@pytest.mark.parametrize(
    "edit",
    [usb(OTHER, serve="dra"), usb(ANY, serve="dra", id="k-{serial}")],
    ids=["renamed", "another id"],
)
async def test_claim_that_was_allocated_before_a_rename_gets_its_stick(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, edit: Described, *, is_restarted: bool
) -> None:
    """O6, and rule 2: no other claim is given the stick by its new name meanwhile."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (old_name,) = here.published()
        first = here.allocate("first", old_name)
        await (here.restart if is_restarted else here.edit)(edit)
        await until(lambda: here.published() not in ([], [old_name]))
        (new_name,) = here.published()
        assert await here.prepare(first) == ""
        await until(lambda: here.published() == [])
        late = here.allocate("late", new_name)
        assert "ResourceClaim default/first" in await here.prepare(late)
        await here.restart(edit)
        assert await here.prepare(first) == ""
        assert await here.unprepare(first) == ""
        await until(lambda: here.published() == [new_name])
        assert await here.prepare(late) == ""


async def test_other_sticks_move_to_pods_while_a_claim_has_one_by_a_former_name(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 4 and 9."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (old_name,) = here.published()
        first = here.allocate("first", old_name)
        await here.edit(usb(ANY, serve="dra", id="k-{serial}"))
        await until(lambda: here.published() not in ([], [old_name]))
        assert await here.prepare(first) == ""
        here.machine.plug(STRANGER, "2")
        await here.edit(usb(ANY, id="k-{serial}"))
        await here.quiet()
        await here.must_run("p", ANY)
        assert await here.run("q", ANY) is None
        assert await here.unprepare(first) == ""
        await here.quiet()
        await here.must_run("r", ANY)


UID = "0123abcd-0123-0123-0123-0123456789ab"


@pytest.mark.parametrize("seconds", [0, 12])
async def test_pod_does_not_get_the_stick_of_a_claim_of_an_old_instance(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Rule 1: in a rollout both daemons have the same driver, and the new one serves the stick to pods."""
    async with dra_node(short_dir, monkeypatch) as here:
        here.machine.plug(FIRST, "1")
        await here.start(claims)
        (name,) = here.published()
        claim = here.allocate("first", name)
        monkeypatch.setenv("POD_UID", UID)
        async with here.other_daemon(DRIVER, plugin, usb(OTHER, vendor="1a86", serve="dra")):
            assert await here.prepare(claim) == ""  # the old instance, which has the socket without the UID
            await passes(seconds)
            assert await here.run("q", ANY) is None
            assert await here.unprepare(claim) == ""
            await here.quiet()
            await here.must_run("r", ANY)
