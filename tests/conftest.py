"""What every test may ask for."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("here", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True)
settings.register_profile("brief", deadline=None, max_examples=10, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


def pytest_configure() -> None:
    """Give the programs that tests start the signals of a terminal.

    What nohup or a background job ignores stays ignored across exec; what is handled is the default there.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


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
