"""The resource claim controller: it makes the claims of pods from templates, reserves and releases claims.

After pkg/controller/resourceclaim/controller.go, whose rules are the functions on values below. Claims are
allocated by the scheduler; a generated claim whose pod is gone is deleted by the garbage collector.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.dra.objects import FINALIZER
from devplug.dra.scheduling import MOST_PODS, claim_names
from devplug.k8s.objects import Object, entries, fields, maps, part, text, texts, with_part
from devplug.k8s.pod_requests import has_ended
from devplug.sandbox.api.errors import StatusError, not_found
from devplug.sandbox.api.ownerreferences import controller_of, owner_reference, without_finalizer
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.workqueue import KeyIndex, WorkQueue, key_of, run_loop, split_key
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import CLAIM_TEMPLATES, PODS, RESOURCE_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a generated claim that names the entry of its pod's `resourceClaims`."""

_BASE_LENGTH: Final = 57
"""How long the name of a generated claim may be before its five random letters and their dash."""


_CACHE_SECONDS: Final = 60.0
"""How long a claim that the controller made is in its cache after the claim was deleted."""

_POD: Final = "pod:"
_CLAIM: Final = "claim:"
"""What the keys of the work queue begin with: pods and claims may have the same names."""

# ── Rules ──


def may_run(pod: Object) -> bool:
    """Whether a container of a pod runs or may still: it has not ended, and has a node or may get one."""
    is_given_up = text(pod, "metadata", "deletionTimestamp") and not text(pod, "spec", "nodeName")
    return not has_ended(pod) and not is_given_up


def is_reserved_for(claim: Object, pod: Object) -> bool:
    """Whether a claim is reserved for a pod."""
    uid = text(pod, "metadata", "uid")
    return any(text(one, "uid") == uid for one in entries(claim, "status", "reservedFor"))


def generated_claim(pod: Object, pod_claim_name: str, template: Object) -> Object:
    """Return a pod's new claim of a template, for the entry of that name in its `resourceClaims` (D60)."""
    metadata = fields(template, "spec", "metadata")
    annotations = {**texts(metadata, "annotations"), _POD_CLAIM: pod_claim_name}
    made: Object = {
        "generateName": _name_base(text(pod, "metadata", "name"), pod_claim_name),
        "annotations": annotations,
        "ownerReferences": [owner_reference(PODS, pod, blocks_deletion=False)],
    }
    if labels := texts(metadata, "labels"):
        made["labels"] = labels
    return {"metadata": made, "spec": fields(template, "spec", "spec")}


