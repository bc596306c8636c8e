"""Which writes make the stored slices say what there is, and what a consumer sees meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from devplug.dra.objects import Slice
from devplug.dra.pools import AS_DOCUMENTED, LIKE_1_36, Inventory
from devplug.driver.device_entries import slice_name
from devplug.driver.slices import Pool, StoredSlice, Write, content_of, is_urgent, stages, writes
from devplug.k8s.node_selectors import Node
from devplug.k8s.objects import Object, maps, text
from devplug.sandbox.api.resource.slices import slice_errors

POOL = Pool("devices.example.com", "n1", "uid-n1")
N1 = Node("n1", {})


def device(name: str | int, *, tainted: bool = False, model: str = "m", part_of: str = "") -> Object:
    made: Object = {"name": f"d{name}", "attributes": {"model": {"string": model}}}
    if tainted:
        taint = {"key": "devplug.io/unhealthy", "effect": "NoSchedule"}
        made["taints"] = [{**taint, "timeAdded": "2026-11-23T10:00:00Z"}]
    if part_of:
        made["consumesCounters"] = [{"counterSet": part_of, "counters": {"memory": {"value": "1"}}}]
    return made


def sets_of(wanted: Iterable[Object]) -> list[Object]:
    """The counter sets that devices take of."""
    names = {text(part, "counterSet"): None for one in wanted for part in maps(one, "consumesCounters")}
    return [{"name": name, "counters": {"memory": {"value": "8"}}} for name in names]


def devices(*names: str | int) -> list[Object]:
    return [device(name) for name in names]


class Store:
    """What the API server has: it takes what it takes, and each write makes a new version."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.version = 0

    def stored(self) -> list[StoredSlice]:
        return [StoredSlice.of(one, "v1") for one in self.objects.values()]

    def apply(self, write: Write) -> None:
        old = self.objects.get(write.name)
        assert (old is None) == (write.verb == "create")
        if write.verb == "delete":
            del self.objects[write.name]
            return
        content = content_of(write, POOL, "v1")
        assert [*slice_errors(content, old)] == []
        if old is not None:
            assert write.version == text(old, "metadata", "resourceVersion")
        self.version += 1
        metadata = {**content["metadata"], "resourceVersion": str(self.version)}  # type: ignore[dict-item] # a map
        self.objects[write.name] = {**content, "metadata": metadata}

    def plan(self, wanted: Sequence[Object]) -> list[Write]:
        return writes(POOL, wanted, self.stored(), sets_of(wanted))

    def publish(self, wanted: Sequence[Object]) -> list[Write]:
        made = self.plan(wanted)
        for write in made:
            self.apply(write)
        return made

    def seen(self) -> list[Object] | None:
        """The devices that a consumer takes from the pool; None while it takes none."""
        inventory = Inventory(Slice.of(one) for one in self.objects.values())
        views = [inventory.view(N1, like) for like in (LIKE_1_36, AS_DOCUMENTED)]
        assert views[0].has_invalid is views[1].has_invalid is False
        assert not views[0].is_disputed
        pools = [[place.device.id.device for place in view.places] for view in views]
        assert pools[0] == pools[1]
        if any(pool.is_incomplete for pool in views[0].pools):
            return None
        of_slice = {one.name: one for one in self.stored()}
        contents = {
            text(one, "name"): one
            for pool in views[0].pools
            for found in pool.slices
            for one in of_slice[found.name].devices
        }
        assert len(contents) == len(pools[0])
        return [contents[name] for name in pools[0]]


def names(found: Iterable[Object]) -> set[str]:
    return {text(one, "name") for one in found}


def published(wanted: Sequence[Object]) -> Store:
    store = Store()
    store.publish(wanted)
    assert names(store.seen() or []) == names(wanted)
    return store


def verbs(made: Iterable[Write]) -> list[str]:
    return [one.verb for one in made]


# ── any course of things ──

FEW = st.one_of(st.just(frozenset[int]()), st.frozensets(st.integers(0, 192), max_size=2))
SIZES = st.sampled_from([0, 1, 64, 65, 100, 128, 129, 192, 193, 260])
LISTS = st.builds(
    lambda size, gone, tainted, other, sets: [
        device(
            n,
            tainted=n in tainted,
            model="other" if n in other else "m",
            part_of=f"s{n % sets}" if sets and n % 3 else "",
        )
        for n in range(size)
        if n not in gone
    ],
    SIZES,
    FEW,
    FEW,
    FEW,
    st.sampled_from([0, 0, 1, 8, 9]),
)
WRITES = st.one_of(st.integers(1, 3), st.just(99))
NONE: list[Object] = []
STEPS: st.SearchStrategy[tuple[str, list[Object], int]] = st.one_of(
    st.tuples(st.just("list"), LISTS, WRITES),
    st.tuples(st.just("list"), LISTS, WRITES),
    st.tuples(st.just("wipe"), st.just(NONE), WRITES),
)


