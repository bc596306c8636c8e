"""The store: versions, who comes too late, what a deletion waits for, and what a watcher sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from devplug.k8s.objects import Object, with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource, resource_of_path
from devplug.sandbox.api.labelselectors import label_selector
from devplug.sandbox.api.store import Store, version_of
from devplug.sandbox.api.strategy import Preconditions, generated_name
from devplug.sandbox.api.watchlog import ChangeType, Selection, WatchEvent

NOW = datetime(2026, 11, 21, 0, 21, 59, tzinfo=UTC)
STAMP = "2026-11-21T00:21:59Z"


def served(plural: str, group: str = "") -> Resource:
    found = resource_of_path(group, "v1", plural)
    assert found is not None
    return found


PODS, NODES, CONFIGS = served("pods"), served("nodes"), served("configmaps")
DAEMONS, NAMESPACES = served("daemonsets", "apps"), served("namespaces")
LEASES = served("leases", "coordination.k8s.io")


def pod(name: str = "p", **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def new_store(now: Callable[[], datetime] = lambda: NOW, **more: Any) -> Store:
    return Store(now=now, new_uid=lambda: "u", **more)


def create(
    store: Store, one: Object, resource: Resource = PODS, namespace: str = "default", **more: Any
) -> Any:
    return store.create(resource, namespace, one, **more)


def change(
    store: Store, value: object, *path: str, resource: Resource = PODS, name: str = "p", **more: Any
) -> Any:
    namespace = "default" if resource.namespaced else ""
    return store.update(resource, namespace, name, lambda old: with_part(old, value, *path), **more)


def refusal(call: Any, *given: Any, **more: Any) -> StatusError:
    with pytest.raises(StatusError) as refused:
        call(*given, **more)
    return refused.value


# ── creation ──


def test_a_new_pod_has_its_system_metadata_and_a_first_status() -> None:
    store = new_store()
    sent = pod(nodeName="worker-0")
    sent["status"] = {"phase": "Running"}
    assert (
        create(store, sent)
        == store.get(PODS, "default", "p")
        == {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": "p",
                "namespace": "default",
                "uid": "u",
                "creationTimestamp": STAMP,
                "generation": 1,
                "resourceVersion": "2",
            },
            "spec": {"nodeName": "worker-0"},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }
    )


def test_a_node_keeps_the_status_that_it_comes_with_and_has_no_namespace() -> None:
    node = create(
        new_store(), {"metadata": {"name": "n", "namespace": "x"}, "status": {"capacity": {}}}, NODES, ""
    )
    assert node["status"] == {"capacity": {}}
    assert "namespace" not in node["metadata"]
    assert "generation" not in node["metadata"]


def test_a_namespace_is_active_and_labelled_with_its_name() -> None:
    one = create(new_store(), {"metadata": {"name": "lab"}}, NAMESPACES, "")
    assert one["status"] == {"phase": "Active"}
    assert one["metadata"]["labels"] == {"kubernetes.io/metadata.name": "lab"}
    assert one["spec"] == {"finalizers": ["kubernetes"]}


def test_a_name_can_be_had_once_in_a_namespace() -> None:
    store = new_store()
    create(store, pod())
    create(store, pod(), namespace="other")
    again = refusal(create, store, pod())
    assert (again.code, str(again)) == (409, 'pods "p" already exists')
    assert store.version == 3


@pytest.mark.parametrize(
    ("meta", "code", "told"),
    [
        ({}, 422, 'Pod "" is invalid: metadata.name: Required value: name or generateName is required'),
        (
            {"name": "p", "namespace": "x"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"name": "p", "resourceVersion": "5"},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            {"name": "p", "labels": {"/a": "1"}},
            422,
            'Pod "p" is invalid: metadata.labels: Invalid value: "/a": prefix part must be non-empty',
        ),
        (
            {"name": "p", "annotations": {"/a": "1"}},
            422,
            'Pod "p" is invalid: metadata.annotations: Invalid value: "/a": prefix part must be non-empty',
        ),
        (
            {"name": "p", "finalizers": ["orphan", "a/b", "mine"]},
            422,
            (
                'Pod "p" is invalid: metadata.finalizers[2]: Invalid value: "mine": '
                "name is neither a standard finalizer name nor is it fully qualified"
            ),
        ),
        (
            {"name": "a" * 254},
            422,
            (
                f'Pod "{"a" * 254}" is invalid: metadata.name: Invalid value: "{"a" * 254}": '
                "must be no more than 253 characters"
            ),
        ),
    ],
)
def test_metadata_that_cannot_be_is_refused(meta: Object, code: int, told: str) -> None:
    store = new_store()
    refused = refusal(create, store, {"metadata": meta})
    assert (refused.code, str(refused)) == (code, told)
    assert (store.version, store.contents(PODS)) == (1, [])


def test_a_generated_name_fits_into_a_label() -> None:
    assert generated_name("plugin-", "x7k2p") == "plugin-x7k2p"
    assert len(generated_name("a" * 80, "x7k2p")) == 63


def test_a_dry_run_answers_and_stores_nothing() -> None:
    store = new_store()
    assert create(store, pod(), dry_run=True)["metadata"]["uid"] == "u"
    assert (store.version, store.contents(PODS)) == (1, [])
    create(store, pod())
    assert change(store, {"a": "1"}, "metadata", "labels", dry_run=True)["metadata"]["labels"] == {"a": "1"}
    assert store.delete(PODS, "default", "p", dry_run=True).is_gone
    assert store.version == 2


# ── updates ──


def test_an_update_that_rests_on_an_old_version_is_refused() -> None:
    store = new_store()
    create(store, pod())
    change(store, {"a": "1"}, "metadata", "labels")
    late = refusal(change, store, "2", "metadata", "resourceVersion")
    assert (late.code, late.reason) == (409, "Conflict")
    assert str(late) == (
        'Operation cannot be fulfilled on pods "p": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )
    assert store.version == 3


def test_an_update_without_a_version_is_for_what_is_there_now() -> None:
    store = new_store()
    create(store, pod())
    sent: Object = {"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {}}
    after: Any = store.update(PODS, "default", "p", lambda _: sent)
    assert after["metadata"]["labels"] == {"a": "1"}
    assert (after["metadata"]["uid"], after["metadata"]["creationTimestamp"]) == ("u", STAMP)


def test_a_lease_is_not_updated_without_a_version() -> None:
    store = new_store()
    create(store, {"metadata": {"name": "l"}}, LEASES)
    refused = refusal(store.update, LEASES, "default", "l", lambda _: {"metadata": {"name": "l"}})
    assert str(refused) == (
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be '
        "specified for an update"
    )


def test_what_changes_nothing_makes_no_version() -> None:
    store = new_store()
    before = create(store, pod())
    assert store.update(PODS, "default", "p", lambda old: old) == before
    assert store.version == 2


def test_spec_and_status_are_changed_apart() -> None:
    store = new_store()
    create(store, pod(nodeName="a"))
    both: Object = {"metadata": {"name": "p"}, "spec": {"nodeName": "b"}, "status": {"phase": "Running"}}
    by_status: Any = store.update(PODS, "default", "p", lambda _: both, part_name="status")
    assert (by_status["spec"], by_status["status"]) == ({"nodeName": "a"}, {"phase": "Running"})
    assert by_status["metadata"]["generation"] == 1
    both = {**both, "status": {"phase": "Failed"}}
    by_spec: Any = store.update(PODS, "default", "p", lambda _: both)
    assert (by_spec["spec"], by_spec["status"]) == ({"nodeName": "b"}, {"phase": "Running"})
    assert by_spec["metadata"]["generation"] == 2


def test_a_kind_without_a_status_is_changed_as_a_whole() -> None:
    store = new_store()
    create(store, {"metadata": {"name": "c"}, "data": {"a": "1"}}, CONFIGS)
    assert change(store, {"b": "2"}, "data", resource=CONFIGS, name="c")["data"] == {"b": "2"}


def test_what_is_not_there_is_not_found() -> None:
    refused = refusal(new_store().get, DAEMONS, "default", "plugin")
    assert (refused.code, str(refused)) == (404, 'daemonsets.apps "plugin" not found')


def test_an_object_made_anew_is_not_updated_by_who_means_the_old_one() -> None:
    store = new_store()
    create(store, pod())
    refused = refusal(change, store, "other", "metadata", "uid")
    assert str(refused) == (
        'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: '
        "/registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
        "precondition: other, UID in object meta: u"
    )


def test_a_name_is_not_changed() -> None:
    store = new_store()
    create(store, pod())
    refused = refusal(change, store, "q", "metadata", "name")
    assert str(refused) == 'Pod "q" is invalid: metadata.name: Invalid value: "q": field is immutable'


def test_a_version_that_is_no_number_is_a_bad_request() -> None:
    refused = refusal(version_of, "x")
    assert (refused.code, str(refused)) == (
        400,
        (
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": '
            "invalid syntax"
        ),
    )


# ── deletion ──


def marks(one: Any) -> tuple[object, object, object]:
    meta = one["metadata"]
    return (meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds"), meta.get("generation"))


def test_a_pod_that_runs_waits_for_its_kubelet_and_a_second_deletion_brings_the_end_nearer() -> None:
    now = [NOW]
    store = new_store(now=lambda: now[-1])
    create(store, pod(nodeName="worker-0", terminationGracePeriodSeconds=30))
    first = store.delete(PODS, "default", "p")
    assert (first.is_gone, marks(first.object)) == (False, ("2026-11-21T00:22:29Z", 30, 2))
    again = store.delete(PODS, "default", "p", grace_seconds=60)
    assert (again.is_gone, store.version) == (False, 3)
    now.append(NOW + timedelta(seconds=1))
    nearer = store.delete(PODS, "default", "p", grace_seconds=5)
    assert (nearer.is_gone, marks(nearer.object)) == (False, ("2026-11-21T00:22:04Z", 5, 2))
    now.append(NOW + timedelta(seconds=9))
    at_last = store.delete(PODS, "default", "p", grace_seconds=3)
    assert marks(at_last.object)[1] == 1
    end = store.delete(PODS, "default", "p", grace_seconds=0)
    assert end.is_gone
    assert store.contents(PODS) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_goes_at_once(phase: str) -> None:
    store = new_store()
    create(store, pod(nodeName="worker-0", terminationGracePeriodSeconds=30))
    change(store, {"phase": phase}, "status", part_name="status")
    assert store.delete(PODS, "default", "p").is_gone


def test_a_pod_without_a_node_goes_at_once() -> None:
    store = new_store()
    create(store, pod(terminationGracePeriodSeconds=30))
    assert store.delete(PODS, "default", "p").is_gone
    assert refusal(store.get, PODS, "default", "p").code == 404


@pytest.mark.parametrize("resource", [PODS, CONFIGS])
def test_a_finalizer_keeps_an_object_until_it_is_taken_away(resource: Resource) -> None:
    store = new_store()
    create(store, {"metadata": {"name": "p", "finalizers": ["example.com/keep"]}}, resource)
    marked = store.delete(resource, "default", "p")
    assert (marked.is_gone, marks(marked.object)[:2]) == (False, (STAMP, 0))
    assert not store.delete(resource, "default", "p").is_gone
    refused = refusal(change, store, ["a/b", "example.com/keep"], "metadata", "finalizers", resource=resource)
    assert str(refused) == (
        f'{resource.kind} "p" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if '
        'the object is being deleted, found new finalizers []string{"a/b"}'
    )
    change(store, [], "metadata", "finalizers", resource=resource)
    assert store.contents(resource) == []


def test_what_no_kubelet_runs_goes_at_once() -> None:
    store = new_store()
    create(store, {"metadata": {"name": "c"}}, CONFIGS)
    gone = store.delete(CONFIGS, "default", "c", grace_seconds=-5)
    assert (gone.is_gone, store.contents(CONFIGS)) == (True, [])


def test_an_update_does_not_undo_a_deletion() -> None:
    store = new_store()
    create(store, pod(nodeName="worker-0", terminationGracePeriodSeconds=30))
    store.delete(PODS, "default", "p")
    assert marks(change(store, None, "metadata", "deletionTimestamp"))[0] == "2026-11-21T00:22:29Z"


@pytest.mark.parametrize(
    ("preconditions", "told"),
    [
        (
            Preconditions(uid="v"),
            (
                "the UID in the precondition (v) does not match the UID in record (u). The object might "
                "have been deleted and then recreated"
            ),
        ),
        (
            Preconditions(version="9"),
            (
                "the ResourceVersion in the precondition (9) does not match the ResourceVersion in record "
                "(2). The object might have been modified"
            ),
        ),
    ],
)
def test_a_deletion_of_another_object_than_the_one_meant_is_refused(
    preconditions: Preconditions, told: str
) -> None:
    store = new_store()
    create(store, pod())
    refused = refusal(store.delete, PODS, "default", "p", preconditions=preconditions)
    assert (refused.code, str(refused)) == (409, f'Operation cannot be fulfilled on Pod "p": {told}')
    assert store.delete(PODS, "default", "p", preconditions=Preconditions("u", "2")).is_gone


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


def told(events: list[WatchEvent]) -> list[tuple[str, str, str]]:
    found: list[Any] = [event.line for event in events]
    return [
        (
            line["type"],
            line["object"]["metadata"].get("name", ""),
            line["object"]["metadata"]["resourceVersion"],
        )
        for line in found
    ]


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
