"""Play every recording of a folder: `python -m tests.golden FOLDER...`, which `make golden` calls.

Prints `FILE matched/total` for each file and its first differences; exits with 1 if there are any. A file of
a kind that nothing here plays is named, and no more.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests import virtualtime
from tests.golden import dra_timeline
from tests.golden.player import differences, records, sample

Played = Coroutine[Any, Any, tuple[int, int, list[str]]]

SHOWN_DIFFERENCES = 5
FOLDERS = next(filter(os.path.isdir, ("/dev/shm", "/tmp")))
"""In memory if it can be: each checkpoint is written through to the disk, which may be a busy one."""


def play(path: Path, *, is_whole: bool = True) -> tuple[int, int, list[str]]:
    """Return how many records of a file, or of a sample, matched, how many there are, and what differed.

    A slow machine makes no difference: the waits of a record are over when nobody has anything to do.
    """
    first = next(iter(records(path)))
    for is_ours, played in PLAYERS:
        if is_ours(path, first):
            return virtualtime.play(played(path, is_whole))
    raise LookupError(f"nothing plays {path}")


async def _timeline(path: Path, _is_whole: bool) -> tuple[int, int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="dp-", dir=FOLDERS) as folder:
        total, found = await dra_timeline.differences(list(records(path)), Path(folder))
    return total - len(found), total, found


async def _device_manager(path: Path, is_whole: bool) -> tuple[int, int, list[str]]:
    matched, total, found = 0, 0, list[str]()
    for record in records(path) if is_whole else sample(records(path)):
        with tempfile.TemporaryDirectory(prefix="dp-", dir=FOLDERS) as folder:
            differing = await differences(record, Path(folder))
        total += 1
        matched += not differing
        found += differing
    return matched, total, found


PLAYERS: tuple[tuple[Callable[[Path, Any], bool], Callable[[Path, bool], Played]], ...] = (
    (lambda _, first: "machine" in first, _device_manager),
    (lambda path, first: "t" in first and dra_timeline.plays(path), _timeline),
)
"""Who plays a file: by its path and first record."""


def recordings(folder: Path) -> list[Path]:
    """Return the files of a folder that hold recordings."""
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.xz")])


def main(*folders: Path) -> int:
    files = [path for folder in folders for path in recordings(folder)]
    if not files:
        print(f"no *.jsonl and no *.jsonl.xz in {' '.join(map(str, folders))}", file=sys.stderr)
        return 2
    logging.disable()  # what the kubelet says while it is played is not what is asked for
    is_equal = True
    for path in files:
        try:
            matched, total, found = play(path)
        except LookupError as error:
            print(error, file=sys.stderr)
            continue
        print(f"{path.name} {matched}/{total}", flush=True)
        for difference in found[:SHOWN_DIFFERENCES]:
            print(f"  {difference}")
        is_equal &= matched == total
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
