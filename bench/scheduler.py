"""The speed of the sandbox's scheduler: pods placed in a second of processor time, and how that grows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from bench.report import Bound, Figure, Report, Row
from devplug.dra.scheduling import bound
from devplug.dra.selectors import MissingCelError
from devplug.sandbox.scheduler.claim_snapshot import ClaimSnapshot, NoPlacement
from devplug.sandbox.scheduler.scores import ScoringSettings, Strategy
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
from devplug.sandbox.scheduler.types import (
    CPU,
    MEMORY,
    PODS,
    PREFER_NO_SCHEDULE,
    Node,
    Preference,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
    pod_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.dra.objects import Json

NODES, PODS_WAITING, SHAPES = 5_000, 10_000, 500

LEAST_PODS_PER_SECOND = 2_000

PICKY = 5
"""One of so many shapes has affinity, or looks at taints."""

GIB = 2**30

DEVICES = ("bench.devplug.io/gpu", "bench.devplug.io/nic", "bench.devplug.io/fpga", "bench.devplug.io/camera")

ZONES = ("a", "b", "c")

SIZES = {
    "1,000 nodes, 10,000 pods": (1_000, PODS_WAITING),
    "5,000 nodes, 2,000 pods": (NODES, 2_000),
    "5,000 nodes, 10,000 pods": (NODES, PODS_WAITING),
    "5,000 nodes, 40,000 pods": (NODES, 40_000),
    "20,000 nodes, 10,000 pods": (20_000, PODS_WAITING),
}

FULL = "5,000 nodes, 10,000 pods"

CLAIM_NODES, CLAIMS = 500, (1_000, 2_500, 5_000)

LEAST_CLAIMS_PER_SECOND = 500
"""Kubernetes' own scheduler places 40 to 80 such pods in a second."""

DEVICES_PER_NODE = 10

DRIVER = "gpu.bench.devplug.io"

MODELS = ("a", "b")
"""Devices have them in turns; a claim asks for one, or for one and else the other."""

STRATEGIES = {
    strategy.value: ScoringSettings(strategy=strategy, resources=((CPU, 1), (MEMORY, 1), (DEVICES[0], 5)))
    for strategy in Strategy
}


@dataclass(frozen=True, slots=True)
class Timing:
    """What came of one cluster."""

    pods: int
    seconds: float
    unplaced: int

    @property
    def pods_per_second(self) -> float:
        """How many pods were decided on in a second, whether there was a node for them or not."""
        return self.pods / self.seconds


def node(rng: Random, number: int) -> Node:
    """Return a node of one of four sizes, with devices of about half of the kinds."""
    cores, devices = rng.choice(((16, 2), (32, 4), (64, 8), (96, 8)))
    allocatable = {CPU: cores * 1000 - 80, MEMORY: cores * 4 * GIB, PODS: 110}
    for name in DEVICES:
        if rng.random() < 0.5:
            allocatable[name] = devices
    labels = {"kubernetes.io/hostname": f"node-{number}", "zone": rng.choice(ZONES), "model": f"m{cores}"}
    taints = {0: (Taint("dedicated", "gpu"),), 1: (Taint("old", "", PREFER_NO_SCHEDULE),)}
    return Node(f"node-{number}", labels, taints.get(rng.randrange(10), ()), False, allocatable)  # noqa: FBT003


def shapes(rng: Random, count: int = SHAPES) -> list[Shape]:
    """Return shapes that all differ in what they request; one of five is picky too."""
    found: dict[Shape, None] = {}
    while len(found) < count:
        requests = {CPU: rng.randrange(5, 400) * 10, MEMORY: rng.randrange(1, 160) * GIB // 10}
        if rng.random() < 0.5:
            requests[rng.choice(DEVICES)] = rng.choice((1, 1, 1, 2))
        found[Shape.asking(requests) if len(found) % PICKY else picky(rng, requests)] = None
    return list(found)


def picky(rng: Random, requests: Mapping[str, int]) -> Shape:
    """Return a shape with a node selector, affinity that is required or preferred, or a toleration."""
    zone = rng.choice(ZONES)
    match rng.randrange(4):
        case 0:
            return Shape.asking(requests, node_selector={"zone": zone})
        case 1:
            return Shape.asking(requests, required=(Term((Requirement("model", "In", ("m32", "m64")),)),))
        case 2:
            elsewhere = Term((Requirement("zone", "NotIn", (zone,)),))
            return Shape.asking(requests, preferred=(Preference(10, elsewhere),))
    return Shape.asking(requests, tolerations=(Toleration("dedicated", "Equal", "gpu"),))


def timed(nodes: int, pods: int, settings: ScoringSettings | None = None) -> Timing:
    """Place pods of all shapes in no order on nodes that are empty; those without a node are told why."""
    rng = Random(f"{nodes} {pods}")
    cluster = ClusterSnapshot(settings or ScoringSettings())
    for number in range(nodes):
        cluster.put_node(node(rng, number))
    known = shapes(rng)
    waiting = [rng.choice(known) for _ in range(pods)]
    unplaced = 0
    begin = time.process_time()
    for number, shape in enumerate(waiting):
        chosen = cluster.choose(shape)
        if chosen is None:
            unplaced += 1
            assert cluster.diagnose(shape).message()
        else:
            cluster.assume(str(number), shape, chosen)
    return Timing(pods, time.process_time() - begin, unplaced)


# ── pods with claims ──


def timed_with_claims(nodes: int, claims: int) -> Timing:
    """Place pods with a claim each on nodes that are empty, and write what they get, as the scheduler does.

    Raises `MissingCelError`.
    """
    rng = Random(f"{nodes} {claims}")
    cluster, devices = ClusterSnapshot(), ClaimSnapshot()
    for number in range(nodes):
        one = node(rng, number)
        cluster.put_node(one)
        devices.put_slice(_slice(one.name))
    devices.put_class({"metadata": {"name": "gpu"}, "spec": _selecting(f'device.driver == "{DRIVER}"')})
    waiting = [(_claim(rng, number), _pod(rng, number)) for number in range(claims)]
    now, unplaced = datetime.now(UTC), 0
    begin = time.process_time()
    for claim, pod in waiting:
        devices.put_claim(claim)
        pending = pod_of(pod)
        found = devices.place(pending, pod, cluster, now)
        if isinstance(found, NoPlacement):
            unplaced += 1
            assert found.diagnosis.message()
            continue
        for _, allocation in found.fit.allocations:
            written = bound(claim, pod, allocation)
            devices.put_claim({**written, "metadata": {**written["metadata"], "resourceVersion": "2"}})
        cluster.assume(pending.uid, found.shape, found.node)
    return Timing(claims, time.process_time() - begin, unplaced)


def _slice(node_name: str) -> Json:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    devices = [
        {"name": f"gpu-{at}", "attributes": {"model": {"string": MODELS[at % len(MODELS)]}}}
        for at in range(DEVICES_PER_NODE)
    ]
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"slice-{node_name}"}, "spec": spec}


