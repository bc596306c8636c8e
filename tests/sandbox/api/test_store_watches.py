"""The store's lists and watches: what a watcher sees, whatever the order of changes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from devplug.k8s.objects import Object, with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.labelselectors import label_selector
from devplug.sandbox.api.watchlog import ChangeType, Selection, WatchEvent
from tests.sandbox.api.stores import NODES, PODS, change, create, new_store, pod, refusal, served, told

# ── lists ──


def test_a_list_is_ordered_and_tells_its_version() -> None:
    store = new_store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        create(store, pod(name), namespace=namespace)
    document: Any = store.listing(PODS).document(PODS)
    assert [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in document["items"]] == [
        ("a", "y"),
        ("a", "z"),
        ("b", "x"),
    ]
    assert (document["kind"], document["apiVersion"]) == ("PodList", "v1")
    assert document["metadata"] == {"resourceVersion": "4"}
    assert "kind" not in document["items"][0]
    assert len(store.listing(PODS, Selection("a")).items) == 2


def test_a_list_of_a_version_to_come_is_refused() -> None:
    refused = refusal(new_store().listing, PODS, version="9")
    assert (refused.code, str(refused)) == (504, "Timeout: Too large resource version: 9, current: 1")


def test_a_store_goes_on_where_another_one_ended() -> None:
    first = new_store()
    create(first, pod())
    second = new_store(contents=[(PODS, one) for one in first.contents(PODS)], version=first.version)
    assert second.listing(PODS) == first.listing(PODS)
    assert create(second, pod("q"))["metadata"]["resourceVersion"] == "3"
    assert refusal(second.start_watch, PODS, version="1").code == 410


# ── watches ──


def test_a_watch_sends_what_is_there_and_then_each_change() -> None:
    store = new_store()
    create(store, pod())
    events, cursor = store.start_watch(PODS)
    assert told(events) == [("ADDED", "p", "2")]
    change(store, {"a": "1"}, "metadata", "labels")
    create(store, {"metadata": {"name": "n"}}, NODES, "")
    store.delete(PODS, "default", "p")
    events, cursor = store.read(cursor)
    assert told(events) == [("MODIFIED", "p", "3"), ("DELETED", "p", "5")]
    assert store.read(cursor) == ([], cursor)


def test_a_watch_from_a_version_sends_what_came_after_it() -> None:
    store = new_store()
    create(store, pod())
    create(store, pod("q"))
    assert told(store.start_watch(PODS, version="2")[0]) == [("ADDED", "q", "3")]
    assert told(store.start_watch(PODS, version="0")[0]) == [("ADDED", "p", "2"), ("ADDED", "q", "3")]
    assert store.start_watch(PODS, version="3", sends_list=False)[0] == []


def test_a_watch_that_asks_for_the_list_is_told_where_it_ends() -> None:
    store = new_store()
    create(store, pod())
    events, _ = store.start_watch(PODS, sends_list=True)
    assert [event.type for event in events] == [ChangeType.ADDED, ChangeType.BOOKMARK]
    assert events[-1].line == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": "2",
                "creationTimestamp": None,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        },
    }


def test_what_comes_into_a_selection_is_added_and_what_leaves_it_is_deleted() -> None:
    store = new_store()
    create(store, pod())
    _, cursor = store.start_watch(PODS, Selection(labels=label_selector("a=1")))
    for labels in ({"a": "1"}, {"a": "1", "b": "2"}, {}):
        change(store, labels, "metadata", "labels")
    events, _ = store.read(cursor)
    assert told(events) == [("ADDED", "p", "3"), ("MODIFIED", "p", "4"), ("DELETED", "p", "5")]


def test_a_watcher_too_far_behind_is_sent_away_and_others_are_not() -> None:
    store = new_store(log_length=2)
    create(store, {"metadata": {"name": "n"}}, NODES, "")
    for name in "abc":
        create(store, pod(name))
    refused = refusal(store.start_watch, PODS, version="2")
    assert (refused.code, str(refused)) == (410, "too old resource version: 2 (3)")
    assert told(store.start_watch(PODS, version="3")[0]) == [("ADDED", "b", "4"), ("ADDED", "c", "5")]
    assert told(store.start_watch(NODES, version="1")[0]) == [("ADDED", "n", "2")]


def test_both_forms_of_events_are_kept_in_one_place() -> None:
    store = new_store()
    create(store, {"metadata": {"name": "e"}}, served("events"))
    assert len(store.contents(served("events", "events.k8s.io"))) == 1


def expect(error: StatusError, *reasons: str) -> None:
    assert error.reason in reasons


class AnySequence(RuleBasedStateMachine):
    """Whatever is done, a watcher's picture is the list, and versions only grow."""

    selection = Selection(namespace="a", labels=label_selector("on"))

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store(log_length=4)
        self.picture: dict[str, Object] = {}
        self.last = self.store.version
        self._follow(*self.store.start_watch(PODS, self.selection))

    def _follow(self, events: list[WatchEvent], cursor: Any) -> None:
        self.cursor = cursor
        for event in events:
            line: Any = event.line
            name = line["object"]["metadata"]["name"]
            version = int(line["object"]["metadata"]["resourceVersion"])
            if event.type is ChangeType.ADDED:
                assert name not in self.picture
            else:
                assert name in self.picture
                assert version > int(self.picture[name]["metadata"]["resourceVersion"])  # type: ignore[index]
            if event.type is ChangeType.DELETED:
                del self.picture[name]
            else:
                self.picture[name] = event.object

    names = st.sampled_from("pqr")
    namespaces = st.sampled_from("ab")
    labels = st.sampled_from([{}, {"on": "1"}, {"on": "2", "x": "y"}])
    finalizers = st.sampled_from([[], ["example.com/keep"]])

    @rule(namespace=namespaces, name=names, labels=labels, finalizers=finalizers)
    def create(self, namespace: str, name: str, labels: Object, finalizers: list[str]) -> None:
        one: Object = {"metadata": {"name": name, "labels": labels, "finalizers": finalizers}, "spec": {}}
        try:
            create(self.store, one, namespace=namespace)
        except StatusError as error:
            expect(error, "AlreadyExists")

    @rule(namespace=namespaces, name=names, labels=labels, version=st.sampled_from(["", "2"]))
    def label(self, namespace: str, name: str, labels: Object, version: str) -> None:
        def labelled(old: Object) -> Object:
            new = with_part(old, labels, "metadata", "labels")
            return with_part(new, version, "metadata", "resourceVersion") if version else new

        try:
            self.store.update(PODS, namespace, name, labelled)
        except StatusError as error:
            expect(error, "NotFound", "Conflict")

    @rule(namespace=namespaces, name=names)
    def release(self, namespace: str, name: str) -> None:
        try:
            self.store.update(PODS, namespace, name, lambda old: with_part(old, [], "metadata", "finalizers"))
        except StatusError as error:
            expect(error, "NotFound")

    @rule(namespace=namespaces, name=names)
    def delete(self, namespace: str, name: str) -> None:
        try:
            self.store.delete(PODS, namespace, name)
        except StatusError as error:
            expect(error, "NotFound")

    @rule()
    def read(self) -> None:
        try:
            self._follow(*self.store.read(self.cursor))
        except StatusError as error:
            expect(error, "Expired")
            self.picture = {}
            self._follow(*self.store.start_watch(PODS, self.selection))
        listed: Any = self.store.listing(PODS, self.selection).items
        assert self.picture == {one["metadata"]["name"]: one for one in listed}

    @invariant()
    def versions_only_grow(self) -> None:
        assert self.store.version >= self.last
        self.last = self.store.version
        versions = [int(one["metadata"]["resourceVersion"]) for one in self.store.contents(PODS)]  # type: ignore[index]
        assert len(set(versions)) == len(versions)
        assert all(version <= self.last for version in versions)


TestAnySequence = AnySequence.TestCase
