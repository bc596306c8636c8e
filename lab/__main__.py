"""Boots a guest with the daemon in it, and plugs and unplugs its hardware from outside: `python -m lab`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from lab.host import REPOSITORY, run_guest
from lab.packages import UnavailableError, prepare
from lab.report import as_text
from lab.stories import STORIES

HOLDS, FAILED, UNAVAILABLE = 0, 1, 2


def main() -> int:
    """Run the lab and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description="Boot a guest with QEMU, in software, and hold the daemon against real devices "
        "that come and go. Needs Debian on x86-64; what is missing is installed if this is root.",
        epilog="Exit codes: 0 all claims hold, 1 some do not, 2 the lab cannot be set up here.",
    )
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "build" / "lab", help="keeps kernel and log"
    )
    parser.add_argument(
        "--if-possible", action="store_true", help="where the lab cannot be set up, say why and exit with 0"
    )
    names = [story.name for story in STORIES]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        kernel = prepare(folder)
    except UnavailableError as error:
        print(f"lab: {'skipped: ' if options.if_possible else ''}{error}", file=sys.stderr)
        return HOLDS if options.if_possible else UNAVAILABLE
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    tell(f"Linux {kernel.version} boots; console in {folder / 'console.log'}")
    report = asyncio.run(run_guest(kernel, folder, options.only, tell))
    print(f"\n{as_text(report)}\n")
    verdict = "all as claimed" if report.holds else f"{len(report.faults)} claims do not hold"
    print(f"{verdict}, after {time.monotonic() - started:.0f} s")
    return HOLDS if report.holds else FAILED


if __name__ == "__main__":
    sys.exit(main())