@given(st.lists(STEPS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_consumer_never_sees_a_wrong_pool_whatever_write_is_the_last_before_a_crash(
    steps: list[tuple[str, list[Object], int]], chance: random.Random
) -> None:
    """D51, D77, D78: of two lists it sees one, or both mixed where no device moves, or nothing.

    Writes of one stage are made side by side, so a crash may leave any of them done.
    """
    store = Store()
    lists: list[list[Object]] = [[]]
    """What was wanted since the slices last said all of it."""
    for what, wanted, much in steps:
        if what == "wipe":
            for name in [*store.objects][:much]:
                del store.objects[name]
            continue
        lists.append(wanted)
        made = store.plan(wanted)
        event(f"crash {much < len(made)}, creations {'create' in verbs(made)}")
        in_some_order = [one for stage in stages(made) for one in chance.sample(stage, len(stage))]
        for write in in_some_order[:much]:
            store.apply(write)
            seen = store.seen()
            if seen is not None:
                contents = [{text(one, "name"): one for one in known} for known in lists]
                certain = set.intersection(*map(names, lists))
                assert certain <= names(seen)
                assert all(any(known.get(text(one, "name")) == one for known in contents) for one in seen)
        if len(made) <= much:
            assert store.plan(wanted) == []
            lists = [wanted]
    store.publish(lists[-1])
    assert sorted(store.seen() or [], key=str) == sorted(lists[-1], key=str)
    assert store.plan(lists[-1]) == []


@given(LISTS, LISTS)
def test_no_list_needs_more_writes_than_all_slices_and_those_that_are_too_many(
    before: list[Object], after: list[Object]
) -> None:
    store = published(before)
    had, made = len(store.objects), store.publish(after)
    assert len(made) <= max(had, len(store.objects))
    assert len({one.name for one in made}) == len(made)


# ── single changes ──


@pytest.mark.parametrize("many", [1, 64, 100, 127, 300, 1000])
def test_a_device_that_comes_or_goes_is_one_write_without_a_generation(many: int) -> None:
    """D51: one write needs none."""
    wanted = devices(*range(many))
    store = published(wanted)
    before = {one.generation for one in store.stored()}
    (came,) = store.publish([*wanted, device("new")])
    assert came.verb == "replace"
    (went,) = store.publish([*wanted[1:], device("new")])
    assert went.verb == "replace"
    (swapped,) = store.publish([*wanted[2:], device("new"), device("newer")])
    assert swapped.verb == "replace"
    assert {one.generation for one in store.stored()} == before == {1}


def test_128_devices_are_one_slice_and_one_more_makes_it_several_of_a_new_generation() -> None:
    """D42."""
    store = published(devices(*range(128)))
    assert len(store.objects) == 1
    assert verbs(store.publish(devices(*range(129)))) == ["replace", "create", "create"]
    assert {(one.generation, one.count) for one in store.stored()} == {(2, 3)}
    assert sorted(store.objects) == [slice_name(POOL.driver, "n1", number) for number in range(3)]


def test_a_taint_in_a_pool_of_several_slices_moves_no_device() -> None:
    """D42: a slice with a tainted device has at most 64."""
    store = published(devices(*range(200)))
    assert verbs(store.publish([device(0, tainted=True), *devices(*range(1, 200))])) == ["replace"]


def test_a_taint_in_a_slice_of_more_than_64_devices_parts_it_once() -> None:
    """D42."""
    healthy = devices(*range(100))
    store = published(healthy)
    tainted = [device(0, tainted=True), *healthy[1:]]
    assert verbs(store.publish(tainted)) == ["replace", "create"]
    assert verbs(store.publish(healthy)) == ["replace"]
    assert verbs(store.publish(tainted)) == ["replace"]


def test_ten_thousand_devices_are_published_and_one_of_them_changed() -> None:
    wanted = devices(*range(10_000))
    store = published(wanted)
    assert len(store.objects) == 157
    assert store.plan(wanted) == []
    assert len(store.publish([*wanted[:5000], device(5000, tainted=True), *wanted[5001:]])) == 1


def test_the_last_device_takes_its_slice_with_it() -> None:
    store = published(devices("a"))
    assert verbs(store.publish([])) == ["delete"]
    assert store.plan([]) == []


def test_a_pool_of_many_slices_that_has_few_devices_left_is_written_anew() -> None:
    store = published(devices(*range(640)))
    assert verbs(store.publish(devices(*range(64)))) == ["replace"] + ["delete"] * 9
    assert {(one.generation, one.count) for one in store.stored()} == {(2, 1)}


def test_one_slice_that_somebody_deleted_is_one_write() -> None:
    wanted = devices(*range(640))
    store = published(wanted)
    gone = slice_name(POOL.driver, "n1", 3)
    del store.objects[gone]
    assert store.seen() is None
    (made,) = store.publish(wanted)
    assert (made.verb, made.name, made.generation) == ("create", gone, 1)
    assert names(store.seen() or []) == names(wanted)


def test_what_was_begun_is_gone_on_with() -> None:
    """Else a refused write would cost all slices again."""
    store, wanted = Store(), devices(*range(300))
    first, *rest = store.plan(wanted)
    store.apply(first)
    assert store.plan(wanted) == rest


def test_slices_of_another_pool_go_first() -> None:
    """The same hardware must not be there twice; the name of a pool cannot be changed (D41)."""
    store = published(devices("a"))
    (old,) = store.stored()
    stranger = StoredSlice("old", "u", "7", "uid-n1", "old-pool", 9, 1, old.devices)
    assert [(one.verb, one.name) for one in writes(POOL, devices("a"), [old, stranger])] == [
        ("delete", "old")
    ]


def test_slices_of_a_node_that_was_made_again_get_their_new_owner() -> None:
    """Else they are deleted with the old one."""
    store = published(devices("a"))
    (made,) = writes(Pool(POOL.driver, "n1", "uid-new"), devices("a"), store.stored())
    assert made.verb == "replace"


# ── the form ──


def test_v1beta1_has_all_but_the_name_one_level_deeper() -> None:
    (made,) = writes(POOL, [device("a", tainted=True)], [])
    content = content_of(made, POOL, "v1beta1")
    (old,) = maps(content, "spec", "devices")
    assert {*old} == {"name", "basic"}
    assert StoredSlice.of(content, "v1beta1").devices == made.devices
    assert StoredSlice.of(content_of(made, POOL, "v1"), "v1").devices == made.devices


def test_the_node_owns_the_slice() -> None:
    """D52."""
    (made,) = writes(POOL, devices("a"), [])
    assert maps(content_of(made, POOL, "v1"), "metadata", "ownerReferences") == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
    ]


@pytest.mark.parametrize(
    ("wanted", "urgent"),
    [
        (devices("a", "b"), False),
        (devices("a", "b", "c"), False),
        (devices("a"), True),
        ([device("a", tainted=True), *devices("b")], True),
        ([device("a", model="other"), *devices("b")], False),
    ],
)
def test_what_pods_may_suffer_from_is_urgent(wanted: list[Object], urgent: bool) -> None:
    assert is_urgent(wanted, published(devices("a", "b")).stored()) is urgent


def test_missing_slices_are_urgent() -> None:
    assert is_urgent(devices("a"), [])
    assert is_urgent(devices(*range(200)), published(devices(*range(200))).stored()[1:])


def test_a_device_that_is_healthy_again_is_not_urgent() -> None:
    assert not is_urgent(devices("a"), published([device("a", tainted=True)]).stored())


def test_counter_sets_have_slices_of_their_own_and_a_device_that_changes_is_one_write() -> None:
    """D41, D42."""
    parts = [device(n, part_of=f"gpu-{n // 7}") for n in range(70)]
    store = published(parts)
    kinds = [(len(one.devices), len(one.counter_sets)) for one in store.stored()]
    assert kinds == [(64, 0), (6, 0), (0, 8), (0, 2)]
    changed = [device(0, tainted=True, part_of="gpu-0"), *parts[1:]]
    assert verbs(store.publish(changed)) == ["replace"]
    assert verbs(store.publish([*changed[1:], device("new", part_of="gpu-9")])) == ["replace"]


def test_a_counter_set_that_comes_or_goes_is_a_new_generation() -> None:
    """A device that takes of a set that is not there would make the whole pool invalid (D77)."""
    store = published([device(0, part_of="a"), device(1, part_of="a")])
    store.publish([device(0, part_of="b"), device(1, part_of="b")])
    assert {one.generation for one in store.stored()} == {2}
    assert store.publish([device(0, part_of="b"), device(1, part_of="b")]) == []
    store.publish([device(0)])
    assert [len(one.counter_sets) for one in store.stored()] == [0]
