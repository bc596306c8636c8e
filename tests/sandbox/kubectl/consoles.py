"""The console blocks of a page, played in one shell: each command has to print what stands below it.

What a block is, the words after ```console say. Without a word its commands are run one after the other;
those that only look are run again until they print what they should. `background NAME` starts its one command
and goes on as soon as that has printed what it should; the block `more NAME` has what the same command prints
later, and `ends NAME` interrupts it, as Ctrl-C does.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

BIN: Final = Path(sysconfig.get_path("scripts"))
FENCE: Final = re.compile(r"^( *)```console *([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PATIENCE_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05
_END: Final = "--- the command has ended ---"

_VARIES: Final = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z\b"), "TIME"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"http://127\.0\.0\.1:\d+(/\w+)?"), "URL"),
    (re.compile(r"\bmilliseconds=[\d.]+"), "SPAN"),
    (re.compile(r"(?<![\w.-])(\d+[dhms])+(?![\w.-])"), "SPAN"),
    (re.compile(r"(?<=[0-9a-z]-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "XXXXX"),
    (re.compile(r"\bpid \d+\b"), "PID"),
    (re.compile(r"(/\S*)?/devplug-sandbox[-\w]*"), "FOLDER"),
)
"""What is another in every run: it only has to be there."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command with what it has to print, or a word on one that runs."""

    line: int
    kind: str
    """`run`, `background`, `more` or `ends`."""
    name: str
    command: str
    expected: tuple[str, ...]


def steps_of(page: str) -> Iterator[Step]:
    """Yield what a page's console blocks say, in order."""
    for found in FENCE.finditer(page):
        kind, _, name = found[2].partition(" ")
        line = page.count("\n", 0, found.start(3)) + 1
        text = [one.removeprefix(found[1]) for one in found[3].splitlines()]
        if kind in {"more", "ends"}:
            yield Step(line, kind, name, "", tuple(text))
            continue
        yield from _commands(line, kind or "run", name, text)


def _commands(line: int, kind: str, name: str, text: list[str]) -> Iterator[Step]:
    """Yield the commands of one block; further lines of a command begin with `> `, as a shell shows them."""
    number = 0
    while number < len(text):
        start, command = number, [text[number].removeprefix("$ ")]
        number += 1
        while number < len(text) and text[number].startswith(">"):
            command.append(text[number].removeprefix(">").removeprefix(" "))
            number += 1
        first = number
        while number < len(text) and not text[number].startswith("$ "):
            number += 1
        yield Step(line + start, kind, name, "\n".join(command), tuple(text[first:number]))


def is_told(expected: Sequence[str], printed: str) -> bool:
    """Whether a text has these lines, in order; a line `...` stands for any number of lines.

    Spaces are all alike, and what is another in every run only has to be there.
    """
    wanted = [_plain(one) for one in expected if one.strip()]
    lines = [_plain(one) for one in printed.splitlines() if one.strip()]
    pattern = "".join(r"(?:.*\n)*?" if one == "..." else re.escape(one) + "\n" for one in wanted)
    return re.fullmatch(pattern, "".join(f"{one}\n" for one in lines)) is not None


def _plain(line: str) -> str:
    for varying, word in _VARIES:
        line = varying.sub(word, line)
    return " ".join(line.split())


@dataclass(slots=True)
class _Program:
    process: subprocess.Popen[bytes]
    output: Path
    read: int = 0


