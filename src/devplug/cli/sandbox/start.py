"""The start of a sandbox, in this process or in one of its own, and of a program in it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import FAILED, OK
from devplug.errors import quoted
from devplug.k8s.account import KUBECONFIG_VARIABLE
from devplug.k8s.podaccount import PodAccess
from devplug.kubelet_dir import CDI_DIR_VARIABLE
from devplug.linux.inotify import until_absent
from devplug.linux.processes import (
    end_of,
    filled,
    node_folders,
    program_environment,
    signal_group,
    spawn,
    wants_default_dir,
    with_folders,
)
from devplug.logs import show_logs
from devplug.sandbox.nodes.reaper import Reaper
from devplug.sandbox.sandboxdir import SANDBOX_DIR_VARIABLE, SandboxDir, SandboxDirError, default_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.sandbox.cluster import Sandbox
    from devplug.sandbox.sandboxdir import SandboxRecord
    from devplug.sandbox.settings import SandboxSettings


_KUBECTL: Final = "https://kubernetes.io/docs/tasks/tools/"

_GRACE_SECONDS: Final = 10.0
"""How long a program may take to end when its sandbox does."""

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE: Final = 2
"""How many signals are passed on before the program is killed."""

_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_LAST_LINES: Final = 20


# ── greeting ──────────────────────────────────────────────────────────────────────────────────────


def _exports(place: SandboxDir, environment: Mapping[str, str]) -> list[str]:
    """Return the variables that a shell needs so that kubectl and devplug find the sandbox."""
    lines = [f"export KUBECONFIG={shlex.quote(str(place.kubeconfig))}"]
    usual = default_folder({**environment, SANDBOX_DIR_VARIABLE: ""}, os.geteuid())
    if place.folder != usual:
        lines.append(f"export {SANDBOX_DIR_VARIABLE}={shlex.quote(str(place.folder))}")
    return lines


def _greeting(
    place: SandboxDir,
    record: SandboxRecord,
    environment: Mapping[str, str],
    *,
    ends_with: str,
    has_next: bool = True,
) -> str:
    """Return the text; `ends_with` is what ends the sandbox, and `has_next` asks for what to do next."""
    count = len(record.nodes)
    lines = [
        f"The sandbox is up, with {count} node{'' if count == 1 else 's'}; {ends_with} ends it.",
        f"kubeconfig: {place.kubeconfig}",
        "",
        *(f"  {line}" for line in _exports(place, environment)),
    ]
    if has_next:
        lines += [
            "",
            "Next:",
            "  kubectl get nodes",
            "  devplug sandbox run -- ./my-plugin --dir {dir}",
            "  devplug sandbox describe",
        ]
    if shutil.which("kubectl", path=environment.get("PATH")) is None:
        lines += ["", f"There is no kubectl on the PATH; how to get one: {_KUBECTL}"]
    return "\n".join(lines)


# ── program ───────────────────────────────────────────────────────────────────────────────────────


async def _run_program(
    place: SandboxDir,
    node: str,
    command: Sequence[str],
    until: Callable[[], Coroutine[None, None, None]],
    kubeconfig: Path | None = None,
) -> int:
    """Run a program as one of a node's until it ends, or until `until` does; return its exit code.

    One that is ended by signal N has 128 + N, as in a shell. Nothing that it has started is left behind, even
    if we are killed. `kubeconfig` is the file that it gets, or else the administrator's. Raises `PluginError`
    if it cannot be started.
    """
    async with Reaper.watching() as warden:
        with _SignalsPassedOn() as signals:
            child = await _start(place, node, command, kubeconfig or place.kubeconfig)
            warden.watch([child.pid])
            try:
                signals.send_to(child.pid)
                code = await _end_with(child, until())
            finally:
                signal_group(child.pid, signal.SIGKILL)
                await child.wait()
                warden.watch([])
    return code if code >= 0 else 128 - code


async def _until_down(place: SandboxDir, pid: int) -> None:
    """Wait until a sandbox of another process takes its record away, or until that process was killed."""
    killed = asyncio.Event()
    with ExitStack() as stack:
        with suppress(ProcessLookupError):  # it may be known by another ID, or to nobody, in this namespace
            killed = end_of(pid, stack)
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(until_absent(place.record_file)), group.create_task(killed.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()


async def _start(
    place: SandboxDir, node: str, command: Sequence[str], kubeconfig: Path
) -> asyncio.subprocess.Process:
    plugin_dir = place.node(node).plugin_dir
    places = {"{dir}": str(plugin_dir), "{dev}": str(place.devices), "{node}": node}
    words = [filled(word, places) for word in command]
    if wants_default_dir(command):
        words = with_folders(words, node_folders(place.node(node).folder, place.node(node).cdi))
    variables = {
        **PodAccess().variables,
        CDI_DIR_VARIABLE: str(place.node(node).cdi),
        "DEVPLUG_KUBELET_ROOT": str(place.node(node).folder),
        "DEVPLUG_SANDBOX_DEV": str(place.devices),
        SANDBOX_DIR_VARIABLE: str(place.folder),
        KUBECONFIG_VARIABLE: str(kubeconfig),
        "NODE_NAME": node,
    }
    # A group of its own has its signals from us alone; it could not read from the terminal.
    stdin = asyncio.subprocess.DEVNULL if os.isatty(0) else None
    return await spawn(words, None, program_environment(plugin_dir, variables), stdin=stdin)


async def _end_with(child: asyncio.subprocess.Process, until: Coroutine[None, None, None]) -> int:
    async with asyncio.TaskGroup() as group:
        ended, over = group.create_task(child.wait()), group.create_task(until)
        await asyncio.wait((ended, over), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            click.echo("devplug: the sandbox has ended, and its program was stopped with it", err=True)
            signal_group(child.pid, signal.SIGTERM)
            await asyncio.wait((ended,), timeout=_GRACE_SECONDS)
            signal_group(child.pid, signal.SIGKILL)
        over.cancel()
        return await ended


class _SignalsPassedOn:
    """The signals that we get while the block lasts, for the group of a program that is started in it.

    In what is started before, signals that a background job ignores (SIGINT in a script's) stay ignored, and
    it would not end by them.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._group: int | None = None
        # Who ignores the end of the terminal wants that for the program, too: nohup.
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._taken = [number for number in _PASSED_ON if not (is_nohup and number is signal.SIGHUP)]

    def __enter__(self) -> Self:
        for number in self._taken:
            asyncio.get_running_loop().add_signal_handler(number, self._pass_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._taken:
            asyncio.get_running_loop().remove_signal_handler(number)

    def send_to(self, group: int) -> None:
        """Pass on what came until now, and what comes."""
        self._group = group
        for number in self._seen:
            signal_group(group, number)

    def _pass_on(self, number: int) -> None:
        self._seen.append(number)
        if self._group is not None:
            signal_group(self._group, number if len(self._seen) <= _PATIENCE else signal.SIGKILL)


# ── in this process ───────────────────────────────────────────────────────────────────────────────


def up(settings: SandboxSettings, command: Sequence[str]) -> int:
    """Run a sandbox until a signal, until `down`, or until a command ends; return the exit code."""
    show_logs()
    return asyncio.run(_up(settings, command))


async def _up(settings: SandboxSettings, command: Sequence[str]) -> int:
    from devplug.linux.signals import stop_signals
    from devplug.sandbox.cluster import Sandbox

    place = SandboxDir(settings.folder)
    if command:
        async with Sandbox(settings).running() as sandbox:
            record = _record(place)
            text = _greeting(place, record, os.environ, ends_with="the end of the command", has_next=False)
            click.echo(text, err=True)  # what goes to the standard output is the command's
            return await _run_program(place, record.nodes[0], command, sandbox.wait_down)
    async with stop_signals() as stopped, Sandbox(settings).running() as sandbox:
        click.echo(_greeting(place, _record(place), os.environ, ends_with="Ctrl-C"))
        await _stopped_or_down(stopped, sandbox)
    return OK


async def _stopped_or_down(stopped: asyncio.Event, sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(stopped.wait()), group.create_task(sandbox.wait_down())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()


def run(place: SandboxDir, node: str | None, command: Sequence[str], account: str | None) -> int:
    """Run a program in the sandbox that is up, or in one for it alone; return its exit code.

    `account` is the service account, as `NAMESPACE/NAME` or `NAME`, whose kubeconfig the program gets.
    """
    record = place.running()
    if account is not None and (record is None or not record.rbac):
        raise click.UsageError(
            "--service-account needs a sandbox with roles; start one: devplug sandbox up --rbac"
        )
    if record is None:
        show_logs(logging.WARNING)
        return asyncio.run(_run_in_own(place, node, command))
    chosen = _node(record, node)
    with _kubeconfig(place, chosen, account) as kubeconfig:
        until = partial(_until_down, place, record.pid)
        return asyncio.run(_run_program(place, chosen, command, until, kubeconfig))


@contextmanager
def _kubeconfig(place: SandboxDir, node: str, account: str | None) -> Iterator[Path | None]:
    """Make the kubeconfig of a service account on a node for a block; None is the administrator's."""
    if account is None:
        yield None
        return
    from devplug.sandbox.client import SandboxClient

    namespace, _, name = account.rpartition("/")
    written = SandboxClient(place).account(namespace or "default", name, node)
    place.accounts.mkdir(exist_ok=True)
    file = place.accounts / f"run-{os.getpid()}.kubeconfig"
    place.write_private(file, written)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


async def _run_in_own(place: SandboxDir, node: str | None, command: Sequence[str]) -> int:
    from devplug.sandbox.cluster import Sandbox
    from devplug.sandbox.settings import SandboxSettings

    async with Sandbox(SandboxSettings(folder=place.folder)).running() as sandbox:
        record = _record(place)
        chosen = _node(record, node)
        variables = "\n".join(f"  {line}" for line in _exports(place, os.environ))
        click.echo(
            f"devplug: no sandbox was up; a new one was started, and ends with the program:\n{variables}",
            err=True,
        )
        return await _run_program(place, chosen, command, sandbox.wait_down)


def _record(place: SandboxDir) -> SandboxRecord:
    record = place.running()
    assert record is not None, "a sandbox that is up has written its record"
    return record


def _node(record: SandboxRecord, name: str | None) -> str:
    if name is None:
        return record.nodes[0]
    if name not in record.nodes:
        raise click.UsageError(f"the sandbox has no node {quoted(name)}; it has {', '.join(record.nodes)}")
    return name


# ── in a process of its own ───────────────────────────────────────────────────────────────────────


def up_detached(settings: SandboxSettings, arguments: Sequence[str], *, ends_with: str) -> int:
    """Start `devplug sandbox up` with these arguments, and return when it is up or has failed.

    What it prints goes to a file in its folder. `ends_with` is what ends it, for people.
    """
    place = SandboxDir(settings.folder)
    place.prepare(settings.nodes)
    if place.is_claimed():
        raise SandboxDirError(
            f"a sandbox is up in {place.folder}; "
            "end it with devplug sandbox down, or name another folder with --dir"
        )
    with place.own_log.open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 -- ourselves
            # -P: what lies in the current folder is no part of the sandbox.
            [sys.executable, "-P", "-m", "devplug", "sandbox", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while child.poll() is None:
        record = place.running()
        if record is not None and record.pid == child.pid:
            click.echo(_greeting(place, record, os.environ, ends_with=ends_with))
            return OK
        if time.monotonic() > deadline:
            child.kill()
        time.sleep(_LOOK_SECONDS)
    said = place.own_log.read_text(encoding="utf-8", errors="replace").splitlines()
    click.echo("\n".join(said[-_LAST_LINES:]), err=True)
    return child.returncode if child.returncode > 0 else FAILED
