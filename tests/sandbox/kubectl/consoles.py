"""The console blocks of a page, played: every command is run, and has to print what stands below it.

What a block is, the words after ```console say. Without a word its commands are run one after the other;
those that only look are run again until they print what they should. `background NAME` starts its one command
and goes on as soon as that has printed what it should; the block `more NAME` has what the same command prints
later, and `ends NAME` interrupts it, as Ctrl-C does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Player", "Step", "is_told", "steps_of"]

FENCE: Final = re.compile(r"^( *)```console *([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PATIENCE_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05

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
    """Runs steps in one folder, with one environment that `export` changes; `close` ends what still runs."""

    folder: Path
    environment: dict[str, str]
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

    def close(self) -> None:
        """End what still runs."""
        for program in self._programs.values():
            program.process.send_signal(signal.SIGINT)
        for program in self._programs.values():
            try:
                program.process.wait(10)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()

    def _run(self, step: Step) -> None:
        if step.command.startswith("export "):
            name, _, value = step.command.removeprefix("export ").partition("=")
            self.environment[name] = self.shell(f"echo {value}").strip()
            return
        if step.command.startswith("cd "):
            self.folder = (self.folder / step.command.removeprefix("cd ")).resolve()
            return
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
        """Run one line, and return what it prints."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=2 * PATIENCE_SECONDS,
            check=False,
        )
        return done.stdout.decode(errors="replace")

    def _start(self, step: Step) -> None:
        output = self.folder / f".{step.name}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {step.command}"],
                cwd=self.folder,
                env=self.environment,
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


def environment(bin_folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a terminal in which devplug is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEVPLUG", "KUBE"))}
    return {**kept, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "100", "NO_COLOR": "1", **more}
