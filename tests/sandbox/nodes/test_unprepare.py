"""Pods with claims that end on a node of the sandbox: what is cancelled and unprepared, and when they go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devplug.sandbox.registry import PODS
from devplug.wire.dra import ClaimName, PreparedClaim
from tests.sandbox.nodes.beds import container, manifest
from tests.sandbox.nodes.drabeds import lab, using
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time


async def test_a_pod_is_gone_only_after_its_claims_were_unprepared(short_dir: Path) -> None:
    """D26, D27: no event tells of it, the phase stays, and the driver is asked again after 10 s."""
    async with lab(short_dir) as it, it.driver.registered():
        it.start("a", terminationGracePeriodSeconds=1)
        await it.running("a")
        refused = asyncio.Event()

        async def unprepare(claims: Sequence[ClaimName]) -> Mapping[str, str]:
            error = "" if refused.is_set() else "cannot let go"
            refused.set()
            return {claims[0].uid: error}

        it.driver.on_unprepare = unprepare
        it.registry.delete(PODS, "default", "a")
        await refused.wait()
        begin = now()
        seen = await it.pod("a", lambda pod: "terminated" in pod["status"]["containerStatuses"][0]["state"])
        assert seen["status"]["phase"] == "Running"
        await it.gone("a")
        assert 10 <= now() - begin < 12
        assert len(it.driver.called("NodeUnprepareResources")) == 2
        assert "Warning" not in [type_ for type_, _, _ in it.events("a")]


async def test_a_pod_that_ends_by_itself_gets_its_last_status_after_its_claims_were_unprepared(
    short_dir: Path,
) -> None:
    """D26: a shared claim is unprepared with its last pod (D23)."""
    async with lab(short_dir) as it, it.driver.registered():
        share: Any = {"restartPolicy": "Never", "resourceClaims": [{"name": "d", "resourceClaimName": "a"}]}
        it.put(using("a", restartPolicy="Never"))
        it.reserve("a", "a")
        await it.running("a")
        it.put(manifest("b", container(resources={"claims": [{"name": "d"}]}), **share))
        it.reserve("a", "a", "b")
        await it.running("b")
        phases: list[str] = []

        async def unprepare(claims: Sequence[ClaimName]) -> Mapping[str, str]:
            phases.append(it.get("b")["status"]["phase"])
            return {claims[0].uid: ""}

        it.driver.on_unprepare = unprepare
        for name in ("a", "b"):
            it.annotate(name, exit_code="0")
            await it.ended(name)
        assert phases == ["Running"]
        assert len(it.driver.called("NodePrepareResources")) == 1


async def test_the_claims_of_a_pod_that_was_deleted_by_force_are_unprepared_later(short_dir: Path) -> None:
    """D26, D28: the object is gone first, and the kubelet looks after it once in a minute."""
    async with lab(short_dir) as it, it.driver.registered():
        it.start("a")
        await it.running("a")
        it.registry.delete(PODS, "default", "a", grace_seconds=0)
        await it.gone("a")
        assert not it.driver.called("NodeUnprepareResources")
        await it.driver.wait(lambda: it.driver.called("NodeUnprepareResources"))
        assert now() <= 61


async def test_the_deletion_of_a_pod_cancels_the_prepare_of_its_claims(short_dir: Path) -> None:
    """D17, D26: nobody waits 45 s for a driver's answer that no pod needs any more."""
    async with lab(short_dir) as it, it.driver.registered():
        called, canceled = asyncio.Event(), asyncio.Event()

        async def prepare(_: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
            called.set()
            try:
                await asyncio.Event().wait()
            finally:
                canceled.set()
            raise AssertionError

        it.driver.on_prepare = prepare
        it.start("a")
        await called.wait()
        begin = now()
        it.registry.delete(PODS, "default", "a")
        await canceled.wait()
        await it.gone("a")
        assert now() - begin < 2
        uid = it.uid_of("a")
        assert it.driver.called("NodePrepareResources") == [(uid,)]
        assert it.driver.called("NodeUnprepareResources") == [(uid,)]
        assert await it.held_back("a") == (
            "NodePrepareResources: rpc error: code = Canceled desc = context canceled"
        )


async def test_a_change_that_ends_no_pod_cancels_no_prepare(short_dir: Path) -> None:
    async with lab(short_dir) as it, it.driver.registered():
        called, may_answer = asyncio.Event(), asyncio.Event()

        async def prepare(claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
            called.set()
            await may_answer.wait()
            return {one.uid: PreparedClaim((it.driver.device(one),)) for one in claims}

        it.driver.on_prepare = prepare
        it.start("a")
        await called.wait()
        it.annotate("a", new="yes")
        await passes(10)
        may_answer.set()
        await it.running("a")
        assert len(it.driver.called("NodePrepareResources")) == 1
