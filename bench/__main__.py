"""Times our daemon, another plugin beside it, our kubelet's end, and what is around: `python -m bench`."""

from __future__ import annotations

import argparse
import asyncio
import compileall
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

import devplug
from bench.dra import DraCounts, measure_dra
from bench.edits import measure_edits
from bench.growth import ROUNDS, measure_growth, measure_places
from bench.measures import Counts, measure, measure_many
from bench.preference import measure_preference
from bench.report import Figure, Report, Row, as_json, as_text
from bench.scheduler import measure_claims, measure_scheduling
from bench.scrapes import measure_scraping
from bench.subjects import COMMAND, NODES, NODES_FILE, Subject, many_file
from bench.transports import measure_transports

OURS = "devplug"
MANY = 10_000

EXAMPLES = """\
COMMAND starts another plugin, measured in turns with ours. It may contain:
  {dir}      the plugin folder, where kubelet.sock is
  {devices}  a folder of 8 device nodes, where one more comes and goes

examples:
  python -m bench
  python -m bench --only kubelet
  python -m bench -- ./my-plugin --plugin-dir {dir} --watch {devices}
  sudo python -m bench --default-dir -- ./my-plugin
"""


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    counts = Counts()
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Time a device plugin from outside, where this program plays the kubelet; then time our "
        "own kubelet, with few and with many devices, pods and NUMA nodes; then edits of a configuration, "
        "preferred allocation, the sandbox's scheduler, claims, and scrapes of our daemon; and what its "
        "transport costs beside grpcio.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument(
        "--only",
        choices=["plugins", "transports", "edits", "kubelet", "preference", "scheduling", "scraping", "dra"],
        help="measure this alone (all, but only plugins if there is a COMMAND)",
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the figures there, as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times that each kubelet is measured")
    parser.add_argument("--starts", type=int, default=counts.starts, help="starts of each plugin")
    parser.add_argument("--calls", type=int, default=counts.calls, help="Allocate calls")
    parser.add_argument("--plugs", type=int, default=counts.plugs, help="devices that come and go")
    parser.add_argument("--restarts", type=int, default=counts.restarts, help="restarts of the kubelet")
    parser.add_argument(
        "--pause-ms",
        type=int,
        default=round(counts.pause_seconds * 1000),
        help="between devices that come and go (%(default)s)",
    )
    parser.add_argument(
        "--default-dir",
        action="store_true",
        help="COMMAND has /var/lib/kubelet/device-plugins compiled in: let it find ours there, in a mount "
        "namespace of its own (needs root and util-linux; an empty folder is made if it is missing)",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    return parser.parse_args()


def machine() -> dict[str, str]:
    """Return what a reader has to know of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 1024**3:.0f} GiB",
        "Linux": f"{platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
    }


async def measure_plugins(subjects: list[Subject], counts: Counts) -> Report:
    """Measure plugins in turns, and of ours what depends on the number of devices."""
    report = await measure(subjects, counts)
    if OURS not in report.columns:
        return report
    many = await measure_many(Subject(OURS, COMMAND, many_file(MANY), MANY), counts)
    blank = len(report.columns) - 1
    wide = [Row((*row.figures, *(Figure(row.name, "", None) for _ in range(blank)))) for row in many]
    return replace(report, rows=[*report.rows, *wide])


async def measured(given: argparse.Namespace) -> list[Report]:
    """Measure all that the arguments ask for."""
    reports = []
    counts = Counts(given.starts, given.calls, given.plugs, given.restarts, given.pause_ms / 1000)
    if given.only in {None, "plugins"}:
        subjects = [Subject(OURS, COMMAND, NODES_FILE)]
        if given.command:
            name = Path(given.command[0]).name
            name = "other" if name == OURS else name
            command = tuple(given.command)
            count = NODES if "{devices}" in " ".join(command) else 1
            subjects.append(Subject(name, command, device_count=count, default_dir=given.default_dir))
        reports.append(await measure_plugins(subjects, counts))
    if given.only == "kubelet" or not (given.only or given.command):
        reports += [await measure_growth(given.rounds), await measure_places(given.rounds)]
    if given.only == "edits" or not (given.only or given.command):
        reports.append(await measure_edits(COMMAND))
    if given.only == "preference" or not (given.only or given.command):
        reports.append(measure_preference())
    if given.only == "scheduling" or not (given.only or given.command):
        reports += [measure_scheduling(), measure_claims()]
    if given.only == "dra" or not (given.only or given.command):
        reports += await measure_dra(DraCounts(starts=counts.starts))
    if given.only == "scraping" or not (given.only or given.command):
        reports.append(await measure_scraping(COMMAND))
    if given.only == "transports" or not (given.only or given.command):
        reports.append(await measure_transports(COMMAND, NODES_FILE, counts))
    return reports


def main() -> int:
    """Measure and print; return 1 if something could not be measured, or a bound is broken."""
    given = arguments()
    # As an installer does. Where Python writes no bytecode, each start would compile what was edited since.
    for package in (Path(__file__).parent, Path(devplug.__file__).parent):
        compileall.compile_dir(package, quiet=2)
    reports = asyncio.run(measured(given))
    if given.keep:
        given.keep.parent.mkdir(parents=True, exist_ok=True)
        given.keep.write_text(as_json(reports, machine()) + "\n")
    print((as_json if given.output == "json" else as_text)(reports, machine()))
    return 0 if all(report.is_good for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