@dataclass(slots=True)
class Player:
    """Runs steps in one shell, as a reader does; leaving the block ends the shell and all programs.

    Programs in a second terminal start with the folder and the variables that the shell has then.
    """

    folder: Path
    """Where the shell begins."""
    environment: dict[str, str]
    """Its variables at the beginning."""
    _shell: subprocess.Popen[bytes] | None = None
    _programs: dict[str, _Program] = field(default_factory=dict)

    def play(self, step: Step) -> None:
        """Do what a step says. Raises `AssertionError` with what was printed instead."""
        match step.kind:
            case "run":
                self._run(step)
            case "background":
                self._start(step)
            case "more":
                self._await(step, self._programs[step.name])
            case "ends":
                program = self._programs.pop(step.name)
                program.process.send_signal(signal.SIGINT)
                code = program.process.wait(PATIENCE_SECONDS)
                printed = program.output.read_text()[program.read :]
                assert code in {0, 130, -signal.SIGINT}, (
                    f"line {step.line}: {step.name} ended with {code}, and printed:\n{printed}"
                )
                self._await(step, program)
            case other:
                raise AssertionError(f"line {step.line}: no such kind of block: {other}")

    def __enter__(self) -> Self:
        """Start nothing: the first command starts the shell."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the programs and the shell."""
        for program in self._programs.values():
            program.process.send_signal(signal.SIGINT)
        for program in self._programs.values():
            try:
                program.process.wait(10)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()
        if self._shell is not None:
            self._shell.kill()  # it waits for nothing, or for a command that hangs
            self._shell.communicate()

    def _run(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            printed = self.shell(step.command)
            if is_told(step.expected, printed):
                return
            is_reading = re.match(
                r"kubectl (get|describe|logs)|devplug (sandbox (describe|plug)|status|why)\b", step.command
            )
            may_wait = is_reading and time.monotonic() < deadline
            assert may_wait, (
                f"line {step.line}: $ {step.command}\nprinted:\n{printed}\nand not:\n"
                + "\n".join(step.expected)
            )

    def shell(self, command: str) -> str:
        """Run a command in the shell, and return what it prints."""
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["bash", "--norc"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # The program's own input is empty: it would read the commands that follow.
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '%s\\n' '{_END}'\n".encode())
        self._shell.stdin.flush()
        printed, deadline = b"", time.monotonic() + 2 * PATIENCE_SECONDS
        while not printed.endswith(f"{_END}\n".encode()):
            ready, _, _ = select.select([self._shell.stdout], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self._shell.stdout.fileno(), 65536) if ready else b""
            said = printed.decode(errors="replace")
            assert more, f"{'the shell has ended' if ready else 'no end'}: $ {command}\nprinted:\n{said}"
            printed += more
        return printed.decode(errors="replace").removesuffix(f"{_END}\n")

    def _place(self) -> tuple[str, dict[str, str]]:
        """Return the folder and the variables of the shell."""
        folder = self.shell("pwd").strip()
        variables = self.shell("env -0").split("\0")
        return folder, dict(one.split("=", 1) for one in variables if "=" in one)

    def _start(self, step: Step) -> None:
        folder, variables = self._place()
        output = Path(folder) / f".{step.name}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {step.command}"],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        program = self._programs[step.name] = _Program(process, output)
        self._await(step, program)

    def _await(self, step: Step, program: _Program) -> None:
        """Wait until what it printed since the last time has these lines, and forget it up to there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            has_ended = program.process.poll() is not None
            printed = program.output.read_bytes()[program.read :].decode(errors="replace")
            if is_told([*step.expected, "..."], printed):
                program.read += len(printed.encode())
                return
            may_wait = not has_ended and time.monotonic() < deadline
            assert may_wait, f"line {step.line}: {step.name} printed:\n{printed}\nand not:\n" + "\n".join(
                step.expected
            )
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(_LOOK_SECONDS)


@contextmanager
def sandbox_player(folder: Path) -> Iterator[Player]:
    """Yield a player whose sandbox has a folder of its own, and stop the sandbox at the end."""
    # Sockets have short paths, and pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="devplug-", dir="/tmp") as short:
        sandbox = Path(short) / "devplug-sandbox"
        variables = environment({"DEVPLUG_SANDBOX_DIR": str(sandbox), "HOME": str(folder)})
        with Player(folder, variables) as player:
            try:
                yield player
            finally:
                if sandbox.exists():  # a page may have stopped it already
                    down = [str(BIN / "devplug"), "sandbox", "down"]
                    subprocess.run(down, env=variables, capture_output=True, check=False)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a terminal in which devplug is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEVPLUG", "KUBE"))}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "100", "NO_COLOR": "1", **more}
