"""`make steady`: the suite three times in random order, while the machine is busy with something else.

`make steady ARGS=tests/x.py::test_y` runs that test alone, a hundred times. As a plugin of pytest
(`-p tests.steady`) it has the options for both.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

ROUNDS: Final = 3
TIMES: Final = 100

BUSY: Final = "while True: pass"

WRITER: Final = """
import os, tempfile
with tempfile.TemporaryFile(dir=".") as file:
    while True:
        file.seek(0)
        file.write(bytes(64 << 20))
        os.fsync(file.fileno())
"""


@contextmanager
def busy_machine() -> Iterator[None]:
    """Take two processors and the disk while the block lasts."""
    with ExitStack() as stack:
        for program in (BUSY, BUSY, WRITER):
            load = subprocess.Popen([sys.executable, "-c", program], cwd="build")
            stack.callback(load.wait)
            stack.callback(load.kill)
        yield


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for, and return the exit code of the first run that is red."""
    Path("build").mkdir(exist_ok=True)
    with busy_machine():
        if arguments:
            often = ("-p", "tests.steady", "--times", str(TIMES), "--dist", "load", "-n", "auto")
            return subprocess.call([sys.executable, "-m", "pytest", *often, *arguments])
        for number in range(1, ROUNDS + 1):
            seed = random.SystemRandom().randrange(1_000_000)
            order = f"-p tests.steady --shuffle {seed} --no-loadscope-reorder"
            print(f'round {number} of {ROUNDS}; again: make test ARGS="{order}"', flush=True)
            if code := subprocess.call(["make", "test", f"ARGS={order}"]):
                return code
    return 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="files, and the tests in each, in random order"
    )
    parser.addoption("--times", type=int, default=0, metavar="N", help="each test so many times")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if times := metafunc.config.getoption("times"):
        metafunc.fixturenames.append("time_of_many")
        metafunc.parametrize("time_of_many", range(times))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("shuffle")) is None:
        return
    order = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
