"""A process that reads for long does not grow by what the C library keeps."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LOOK = """
import sys
from pathlib import Path
from devplug.linux.memory import keep_large_blocks_apart

def is_in_heap(address):
    maps = Path("/proc/self/maps").read_text().splitlines()
    (heap,) = (line.split()[0] for line in maps if line.endswith("[heap]"))
    first, last = (int(one, 16) for one in heap.split("-"))
    return first <= address < last

for number in range(3):
    block = bytes(256 * 1024)
    del block
    if number == 0 and sys.argv[1] == "apart":
        keep_large_blocks_apart()
print(is_in_heap(id(bytes(256 * 1024))))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that raises its threshold")
@pytest.mark.parametrize(("how", "is_in_heap"), [("as it is", "True"), ("apart", "False")])
def test_a_large_block_is_not_taken_from_the_heap_although_one_was_freed(how: str, is_in_heap: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LOOK, how], check=True, capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == is_in_heap
