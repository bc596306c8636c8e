"""The claim cache: who uses a claim, which calls that makes, and that nothing is lost whatever happens."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.kubelet.claim_references import ExtendedClaim, PodClaim
from devplug.kubelet.dra import claim_cache
from devplug.kubelet.dra.claim_cache import ClaimCache, DraStateError, unprepare_fault
from devplug.kubelet.dra.claim_objects import Claim, ClaimError, claim_names, read_claim, used_claim
from devplug.kubelet.pods import Pod
from devplug.wire.dra import ClaimName, PreparedClaim, PreparedDevice

NAMESPACE = "ns"


def claim(name: str, *drivers: str, uid: str = "") -> Claim:
    return Claim(NAMESPACE, name, uid or f"uid-{name}", drivers or ("a.example",))


def device(name: str = "dev-0", *requests: str) -> PreparedDevice:
    return PreparedDevice("pool", name, requests, (f"example.com/x={name}",))


def with_users(*users: tuple[Claim, str]) -> ClaimCache:
    cache = ClaimCache()
    for one, pod_uid in users:
        cache = cache.referenced(one, pod_uid)
    return cache


# ── what a pod may use ────────────────────────────────────────────────────────────────────────────


def test_claims_come_in_the_order_of_the_spec_and_the_one_for_extended_resources_last() -> None:
    """D15."""
    pod = Pod(
        "u",
        "p",
        extended_claim=ExtendedClaim("p-extended-resources-x"),
        resource_claims=(PodClaim("b", "c-b"), PodClaim("none", None), PodClaim("a", "c-a")),
    )
    assert [name for _, name in claim_names(pod)] == ["c-b", "c-a", "p-extended-resources-x"]


def test_a_claim_of_a_template_that_was_not_made_yet_keeps_the_pod_waiting() -> None:
    """D60, as the kubelet sees it."""
    pod = Pod("u", "p", resource_claims=(PodClaim("a", None, is_generated=True, is_missing=True),))
    with pytest.raises(ClaimError, match='pod "default/p": ResourceClaim not created yet'):
        list(claim_names(pod))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            Claim(NAMESPACE, "c", "uid-c", ("d",)),
            r"pod p \(u\) is not allowed to use ResourceClaim c \(uid-c\)",
        ),
        (Claim(NAMESPACE, "c", "uid-c", None, frozenset({"u"})), "ResourceClaim c: not allocated"),
        (
            Claim(NAMESPACE, "c", "uid-c", ("d",), frozenset({"u"}), "other"),
            r"ResourceClaim ns/c was not created for pod ns/p \(pod is not owner\)",
        ),
    ],
)
def test_a_claim_that_the_pod_may_not_use_is_told(found: Claim, text: str) -> None:
    """D19: in the words of the real kubelet."""
    pod_claim = PodClaim("a", "c", is_generated=bool(found.controller_uid))
    with pytest.raises(ClaimError, match=f"^{text}$"):
        used_claim(Pod("u", "p", NAMESPACE), pod_claim, found)


def test_a_claim_is_read_from_the_api_s_object() -> None:
    """D59: each driver of its results counts once."""
    results = [{"driver": driver} for driver in ("b", "a", "b")]
    document = {
        "metadata": {
            "namespace": "ns",
            "name": "c",
            "uid": "u-1",
            "ownerReferences": [{"uid": "x"}, {"uid": "pod", "controller": True}],
        },
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "pod"}]},
    }
    assert read_claim(document) == Claim("ns", "c", "u-1", ("b", "a"), frozenset({"pod"}), "pod")
    del document["status"]
    assert read_claim(document).drivers is None


# ── prepare and unprepare ─────────────────────────────────────────────────────────────────────────


def test_each_driver_gets_one_call_with_all_claims_in_order() -> None:
    """D15, D16: the claims in the pod's order; drivers by name, where the real kubelet goes at random."""
    one, two = claim("z", "b.example", "a.example"), claim("a", "a.example")
    cache = with_users((one, "p"), (two, "p"))
    assert cache.batches([one.key, two.key]) == {
        "a.example": [ClaimName(NAMESPACE, "uid-z", "z"), ClaimName(NAMESPACE, "uid-a", "a")],
        "b.example": [ClaimName(NAMESPACE, "uid-z", "z")],
    }
    assert cache.prepared([one.key]).batches([one.key, two.key]) == {"a.example": [two.in_call]}


def test_another_claim_of_the_same_name_is_in_the_way() -> None:
    """D19."""
    with pytest.raises(ClaimError, match="old ResourceClaim with same name c and different UID uid-c still"):
        with_users((claim("c"), "p"), (claim("c", uid="new"), "q"))


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"uid-c": PreparedClaim((device(),))}, ""),
        ({"uid-c": PreparedClaim()}, ""),
        ({}, "NodePrepareResources skipped 1 ResourceClaims"),
        (
            {"uid-c": PreparedClaim(error="on fire")},
            "NodePrepareResources failed for ResourceClaim c: on fire",
        ),
        (
            {"uid-c": PreparedClaim(), "x": PreparedClaim()},
            "NodePrepareResources returned result for unknown claim UID x",
        ),
    ],
)
def test_an_answer_is_judged_by_uids_and_errors_alone(answers: dict[str, PreparedClaim], fault: str) -> None:
    """D19, D21."""
    one = claim("c")
    cache = with_users((one, "p"))
    assert cache.answered("a.example", [one.in_call], answers, compat=True)[1] == fault


