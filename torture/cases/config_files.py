"""Configuration files with changes that nobody meant: ours to the loader, those of others to the import."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.daemon.config.loader import load
from devplug.daemon.config_file import read_config_file
from devplug.daemon.importers.translation import translated
from devplug.errors import ConfigError
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.fuzzing.hunt import ODD_TEXTS, Clock, Entry, entries, hunt, mutated, replayed

if TYPE_CHECKING:
    from random import Random

    from torture.catalogue import Trial

ONE_SECONDS: Final = 1.0
"""Of this thread's processor, for a changed file."""
LARGE_SECONDS: Final = 5.0
"""The same, for one as large as the limit allows."""

# YAML 1.1 ends lines here, and nowhere else.
LINE_END: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

WORDS: Final = tuple(
    word.encode()
    for word in (
        *(
            "version: 1\n",
            "resources:\n",
            "  - name: ",
            "discover:",
            "expose:",
            "path:",
            "usb:",
            "pci:",
            "{",
            "}",
        ),
        *(
            "[",
            "]",
            "- ",
            ": ",
            "? ",
            "| \n",
            ">-\n",
            "&a ",
            "*a",
            "<<: *a\n",
            "!!python/object:os.system ",
            "!",
        ),
        *("---\n", "...\n", "%YAML 1.2\n", "# ", "'", '"', "\\", "\t", "{index}", "{attr.x}", "{{", "share:"),
        *(
            "replicas: ",
            "null",
            "~",
            "0755",
            "yes",
            "1e3",
            ".inf",
            "2026-01-01",
            "/dev/",
            "/dev/*",
            "..",
            "**",
        ),
        *(
            "devices:",
            "groups:",
            "devicematch:",
            "nummaxdevices:",
            "flags:",
            "sharing:",
            "kind: List\n",
            "data:",
        ),
        *ODD_TEXTS,
    )
)


def _place_fault(error: ConfigError, content: bytes) -> str:
    """Return what is wrong with the places and words of problems; empty if nothing is."""
    lines = LINE_END.split(content.decode("utf-8", "replace"))
    if not error.problems:
        return "X40: a refusal without a problem"
    for problem in error.problems:
        if not 0 <= problem.line <= len(lines):
            return f"X40: a problem in line {problem.line} of {len(lines)}: {problem}"
        # An end may be told that stands behind the last character, or behind a cut line.
        if problem.line and not 0 <= problem.column <= len(lines[problem.line - 1]) + 2:
            length = len(lines[problem.line - 1])
            return f"X40: a problem in column {problem.column} of {length}, line {problem.line}: {problem}"
        if not problem.message or "\n" in str(problem):
            return f"X40: a problem that is not one line: {str(problem)!r}"
    return ""


@case(
    "config-files",
    fault="X40",
    promise="Whatever a file says: it is a configuration, or all its problems are told with their places",
    count=100_000,
    unit="files",
    invariants="I3 I4",
    limit_seconds=400,
)
async def config_files(trial: Trial) -> None:
    """Load changed configurations, and such as are as large as the limit allows."""
    kept = entries("configs")
    others = [entry.content for entry in kept if len(entry.content) < 10_000]
    clock, large = Clock(ONE_SECONDS), Clock(LARGE_SECONDS)
    taken = 0

    def changed(entry: Entry, random: Random) -> bytes:
        content = random.choice(others) if len(entry.content) >= 10_000 else entry.content
        return mutated(content, random, others=others, words=WORDS)

    def fault(entry: Entry) -> str:
        nonlocal taken
        used = large if len(entry.content) > 1 << 16 else clock
        try:
            with used:
                load(entry.content, "devplug.yaml")
        except ConfigError as error:
            return used.fault or _place_fault(error, entry.content)
        except Exception as error:  # noqa: BLE001 -- any other ends the daemon
            return f"I4: load raises {type(error).__name__}: {error}"
        taken += 1
        return used.fault

    replayed(trial, kept, fault)
    _check_ten_megabytes(trial)
    async with nothing_kept(trial):
        await hunt(trial, kept, changed, fault)
    trial.figure("loaded", f"{taken:,}")
    trial.figure("longest", f"{1000 * clock.longest:.0f} ms, large files {large.longest:.1f} s")


def _check_ten_megabytes(trial: Trial) -> None:
    path = trial.folder / "large.yaml"
    path.write_bytes(b"version: 1\nresources: []\n" + b"#" * (10 << 20))
    clock = Clock(ONE_SECONDS)
    try:
        with clock:
            read_config_file(path)
        trial.broke("X40: a file of 10 MiB is read", trial.first)
    except ConfigError as error:
        trial.check(f"more than {SIZE_LIMIT_BYTES} bytes" in str(error), f"X40: {error}", trial.first)
    trial.check(not clock.fault, clock.fault, trial.first)


@case(
    "imported-files",
    fault="X40",
    promise="A changed file of another plugin is translated into what loads, or refused in words",
    count=10_000,
    unit="files",
    invariants="I3 I4",
    brief=True,
)
async def imported_files(trial: Trial) -> None:
    """Translate changed configurations, ConfigMaps and DaemonSets of the known peers."""
    kept = entries("peers")
    others = [entry.content for entry in kept if len(entry.content) < 10_000]
    clock = Clock(ONE_SECONDS)
    made = 0

    def changed(entry: Entry, random: Random) -> bytes:
        content = random.choice(others) if len(entry.content) >= 10_000 else entry.content
        return mutated(content, random, others=others, words=WORDS)

    def fault(entry: Entry) -> str:
        nonlocal made
        try:
            with clock:
                found = translated(entry.content, "peer.yaml")
        except ConfigError as error:
            return clock.fault or _place_fault(error, entry.content)
        except Exception as error:  # noqa: BLE001 -- any other is a bug report
            return f"I4: translated raises {type(error).__name__}: {error}"
        if found.config is not None:
            made += 1
            try:
                load(found.text, "made.yaml")
            except ConfigError as error:
                return f"X40: what it makes does not load: {error}"
        return clock.fault

    replayed(trial, kept, fault)
    async with nothing_kept(trial):
        await hunt(trial, kept, changed, fault)
    trial.figure("translated", f"{made:,}")
    trial.figure("longest", f"{1000 * clock.longest:.0f} ms")
