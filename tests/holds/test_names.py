"""The register of device names: the same hardware keeps its ID over restarts, and no other gets it."""

from __future__ import annotations

from pathlib import Path

from devplug.holds.names import KEPT_DAYS, Names, NamesRegister, Wanted

RESOURCE = "example.com/serial"


def stick(port: int, serial: str = "S") -> Wanted:
    return Wanted(f"/controller/{port}", f"0403:6001:{serial}", f"0403:6001@{port}")


def register(folder: Path, day: int = 0, boot: str = "now") -> NamesRegister:
    return NamesRegister(folder / "names.json", boot=boot, today=lambda: day)


def assign(folder: Path, *wanted: Wanted, day: int = 0) -> list[str]:
    """Return the IDs that a new process gives to these devices, in their order."""
    names = register(folder, day).of(RESOURCE).assign(wanted)
    return [names[one.hardware] for one in wanted]


def test_twins_keep_their_ids_over_a_restart(tmp_path: Path) -> None:
    names = register(tmp_path).of(RESOURCE)
    names.assign([stick(1)])
    first = names.assign([stick(1), stick(2)])
    assert assign(tmp_path, stick(1), stick(2)) == [first["/controller/1"], first["/controller/2"]]


def test_the_id_of_the_first_twin_does_not_go_to_the_second(tmp_path: Path) -> None:
    names = register(tmp_path).of(RESOURCE)
    names.assign([stick(1)])
    both = names.assign([stick(1), stick(2)])
    assert both["/controller/1"] == "0403:6001:S"
    assert assign(tmp_path, stick(2)) == ["0403:6001@2"]
    assert assign(tmp_path, stick(1), stick(2)) == ["0403:6001:S", "0403:6001@2"]


def test_a_device_that_moved_keeps_its_id(tmp_path: Path) -> None:
    assert assign(tmp_path, stick(1)) == ["0403:6001:S"]
    assert assign(tmp_path, stick(2)) == ["0403:6001:S"]


def test_other_hardware_at_the_same_place_gets_another_id(tmp_path: Path) -> None:
    assert assign(tmp_path, stick(1, "S")) == ["0403:6001:S"]
    assert assign(tmp_path, stick(1, "T")) == ["0403:6001:T"]


def test_hardware_that_was_absent_for_long_is_forgotten(tmp_path: Path) -> None:
    assign(tmp_path, stick(1), stick(2))
    assert register(tmp_path, KEPT_DAYS).of(RESOURCE).known
    assert not register(tmp_path, KEPT_DAYS + 1).of(RESOURCE).known


def test_a_damaged_register_is_put_aside_and_reported(tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text("{")
    one = register(tmp_path)
    assert "names.json" in one.fault
    assert one.of(RESOURCE).assign([stick(1)]) == {"/controller/1": "0403:6001:S"}
    assert (tmp_path / "names.json.unreadable").read_text() == "{"
    assert assign(tmp_path, stick(1)) == ["0403:6001:S"]


def test_twins_of_another_boot_are_not_remembered(tmp_path: Path) -> None:
    register(tmp_path, boot="before").note_twins(["S"])
    assert register(tmp_path, boot="before").twins == {"S"}
    assert register(tmp_path, boot="now").twins == set()


def test_names_that_are_known_write_nothing(tmp_path: Path) -> None:
    assign(tmp_path, stick(1))
    written = (tmp_path / "names.json").stat().st_mtime_ns, (tmp_path / "names.json").stat().st_ino
    assign(tmp_path, stick(1))
    assert ((tmp_path / "names.json").stat().st_mtime_ns, (tmp_path / "names.json").stat().st_ino) == written


def test_the_names_of_devices_that_imitate_a_place_differ() -> None:
    first = Wanted("/a", "0403:6001@1", "0403:6001@1")
    second = Wanted("/b", "0403:6001@1", "0403:6001@1")
    names = Names()
    both = names.assign([first, second])
    assert len(set(both.values())) == 2
    assert names.assign([second, first]) == both


def test_ranks_last_until_the_next_boot(tmp_path: Path) -> None:
    one = register(tmp_path)
    assert one.ranks.assign({"card": ["a", "b"]}) == {"a": 0, "b": 1}
    one.of(RESOURCE).assign([])
    assert register(tmp_path).ranks.assign({"card": ["b"]}) == {"b": 1}
    assert register(tmp_path, boot="next").ranks.assign({"card": ["b"]}) == {"b": 0}


def test_a_rank_that_is_free_goes_to_the_next_new_device(tmp_path: Path) -> None:
    ranks = register(tmp_path).ranks
    ranks.assign({"card": ["a", "b", "c"]})
    assert ranks.assign({"card": ["b", "c", "d"]}) == {"b": 1, "c": 2, "d": 0}


def at(path: str) -> Wanted:
    return Wanted(path, "x", f"x@{path}")


def test_the_first_of_equal_names_keeps_its_id_over_a_restart(tmp_path: Path) -> None:
    assert register(tmp_path).of(RESOURCE).assign_in_order([at("/b/x")]) == {"/b/x": "x"}
    names = register(tmp_path).of(RESOURCE).assign_in_order([at("/a/x"), at("/b/x")])
    assert names["/b/x"] == "x" != names["/a/x"]
    assert register(tmp_path).of(RESOURCE).assign_in_order([at("/b/x"), at("/a/x")]) == names


def test_a_reserved_name_goes_to_no_other_device(tmp_path: Path) -> None:
    names = register(tmp_path).of(RESOURCE).assign_in_order([at("/a/x")], ["x"])
    assert names["/a/x"] != "x"
