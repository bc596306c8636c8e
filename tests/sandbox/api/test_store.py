"""The store's objects: versions, conflicts, and what a deletion waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource
from devplug.sandbox.api.store import version_of
from devplug.sandbox.api.strategy import Preconditions, generated_name
from tests.sandbox.api.stores import (
    CONFIGS,
    NODES,
    NOW,
    PODS,
    change,
    create,
    new_store,
    pod,
    refusal,
    served,
)

STAMP = "2026-11-21T00:21:59Z"
DAEMONS, NAMESPACES = served("daemonsets", "apps"), served("namespaces")
LEASES = served("leases", "coordination.k8s.io")


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


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_resource_version_of_too_many_digits_is_a_bad_request(digits: int) -> None:
    with pytest.raises(StatusError, match="value out of range") as refused:
        version_of("9" * digits)
    assert refused.value.code == 400
    assert version_of("18446744073709551615") == 2**64 - 1
