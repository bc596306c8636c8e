"""The `devplug` command as people start it: a process of its own, and dead at the end of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

DEVPLUG = (sys.executable, "-m", "devplug")
IN_BACKGROUND = ("sh", "-c", 'trap "" INT HUP; exec "$@"', "sh")
"""What starts a command as nohup does in a script: what is ignored stays so in all that it starts."""


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """Return what starts a command with these limits of descriptors."""
    return "sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"


PATIENCE_SECONDS = 60.0
"""For what comes at once unless it hangs."""

STATIC = """version: 1
resources:
- {name: example.com/a, discover: {static: {ids: [a0, a1]}}}
- {name: example.com/b, discover: {static: {ids: [b0]}}}
"""


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without what the command reads, and with `variables`."""
    ours = ("DEVPLUG_", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "NODE_NAME")
    return {name: text for name, text in os.environ.items() if not name.startswith(ours)} | variables


def run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def devplug(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `devplug` with these arguments to its end."""
    return run([*DEVPLUG, *map(str, arguments)], **variables)


@contextmanager
def started(
    *arguments: str | Path, by: Sequence[str] = (), **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the command; it is dead when the block is left. What it says is for `said_until` and `ended`."""
    process = subprocess.Popen(
        [*by, *DEVPLUG, *map(str, arguments)],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said_until(process: subprocess.Popen[str], text: str, *, on_error: bool = True) -> str:
    """Read what a process says, up to and with the first line that has `text` in it."""
    stream = process.stderr if on_error else process.stdout
    assert stream is not None
    said = ""
    for line in stream:
        said += line
        if text in line:
            return said
    raise AssertionError(f"{text!r} was never said, but: {said}")


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for the end of a process; return its exit code."""
    process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode


def processes_about(folder: Path) -> list[str]:
    """Return the command lines of running processes that name a file of the folder."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(command.read_text().replace("\0", " "))
    return [text for text in found if f"{folder}/" in text]


def config_file(folder: Path, text: str = STATIC) -> Path:
    """Write a configuration."""
    path = folder / "devplug.yaml"
    path.write_text(text)
    return path
