"""The audit lines: none is lost, nobody is asked for them in vain, and no answer waits for its line."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from devplug.holds.holders import Holders, audit_holders
from devplug.logs import AUDIT
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.holds.nodes import QUICK, asking, questions, turns
from tests.kubelet.fakes import RESOURCE, healthy, pod, registered
from tests.kubelet.monitors import monitored, socket_below
from tests.plugin.fakes import Listed, devices, served

LONG = 40
"""So many seconds only a hang outlasts."""


def lines(caplog: pytest.LogCaptureFixture) -> set[tuple[str, str, str]]:
    """What was told of which device, with the pod."""
    told = [(one.message, vars(one)) for one in caplog.records if one.name == AUDIT]
    return {(message, facts["device_id"], facts["pod"]) for message, facts in told if "device_id" in facts}


async def test_each_of_several_devices_that_come_free_at_once_gets_its_line(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        holders = Holders(socket_below(short_dir), rules=QUICK)
        async with (
            monitored(short_dir) as kubelet,
            registered(kubelet, healthy("a", "b", "c")),
            asking(holders),
            asyncio.TaskGroup() as group,
        ):
            auditing = group.create_task(audit_holders(holders, lambda: [RESOURCE]))
            for _ in range(2):
                await kubelet.admit(pod("u", 3))
                holders.note_allocated(RESOURCE, "abc")
                await holders.wait(
                    lambda: len(holders.pods) == 1 and holders.ledger.holders_of(RESOURCE, "c")
                )
                kubelet.end_pod("u")
                await holders.wait(lambda: not holders.ledger.held_ids(RESOURCE))
                await turns()
                told = lines(caplog)
                assert {one for one in told if one[0] == "device released"} == {
                    ("device released", device_id, "default/u") for device_id in "abc"
                }
                caplog.clear()
            auditing.cancel()

    with caplog.at_level(logging.INFO, logger=AUDIT):
        await scenario()


async def test_the_kubelet_is_asked_while_something_is_held_and_no_longer(short_dir: Path) -> None:
    holders = Holders(socket_below(short_dir), rules=QUICK)
    async with (
        monitored(short_dir) as kubelet,
        registered(kubelet, healthy("a")),
        asking(holders),
        asyncio.TaskGroup() as group,
    ):
        auditing = group.create_task(audit_holders(holders, lambda: [RESOURCE]))
        await turns()
        assert questions(kubelet) == 0
        await kubelet.admit(pod("u"))
        holders.note_allocated(RESOURCE, "a")
        await holders.wait(lambda: holders.ledger.holders_of(RESOURCE, "a"))
        asked = questions(kubelet)
        await holders.wait(lambda: questions(kubelet) > asked)
        kubelet.end_pod("u")
        await holders.wait(lambda: not holders.ledger.held_ids(RESOURCE))
        await turns()
        asked = questions(kubelet)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * QUICK.period_seconds):
                await holders.wait(lambda: questions(kubelet) > asked)
        auditing.cancel()


async def test_an_answer_does_not_wait_for_whoever_reads_its_audit_line(short_dir: Path) -> None:
    is_answered = threading.Event()
    seen: list[bool] = []

    class SlowReader(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            seen.append(is_answered.wait(LONG))

    async def call(path: Path) -> None:
        async with connected(path) as peer:
            await peer.call(ALLOCATE, [("a",)])
            is_answered.set()

    audit, reader = logging.getLogger(AUDIT), SlowReader(logging.INFO)
    before = audit.level
    audit.setLevel(logging.INFO)
    audit.addHandler(reader)
    try:
        async with served(short_dir, Listed(), devices("a")) as plugin:
            await asyncio.to_thread(asyncio.run, call(plugin.path))
    finally:
        audit.removeHandler(reader)
        audit.setLevel(before)
    assert seen == [True]
