"""Threads for code that may block: bounded in number, given back, and never in the way of the exit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any

import pytest

from devplug.linux.threads import DaemonThreads
from devplug.plugin.callbacks import THREADS_BESIDE, Hooks
from tests.waiting import until
from tests.wire.fakes import eventually

LONG = 40
"""So many seconds only a hang outlasts."""


def named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def test_a_job_runs_in_a_daemon_thread_of_the_pool_with_its_arguments() -> None:
    def job(*args: int, **kwargs: int) -> tuple[Any, ...]:
        thread = threading.current_thread()
        return args, kwargs, thread.name, thread.daemon

    with DaemonThreads(2, "t-job") as threads:
        assert threads.submit(job, 1, 2, x=3).result(LONG) == ((1, 2), {"x": 3}, "t-job-1", True)


def test_an_error_is_the_jobs_result() -> None:
    with DaemonThreads(1, "t-error") as threads, pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(LONG)


def test_an_idle_thread_is_used_again() -> None:
    with DaemonThreads(8, "t-again") as threads:
        idents = set()
        for _ in range(20):
            idents.add(threads.submit(threading.get_ident).result(LONG))
            assert eventually(lambda: threads._idle == threads._running)
        assert len(idents) == 1


def test_a_thread_that_was_idle_for_long_enough_ends_and_the_next_job_has_a_new_one() -> None:
    with DaemonThreads(2, "t-idle", idle_seconds=0.01) as threads:
        for _ in range(3):
            assert threads.submit(lambda: 7).result(LONG) == 7
            assert eventually(lambda: named("t-idle") == 0)


def test_jobs_run_side_by_side_up_to_the_limit_and_the_rest_wait_their_turn() -> None:
    go = threading.Event()
    running: list[int] = []

    def job(number: int) -> int:
        running.append(number)
        go.wait(LONG)
        return number

    with DaemonThreads(3, "t-limit") as threads:
        futures = [threads.submit(job, n) for n in range(10)]
        assert eventually(lambda: len(running) == 3)
        assert named("t-limit") == 3
        assert sorted(running) == [0, 1, 2]
        go.set()
        assert [future.result(LONG) for future in futures] == list(range(10))
        assert named("t-limit") <= 3


def test_one_thread_runs_the_jobs_in_their_order() -> None:
    order: list[int] = []
    with DaemonThreads(1, "t-order") as threads:
        wait([threads.submit(order.append, n) for n in range(100)], LONG)
    assert order == list(range(100))


def test_a_job_that_is_cancelled_while_it_waits_never_runs() -> None:
    go = threading.Event()
    ran: list[int] = []
    with DaemonThreads(1, "t-cancel") as threads:
        first = threads.submit(go.wait, LONG)
        waiting = threads.submit(ran.append, 1)
        assert waiting.cancel()
        go.set()
        assert first.result(LONG)
        assert threads.submit(lambda: 7).result(LONG) == 7
    assert ran == []


async def test_a_stop_iteration_reaches_whoever_waits_on_a_loop() -> None:
    """Asyncio's futures take none: whoever waited for one would wait for ever."""

    def stop() -> None:
        raise StopIteration("seven")

    with DaemonThreads(1, "t-stop") as threads, pytest.raises(RuntimeError) as caught:
        await asyncio.get_running_loop().run_in_executor(threads, stop)
    assert str(caught.value) == "the code raised StopIteration('seven')"
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_shut_pool_ends_its_threads_and_takes_no_more_jobs() -> None:
    threads = DaemonThreads(4, "t-shut")
    wait([threads.submit(lambda: None) for _ in range(20)], LONG)
    threads.shutdown()
    threads.shutdown()
    assert eventually(lambda: named("t-shut") == 0)
    with pytest.raises(RuntimeError, match="this pool of threads was shut down"):
        threads.submit(lambda: None)


def test_shutting_a_pool_waits_for_nobody_and_a_blocked_thread_ends_with_its_job() -> None:
    go = threading.Event()
    threads = DaemonThreads(1, "t-blocked")
    first, second = threads.submit(go.wait, LONG), threads.submit(lambda: 2)
    threads.shutdown(wait=True)
    assert named("t-blocked") == 1
    assert not first.done()
    go.set()
    assert second.result(LONG) == 2
    assert eventually(lambda: named("t-blocked") == 0)


