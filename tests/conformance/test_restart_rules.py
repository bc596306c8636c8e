"""What counts as a changed ID, a leak, a hot loop and a dead socket."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.program import Figures, Scheduling
from devplug.conformance.restart_scenes import dead_sockets, sockets
from devplug.conformance.rules.restart import (
    DESCRIPTORS_MORE,
    MEBIBYTE,
    changed_ids,
    is_calm,
    memory_growth_bytes,
    more_descriptors,
    more_threads,
    threads_more,
)

if TYPE_CHECKING:
    from pathlib import Path

ids = st.frozensets(st.text("abc", min_size=1, max_size=3), max_size=6)


@given(ids, ids)
def test_ids_are_changed_exactly_if_the_sets_differ(before: frozenset[str], after: frozenset[str]) -> None:
    assert bool(changed_ids(before, after)) == (before != after)


def test_a_change_of_ids_names_some_of_those_that_are_gone_and_new() -> None:
    assert changed_ids(["a", "b", "c", "d"], ["x"]) == "4 of 4 IDs are gone (a, b, c, ...), 1 are new (x)"


@given(st.integers(6, 40), st.integers(1, 3))
def test_what_leaks_at_each_restart_is_found_after_enough_of_them(restarts: int, leak: int) -> None:
    row = [
        Figures(leak * n * 8 * MEBIBYTE, 10 + 2 * leak * n, 20 + leak * n, 0.0) for n in range(restarts + 1)
    ]
    assert more_descriptors(row) > DESCRIPTORS_MORE
    assert more_threads(row) > threads_more(row)
    assert memory_growth_bytes(row) > 8 * MEBIBYTE
    assert not is_calm(row)


@given(st.integers(6, 40), st.integers(0, 12), st.integers(0, 5))
def test_a_runtime_that_warms_up_is_no_leak(restarts: int, threads: int, descriptors: int) -> None:
    row = [
        Figures(min(n, 3) * 20 * MEBIBYTE, 4 + threads * (n > 0), 20 + descriptors * (n > 0), 0.0)
        for n in range(restarts + 1)
    ]
    assert is_calm(row)
    assert memory_growth_bytes(row) == 0


@given(st.lists(st.tuples(st.floats(0.01, 9.0), st.floats(0.01, 9.0)), min_size=1, max_size=4))
def test_what_a_plugin_takes_of_a_processor_is_the_same_on_a_busy_machine(
    threads: list[tuple[float, float]],
) -> None:
    seconds = 30.0
    idle = Scheduling(dict.fromkeys(range(len(threads)), (5.0, 5.0)))
    for slower in (1.0, 1.5, 10.0):
        after = Scheduling(
            {
                n: (5.0 + seconds / slower * ran / (ran + slept), 5.0 + seconds * (1 - 1 / slower))
                for n, (ran, slept) in enumerate(threads)
            }
        )
        expected = sum(ran / (ran + slept) for ran, slept in threads)
        assert after.share_since(idle, seconds) == pytest.approx(expected)
        assert Figures(0, 0, 0, 0.0, after).processor_share_since(
            Figures(0, 0, 0, 0.0, idle), seconds
        ) == pytest.approx(expected)


def test_what_threads_took_that_have_ended_counts_too() -> None:
    before, after = Figures(0, 1, 0, 1.0), Figures(0, 1, 0, 3.01)
    assert after.processor_share_since(before, 10.0) == pytest.approx(0.2)


def test_the_longest_wait_of_any_thread_counts_and_a_new_thread_has_none() -> None:
    before = Scheduling({1: (0.0, 1.0), 2: (0.0, 4.0)})
    assert Scheduling({1: (0.0, 3.0), 2: (0.0, 4.5), 3: (9.0, 9.0)}).waited_since(before) == 2.0
    assert Scheduling().waited_since(before) == 0.0


def test_the_kernel_tells_of_the_threads_of_a_process_and_of_none_that_is_gone() -> None:
    here = Scheduling.of([os.getpid(), 2**22 + 1])
    assert threading.get_native_id() in here.threads
    assert all(ran >= 0 and waited >= 0 for ran, waited in here.threads.values())


def test_a_socket_is_dead_when_its_listener_is_gone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    with socket.socket(socket.AF_UNIX) as lost:
        lost.bind(str(tmp_path / "lost.sock"))
    with socket.socket(socket.AF_UNIX) as kept, socket.socket(socket.AF_UNIX) as kubelet:
        for end, name in ((kept, "kept.sock"), (kubelet, "kubelet.sock")):
            end.bind(str(tmp_path / name))
            end.listen()
        assert sockets(tmp_path) == {"lost.sock", "kept.sock"}
        assert dead_sockets(tmp_path) == {"lost.sock"}
