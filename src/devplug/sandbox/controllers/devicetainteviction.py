"""The device taint eviction controller: it deletes pods whose devices have a NoExecute taint (dra.md D80).

After pkg/controller/devicetainteviction/device_taint_eviction.go. It writes no status of DeviceTaintRules.
A pod that tolerates the taint for some seconds is deleted so long after the taint was added, unless the taint
goes or the claim is released before that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.dra.objects import DeviceID
from devplug.dra.taints import NO_EXECUTE, Taint, Toleration, with_rules
from devplug.k8s.objects import Object, entries, fields, maps, part, text, whole, with_part
from devplug.k8s.times import later, moment, stamp
from devplug.sandbox.api.strategy import Preconditions
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.resourceclaim import is_reserved_for, pod_keys, used_claims
from devplug.sandbox.controllers.workqueue import KeyIndex, WorkQueue, key_of, run_loop, split_key
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_DISRUPTION: Final = "DisruptionTarget"
_REASON: Final = "DeletionByDeviceTaintManager"
_MESSAGE: Final = "Device Taint manager: deleting due to NoExecute taint"
_EVENT: Final = "DeviceTaintManagerEviction"


# ── Rules ──


def evicting_taints(pool: Iterable[Object]) -> dict[DeviceID, list[Object]]:
    """Return the NoExecute taints by device, of the slices of a pool; only its newest generation counts."""
    specs = [fields(one, "spec") for one in pool]
    newest = max((whole(one, "pool", "generation") for one in specs), default=0)
    return {
        DeviceID(text(spec, "driver"), text(spec, "pool", "name"), text(device, "name")): taints
        for spec in specs
        if whole(spec, "pool", "generation") == newest
        for device in entries(spec, "devices")
        if (taints := [one for one in maps(device, "taints") if text(one, "effect") == NO_EXECUTE])
    }


def eviction_time(claim: Object, taints: Mapping[DeviceID, list[Object]]) -> datetime | None:
    """Return when pods that use a claim are to be deleted; None if no taint of its devices asks for it.

    The seconds of a toleration count from when the taint was added. Only tolerations whose effect is
    NoExecute count: one for all effects lets a device be allocated, and its pods are evicted all the same.
    """
    times = [
        at
        for result in entries(claim, "status", "allocation", "devices", "results")
        for taint in taints.get(_device(result), ())
        if (at := _end_of_toleration(taint, maps(result, "tolerations"))) is not None
    ]
    return min(times, default=None)


def _end_of_toleration(taint: Object, tolerations: Iterable[Object]) -> datetime | None:
    added = moment(text(taint, "timeAdded"))
    seconds = [
        part(one, "tolerationSeconds")
        for one in tolerations
        if text(one, "effect") == NO_EXECUTE and Toleration.of(one).covers(Taint.of(taint))
    ]
    if added is None or None in seconds:
        return None  # a toleration without seconds is for ever
    return later(added, max(min((one for one in seconds if isinstance(one, int)), default=0), 0))


def _device(result: object) -> DeviceID:
    return DeviceID(text(result, "driver"), text(result, "pool"), text(result, "device"))


def disrupted(pod: Object, now: datetime) -> Object:
    """Return the status of a pod that is evicted now."""
    status = fields(pod, "status")
    others = [one for one in entries(status, "conditions") if text(one, "type") != _DISRUPTION]
    condition = {
        "type": _DISRUPTION,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(now),
        "reason": _REASON,
        "message": _MESSAGE,
    }
    return with_part(status, [*others, condition], "conditions")


# ── The controller ──


class DeviceTaintEvictionController:
    """The device taint eviction controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._recorder = EventRecorder(registry, EventSource("device-taint-eviction-controller"))
        self._work = WorkQueue(seconds)
        self._pools: dict[tuple[str, ...], dict[str, Object]] = {}
        """The slices by name, of each pool by its driver and name."""
        self._rules: dict[str, Object] = {}
        """The DeviceTaintRules by name."""
        self._taints: dict[DeviceID, list[Object]] = {}
        self._by_claim = KeyIndex()
        """Which pods each claim is reserved for."""
        self._planned: dict[str, str] = {}
        """The UIDs of the pods that are to be evicted, by key."""

    async def run(self) -> None:
        """Watch over taints, claims and pods until cancelled."""
        notes = {
            DEVICE_TAINT_RULES: self._note_rule,
            RESOURCE_SLICES: self._note_slice,
            RESOURCE_CLAIMS: self._note_claim,
            PODS: self._note_pod,
        }
        await run_loop(self._registry, notes, self._work, self._look)

    # ── what happens ──

    def _note_slice(self, event: WatchEvent) -> None:
        one = event.object
        pool = text(one, "spec", "driver"), text(one, "spec", "pool", "name")
        slices = self._pools.setdefault(pool, {})
        if event.type is ChangeType.DELETED:
            slices.pop(text(one, "metadata", "name"), None)
        else:
            slices[text(one, "metadata", "name")] = one
        self._taint(pool)
        if not slices:
            del self._pools[pool]

    def _note_rule(self, event: WatchEvent) -> None:
        name = text(event.object, "metadata", "name")
        if event.type is ChangeType.DELETED:
            self._rules.pop(name, None)
        else:
            self._rules[name] = event.object
        for pool in self._pools:
            self._taint(pool)

    def _taint(self, pool: tuple[str, ...]) -> None:
        """Compute the taints of a pool's devices again, and look at the pods of those that changed."""
        rules = self._rules.values()
        after = evicting_taints([with_rules(one, rules) for one in self._pools[pool].values()])
        before = {device: self._taints.pop(device) for device in list(self._taints) if device[:2] == pool}
        self._taints |= after
        changed = {
            device for device in before.keys() | after.keys() if before.get(device) != after.get(device)
        }
        if not changed:
            return
        for claim in self._registry.all(RESOURCE_CLAIMS):
            results = entries(claim, "status", "allocation", "devices", "results")
            if any(_device(one) in changed for one in results):
                self._add(pod_keys(claim))

    def _note_claim(self, event: WatchEvent) -> None:
        keys = () if event.type is ChangeType.DELETED else pod_keys(event.object)
        self._add(self._by_claim.put(key_of(event.object), keys))

    def _note_pod(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            self._planned.pop(key_of(event.object), None)
        elif entries(event.object, "spec", "resourceClaims"):
            self._add([key_of(event.object)])

    def _add(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._work.add(key)

    # ── one pod ──

    def _look(self, key: str) -> None:
        pod = self._registry.find(PODS, *split_key(key))
        if pod is None:
            return
        uid = text(pod, "metadata", "uid")
        at = self._eviction_time(pod)
        if at is None:
            if self._planned.pop(key, None) == uid:
                self._tell(pod, "Cancelling deletion")
            return
        self._planned[key] = uid
        if (wait := (at - self._registry.now).total_seconds()) > 0:
            self._work.add(key, wait)
            return
        if not text(pod, "metadata", "deletionTimestamp"):
            self._evict(pod)
        self._planned.pop(key, None)

    def _eviction_time(self, pod: Object) -> datetime | None:
        if not text(pod, "spec", "nodeName"):
            return None
        claims = (one for one in used_claims(self._registry, pod) if is_reserved_for(one, pod))
        times = (eviction_time(one, self._taints) for one in claims)
        return min((one for one in times if one is not None), default=None)

    def _evict(self, pod: Object) -> None:
        self._tell(pod, "Marking for deletion")
        place = split_key(key_of(pod))
        self._registry.set_status(PODS, *place, disrupted(pod, self._registry.now))
        self._registry.delete(PODS, *place, preconditions=Preconditions(uid=text(pod, "metadata", "uid")))

    def _tell(self, pod: Object, message: str) -> None:
        about = with_part(reference(pod), None, "resourceVersion")
        self._recorder.event(about, "Normal", _EVENT, message)