def _claim(rng: Random, number: int) -> Json:
    """Return a claim for one device of a model; every second one takes the other model too."""
    wanted = [
        {"deviceClassName": "gpu", **_selecting(f'device.attributes["{DRIVER}"].model == "{model}"')}
        for model in rng.sample(MODELS, rng.choice((1, 2)))
    ]
    request: Json = {"name": "gpu", "exactly": wanted[0]}
    if len(wanted) > 1:
        listed = [{"name": f"s{at}", **one} for at, one in enumerate(wanted)]
        request = {"name": "gpu", "firstAvailable": listed}
    return {"metadata": _metadata(f"c-{number}"), "spec": {"devices": {"requests": [request]}}}


def _pod(rng: Random, number: int) -> Json:
    requests = {"cpu": f"{rng.randrange(5, 100) * 10}m", "memory": f"{rng.randrange(1, 40)}00Mi"}
    spec = {
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": f"c-{number}"}],
    }
    return {"metadata": _metadata(f"p-{number}"), "spec": spec}


def _metadata(name: str) -> Json:
    return {"namespace": "bench", "name": name, "uid": name, "resourceVersion": "1"}


def _selecting(expression: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": expression}}]}


# ── reports ──


def measure_claims() -> Report:
    """Measure pods with few claims and with many, where selectors can be evaluated."""
    try:
        return claims_report({count: timed_with_claims(CLAIM_NODES, count) for count in CLAIMS})
    except MissingCelError as error:
        return Report(["devplug"], [], [str(error)])


def claims_report(timings: Mapping[int, Timing]) -> Report:
    """Return the report on so many claims; the time that a pod takes is compared with that at the fewest."""
    few, many = min(timings), max(timings)
    growth = timings[few].pods_per_second / timings[many].pods_per_second
    return Report(
        ["devplug"],
        [
            *(
                Row((figure,))
                for count, one in timings.items()
                for figure in _figures(with_claims(count), one)
            ),
            Row((Figure(f"{with_claims(many)}: time a pod, of that with {few:,}", "×", growth),)),
        ],
        heading=f"pods with a claim placed a second, {DEVICES_PER_NODE} devices a node",
        bounds=[
            Bound(
                f"{with_claims(many)}: time, of that for {LEAST_CLAIMS_PER_SECOND:,} pods/s",
                LEAST_CLAIMS_PER_SECOND / timings[many].pods_per_second,
                1,
            )
        ],
    )


def with_claims(count: int) -> str:
    """Return the name of a figure."""
    return f"{CLAIM_NODES:,} nodes, {count:,} claims"


def measure_scheduling() -> Report:
    """Measure each size, then each strategy at the full size."""
    by_size = {f"LeastAllocated, {name}": timed(*size) for name, size in SIZES.items()}
    by_strategy = {
        f"{name} with a device, {FULL}": timed(*SIZES[FULL], settings)
        for name, settings in STRATEGIES.items()
    }
    return scheduling_report({**by_size, **by_strategy}, f"LeastAllocated, {FULL}")


def scheduling_report(timings: Mapping[str, Timing], bounded: str) -> Report:
    """Return the report on all clusters; the one of which a bound is set keeps it."""
    return Report(
        ["devplug"],
        [Row((figure,)) for name, timing in timings.items() for figure in _figures(name, timing)],
        heading=f"pods placed a second, {SHAPES} shapes",
        bounds=[
            Bound(
                f"{bounded}: time, of that for {LEAST_PODS_PER_SECOND:,} pods/s",
                LEAST_PODS_PER_SECOND / timings[bounded].pods_per_second,
                1,
            ),
        ],
    )


def _figures(name: str, timing: Timing) -> Sequence[Figure]:
    note = f"{timing.unplaced:,} pods had no node" if timing.unplaced else ""
    return [Figure(name, "/s", timing.pods_per_second, note)]