def test_a_second_answer_doubles_the_devices_as_in_1_36_or_replaces_them() -> None:
    """D25."""
    one = claim("c")
    cache = with_users((one, "p"))
    for compat, count in ((True, 2), (False, 1)):
        again = cache
        for _ in range(2):
            again, fault = again.answered(
                "a.example", [one.in_call], {one.uid: PreparedClaim((device(),))}, compat=compat
            )
            assert not fault
        assert again.claims[one.key].devices == {"a.example": (device(),) * count}


def test_the_last_user_of_a_claim_has_it_unprepared() -> None:
    """D23: what decides is that there is more than one user, whoever they are."""
    one = claim("c", "b.example", "a.example")
    cache = with_users((one, "p"), (one, "q"))
    release = cache.release("p", NAMESPACE, ["c"])
    assert (release.batches, release.keys) == ({}, ())
    assert release.cache.claims[one.key].pod_uids == {"q"}
    last = release.cache.release("q", NAMESPACE, ["c", "unknown"])
    assert last.batches == {"a.example": [one.in_call], "b.example": [one.in_call]}
    assert last.cache.without(last.keys) == ClaimCache()


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"uid-c": ""}, ""),
        ({}, "NodeUnprepareResources skipped 1 ResourceClaims"),
        ({"uid-c": "held"}, "NodeUnprepareResources failed for ResourceClaim c: held"),
        ({"x": ""}, "NodeUnprepareResources returned result for unknown claim UID x"),
    ],
)
def test_an_unprepare_is_judged_in_the_same_way(answers: dict[str, str], fault: str) -> None:
    """D27."""
    assert unprepare_fault([claim("c").in_call], answers) == fault


def test_a_request_chooses_devices_by_its_exact_text() -> None:
    """D22: a device without requests serves all."""
    one = claim("c")
    devices = (device("x", "gpu"), device("y", "gpu", "nic"), device("z"))
    cache, _ = with_users((one, "p")).answered(
        "a.example", [one.in_call], {one.uid: PreparedClaim(devices)}, compat=True
    )
    for request, found in {"": "xyz", "gpu": "xyz", "nic": "yz", "gpu/sub": "z"}.items():
        served = [one.device_name for _, one in cache.claims[one.key].serving(request)]
        assert served == list(found), request


def test_claims_in_use_are_counted_by_driver_and_in_all() -> None:
    """D30."""
    cache = with_users((claim("c", "a", "b"), "p"), (claim("d", "b"), "p"))
    assert cache.in_use() == {"<any>": 2, "a": 1, "b": 2}


# ── the file ──────────────────────────────────────────────────────────────────────────────────────

RECORDED = (
    '{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":\\"checkpoint.dra.kubelet.k8s.io/v1\\",'
    '\\"ClaimInfoStateList\\":[{\\"ClaimUID\\":\\"2a694d60-d7ec-4195-a47a-be7bda7aa53a\\",'
    '\\"ClaimName\\":\\"c-k1\\",\\"Namespace\\":\\"dra-demo\\",'
    '\\"PodUIDs\\":{\\"4687da9e-f1f2-4dcc-a3da-b9e9da57d280\\":{}},'
    '\\"DriverState\\":{\\"boot.demo.example.com\\":{\\"Devices\\":[{\\"PoolName\\":\\"worker-0\\",'
    '\\"DeviceName\\":\\"dev-0\\",\\"ShareID\\":null,\\"RequestNames\\":[\\"gpu\\"],\\"CDIDeviceIDs\\":'
    '[\\"k8s.boot.demo.example.com/claim=2a694d60-d7ec-4195-a47a-be7bda7aa53a-dev-0\\"]}]}}}]}",'
    '"Checksum":1978719003}'
)


def test_the_file_is_the_real_kubelet_s_byte_for_byte() -> None:
    """D29: as it was recorded."""
    cache = claim_cache.decode(RECORDED.encode())
    assert claim_cache.encode(cache).decode() == RECORDED
    assert json.loads(claim_cache.encode(ClaimCache()))["Checksum"] == 2361995144


