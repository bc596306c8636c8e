"""What counts as a changed ID, a leak and a dead socket."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.program import Figures
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