def _name_base(pod_name: str, pod_claim_name: str) -> str:
    """Return what a generated name begins with: both names, cut in proportion if they are too long."""
    base = f"{pod_name}-{pod_claim_name}-"
    if len(base) <= _BASE_LENGTH:
        return base
    pod_part, claim_part = (
        name[: len(name) * _BASE_LENGTH // len(base)] for name in (pod_name, pod_claim_name)
    )
    return f"{pod_part}-{claim_part}"


@dataclass(frozen=True, slots=True)
class Release:
    """What becomes of a claim when some pods do not need it any more."""

    reserved_for: list[Object]
    """The reservations that stay."""
    is_deallocated: bool = False
    """Whether its allocation is cleared and its finalizer taken away."""
    is_deleted: bool = False
    """Whether it is deleted, as it was generated for a pod that is done."""


def release(claim: Object, pods: Mapping[str, Object]) -> Release:
    """Return what becomes of a claim; `pods` has the pods that it names, by their names (D63).

    A reservation for something that is no pod stays. A claim that is allocated and was never reserved stays
    allocated until it is deleted; so does one without the finalizer, which no scheduler allocated.
    """
    metadata = fields(claim, "metadata")
    before = maps(claim, "status", "reservedFor")
    after = [one for one in before if not _is_for_pod(one) or _needs(one, pods)]
    is_marked = bool(text(metadata, "deletionTimestamp"))
    owner = _owning_pod(claim)
    is_done = text(owner, "name") in pods and not _needs(owner, pods)
    return Release(
        reserved_for=after,
        is_deallocated=not after
        and FINALIZER in entries(metadata, "finalizers")
        and (bool(before) or is_marked),
        is_deleted=not after and is_done and not is_marked,
    )


def _needs(named: object, pods: Mapping[str, Object]) -> bool:
    """Whether the pod of this name and UID is there, and may run."""
    pod = pods.get(text(named, "name"))
    return pod is not None and text(pod, "metadata", "uid") == text(named, "uid") and may_run(pod)


def _is_for_pod(reservation: object) -> bool:
    return text(reservation, "resource") == PODS.plural and not text(reservation, "apiGroup")


def _owning_pod(claim: Object) -> Object:
    """Return the reference to the pod that a claim was generated for; empty if there is none."""
    owner = fields(controller_of(claim))
    return owner if text(owner, "kind") == PODS.kind else {}


def pod_keys(claim: Object) -> list[str]:
    """Return the keys of the pods that a claim is reserved for or was generated for."""
    named = [one for one in maps(claim, "status", "reservedFor") if _is_for_pod(one)]
    named += [owner] if (owner := _owning_pod(claim)) else []
    return [f"{text(claim, 'metadata', 'namespace')}/{text(one, 'name')}" for one in named]


# ── The controller ──


def used_claims(registry: Registry, pod: Object) -> Iterator[Object]:
    """Yield the claims that a pod uses, as far as they are there; not one generated for another pod."""
    names = claim_names(pod)
    for entry in maps(pod, "spec", "resourceClaims"):
        claim = _claim_named(registry, pod, names.get(text(entry, "name")))
        if claim is not None and (text(entry, "resourceClaimName") or _is_generated_for(claim, pod)):
            yield claim


def _claim_named(registry: Registry, pod: Object, name: str | None) -> Object | None:
    return registry.find(RESOURCE_CLAIMS, text(pod, "metadata", "namespace"), name) if name else None


def _is_generated_for(claim: Object, pod: Object) -> bool:
    return text(_owning_pod(claim), "uid") == text(pod, "metadata", "uid")


class ResourceClaimController:
    """The resource claim controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._recorder = EventRecorder(registry, EventSource("resource_claim"))
        self._work = WorkQueue(seconds)
        self._seconds = seconds
        self._made_seconds: dict[tuple[str, str], float] = {}
        """When a claim was made last, by the pod's UID and the entry of its `resourceClaims`."""
        self._by_pod = KeyIndex()
        """Which claims each pod uses."""
        self._by_claim = KeyIndex()
        """Which pods each claim is reserved for or was generated for."""

    async def run(self) -> None:
        """Watch over pods and claims until cancelled; what was missed before is caught up with."""
        notes = {PODS: self._note_pod, RESOURCE_CLAIMS: self._note_claim}
        await run_loop(self._registry, notes, self._work, self._look)

    # ── what happens ──

    def _note_pod(self, event: WatchEvent) -> None:
        pod, key = event.object, key_of(event.object)
        is_gone = event.type is ChangeType.DELETED
        names = () if is_gone else filter(None, claim_names(pod).values())
        namespace, _ = split_key(key)
        self._by_pod.put(key, [f"{namespace}/{name}" for name in names])
        for claim_key in self._by_claim.naming(key):
            self._work.add(_CLAIM + claim_key)
        if entries(pod, "spec", "resourceClaims") and not is_gone:
            self._work.add(_POD + key)

    def _note_claim(self, event: WatchEvent) -> None:
        key = key_of(event.object)
        is_gone = event.type is ChangeType.DELETED
        self._by_claim.put(key, () if is_gone else pod_keys(event.object))
        for pod_key in self._by_pod.naming(key):
            self._work.add(_POD + pod_key)
        if not is_gone:
            self._work.add(_CLAIM + key)

    def _look(self, work_key: str) -> None:
        if work_key.startswith(_POD):
            self._look_at_pod(work_key.removeprefix(_POD))
        else:
            self._look_at_claim(work_key.removeprefix(_CLAIM))

    # ── one pod ──

    def _look_at_pod(self, key: str) -> None:
        pod = self._registry.find(PODS, *split_key(key))
        if pod is None or text(pod, "metadata", "deletionTimestamp") or not may_run(pod):
            return
        pod = self._with_claims(pod)
        if not text(pod, "spec", "nodeName"):
            return  # the scheduler reserves for it
        for claim in used_claims(self._registry, pod):
            reserved = entries(claim, "status", "reservedFor")
            is_allocated = part(claim, "status", "allocation") is not None
            if is_allocated and not is_reserved_for(claim, pod) and len(reserved) < MOST_PODS:
                meta = fields(pod, "metadata")
                one = {"resource": PODS.plural, "name": text(meta, "name"), "uid": text(meta, "uid")}
                self._set_status(claim, with_part(fields(claim, "status"), [*reserved, one], "reservedFor"))

    def _with_claims(self, pod: Object) -> Object:
        """Make the claims of a pod that are missing and write their names into its status; return the pod."""
        names, made = claim_names(pod), dict[str, str]()
        for entry in maps(pod, "spec", "resourceClaims"):
            name, template_name = text(entry, "name"), text(entry, "resourceClaimTemplateName")
            if not template_name or name not in names:
                continue  # made by hand, or found to be unnecessary
            claim = _claim_named(self._registry, pod, names[name])
            if claim is None or not _is_generated_for(claim, pod):
                claim = self._found(pod, name) or self._made(pod, name, template_name)
                if claim is None:
                    continue
                made[name] = text(claim, "metadata", "name")
        if not made:
            return pod
        statuses = maps(pod, "status", "resourceClaimStatuses")
        statuses = [one for one in statuses if text(one, "name") not in made]
        statuses += [{"name": name, "resourceClaimName": claim_name} for name, claim_name in made.items()]
        status = with_part(fields(pod, "status"), statuses, "resourceClaimStatuses")
        return self._registry.set_status(PODS, *split_key(key_of(pod)), status) or pod

    def _found(self, pod: Object, name: str) -> Object | None:
        """Return a claim that was made for a pod whose status could not be written then."""
        for key in self._by_claim.naming(key_of(pod)):
            claim = self._registry.find(RESOURCE_CLAIMS, *split_key(key))
            if claim is None or not _is_generated_for(claim, pod):
                continue
            if text(claim, "metadata", "annotations", _POD_CLAIM) == name:
                return claim
        return None

    def _made(self, pod: Object, name: str, template_name: str) -> Object | None:
        """Make a claim of a template, and return it; None if there is nothing to make it of, nor to say."""
        namespace = text(pod, "metadata", "namespace")
        template = self._registry.find(CLAIM_TEMPLATES, namespace, template_name)
        if template is None and self._remembers(pod, name):
            return None
        if template is None:
            missing = not_found(f"{CLAIM_TEMPLATES.singular}.{CLAIM_TEMPLATES.group}", template_name)
            self._tell(pod, name, f'resource claim template "{template_name}": {missing}')
            raise missing
        try:
            made = self._registry.create(RESOURCE_CLAIMS, namespace, generated_claim(pod, name, template))
        except StatusError as error:
            # The space stands before the name, which a claim does not have yet.
            self._tell(pod, name, f"create ResourceClaim : {error}")
            raise
        self._made_seconds[text(pod, "metadata", "uid"), name] = self._seconds()
        return made

    def _remembers(self, pod: Object, name: str) -> bool:
        """Whether the real controller still has this claim in its cache, so that it needs no template.

        See claimCache in pkg/controller/resourceclaim/controller.go: it keeps a new claim for a minute.
        """
        made = self._made_seconds
        for key in [key for key, at in made.items() if at + _CACHE_SECONDS <= self._seconds()]:
            del made[key]
        return (text(pod, "metadata", "uid"), name) in made

    def _tell(self, pod: Object, name: str, why: str) -> None:
        message = f"PodResourceClaim {name}: {why}"
        self._recorder.event(reference(pod), "Warning", "FailedResourceClaimCreation", message)

    # ── one claim ──

    def _look_at_claim(self, key: str) -> None:
        claim = self._registry.find(RESOURCE_CLAIMS, *split_key(key))
        if claim is None:
            return
        found = (self._registry.find(PODS, *split_key(pod_key)) for pod_key in pod_keys(claim))
        released = release(claim, {text(pod, "metadata", "name"): pod for pod in found if pod is not None})
        status = with_part(fields(claim, "status"), released.reserved_for or None, "reservedFor")
        if released.is_deallocated:
            self._set_status(claim, with_part(status, None, "allocation"))
            self._registry.update(
                RESOURCE_CLAIMS, *split_key(key), lambda old: without_finalizer(old, FINALIZER)
            )
        else:
            self._set_status(claim, status)
        if released.is_deleted:
            self._registry.delete(RESOURCE_CLAIMS, *split_key(key))

    def _set_status(self, claim: Object, status: Object) -> None:
        if status != fields(claim, "status"):
            self._registry.set_status(RESOURCE_CLAIMS, *split_key(key_of(claim)), status)
