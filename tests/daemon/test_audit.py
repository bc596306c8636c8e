"""The audit lines of holds and releases: none is lost, and nobody is asked for them in vain."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from devplug.daemon.service import audit_holders
from devplug.holders.holders import Holders
from devplug.logs import AUDIT
from tests.holders.nodes import QUICK, asking, questions, turns
from tests.kubelet.fakes import RESOURCE, healthy, pod, registered
from tests.kubelet.monitors import monitored, socket_below


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
                await holders.wait(lambda: len(holders.pods) == 1 and holders.holders_of(RESOURCE, "c"))
                kubelet.end_pod("u")
                await holders.wait(lambda: not holders.held_ids(RESOURCE))
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
        await holders.wait(lambda: holders.holders_of(RESOURCE, "a"))
        asked = questions(kubelet)
        await holders.wait(lambda: questions(kubelet) > asked)
        kubelet.end_pod("u")
        await holders.wait(lambda: not holders.held_ids(RESOURCE))
        await turns()
        asked = questions(kubelet)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * QUICK.period_seconds):
                await holders.wait(lambda: questions(kubelet) > asked)
        auditing.cancel()
