"""Claims that no kubelet remembers are released, late enough, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.driver.node_driver import KubeletSockets
from devplug.driver.upkeep import GRACE_SECONDS, LOOK_SECONDS, next_look
from devplug.k8s.errors import ClusterError
from devplug.kubelet.kubelet import Kubelet
from tests.driver.world import Cluster, Node, events, refusal, serving
from tests.kubelet.dra_driver import pod, running
from tests.virtualtime import BACKEND, passes
from tests.waiting import until

HOUR_SECONDS, DAY_SECONDS = 3600, 24 * 3600


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


@asynccontextmanager
async def reset(node: Node) -> AsyncIterator[tuple[Kubelet, KubeletSockets]]:
    """A kubelet that knows nothing of the claim that the one before has had prepared."""
    node.claims.allocate("c", "a")
    driver = node.driver("a", "b")
    async with serving(driver):
        async with running(node.root, Cluster(node), limit_seconds=DAY_SECONDS) as kubelet:
            await until(lambda: driver.is_registered and driver.is_connected)
            await kubelet.run_pod(pod("u", "c"))
        (node.root / "dra_manager_state").unlink()
        async with running(node.root, Cluster(node), limit_seconds=DAY_SECONDS) as kubelet:
            await until(lambda: driver.is_registered and driver.is_connected)
            yield kubelet, driver


@pytest.mark.parametrize("how", ["deleted", "released", "anew"])
async def test_a_claim_that_is_free_and_forgotten_is_released_once(node: Node, how: str) -> None:
    async with reset(node) as (_, driver):
        if how == "deleted":
            node.claims.delete("c")
        elif how == "released":
            node.claims.release("c")
        else:
            node.claims.allocate("c", "a", uid="another")
        await passes(GRACE_SECONDS)
        assert node.resource.released == []
        await passes(HOUR_SECONDS)
        assert node.resource.released == ["a"]
        assert node.cdi_names() == []
        assert driver.store.held_ids(node.resource.resource_name) == frozenset()


async def test_a_release_that_fails_is_tried_again(node: Node) -> None:
    async with reset(node):
        node.claims.delete("c")
        node.resource.release_errors.append(refusal())
        await passes(2 * GRACE_SECONDS)
        assert (node.resource.release_errors, node.resource.released) == ([], [])
        await passes(3 * GRACE_SECONDS)
        assert node.resource.released == ["a"]


@pytest.mark.nightly  # takes 8 s
async def test_what_is_reserved_stays_and_costs_few_questions(node: Node) -> None:
    async with reset(node) as (kubelet, _):
        await passes(2 * LOOK_SECONDS)
        node.claims.allocate("d", "b", pods=("v",))
        await kubelet.run_pod(pod("v", "d"))
        before = node.claims.reads
        await passes(6 * HOUR_SECONDS)
        assert node.resource.released == []
        assert node.claims.reads - before <= 6 * HOUR_SECONDS / GRACE_SECONDS, (
            "the new one is never asked for"
        )
        assert len(node.cdi_names()) == 2


async def test_without_an_answer_or_a_kubelet_nothing_is_released(node: Node) -> None:
    async with reset(node):
        node.claims.delete("c")
        node.claims.errors += [ClusterError("away") for _ in range(12)]
        await passes(2 * HOUR_SECONDS)
        node.claims.errors.clear()
        assert node.resource.released == []


async def test_a_kubelet_that_is_away_is_waited_for_and_has_its_chance(node: Node) -> None:
    node.claims.allocate("c", "a")
    driver = node.driver("a")
    async with serving(driver):
        async with running(node.root, Cluster(node), limit_seconds=DAY_SECONDS) as kubelet:
            await until(lambda: driver.is_registered and driver.is_connected)
            await kubelet.run_pod(pod("u", "c"))
        node.claims.delete("c")
        reads = node.claims.reads
        await passes(2 * HOUR_SECONDS)
        assert node.claims.reads == reads
        async with running(node.root, Cluster(node), limit_seconds=DAY_SECONDS) as kubelet:
            await until(lambda: driver.is_registered and driver.is_connected)
            await passes(30)
            await kubelet.dra.reconcile()
            assert node.resource.released == ["a"], "its checkpoint knows the claim"
            assert events(kubelet) == []
            await passes(HOUR_SECONDS)
    assert node.resource.released == ["a"]


# ── the rule ──


@given(
    looked_at=st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 5000), max_size=6),
    uids=st.sets(st.sampled_from("abcdef")),
    now=st.floats(0, 10000),
)
def test_each_claim_is_looked_up_in_its_turn(looked_at: dict[str, float], uids: set[str], now: float) -> None:
    chosen = next_look(uids, looked_at, now)
    waits = {uid: now - looked_at.get(uid, float("-inf")) for uid in uids}
    if chosen is None:
        assert all(wait < GRACE_SECONDS + 1e-6 for wait in waits.values())
    else:
        assert waits[chosen] >= GRACE_SECONDS - 1e-6
        assert waits[chosen] == max(waits.values())
