"""What every test may ask for."""

from __future__ import annotations

import gc
import secrets
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("brief", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("deep", deadline=None, max_examples=1000)
settings.load_profile("steady")  # so that what is red is red again; "deep" tries what nobody has tried yet


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the deep profile one seed for all workers, and its time; give programs the signals of a terminal.

    What nohup or a background job ignores stays ignored across exec; what is handled is the default there.
    """
    if config.option.hypothesis_profile == "deep":
        config.option.hypothesis_seed = config.option.hypothesis_seed or str(secrets.randbelow(10**9))
        config.option.timeout = config.option.timeout or 900
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests and their modules from garbage collection.

    Each full collection traversed all of them: a third of the time that pytest takes to collect the suite.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to draw the same examples again."""
    seed = config.option.hypothesis_seed
    return [f"--hypothesis-seed={seed}"] if seed is not None else []


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What async tests run on."""
    return "asyncio"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder with a path short enough for sockets (107 bytes), gone after the test."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
