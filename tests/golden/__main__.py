"""Play every recording of the folders: `python -m tests.golden FOLDER...`, which `make golden` calls.

Prints `FILE matched/total` for each file and its first differences; exits with 1 if there are any. A file of
a kind that nothing here plays is named, and no more.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from tests import virtualtime
from tests.golden import claims, dra_timeline, permissions, transcripts, validation
from tests.golden.dra_cluster_timeline import OF_THE_CLUSTER, ClusterPlayer
from tests.golden.player import differences, records, sample

SHOWN_DIFFERENCES = 5
FOLDERS = next(filter(os.path.isdir, ("/dev/shm", "/tmp")))
"""In memory if it can be: each checkpoint is written through to the disk, which may be a busy one."""


def play(path: Path, *, is_whole: bool = True) -> tuple[int, int, list[str]] | None:
    """Return how many records of a file, or of a sample, matched, how many there are, and what differed.

    None if nothing here plays such records. A slow machine makes no difference: the waits of a record are
    over when nobody has anything to do.
    """
    match next(records(path), {}):
        case {"machine": _}:
            return virtualtime.play(_device_manager(path, is_whole=is_whole))
        case {"slices": _, "steps": _}:
            return _counted(
                map(claims.differences, records(path) if is_whole else claims.sample(records(path)))
            )
        case {"answer": _, "op": _}:
            every = records(path) if is_whole else islice(records(path), 0, None, 5)
            return _counted(map(validation.differences, every))
        case {"who": _, "what": _}:
            return _counted(map(permissions.differences, records(path)))
        case {"t": _}:
            return virtualtime.play(_timeline(path))
    return None


async def _device_manager(path: Path, *, is_whole: bool) -> tuple[int, int, list[str]]:
    found = []
    for record in records(path) if is_whole else sample(records(path)):
        with tempfile.TemporaryDirectory(prefix="dp-", dir=FOLDERS) as folder:
            found.append(await differences(record, Path(folder)))
    return _counted(found)


async def _timeline(path: Path) -> tuple[int, int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="dp-", dir=FOLDERS) as folder:
        player = ClusterPlayer if path.name.partition(".")[0] in OF_THE_CLUSTER else dra_timeline.Player
        total, found = await dra_timeline.differences(list(records(path)), Path(folder), player)
    return total - len(found), total, found


def _counted(records_found: Iterable[list[str]]) -> tuple[int, int, list[str]]:
    matched, total, found = 0, 0, list[str]()
    for differing in records_found:
        total += 1
        matched += not differing
        found += differing
    return matched, total, found


def recordings(folder: Path) -> list[Path]:
    """Return the files of a folder that hold recordings."""
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.xz")])


def play_kubectl(files: list[Path]) -> dict[str, tuple[int, list[str]]]:
    """Play the transcripts of one session; return by file how many commands there are, and what differed."""
    with tempfile.TemporaryDirectory(prefix="dp-", dir=FOLDERS) as folder:
        return virtualtime.play(transcripts.differences(files, Path(folder)))


def main(*folders: Path) -> int:
    files = [path for folder in folders for path in recordings(folder)]
    sessions = [found for folder in folders if (found := sorted((folder / "kubectl").glob("*.txt")))]
    if not files and not sessions:
        print(f"no *.jsonl and no *.jsonl.xz in {' '.join(map(str, folders))}", file=sys.stderr)
        return 2
    logging.disable()  # what the kubelet says while it is played is not what is asked for
    is_equal = True
    for path in files:
        played = play(path)
        if played is None:
            print(f"{path.name} is not played", flush=True)
        else:
            is_equal &= _print(path.name, *played)
    for session in sessions:
        for name, (total, differing) in play_kubectl(session).items():
            is_equal &= _print(f"kubectl/{name}", total - len(differing), total, differing)
    return 0 if is_equal else 1


def _print(name: str, matched: int, total: int, found: list[str]) -> bool:
    """Print how a file came out, and return whether all of it matched."""
    print(f"{name} {matched}/{total}", flush=True)
    for difference in found[:SHOWN_DIFFERENCES]:
        print(f"  {difference}")
    return matched == total


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
