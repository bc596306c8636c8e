"""Pods with claims: they get what they would if nothing were remembered of earlier searches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.extended_resources import extended_claim
from devplug.dra.results import with_share_ids
from devplug.dra.scheduling import bound
from devplug.dra.search import AttemptError
from devplug.sandbox.scheduler.claim_snapshot import ClaimSnapshot, NoPlacement, Placement
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
from devplug.sandbox.scheduler.types import CPU, PODS, Node, pod_of
from tests.dra.worlds import GPU, NIC, Json, PlainSelectors, device, one_of, request, shared, wanted

NOW = datetime(2026, 11, 23, tzinfo=UTC)
EXTENDED = "example.com/gpu"


# ── worlds ──


def taking(amount: int, **more: Json) -> Json:
    return {"consumesCounters": [{"counterSet": "set", "counters": {"m": {"value": str(amount)}}}], **more}


DEVICES = (
    device("x", attributes={"k": "a"}),
    device("y", attributes={"k": "b"}),
    device("part", attributes={"k": "a"}, **taking(6)),
    device("rest", attributes={"k": "b"}, **taking(5)),
    device("tainted", attributes={"k": "a"}, taints=[{"key": "t", "effect": "NoSchedule"}]),
    {**shared("many", m="4"), "attributes": {"k": {"string": "a"}}},
)
REQUESTS = (
    request("r", "any"),
    request("r", "any", "missing=x"),
    request("r", "gpu", "k=a"),
    request("r", "any", count=2),
    request("r", "gpu", capacity={"requests": {"m": "2"}}),
    request("r", "nic", tolerations=[{"operator": "Exists"}]),
    request("r", "gpu", "k=b", allocationMode="All"),
    one_of("r", wanted("any", "k=a"), wanted("any", "k=b")),
    one_of("r", wanted("nic", count=3), wanted("nic"), wanted("gpu", "k=b")),
)
WISHES = [(one, several) for one in REQUESTS for several in ([], [{"distinctAttribute": f"{GPU}/k"}])]
CLASSES: dict[str, list[Json]] = {
    "gpu": [{"selectors": [{"cel": {"expression": f"driver={GPU}"}}]}, {"extendedResourceName": EXTENDED}],
    "nic": [{"selectors": [{"cel": {"expression": f"driver={NIC}"}}]}, {}],
    "any": [{}, {"selectors": [{"cel": {"expression": "k=a"}}]}],
}
KINDS = st.tuples(
    st.lists(st.sampled_from(WISHES), min_size=1, max_size=2), st.sampled_from(({}, {}, {EXTENDED: "1"}))
)
"""What pods of one kind want: for each of their claims, and of extended resources."""
WHERE: dict[str, Json] = {
    "net": {"allNodes": True},
    "n0": {"nodeName": "n0"},
    "n1": {"nodeName": "n1"},
    "zone": {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    },
}


LISTS = st.lists(
    st.sampled_from(DEVICES), min_size=1, max_size=len(DEVICES), unique_by=lambda one: str(one["name"])
)


def pool_of(driver: str, pool: str, place: Json, devices: list[Json], generation: int = 1) -> list[Json]:
    """Return the slices of a pool: one with devices, and one with counters if some device needs them."""
    counters = [{"name": "set", "counters": {"m": {"value": "10"}}}]
    contents: dict[str, Json] = {"d": {"devices": devices}}
    if any("consumesCounters" in one for one in devices):
        contents["c"] = {"sharedCounters": counters}
    named = {"name": pool, "generation": generation, "resourceSliceCount": len(contents)}
    return [
        {
            "metadata": {"name": f"{name}-{driver}-{pool}-{place.get('nodeName')}"},
            "spec": {"driver": driver, "pool": named, **place, **content},
        }
        for name, content in contents.items()
    ]


@st.composite
def changed(draw: st.DrawFn) -> list[Json]:
    """Draw the slices of a pool; those of two drivers, or of two nodes, may have one name."""
    where, driver = draw(st.sampled_from(sorted(WHERE))), draw(st.sampled_from([GPU, NIC]))
    pool = draw(st.sampled_from(["n0", where]))
    return pool_of(driver, pool, WHERE[where], draw(LISTS), draw(st.integers(1, 2)))


@dataclass
class World:
    """A cluster, its objects, and the snapshot of them that places one pod after the other."""

    nodes: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    snapshot: ClaimSnapshot = field(default_factory=lambda: ClaimSnapshot(PlainSelectors()))
    slices: dict[str, Json] = field(default_factory=dict)
    classes: dict[str, Json] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    written: int = 0

    def put_node(self, number: int, zone: str) -> None:
        amounts = {CPU: 4000, PODS: 9, **({EXTENDED: 1} if number == 1 else {})}
        self.nodes.put_node(Node(f"n{number}", {"zone": zone}, (), False, amounts))

    def put_slice(self, one: Json) -> None:
        self.slices[one["metadata"]["name"]] = one
        self.snapshot.put_slice(one)

    def remove_slice(self, name: str) -> None:
        self.slices.pop(name, None)
        self.snapshot.remove_slice(name)

    def put_class(self, name: str, content: Json) -> None:
        self.classes[name] = {"metadata": {"name": name}, "spec": content}
        self.snapshot.put_class(self.classes[name])

    def put_claim(self, one: Json) -> None:
        self.written += 1
        metadata = {**one["metadata"], "namespace": "ns", "resourceVersion": str(self.written)}
        name = metadata.setdefault("name", f"claim-{self.written}")
        metadata["uid"] = name
        self.claims[name] = {**one, "metadata": metadata}
        self.snapshot.put_claim(self.claims[name])

    def add_claim(self, wish: Json, constraints: list[Json]) -> str:
        devices = {"requests": [wish], "constraints": constraints}
        self.put_claim({"metadata": {}, "spec": {"devices": devices}})
        return f"claim-{self.written}"

    def release(self, name: str) -> None:
        self.put_claim({**self.claims[name], "status": {}})

    def anew(self) -> ClaimSnapshot:
        """Return a snapshot of the same objects that has placed nothing yet."""
        found = ClaimSnapshot(PlainSelectors())
        for one in self.slices.values():
            found.put_slice(one)
        for one in self.classes.values():
            found.put_class(one)
        for one in self.claims.values():
            found.put_claim(one)
        return found

    def place(self, names: list[str], resources: Json) -> None:
        """Place a pod, the same as a snapshot does that remembers nothing, and write what it gets."""
        self.written += 1
        uid = f"pod-{self.written}"
        pod = {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {
                "resourceClaims": [{"name": name, "resourceClaimName": name} for name in names],
                "containers": [{"name": "c", "resources": {"requests": {CPU: "10m", **resources}}}],
            },
        }
        found = placed(self.snapshot, pod, self.nodes)
        assert told(found) == told(placed(self.anew(), pod, self.nodes))
        if isinstance(found, NoPlacement) and found.cleared is not None:
            self.release(found.cleared.name)
        if isinstance(found, Placement):
            self.nodes.assume(uid, found.shape, found.node)
            for claim, allocation in found.fit.allocations:
                extended = found.fit.extended
                written = self.claims.get(claim.name) or extended_claim(
                    pod, extended.requests if extended else ()
                )
                self.put_claim(
                    bound(written, pod, with_share_ids(allocation, lambda: f"share-{self.written}"))
                )


def placed(snapshot: ClaimSnapshot, pod: Json, nodes: ClusterSnapshot) -> Placement | NoPlacement | str:
    try:
        return snapshot.place(pod_of(pod), pod, nodes, NOW)
    except AttemptError as error:
        return str(error)


def told(found: Placement | NoPlacement | str) -> object:
    """Return all of an answer that can be compared."""
    match found:
        case Placement(node, shape, fit):
            allocations = [(claim.uid, allocation) for claim, allocation in fit.allocations]
            return node, shape, allocations, fit.score, fit.extended, fit.bugs
        case NoPlacement(diagnosis, cleared):
            return diagnosis, cleared and cleared.uid
    return found


# ── the property ──


def begun(data: st.DataObject, count: int) -> World:
    """Return a world of so many nodes, which have the same devices."""
    world = World()
    devices = data.draw(LISTS)
    for number in range(count):
        world.put_node(number, "ab"[number % 2])
        for one in pool_of(GPU, f"n{number}", {"nodeName": f"n{number}"}, devices):
            world.put_slice(one)
    for name, (content, _) in CLASSES.items():
        world.put_class(name, content)
    return world


def change(world: World, data: st.DataObject) -> None:
    """Change slices, a class, a node or a claim."""
    match data.draw(st.sampled_from(["slice", "gone", "class", "node", "release"])):
        case "slice":
            for one in data.draw(changed()):
                world.put_slice(one)
        case "gone" if world.slices:
            world.remove_slice(data.draw(st.sampled_from(sorted(world.slices))))
        case "class":
            name = data.draw(st.sampled_from(sorted(CLASSES)))
            world.put_class(name, data.draw(st.sampled_from(CLASSES[name])))
        case "node":
            world.put_node(data.draw(st.integers(0, 2)), data.draw(st.sampled_from("ab")))
        case "release" if world.claims:
            world.release(data.draw(st.sampled_from(sorted(world.claims))))


@given(st.data(), st.sampled_from([1, 2, 3, 3, 3, 101]))
def test_what_is_remembered_of_earlier_searches_changes_no_answer(data: st.DataObject, nodes: int) -> None:
    """D73, D84, D85, D91: also where all nodes have the same devices, and where a search ends in an error."""
    world = begun(data, nodes)
    kinds = data.draw(st.lists(KINDS, min_size=1, max_size=2))
    for _ in range(data.draw(st.integers(4, 20))):
        if not data.draw(st.integers(0, 2)):
            change(world, data)
            continue
        wishes, resources = data.draw(st.sampled_from(kinds))
        names = [world.add_claim(*one) for one in wishes]
        if not data.draw(st.integers(0, 5)):
            names.append(data.draw(st.sampled_from(sorted(world.claims))))
        world.place(names, resources)
