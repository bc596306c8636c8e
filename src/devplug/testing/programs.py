"""The programs that a test has started: a plugin's, in any language, or plugins of this process."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import one_line
from devplug.linux.processes import SIGKILL, SIGTERM, cannot_run, filled, program_environment, signal_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_END_TIMEOUT_SECONDS: Final = 10.0


class Program:
    """A running program with what it prints; ends with `stop`, which its kubelet calls at the latest.

    All processes that it starts end with it: `go run` and shell scripts leave the plugin itself to a child.
    Raises `PluginError` for a program that cannot be started.
    """

    def __init__(self, command: Sequence[str], plugin_dir: Path, environment: Mapping[str, str]) -> None:
        self.command = [
            filled(word, {"{dir}": str(plugin_dir), "{root}": str(plugin_dir.parent)}) for word in command
        ]
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by stop
        self._output = b""
        # Every process of the program has the other end: once it can be read, none is left.
        self._all_ended, in_each = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- the test says what to run
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                env=program_environment(plugin_dir, environment),
                pass_fds=(in_each,),
                process_group=0,
            )
        except OSError as error:
            self._close()
            raise cannot_run(self.command, error) from error
        finally:
            os.close(in_each)

    def __str__(self) -> str:
        """Return the command on one line."""
        return one_line(shlex.join(self.command))

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None as long as it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """What it has printed so far, both on stdout and on stderr."""
        if not self._printed.closed:
            size = os.fstat(self._printed.fileno()).st_size
            self._output = os.pread(self._printed.fileno(), size, 0)
        return self._output.decode(errors="replace")

    def kill(self) -> None:
        """End it without a chance to clean up, as a crash does."""
        signal_group(self.pid, SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end with SIGTERM, kill it if it does not within ten seconds; return its exit code.

        Safe to repeat.
        """
        if not self._printed.closed:
            signal_group(self.pid, SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_SECONDS)
                select.select((self._all_ended,), (), (), _END_TIMEOUT_SECONDS)
            self.kill()
            _ = self.output
            self._close()
        return self._process.wait()

    def _close(self) -> None:
        self._printed.close()
        os.close(self._all_ended)


class StartedPlugins:
    """Plugins that run in this process; they end with `stop`, or with their kubelet."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop: Callable[[], None] | None = stop

    def stop(self) -> None:
        """Stop serving them, as at the end of a plugin's program. Safe to repeat."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
