"""The configuration's commands: run without a shell, with a deadline, and ended with all their children."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.daemon.config.templates import Missing, render_one
from devplug.errors import quoted
from devplug.linux.exhaustion import original_descriptor_limit
from devplug.linux.notifier import within
from devplug.linux.processes import end_of, signal_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDevice


OUTPUT_LIMIT_BYTES: Final = 4096
"""How much is kept of each of the two outputs; the rest is read and dropped, so that no command blocks."""

GRACE_SECONDS: Final = 1.0
"""How long a command may clean up after SIGTERM before it is killed."""

LAST_WAIT_SECONDS: Final = 1.0
"""How long a cancelled caller waits for a killed command: one inside the kernel may not end for hours."""

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]+")


def command_arguments(command: Sequence[Template], found: HostDevice) -> tuple[str, ...] | Missing:
    """Return the program and its arguments for one device, or the value that the device lacks."""
    arguments: list[str] = []
    for template in command:
        text = render_one(template, {**found.facts, "id": found.name})
        if isinstance(text, Missing):
            return text
        arguments.append(text)
    return tuple(arguments)


def command_environment(resource_name: str, found: HostDevice) -> dict[str, str]:
    """Return the environment of a command for one device: PATH, and its facts as DEVPLUG_… variables.

    `pciAddress` is DEVPLUG_PCI_ADDRESS, `attr.vendor` is DEVPLUG_ATTR_VENDOR. Nothing else of the daemon's
    own environment is passed on.
    """
    facts = {
        f"DEVPLUG_{_variable(name)}": str(value).replace("\0", "") for name, value in found.facts.items()
    }
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        **facts,
        "DEVPLUG_DEVICE_ID": found.name,
        "DEVPLUG_RESOURCE_NAME": resource_name,
    }


def _variable(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", _WORD.sub("_", name)).upper()


async def run_command(
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str],
    grace_seconds: float = GRACE_SECONDS,
) -> CommandResult:
    """Run a program in `/` until it ends, without input; after `timeout_seconds` it gets SIGTERM.

    It leads a session of its own. What is still in its process group when it has ended, or `grace_seconds`
    after SIGTERM, is killed; only a process in a session of its own outlives it. If the caller is cancelled,
    all of it is killed at once. Returns once it is gone: later than the deadline if the kernel holds it.
    """
    with ExitStack() as stack:
        process: subprocess.Popen[bytes] | None = None
        try:
            outputs = [_Output(stack), _Output(stack)]
            with original_descriptor_limit():
                process = subprocess.Popen(  # noqa: ASYNC220, S603 -- returns once it runs; the author chose it
                    list(arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=outputs[0].inlet,
                    stderr=outputs[1].inlet,
                    cwd="/",
                    env=dict(env),
                    start_new_session=True,
                )
            ended = end_of(process.pid, stack)
        except (OSError, ValueError) as error:
            if process is not None:
                signal_group(process.pid, signal.SIGKILL)
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            return CommandResult(fault=f"{quoted(arguments[0])} cannot be started: {reason}")
        for output in outputs:
            output.follow()
        was_killed = False
        try:
            if not await _within(ended, timeout_seconds):
                was_killed = True
                signal_group(process.pid, signal.SIGTERM)
                if not await _within(ended, grace_seconds):
                    signal_group(process.pid, signal.SIGKILL)
                    await ended.wait()
        finally:
            # Not reaped yet, so nobody else has this number: what it left behind is all that can be hit.
            signal_group(process.pid, signal.SIGKILL)
            if await _within(ended, LAST_WAIT_SECONDS):
                process.wait()
        output_text = "\n".join(output.text() for output in outputs)
        return CommandResult(process.returncode, output_text, was_killed)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`; False if it took longer than `seconds`."""
    return await within(seconds, event.wait()) or event.is_set()


class _Output:
    """One output of a command: a pipe of ours, because what it left behind may hold its end for ever."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._kept = bytearray()
        self._outlet, self.inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # The command's own end must block, as programs expect.
        os.set_blocking(self.inlet, True)
        stack.callback(os.close, self._outlet)
        self._inlet_of_ours = stack.enter_context(ExitStack())
        self._inlet_of_ours.callback(os.close, self.inlet)

    def follow(self) -> None:
        """Read from now on; the command has its end."""
        self._inlet_of_ours.close()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._outlet, self._take)
        self._stack.callback(loop.remove_reader, self._outlet)

    def text(self) -> str:
        """Return what was kept, with what is still in the pipe."""
        while len(self._kept) < OUTPUT_LIMIT_BYTES and self._take():
            pass
        return self._kept.decode("utf-8", "replace")

    def _take(self) -> bool:
        """Read what is there; False if that is nothing, now or for good."""
        try:
            taken = os.read(self._outlet, 65_536)
        except BlockingIOError:
            return False
        if not taken:
            # The end of a pipe is readable for ever.
            asyncio.get_running_loop().remove_reader(self._outlet)
            return False
        self._kept += taken[: OUTPUT_LIMIT_BYTES - len(self._kept)]
        return True


# ── the result of one run of a command that the file names ──


class CommandResult(Struct, frozen=True):
    """How one run of a command ended."""

    exit_code: int | None = None
    """As the command left it, -N if signal N ended it; None if it was not started."""
    output: str = ""
    """The beginning of its standard output, then of its standard error."""
    was_killed: bool = False
    """Whether the deadline passed, and it was told to end."""
    fault: str = ""
    """Why it could not be started."""

    @property
    def first_line(self) -> str:
        """The first line with something on it: of standard output, else of standard error."""
        return next((line.strip() for line in self.output.splitlines() if line.strip()), "")
