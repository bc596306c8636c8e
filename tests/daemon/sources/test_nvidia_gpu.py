"""What follows from the driver's word: which GPUs are lost, when a fault is over, who is linked to whom."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.daemon.sources.nvidia_gpu import (
    APPLICATION_XIDS,
    Gpu,
    GpuEvent,
    GpuFault,
    GpuReading,
    MigInstance,
    fault_of,
    known_after,
    links_between,
    mig_profile,
    pci_address,
    standing,
    with_event,
)

GPU = Gpu("GPU-1", "0000:3b:00.0")
OTHER = Gpu("GPU-2", "0000:5e:00.0")
SMALL, LARGE = MigInstance("MIG-1", "1g.10gb", 7, 0), MigInstance("MIG-2", "3g.40gb", 2, 0)
SPLIT = replace(GPU, is_in_mig_mode=True, instances=(SMALL, LARGE))
NEEDS_RESET, PASSES = 95, 94
LIMIT = 300.0


def fault(xid: int, at: float = 0.0) -> tuple[GpuFault, ...]:
    return with_event((), GpuEvent(GPU.uuid, xid), at)


def looked(faults: tuple[GpuFault, ...], gpu: Gpu | None, at: float) -> tuple[GpuFault, ...]:
    return standing(faults, {} if gpu is None else {gpu.uuid: gpu}, at, LIMIT)


def test_a_fault_that_passes_is_over_when_it_has_not_come_again_for_the_time() -> None:
    faults = with_event(fault(PASSES), GpuEvent(GPU.uuid, PASSES), 100.0)
    assert looked(faults, GPU, 399.0) == faults
    assert looked(faults, GPU, 400.0) == ()


def test_a_fault_that_needs_a_reset_stays_where_the_driver_cannot_say_what_it_wants() -> None:
    assert looked(fault(NEEDS_RESET), GPU, 1e9) == fault(NEEDS_RESET)


def test_a_fault_that_needs_a_reset_is_over_when_the_gpu_was_gone_and_is_back() -> None:
    faults = looked(fault(NEEDS_RESET), None, 1.0)
    assert len(faults) == 1
    assert looked(faults, GPU, 2.0) == ()


def test_a_fault_that_needs_a_reset_is_over_when_the_driver_no_longer_wants_one() -> None:
    asking = replace(GPU, action_wanted="a reset of this GPU")
    faults = looked(fault(NEEDS_RESET), asking, 1e6)
    assert len(faults) == 1
    assert looked(faults, replace(GPU, action_wanted=""), 1e6) == ()


def test_a_driver_that_wants_nothing_is_believed_after_the_time() -> None:
    content = replace(GPU, action_wanted="")
    assert looked(fault(NEEDS_RESET), content, 299.0) == fault(NEEDS_RESET)
    assert looked(fault(NEEDS_RESET), content, 300.0) == ()


def test_the_fault_of_a_mig_instance_is_over_with_the_instance() -> None:
    faults = with_event((), GpuEvent(GPU.uuid, NEEDS_RESET, 7, 0), 0.0)
    assert looked(faults, SPLIT, 1.0) == faults
    assert looked(faults, replace(SPLIT, instances=(LARGE,)), 1.0) == ()


def test_the_same_xid_after_a_return_is_a_new_fault() -> None:
    gone = looked(fault(NEEDS_RESET), None, 1.0)
    assert looked(with_event(gone, GpuEvent(GPU.uuid, NEEDS_RESET), 2.0), GPU, 3.0) != ()


@pytest.mark.parametrize("event", [GpuEvent(), GpuEvent("GPU-1"), GpuEvent("", 79), GpuEvent("GPU-1", 154)])
def test_an_event_that_only_asks_for_a_look_is_no_fault(event: GpuEvent) -> None:
    assert with_event((), event, 0.0) == ()


def test_a_fault_concerns_the_instances_that_it_names_and_without_names_all() -> None:
    of_one = with_event((), GpuEvent(GPU.uuid, PASSES, 7, 0), 0.0)
    of_both = with_event((), GpuEvent(GPU.uuid, PASSES), 0.0)
    assert [bool(fault_of(of_one, SPLIT, part, ())) for part in (SMALL, LARGE)] == [True, False]
    assert [bool(fault_of(of_both, SPLIT, part, ())) for part in (SMALL, LARGE)] == [True, True]
    assert fault_of(of_both, OTHER, None, ()) is None


def test_the_worst_fault_is_told_and_then_the_latest() -> None:
    events = [(NEEDS_RESET, 0.0), (PASSES, 1.0), (777, 2.0)]
    faults: tuple[GpuFault, ...] = ()
    for xid, at in events:
        faults = with_event(faults, GpuEvent(GPU.uuid, xid), at)
    assert fault_of(faults, GPU, None, ()) == "Xid 95: uncontained ECC error"
    assert fault_of(faults, GPU, None, {NEEDS_RESET}) == "Xid 777"


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.sampled_from([*sorted(APPLICATION_XIDS), 63, 94, 999])), max_size=8
    ),
    st.sampled_from([None, ""]),
)
def test_whatever_passes_is_over_in_the_end_and_what_an_application_does_is_never_told(
    events: list[tuple[float, int]], action: str | None
) -> None:
    faults: tuple[GpuFault, ...] = ()
    for at, xid in sorted(events):
        faults = with_event(faults, GpuEvent(GPU.uuid, xid), at)
    told = fault_of(faults, GPU, None, APPLICATION_XIDS)
    assert bool(told) == any(xid not in APPLICATION_XIDS for _, xid in events)
    assert looked(faults, replace(GPU, action_wanted=action), 1e6 + LIMIT) == ()


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([None, "", "a reset"])), max_size=12),
    st.integers(1, 200),
)
def test_no_fault_ends_while_its_gpu_is_silent_or_the_driver_wants_something(
    looks: list[tuple[bool, str | None]], xid: int
) -> None:
    faults = fault(xid)
    for at, (answers, action) in enumerate(looks):
        gpu = replace(GPU, action_wanted=action) if answers else None
        left = looked(faults, gpu, at * LIMIT)
        if gpu is None or gpu.action_wanted:
            assert len(left) == len(faults)
        faults = left


def test_who_is_silent_while_somebody_is_lost_is_taken_for_lost() -> None:
    known = {gpu.uuid: gpu for gpu in (GPU, OTHER)}
    assert known_after(known, GpuReading((GPU,), ("lost",))) == (known, {OTHER.uuid: "lost"})
    assert known_after(known, GpuReading((GPU,))) == ({GPU.uuid: GPU}, {})
    assert known_after(known, GpuReading(missing="no driver")) == ({}, {})
    assert known_after({}, GpuReading((GPU,), ("lost",))) == ({GPU.uuid: GPU}, {})


def test_links_are_counted_directly_and_through_common_switches() -> None:
    gpus = [
        Gpu("a", "0000:01:00.0", links={"0000:02:00.0": 4, "0000:c0:00.0": 2}),
        Gpu("b", "0000:02:00.0", links={"0000:01:00.0": 4, "0000:c0:00.0": 1}),
        Gpu("c", "0000:03:00.0", links={"0000:c0:00.0": 2, "0000:c1:00.0": 9}),
        Gpu("d", "0000:04:00.0"),
    ]
    assert links_between(gpus) == {
        "a": {"b": 5, "c": 2},
        "b": {"a": 5, "c": 1},
        "c": {"a": 2, "b": 1},
        "d": {},
    }


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["p0", "p1", "p2", "switch", ""]), st.integers(1, 18), max_size=4),
        max_size=3,
    )
)
def test_links_are_the_same_from_both_ends(ends: list[dict[str, int]]) -> None:
    joined = links_between(Gpu(f"u{at}", f"p{at}", links=links) for at, links in enumerate(ends))
    for one, others in joined.items():
        assert one not in others
        assert all(joined[other][one] == count for other, count in others.items())


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [("00000000:3B:00.0", "0000:3b:00.0"), ("00010000:01:00.0", "10000:01:00.0"), ("nonsense", "nonsense")],
)
def test_addresses_are_written_as_in_sysfs(bus_id: str, address: str) -> None:
    assert pci_address(bus_id) == address


@pytest.mark.parametrize(
    ("name", "slices", "mib", "total", "profile"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb", (3, 1), 0, 0, "1c.3g.40gb"),
        ("NVIDIA H100 MIG 1g.10gb+me", (1, 1), 9856, 81559, "1g.10gb+me"),
        ("NVIDIA A100-SXM4-40GB", (1, 1), 4864, 40960, "1g.5gb"),
        ("NVIDIA A100-SXM4-80GB", (3, 1), 40192, 81920, "1c.3g.40gb"),
        ("NVIDIA A100-SXM4-80GB", (7, 7), 81152, 81920, "7g.80gb"),
        ("", (0, 0), 0, 0, ""),
    ],
)
def test_a_mig_profile_is_in_the_name_or_follows_from_the_sizes(
    name: str, slices: tuple[int, int], mib: int, total: int, profile: str
) -> None:
    assert mig_profile(name, *slices, mib, total) == profile


def test_the_source_is_imported_without_the_vendors_package() -> None:
    code = "import sys, devplug.daemon.sources.nvidia; sys.exit('pynvml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