def test_what_a_driver_left_out_is_null_and_a_share_id_a_text() -> None:
    """D29."""
    one = claim("c")
    cache, _ = with_users((one, "p")).answered(
        "a.example",
        [one.in_call],
        {one.uid: PreparedClaim((PreparedDevice("p", "<d>", share_id="s"),))},
        compat=True,
    )
    content = claim_cache.encode(cache).decode()
    assert (
        '\\"DeviceName\\":\\"\\\\u003cd\\\\u003e\\",\\"ShareID\\":\\"s\\",\\"RequestNames\\":null' in content
    )
    assert claim_cache.decode(content.encode()) == cache
    assert '\\"ClaimInfoStateList\\":null' in claim_cache.encode(None).decode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        RECORDED.replace("1978719003", "1978719004").encode(),
        RECORDED.replace("dev-0", "dev-1").encode(),
        json.dumps({"Data": "{}", "Checksum": zlib.crc32(b"{}")}).encode(),
    ],
)
def test_a_damaged_file_is_not_taken(content: bytes) -> None:
    """D29: the kubelet ends with it."""
    with pytest.raises(DraStateError, match="please drain node and remove DRA state file, err: "):
        claim_cache.decode(content)


# ── whatever happens, in any order ────────────────────────────────────────────────────────────────


@dataclass
class Node:
    """A kubelet's cache and file, and what its driver has prepared; `steps` say what happens."""

    cache: ClaimCache = field(default_factory=ClaimCache)
    file: bytes = claim_cache.encode(ClaimCache())
    held: set[str] = field(default_factory=set)
    """UIDs of claims that the driver was asked to prepare, and not to unprepare since."""
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def write(self) -> None:
        self.file = claim_cache.encode(self.cache)

    def restart(self) -> None:
        self.cache = claim_cache.decode(self.file)

    def prepare(self, pod: str, names: tuple[str, ...], *, crash: str) -> None:
        keys = [(NAMESPACE, name) for name in names]
        for name in names:
            self.cache = self.cache.referenced(claim(name), pod)
            self.write()
        for driver, asked in self.cache.batches(keys).items():
            if crash == "before the call":
                self.restart()
                return
            self.held.update(one.uid for one in asked)
            answers = {one.uid: PreparedClaim((device(),)) for one in asked}
            self.cache, fault = self.cache.answered(driver, asked, answers, compat=False)
            assert not fault
        if crash == "before the second write":
            self.restart()
            return
        self.cache = self.cache.prepared(keys)
        self.write()

    def unprepare(self, pod: str, names: tuple[str, ...], *, crash: str) -> None:
        release = self.cache.release(pod, NAMESPACE, names)
        self.cache = release.cache
        for asked in release.batches.values():
            users = {user for one in asked for user in self.cache.claims[NAMESPACE, one.name].pod_uids}
            assert users <= {pod}
            self.held.difference_update(one.uid for one in asked)
        if crash != "no":
            self.restart()
            return
        self.cache = self.cache.without(release.keys)
        self.write()


PODS = st.sampled_from(["p", "q", "r"])
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True).map(tuple)
CRASH = st.sampled_from(["no", "no", "before the call", "before the second write"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["prepare", "unprepare", "restart"]), PODS, NAMES, CRASH), max_size=25
)


@given(STEPS)
def test_no_claim_is_forgotten_and_none_is_kept_whatever_happens(
    steps: list[tuple[str, str, tuple[str, ...], str]],
) -> None:
    """D15, D23, D24, D28, D29: in any order of prepares, unprepares, restarts and crashes.

    A pod keeps its claims from prepare to unprepare; what a driver holds is in the file with a pod that uses
    it; and once all pods are gone, the reconcile loop leaves nothing.
    """
    node = Node()
    for kind, pod, names, crash in steps:
        if kind == "prepare":
            node.pods[pod] = tuple(dict.fromkeys((*node.pods.get(pod, ()), *names)))
            node.prepare(pod, names, crash=crash)
            assert all(pod in node.cache.claims[NAMESPACE, name].pod_uids for name in names)
        elif kind == "unprepare" and pod in node.pods:
            node.unprepare(pod, node.cache.names_of(pod), crash=crash)
            if crash == "no":
                del node.pods[pod]
        else:
            node.restart()
        kept = claim_cache.decode(node.file)
        assert claim_cache.encode(kept) == node.file
        assert node.held <= {one.uid for one in kept if one.pod_uids}
        for other, used in node.pods.items():
            if kind != "unprepare" or other != pod:
                assert set(node.cache.names_of(other)) <= set(used)
    node.restart()
    for pod_uid, namespace, found in tuple(node.cache.inactive(())):
        assert namespace == NAMESPACE
        node.unprepare(pod_uid, found, crash="no")
    assert node.held == set()
    assert node.cache == ClaimCache() == claim_cache.decode(node.file)


@given(STEPS)
def test_a_claim_is_prepared_once_for_all_pods_until_a_restart(
    steps: list[tuple[str, str, tuple[str, ...], str]],
) -> None:
    """D23, D24: without a restart no driver is asked twice for a claim that it has prepared."""
    node = Node()
    for kind, pod, names, _ in steps:
        if kind == "prepare":
            before = set(node.held)
            keys = [(NAMESPACE, name) for name in names]
            cache = node.cache
            for name in names:
                cache = cache.referenced(claim(name), pod)
            asked = {one.uid for batch in cache.batches(keys).values() for one in batch}
            assert not asked & before
            node.prepare(pod, names, crash="no")
        elif kind == "unprepare":
            node.unprepare(pod, node.cache.names_of(pod), crash="no")
