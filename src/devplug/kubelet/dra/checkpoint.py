"""The file `dra_manager_state`: the claim cache ⇄ bytes, with the real kubelet's checksum. Pure.

A JSON text inside of a JSON text, and the CRC-32 of the inner one (cm/dra/state/checkpoint.go). Whether a
claim is prepared is not in it.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from devplug.errors import KubeletError
from devplug.kubelet.dra.claim_cache import ClaimCache, ClaimInfo
from devplug.kubelet.gotext import go_json
from devplug.wire.dra import PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DraStateError", "decode", "encode"]


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
