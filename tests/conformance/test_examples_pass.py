"""The examples are right plugins: none fails a check of the judge's quick set, or of a change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from devplug.conformance.checks import all_checks
from devplug.conformance.program import Subject
from devplug.conformance.runner import judge
from devplug.conformance.verdicts import Outcome, Verdict, chosen
from tests.conformance.trials import ROOT, TIMES, asked_for, on_one_start, side_by_side, told
from tests.daemon.gpumachines import GpuMachine, build, needs_standin
from tests.examples.beds import EXAMPLES

FILES: Final = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))

BY_DAY: Final = frozenset({"fpga.py", "serial.py"})

CHANGES: Final = "STR2?"
"""The checks that unplug a device: not in the quick set, because what other plugins need for it is long."""

_PYTHON: Final = sys.executable


def _plugged(command: str, *names: str) -> Subject:
    """Return a plugin that finds links to a device node in {work}/dev, the first of which is unplugged."""
    made = " && ".join(f"ln -s /dev/null {{work}}/dev/{name}" for name in names)
    return Subject(
        ("sh", "-c", f"[ -d {{work}}/dev ] || (mkdir {{work}}/dev && {made}); exec {_PYTHON} {command}"),
        environment={"PYTHONPATH": str(ROOT)},
        unplug=("rm", f"{{work}}/dev/{names[0]}"),
        replug=("ln", "-s", "/dev/null", f"{{work}}/dev/{names[0]}"),
    )


def _called(module: str, plugin: str) -> str:
    """Return how an example is run whose own last line takes no folder."""
    return f"-c 'import sys, devplug; from examples.{module} import *; devplug.run({plugin})'"


def fpga(_: Path) -> Subject:
    return Subject((_PYTHON, str(EXAMPLES / "fpga.py")))


def fpga_tutorial(tmp_path: Path) -> Subject:
    names = ("fpga0", "fpga1", "fpga2")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "state").write_text("operating\n")
    return _plugged(f"{EXAMPLES / 'fpga_tutorial.py'} {{work}}/dev {tmp_path}", *names)


def gpu(tmp_path: Path) -> Subject:
    machine = GpuMachine(tmp_path / "machine", build(tmp_path / "library"))
    for index in range(4):
        machine.add_gpu(index)
    return Subject(
        (_PYTHON, str(EXAMPLES / "gpu.py"), str(machine.root)),
        environment={
            "LD_LIBRARY_PATH": str(machine.library_folder),
            "STANDIN_NVML": str(machine.root / "nvml"),
        },
    )


def preferred(_: Path) -> Subject:
    names = (f"chip{board}.{number}" for board in range(2) for number in range(3))
    return _plugged(f"{EXAMPLES / 'preferred.py'} {{work}}/dev", *names)


def reset(tmp_path: Path) -> Subject:
    names = ("dsp0", "dsp1", "dsp2")
    for name in names:
        (tmp_path / name / "device").mkdir(parents=True)
    return _plugged(f"{EXAMPLES / 'reset.py'} {{work}}/dev {tmp_path}", *names)


def sample(_: Path) -> Subject:
    # In /tmp, where it makes its files otherwise, several at once would make the same.
    command = _called("sample", "Sample(sys.argv[1])")
    return Subject(("sh", "-c", f"exec {_PYTHON} {command} {{work}}"), environment={"PYTHONPATH": str(ROOT)})


def serial(_: Path) -> Subject:
    return _plugged(f"{_called('serial', 'Serial(sys.argv[1])')} '{{work}}/dev/*'", "A1", "A2", "A3")


BEDS: Final[dict[str, Callable[[Path], Subject]]] = {
    f"{make.__name__}.py": make for make in (fpga, fpga_tutorial, gpu, preferred, reset, sample, serial)
}


PROOFS: Final = {
    "fpga_tutorial.py": "STR23",
    "preferred.py": "PRE02",
    "reset.py": "PST03",
    "serial.py": "STR23",
}
"""A check that each must have passed, so that nothing was skipped for want of devices; else `ALL03`."""


def not_of_this_machine(file: str) -> list[str]:
    """Return the checks for which fpga.py, which lists two certain cards, needs a machine that has them."""
    lacks = {
        "ALL14": not Path("/dev/fpga1").exists(),
        "STR16": not Path("/sys/devices/system/node/node1").exists(),
    }
    return [id_ for id_, is_lacking in lacks.items() if is_lacking and file == "fpga.py"]


async def verdicts_of(file: str, folder: Path) -> Sequence[Verdict]:
    checks = chosen(all_checks(), skip=not_of_this_machine(file))
    tried = [on_one_start(one) for one in checks if one.quick or fnmatchcase(one.id, CHANGES)]
    return await judge(await asyncio.to_thread(BEDS[file], folder), tried, times=TIMES, jobs=2)


@pytest.fixture(scope="module")
async def verdicts_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    files = asked_for(request, "file")
    trials = {file: partial(verdicts_of, file, tmp_path_factory.mktemp("example")) for file in files}
    async with side_by_side(trials) as verdicts:
        yield verdicts


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file,
            marks=[
                *([] if file in BY_DAY else [pytest.mark.nightly]),
                *([needs_standin] if file == "gpu.py" else []),
            ],
        )
        for file in FILES
    ],
)
async def test_an_example_fails_no_check(
    file: str, verdicts_on: Mapping[str, Awaitable[Sequence[Verdict]]]
) -> None:
    verdicts = await verdicts_on[file]
    outcomes = {one.check.id: one.outcome for one in verdicts}
    story = told(one for one in verdicts if one.outcome is not Outcome.PASSED)
    assert [id_ for id_, outcome in outcomes.items() if outcome is Outcome.FAILED] == [], story
    assert outcomes[PROOFS.get(file, "ALL03")] is Outcome.PASSED, story
