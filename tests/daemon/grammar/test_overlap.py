"""Two globs of names, and a name that both cover."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.grammar.dangerous import DISK_NODES, dangerous_fault
from devplug.daemon.grammar.overlap import name_in_both

PIECES = st.sampled_from(["*", "?", "s", "d", "a", "1", "[!a]", "[a-z]", "[0-9]", "[!s-z]"])
GLOBS = st.lists(PIECES, max_size=6).map("".join)
NAMES = st.text("sda1b0", min_size=1, max_size=6)


@given(GLOBS, GLOBS)
def test_a_name_that_is_found_is_covered_by_both(one: str, other: str) -> None:
    name = name_in_both(one, other)
    assert name is None or (fnmatchcase(name, one) and fnmatchcase(name, other))


@given(GLOBS, GLOBS, NAMES)
def test_where_both_cover_a_name_one_is_found(one: str, other: str, name: str) -> None:
    covered = fnmatchcase(name, one) and fnmatchcase(name, other)
    assert not covered or name_in_both(one, other) is not None


@pytest.mark.parametrize(
    "glob", ["/dev/ttyUSB*", "/dev/video[0-9]", "/dev/snd/*", "/dev/*video*", "/dev/d?i", "/dev/s[!d]*"]
)
def test_a_glob_that_covers_no_disk_is_taken(glob: str) -> None:
    assert dangerous_fault(glob, (), ["/dev"], raw_disks_allowed=False) is None


@given(NAMES)
def test_a_disk_is_found_in_the_glob_of_exactly_itself(name: str) -> None:
    is_disk = any(fnmatchcase(name, disk) for disk in DISK_NODES)
    assert any(name_in_both(name, disk) for disk in DISK_NODES) == is_disk
