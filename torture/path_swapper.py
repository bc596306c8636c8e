"""An attacker in a process of its own: it swaps what lies at two paths, as fast as the kernel does.

python -m torture.path_swapper GOOD EVIL [GOOD EVIL]...: one pair after the other, until standard input is
closed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import sys
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HERE: Final = -100
_EXCHANGE: Final = 2
"""linux/fs.h RENAME_EXCHANGE: both names are always there, and one never leads to half of anything."""

_libc = ctypes.CDLL(None, use_errno=True)


def _exchange(one: bytes, other: bytes) -> None:
    if _libc.renameat2(_HERE, one, _HERE, other, _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one)


@contextmanager
def swapped(*pairs: tuple[Path, Path]) -> Iterator[None]:
    """Have these pairs swapped while the block lasts; a half of the time each path is the other one."""
    names = [str(path) for pair in pairs for path in pair]
    with Popen([sys.executable, "-m", "torture.path_swapper", *names], stdin=PIPE, stdout=PIPE) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        try:
            yield
        finally:
            attacker.communicate()


def main(names: list[str]) -> None:
    """Swap until standard input ends."""
    paths = [os.fsencode(name) for name in names]
    pairs = list(zip(paths[::2], paths[1::2], strict=True))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    for number, (one, other) in enumerate(itertools.cycle(pairs)):
        _exchange(one, other)
        if number % 64 == 0 and select.select([sys.stdin], [], [], 0)[0]:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
