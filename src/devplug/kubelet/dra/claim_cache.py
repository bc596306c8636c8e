"""The claim cache: the claims of this node's pods, who uses them and what was prepared for them. Pure.

Values that are replaced at each step (cm/dra/claiminfo.go, manager.go). Where the real kubelet ranges over Go
maps, and so goes at random, we go by name: drivers in one prepare, claims in the checkpoint.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from devplug.errors import KubeletError
from devplug.kubelet.dra.claim_objects import ClaimError, KnownClaim
from devplug.kubelet.gotext import go_json
from devplug.wire.dra import ClaimName, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.kubelet.dra.claim_objects import Claim
    from devplug.wire.dra import PreparedClaim

Answer = TypeVar("Answer")

ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""

Batches = dict[str, list[ClaimName]]
"""Driver name → the claims of one call, in the order of the pod's spec."""


@dataclass(frozen=True, slots=True)
class ClaimInfo(KnownClaim):
    """One claim of the cache."""

    pod_uids: frozenset[str] = frozenset()
    """The pods that use it on this node."""
    devices: Mapping[str, tuple[PreparedDevice, ...]] = field(default_factory=dict, hash=False)
    """Driver name → its devices, as it told them; a driver that told of none is there too."""
    is_prepared: bool = False
    """Whether all its drivers have prepared it in this life of the kubelet; no file keeps that."""

    def serving(self, request: str) -> Iterator[tuple[str, PreparedDevice]]:
        """Yield (driver name, device) for one request of the claim, by its exact text; empty for all."""
        for driver in sorted(self.devices):
            for device in self.devices[driver]:
                if not request or not device.request_names or request in device.request_names:
                    yield driver, device


@dataclass(frozen=True, slots=True)
class Release:
    """The first half of an unprepare: what to call, and which claims are gone when that has worked."""

    cache: ClaimCache
    batches: Batches
    keys: tuple[ClaimKey, ...]


