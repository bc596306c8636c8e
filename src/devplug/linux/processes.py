"""Processes of plugins: their command lines, their environment, their process groups.

What only one caller needs (a judge's figures, a container's log) stays with that caller.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.errors import PluginError, one_line
from devplug.kubelet_dir import CDI_DIRS, KUBELET_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

SIGTERM: Final = 15
SIGKILL: Final = 9
"""Numbers, because handlers of signals, and with them `signal`, are for the command line alone."""

_FATAL_LINE: Final = re.compile(r"panic: |fatal error: |F\d{4} \d\d:\d\d:\d\d")
"""First line of a Go program's failure: runtime panics, and glog's and klog's fatal lines."""

_MOUNTING: Final = f"""
while [ -n "$1" ]; do
  case "$2" in
    {KUBELET_ROOT}) covered=yes ;;
    {KUBELET_ROOT}/*) [ -n "$covered" ] || [ -e "$2" ] ||
      {{ mkdir -p {KUBELET_ROOT} && mount -t tmpfs none {KUBELET_ROOT} && covered=yes || exit; }} ;;
  esac
  mkdir -p "$2" && mount --bind "$1" "$2" || exit
  shift 2
done
shift; exec "$@"
"""
"""Takes pairs of a folder and a path, an empty word, and the command. Folders below the kubelet's are made in
memory: on the machine they would look like a kubelet's to plugins that begin there."""


# ── words ──


def filled(text: str, places: Mapping[str, str]) -> str:
    """Return `text` with its placeholders replaced."""
    for placeholder, value in places.items():
        text = text.replace(placeholder, value)
    return text


def wants_default_dir(command: Iterable[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether a plugin must find its folder at the path compiled into it, and can: see `with_folders`.

    It must if neither its command nor its environment has `{dir}`, so that it gets no other path.
    """
    words = [*command]
    has_placeholder = any("{dir}" in word for word in (*words, *(environment or {}).values()))
    return bool(words) and not has_placeholder and can_mount()


def node_folders(root: Path, cdi: Path) -> dict[str, Path]:
    """Return the folders that stand for a node's own, by the paths that drivers have compiled in."""
    return {KUBELET_ROOT: root, **dict.fromkeys(CDI_DIRS, cdi)}


def with_folders(command: Sequence[str], folders: Mapping[str, Path]) -> list[str]:
    """Return what runs `command` with each folder mounted at its path, in the order given, for it alone.

    Needs what `can_mount` says, unless there are none; an empty folder is made for a path that does not exist
    yet. Raises `PluginError` for a program that cannot be run, which `unshare` would report less plainly.
    """
    from shutil import which

    if not folders:
        return list(command)
    if which(command[0]) is None:
        code = errno.EACCES if "/" in command[0] and Path(command[0]).is_file() else errno.ENOENT
        raise cannot_run(command, OSError(code, os.strerror(code)))
    pairs = [word for path, folder in folders.items() for word in (str(folder), path)]
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTING, "sh"]
    return [*alone, *pairs, "", *command]


@cache
def can_mount() -> bool:
    """Whether this process may make mounts: root in a container may not, or not with every profile."""
    import subprocess

    if os.geteuid() != 0:
        return False
    tried = ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/", "/"]
    try:
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0  # noqa: S603
    except OSError:
        return False


# ── starting ──


def program_environment(plugin_dir: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a plugin's program: ours, devplug's variables, then `variables`."""
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",  # or what a killed plugin has printed is lost
        "DEVPLUG_PLUGIN_DIR": str(plugin_dir),
        **variables,
    }


def cannot_run(command: Sequence[str], error: OSError) -> PluginError:
    """Return the error of a program that could not be started."""
    return PluginError(f"cannot run {one_line(shlex.join(command))}: {error.strerror}")


async def spawn(
    command: Sequence[str],
    output: int | None,
    environment: Mapping[str, str] | None = None,
    *,
    stdin: int | None = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start a program as the head of a process group; all that it prints goes to one file descriptor.

    What is None is ours: output, environment, input. Whoever calls this ends the group. Raises `PluginError`.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise cannot_run(command, error) from error


# ── as long as it runs ──


def signal_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group; one that is gone, or changed its user, is passed over."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_process(child: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a program, but to none of its children; one that has ended keeps its exit code.

    asyncio's own `send_signal`, `terminate` and `kill` poll, and the code that they may find is lost: 255.
    """
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, number)


def end_of(pid: int, stack: ExitStack) -> asyncio.Event:
    """Return an event for the end of a process, which is not reaped by it; `stack` ends the watch.

    Raises `ProcessLookupError` if there is no such process.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(pid)
    stack.callback(os.close, handle)
    loop.add_reader(handle, ended.set)
    stack.callback(loop.remove_reader, handle)
    return ended


def last_line(output: str) -> str:
    """Return the line that explains a program's end: the one of its failure, or the last one.

    Go prints `panic:` or `fatal error:` before the stacks of all goroutines, and glog begins a fatal line
    with `F` and the date.
    """
    lines = [stripped for line in output.splitlines() if (stripped := line.strip())]
    fatal = [line for line in lines if _FATAL_LINE.match(line)]
    return (fatal or lines[-1:] or ["it printed nothing"])[0]


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on; raises `OSError` when the process is gone.

    The second, a name, may hold anything (proc(5)).
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def process_rows(group: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the process ID and the `stat_fields` of every process of a group that has not ended."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            row = stat_fields(int(entry.name))
        except OSError:
            continue
        if int(row[2]) == group and row[0] != "Z":
            yield int(entry.name), row
