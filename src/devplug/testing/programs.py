"""A plugin's program, in any language, run for a test."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Program"]

_END_TIMEOUT_SECONDS: Final = 10.0


class Program:
    """A running process with what it prints; ends with `stop`, which its kubelet calls at the latest."""

    def __init__(self, command: Sequence[str], plugin_dir: Path, environment: Mapping[str, str]) -> None:
        self.command = [argument.replace("{dir}", str(plugin_dir)) for argument in command]
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by stop
        self._output = b""
        self._process = subprocess.Popen(  # noqa: S603 -- the test says what to run
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            env={**os.environ, "DEVPLUG_PLUGIN_DIR": str(plugin_dir), **environment},
        )

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
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end with SIGTERM, kill it if it does not within ten seconds; return its exit code."""
        self._process.terminate()
        try:
            self._process.wait(_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        _ = self.output
        self._printed.close()
        return self._process.wait()
