"""Exhausted resources: which errors report one, how often that is logged, and what children get."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys

import pytest

from devplug.errors import KubeletError
from devplug.linux.exhaustion import (
    SILENCE_SECONDS,
    Shortage,
    is_exhausted,
)
from devplug.linux.supervision import borne
from tests.cli.programs import limited
from tests.virtualtime import in_virtual_time, passes, play


def caused_by(cause: Exception) -> Exception:
    error = KubeletError("cannot listen")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "") for number in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)),
        *(OSError(number, "") for number in (errno.ENOSPC, errno.EDQUOT, errno.EAGAIN)),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("x.so: cannot open shared object file: Too many open files"),
        caused_by(OSError(errno.EMFILE, "")),
        ExceptionGroup("", [MemoryError(), ExceptionGroup("", [OSError(errno.ENFILE, "")])]),
    ],
    ids=repr,
)
def test_an_error_reports_an_exhausted_resource(error: Exception) -> None:
    assert is_exhausted(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, ""),
        RuntimeError("no running event loop"),
        ImportError("no module"),
        KubeletError("cannot listen"),
        ExceptionGroup("", [MemoryError(), ValueError()]),
    ],
    ids=repr,
)
def test_other_errors_report_none(error: Exception) -> None:
    assert not is_exhausted(error)


@in_virtual_time
async def test_a_shortage_is_logged_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    shortage = Shortage("no room")
    for _ in range(3 * 100):
        shortage.report(OSError(errno.EMFILE, "Too many open files"))
        await passes(SILENCE_SECONDS / 100)
    counts = [record.__dict__.get("repeated") for record in caplog.records]
    assert counts == [None, 99, 99]


def test_a_task_bears_an_exhausted_resource_and_no_other_error() -> None:
    errors = iter([OSError(errno.EMFILE, ""), MemoryError(), KeyError("a bug")])

    async def work() -> None:
        raise next(errors)

    with pytest.raises(KeyError):
        play(borne(work))


# ── the limit of descriptors ──

SHOW = [sys.executable, "-S", "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"]


def in_a_process(program: str) -> str:
    """Run a program that has a soft limit of 200 descriptors; return what it prints."""
    given = f"import os, resource, subprocess; show = {SHOW!r}; from devplug.linux.exhaustion import *\n"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ran = subprocess.run(
        [*limited(200, hard), sys.executable, "-c", given + program],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def test_a_program_has_the_hard_limit_and_its_children_the_old_soft_one() -> None:
    said = in_a_process(
        "raise_descriptor_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)\n"
        "with original_descriptor_limit(): subprocess.run(show, check=True)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    hard = str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert said.split() == [hard, "200", hard]


def test_a_program_that_uses_more_than_the_old_limit_can_start_children() -> None:
    said = in_a_process(
        "raise_descriptor_limit()\n"
        "held = [os.open('/', os.O_RDONLY) for _ in range(250)]\n"
        "with original_descriptor_limit(): subprocess.run(show, check=True)"
    )
    assert said.split() == [str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])]