@dataclass(frozen=True, slots=True)
class ClaimCache:
    """All claims that pods of this node use, by namespace and name."""

    claims: Mapping[ClaimKey, ClaimInfo] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[ClaimInfo]) -> ClaimCache:
        """Return the cache of these claims."""
        return cls({claim.key: claim for claim in claims})

    def __iter__(self) -> Iterator[ClaimInfo]:
        """Yield the claims by namespace and name."""
        return iter(sorted(self.claims.values(), key=lambda claim: f"{claim.namespace}/{claim.name}"))

    def _with(self, claim: ClaimInfo) -> ClaimCache:
        return ClaimCache({**self.claims, claim.key: claim})

    # ── prepare ──

    def referenced(self, claim: Claim, pod_uid: str) -> ClaimCache:
        """Return the cache with a pod as user of a claim, which is added if need be.

        Raises `ClaimError` if another claim of that name is still there.
        """
        known = self.claims.get(claim.key)
        if known is None:
            drivers: dict[str, tuple[PreparedDevice, ...]] = dict.fromkeys(claim.drivers or (), ())
            known = ClaimInfo(claim.namespace, claim.name, claim.uid, devices=drivers)
        elif known.uid != claim.uid:
            raise ClaimError(
                f"old ResourceClaim with same name {claim.name} and different UID {known.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        return self._with(replace(known, pod_uids=known.pod_uids | {pod_uid}))

    def batches(self, keys: Iterable[ClaimKey]) -> Batches:
        """Return the calls to prepare those of these claims that are not prepared, by driver name."""
        found: Batches = {}
        for key in keys:
            claim = self.claims[key]
            for driver in () if claim.is_prepared else claim.devices:
                found.setdefault(driver, []).append(claim.in_call)
        return dict(sorted(found.items()))

    def answered(
        self, driver: str, asked: Sequence[ClaimName], answers: Mapping[str, PreparedClaim], *, compat: bool
    ) -> tuple[ClaimCache, str]:
        """Return the cache after a driver's answer to a prepare call, and what is wrong with that.

        What stands before the error is kept. With `compat` devices are added to those of an earlier answer
        (claiminfo.go addDevice), as after a restart of the kubelet, and so are there twice.
        """
        cache = self
        for uid, fault, answer in _judged("NodePrepareResources", asked, answers, lambda one: one.error):
            if fault:
                return cache, fault
            claim = next((one for one in cache.claims.values() if one.uid == uid), None)
            if claim is not None:
                before = claim.devices.get(driver, ()) if compat else ()
                devices = {**claim.devices, driver: (*before, *answer.devices)}
                cache = cache._with(replace(claim, devices=devices))
        return cache, _skipped("NodePrepareResources", asked, answers)

    def prepared(self, keys: Iterable[ClaimKey]) -> ClaimCache:
        """Return the cache with these claims as prepared."""
        done = {key: replace(self.claims[key], is_prepared=True) for key in keys if key in self.claims}
        return ClaimCache({**self.claims, **done})

    # ── unprepare ──

    def names_of(self, pod_uid: str) -> tuple[str, ...]:
        """Return the names of the claims that a pod uses."""
        return tuple(claim.name for claim in self if pod_uid in claim.pod_uids)

    def release(self, pod_uid: str, namespace: str, names: Iterable[str]) -> Release:
        """Return what has to be done before a pod of this namespace uses these claims no more.

        A claim with more users only loses this one; what decides is that there are more than one, whoever
        they are (manager.go unprepareResources).
        """
        cache = self
        batches: Batches = {}
        keys: list[ClaimKey] = []
        for name in names:
            claim = cache.claims.get((namespace, name))
            if claim is None:
                continue
            if len(claim.pod_uids) > 1:
                cache = cache._with(replace(claim, pod_uids=claim.pod_uids - {pod_uid}))
                continue
            keys.append(claim.key)
            for driver in claim.devices:
                batches.setdefault(driver, []).append(claim.in_call)
        return Release(cache, dict(sorted(batches.items())), tuple(keys))

    def without(self, keys: Collection[ClaimKey]) -> ClaimCache:
        """Return the cache without these claims."""
        return ClaimCache({key: claim for key, claim in self.claims.items() if key not in keys})

    def inactive(self, active_pods: Collection[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield (UID, namespace, claim names) of each pod in the cache that is not active any more."""
        found: dict[str, tuple[str, list[str]]] = {}
        for claim in self:
            for pod_uid in sorted(claim.pod_uids - set(active_pods)):
                found.setdefault(pod_uid, (claim.namespace, []))[1].append(claim.name)
        for pod_uid, (namespace, names) in found.items():
            yield pod_uid, namespace, tuple(names)

    # ── reading ──

    def in_use(self) -> dict[str, int]:
        """Return how many claims there are, by driver name, and as `<any>` in all."""
        counts = {"<any>": len(self.claims)}
        for claim in self:
            for driver in sorted(claim.devices):
                counts[driver] = counts.get(driver, 0) + 1
        return counts

    def users_of(self, driver: str, devices: Collection[tuple[str, str]]) -> frozenset[str]:
        """Return the pods with a claim in which this driver has one of these (pool name, device name)."""
        return frozenset(
            pod_uid
            for claim in self.claims.values()
            for device in claim.devices.get(driver, ())
            if (device.pool_name, device.device_name) in devices
            for pod_uid in claim.pod_uids
        )


def unprepare_fault(asked: Sequence[ClaimName], answers: Mapping[str, str]) -> str:
    """Return what is wrong with a driver's answer to an unprepare call; empty if nothing is."""
    for _, fault, _ in _judged("NodeUnprepareResources", asked, answers, lambda error: error):
        if fault:
            return fault
    return _skipped("NodeUnprepareResources", asked, answers)


def _judged(
    call: str,
    asked: Sequence[ClaimName],
    answers: Mapping[str, Answer],
    error_of: Callable[[Answer], str],
) -> Iterator[tuple[str, str, Answer]]:
    """Yield UID, fault and answer of each claim: as the call orders them, then those of no claim in it."""
    names = {claim.uid: claim.name for claim in asked}
    for uid in (*(uid for uid in names if uid in answers), *sorted(answers.keys() - names)):
        answer = answers[uid]
        if uid not in names:
            yield uid, f"{call} returned result for unknown claim UID {uid}", answer
        elif error := error_of(answer):
            yield uid, f"{call} failed for ResourceClaim {names[uid]}: {error}", answer
        else:
            yield uid, "", answer


def _skipped(call: str, asked: Sequence[ClaimName], answers: Mapping[str, object]) -> str:
    count = len(asked) - len(answers)
    return f"{call} skipped {count} ResourceClaims" if count else ""


# ── the file `dra_manager_state` ──
#
# A JSON text inside of a JSON text, and the CRC-32 of the inner one (cm/dra/state/checkpoint.go). Whether a
# claim is prepared is not in it.


class DraStateError(KubeletError):
    """A state file that the kubelet does not take; it ends."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "create ResourceClaim cache: could not initialize checkpoint manager, please drain node and "
            f"remove DRA state file, err: {reason}"
        )


def encode(cache: ClaimCache | None) -> bytes:
    """Return the file's bytes. None stands for the file of a kubelet that has had none."""
    data = go_json(
        {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": None if cache is None else [_state(claim) for claim in cache],
        }
    )
    return go_json({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def _state(claim: ClaimInfo) -> Mapping[str, object]:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pod_uids)},
        "DriverState": {
            driver: {"Devices": [_device(one) for one in claim.devices[driver]] or None}
            for driver in sorted(claim.devices)
        },
    }


def _device(device: PreparedDevice) -> Mapping[str, object]:
    return {
        "PoolName": device.pool_name,
        "DeviceName": device.device_name,
        "ShareID": device.share_id,
        "RequestNames": device.request_names or None,
        "CDIDeviceIDs": device.cdi_device_ids or None,
    }


def decode(content: bytes) -> ClaimCache:
    """Return the cache in the file's bytes, with no claim prepared. Raises `DraStateError`."""
    try:
        document = json.loads(content)
        data, stated = document["Data"], document["Checksum"]
        if zlib.crc32(data.encode()) != stated:
            raise DraStateError("checkpoint is corrupted")
        return ClaimCache.of(_claim(state) for state in json.loads(data)["ClaimInfoStateList"] or ())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DraStateError(f"cannot read it: {error}") from error


def _claim(state: Mapping[str, Any]) -> ClaimInfo:
    return ClaimInfo(
        state["Namespace"],
        state["ClaimName"],
        state["ClaimUID"],
        frozenset(state["PodUIDs"] or ()),
        {
            driver: tuple(
                PreparedDevice(
                    device["PoolName"],
                    device["DeviceName"],
                    tuple(device.get("RequestNames") or ()),
                    tuple(device.get("CDIDeviceIDs") or ()),
                    device.get("ShareID"),
                )
                for device in drivers["Devices"] or ()
            )
            for driver, drivers in (state["DriverState"] or {}).items()
        },
    )
