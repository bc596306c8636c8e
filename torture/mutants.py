"""`make mutants`: takes each guard of the invariants away in turn, and shows what notices that."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.edits import mutated
from torture.guards import GUARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.guards import Guard

ROOT: Final = Path(__file__).parent.parent
LIMIT_SECONDS: Final = 180
TEST_FAILED: Final = 1
"""The exit code of pytest, and of a case, for a broken promise; any other is a mutant that does not run."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of one mutant."""

    guard: Guard
    is_caught: bool
    seconds: float
    words: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge all guards, or those that are named; return 0 if none survives."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="GUARD")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    wanted = [guard for guard in GUARDS if not chosen.only or guard.name in chosen.only]
    results = asyncio.run(_judged(wanted, chosen.jobs))
    survivors = [result for result in results if not result.is_caught]
    print(f"{len(results)} guards removed in turn, {len(results) - len(survivors)} noticed")
    return 1 if survivors or not results else 0


async def _judged(wanted: Sequence[Guard], jobs: int) -> list[MutantResult]:
    free: asyncio.Queue[Path] = asyncio.Queue()
    results: list[MutantResult] = []

    async def one(guard: Guard) -> None:
        tree = await free.get()
        try:
            result = await _judge(guard, tree)
        finally:
            free.put_nowait(tree)
        results.append(result)
        mark = "noticed" if result.is_caught else "SURVIVED"
        print(
            f"{mark:9} {guard.invariant:4} {guard.name:34} {result.seconds:5.1f} s  {guard.caught_by}",
            flush=True,
        )
        if not result.is_caught:
            print(f"    {result.words}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(jobs):
            free.put_nowait(_copied(Path(folder, str(number))))
        if refusal := await _without_mutants(wanted, Path(folder, "0")):
            print(refusal)
            return []
        async with asyncio.TaskGroup() as group:
            for guard in wanted:
                group.create_task(one(guard))
    return results


async def _without_mutants(wanted: Sequence[Guard], tree: Path) -> str:
    """Return what fails although nothing was removed; empty if all pass, as they must to mean anything."""
    tests = dict.fromkeys(
        guard.caught_by for guard in wanted if "::" in guard.caught_by or "/" in guard.caught_by
    )
    if not tests:
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    code, words = await _run(command, tree, LIMIT_SECONDS * len(tests))
    return f"with all guards in place, exit code {code}: {words}" if code else ""


def _copied(tree: Path) -> Path:
    """Return a copy of what is committed or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


async def _judge(guard: Guard, tree: Path) -> MutantResult:
    """Remove a guard in a tree, see what its catcher says, and put it back."""
    started = time.monotonic()
    texts = {file.relative_to(ROOT): text for file, text in mutated(guard.edits).items()}
    try:
        for name, text in texts.items():
            (tree / name).write_text(text)
        code, words = await _run(_command(guard.caught_by), tree)
    finally:
        for name in texts:
            shutil.copy2(ROOT / name, tree / name)
    seconds = time.monotonic() - started
    if code == TEST_FAILED:
        return MutantResult(guard, is_caught=True, seconds=seconds)
    why = "nothing failed" if code == 0 else f"exit code {code}: {words}"
    return MutantResult(guard, is_caught=False, seconds=seconds, words=why)


def _command(caught_by: str) -> list[str]:
    match caught_by.split():
        case ["case", name, count]:
            return [sys.executable, "-m", "torture.player", name, "--seed", "1", "--count", count]
        case [test]:
            # At the first failure; no cache, which would be the copy's own.
            return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    raise ValueError(f"neither a test nor a case: {caught_by}")


async def _run(command: Sequence[str], tree: Path, limit: float = LIMIT_SECONDS) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=tree,
        # The copy before what is installed; no compiled files, whose times would be those of the text before.
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            output, _ = await child.communicate()
    except TimeoutError:
        return TEST_FAILED, f"no end within {limit:g} s"
    finally:
        if child.returncode is None:
            os.killpg(child.pid, 9)
            await child.wait()
    return child.returncode or 0, output.decode(errors="replace")[-1500:]


if __name__ == "__main__":
    sys.exit(main())
