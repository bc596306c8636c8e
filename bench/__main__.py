"""Times our daemon, another plugin beside it, and our kubelet's end: `python -m bench [-- COMMAND ...]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

from bench.emulator import placements, scaling
from bench.measures import Counts, measure, measure_many
from bench.report import Figure, Report, Row, as_json, table
from bench.subjects import NODES, Subject

OURS = "devplug"
MANY = 10_000

NODES_FILE = """\
version: 1
resources:
  - name: bench.devplug.io/node
    discover:
      path: "{devices}/*"
"""

MANY_FILE = f"""\
version: 1
resources:
  - name: bench.devplug.io/many
    discover:
      path: /dev/null
    share:
      replicas: {MANY}
"""

COMMAND = (
    str(Path(sys.executable).with_name("devplug")),
    *("run", "--config", "{config}", "--plugin-dir", "{dir}"),
)

EXAMPLES = """\
COMMAND starts another plugin, measured in turns with ours. It may contain:
  {dir}      the plugin folder, where kubelet.sock is
  {devices}  a folder of 8 device nodes, where one more comes and goes

examples:
  python -m bench
  python -m bench -- ./my-plugin --plugin-dir {dir} --watch {devices}
  sudo python -m bench --default-dir -- ./my-plugin
"""


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    counts = Counts()
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Time a device plugin from outside: this program plays the kubelet.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
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
    parser.add_argument(
        "--only",
        choices=["plugins", "kubelet"],
        help="measure plugins only, or our kubelet's end only; both without it",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    return parser.parse_args()


def machine() -> dict[str, str]:
    """Return what a reader has to know of this machine."""
    return {
        "cores": str(os.cpu_count()),
        "Linux": f"{platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
    }


async def measured(subjects: list[Subject], counts: Counts) -> Report:
    """Measure all that the arguments ask for."""
    report = await measure(subjects, counts)
    if OURS not in report.columns:
        return report
    many = await measure_many(Subject(OURS, COMMAND, MANY_FILE, MANY), counts)
    blank = len(report.columns) - 1
    wide = [Row((*row.figures, *(Figure(row.name, "", None) for _ in range(blank)))) for row in many]
    return replace(report, rows=[*report.rows, *wide])


def main() -> int:
    """Measure and print; return 1 if a plugin could not be measured."""
    given = arguments()
    counts = Counts(given.starts, given.calls, given.plugs, given.restarts, given.pause_ms / 1000)
    subjects = [Subject(OURS, COMMAND, NODES_FILE)]
    if given.command:
        name = Path(given.command[0]).name
        name = "other" if name == OURS else name
        command = tuple(given.command)
        count = NODES if "{devices}" in " ".join(command) else 1
        subjects.append(Subject(name, command, device_count=count, default_dir=given.default_dir))
    show = as_json if given.output == "json" else table
    missing: list[str] = []
    if given.only != "kubelet":
        report = asyncio.run(measured(subjects, counts))
        missing = report.missing
        print(show(report, machine()), flush=True)
    if given.only != "plugins":
        for part in (asyncio.run(scaling()), placements()):
            print(f"\n{show(part, machine())}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