def test_a_loop_takes_the_pool_as_its_default_and_lets_go_of_it() -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads(2, "t-default"))
        assert (await asyncio.to_thread(threading.current_thread)).name == "t-default-1"

    asyncio.run(story())
    assert eventually(lambda: named("t-default") == 0)


async def test_many_pools_in_a_row_leave_no_thread() -> None:
    for _ in range(50):
        with DaemonThreads(2, "t-many") as threads:
            await asyncio.get_running_loop().run_in_executor(threads, int)
    await until(lambda: named("t-many") == 0)


def test_a_blocked_thread_does_not_hold_the_exit() -> None:
    program = """
import threading
from devplug.plugin.callbacks import THREADS_BESIDE, Hooks
from devplug.linux.threads import DaemonThreads
begun = threading.Event()
def block():
    begun.set()
    threading.Event().wait(3600)
DaemonThreads(1).submit(block)
begun.wait()
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=LONG).returncode == 0


# ── hooks that hang in them ──


async def test_hooks_that_hang_in_all_threads_of_their_kind_are_a_fault_until_one_comes_back() -> None:
    begun, go = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go.wait()

    async def given_up(call: Coroutine[Any, Any, object]) -> None:
        begun.clear()
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(call)
            await until(begun.is_set)
            calling.cancel()

    hooks = Hooks("example.com/a")
    for _ in range(THREADS_BESIDE):
        assert hooks.fault == ""
        await given_up(hooks.call_beside(hang))
    assert hooks.fault == f"the plugin's pre_start hangs in all {THREADS_BESIDE} threads; further calls wait"
    await given_up(hooks.call(hang))
    assert hooks.fault == "the plugin's code hangs in a call; every other Allocate waits for it"
    go.set()
    await until(lambda: not hooks.fault)
    hooks.close()


# ── a system that starts no threads ──


def without_threads(program: str) -> str:
    """Run a program whose user may start no thread while `forbid` is in effect; return what it prints."""
    given = (
        "import asyncio, logging, os, resource, threading, encodings.idna\n"
        "from devplug.linux.threads import DaemonThreads, run_loop\n"
        "logging.basicConfig(format='%(message)s')\n"
        "def forbid():\n"
        "    if not os.getuid(): os.setgid(64321); os.setuid(64321)\n"
        "    resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))\n"
        "def allow():\n"
        "    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]\n"
        "    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", given + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG,
        check=False,
    )
    return ran.stdout


def test_short_jobs_run_in_their_callers_thread_if_none_can_be_started() -> None:
    said = without_threads(
        "async def main():\n"
        "    asyncio.get_running_loop().set_default_executor(DaemonThreads(2, 't', are_short=True))\n"
        "    forbid()\n"
        "    used = {await asyncio.to_thread(threading.get_ident) for _ in range(20)}\n"
        "    print(used == {threading.get_ident()})\n"
        "run_loop(main())"
    )
    assert said.splitlines() == ["cannot start a thread; trying again", "True"]


def test_other_jobs_wait_until_a_thread_can_be_started() -> None:
    said = without_threads(
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    with DaemonThreads(2, 't') as threads:\n"
        "        forbid()\n"
        "        waiting = [loop.run_in_executor(threads, os.getpid) for _ in range(5)]\n"
        "        allow()\n"
        "        print({await one for one in waiting} == {os.getpid()})\n"
        "run_loop(main())"
    )
    assert said.splitlines() == ["cannot start a thread; trying again", "True"]


def test_jobs_that_wait_for_a_thread_fail_when_the_pool_is_shut_down() -> None:
    said = without_threads(
        "async def main():\n"
        "    with DaemonThreads(2, 't') as threads:\n"
        "        forbid()\n"
        "        waiting = threads.submit(os.getpid)\n"
        "    print(repr(waiting.exception()))\n"
        "run_loop(main())"
    )
    assert said.splitlines() == [
        "cannot start a thread; trying again",
        'RuntimeError("can\'t start new thread")',
    ]
