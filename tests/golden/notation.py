"""The notation of the recordings ⇄ our values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.kubelet import checkpoint as checkpoints
from devplug.kubelet.claim_references import ExtendedClaim, RequestMapping
from devplug.kubelet.pods import Container, ContainerOptions, Pod
from devplug.kubelet.topology import (
    Hints,
    NodeHardware,
    NumaNode,
    Policy,
    Scope,
    TopologyHint,
    TopologySettings,
)
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.deviceplugin import CONTAINER_RESPONSE
from devplug.wire.values import AdvertisedDevice, ContainerDevices, PluginOptions, PodResources
from tests.kubelet.fakes import Devices

Json = Any
"""What stands in a recording."""


_NAME_OF_CODE = {
    1: "Canceled",
    2: "Unknown",
    3: "InvalidArgument",
    4: "DeadlineExceeded",
    5: "NotFound",
    6: "AlreadyExists",
    7: "PermissionDenied",
    8: "ResourceExhausted",
    9: "FailedPrecondition",
    10: "Aborted",
    11: "OutOfRange",
    12: "Unimplemented",
    13: "Internal",
    14: "Unavailable",
    15: "DataLoss",
    16: "Unauthenticated",
}


def as_refusal(code: int, message: str) -> RemoteError:
    return RemoteError(_NAME_OF_CODE[code], message)


def as_devices(notation: Json) -> Devices:
    words = {"H": "Healthy", "U": "Unhealthy"}
    return tuple(
        AdvertisedDevice(device_id, words.get(health, health), None if numa is None else tuple(numa))
        for device_id, health, numa in notation
    )


def as_options(behaviour: Json) -> PluginOptions:
    return PluginOptions(behaviour.get("pre_start", False), behaviour.get("preferred", False))


def as_machine(notation: Json) -> NodeHardware:
    return NodeHardware(
        tuple(
            NumaNode(one["id"], tuple(one["distances"]) if one.get("distances") is not None else None)
            for one in notation["numa"]
        )
    )


def as_topology(notation: Json) -> TopologySettings:
    return TopologySettings(
        notation.get("policy", Policy.NONE),
        notation.get("scope", Scope.CONTAINER),
        notation.get("options") or {},
    )


def as_hint(hint: TopologyHint) -> Json:
    return [hint.mask, hint.is_preferred]


def as_hints(hints: Mapping[str, Hints]) -> Json:
    return {
        name: None if found is None else [as_hint(hint) for hint in found] for name, found in hints.items()
    }


def as_provider(notation: Json) -> dict[str, Hints]:
    return {
        name: None if found is None else [TopologyHint(mask, is_preferred) for mask, is_preferred in found]
        for name, found in (notation or {}).items()
    }


def as_quantity(text: str) -> int:
    scales = {
        "m": Decimal("0.001"),
        "k": Decimal(10**3),
        "M": Decimal(10**6),
        "Ki": Decimal(2**10),
        "Mi": Decimal(2**20),
        "Gi": Decimal(2**30),
    }
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|k|M|Ki|Mi|Gi)?", text)
    assert found is not None, text
    scaled = Decimal(found[1]) * scales.get(found[2], Decimal(1))
    return int(scaled.to_integral_value(ROUND_CEILING))


def as_pod(notation: Json) -> Pod:
    def containers(key: str) -> tuple[Container, ...]:
        return tuple(
            Container(
                one["name"],
                {name: as_quantity(text) for name, text in one.get("res", {}).items()},
                one.get("restart"),
            )
            for one in notation.get(key, ())
        )

    uid = notation["uid"]
    return Pod(
        uid,
        notation.get("name", uid),
        notation.get("ns", "default"),
        containers("init"),
        containers("containers"),
        ExtendedClaim(
            "",
            tuple(
                RequestMapping(one["container"], one["resource"]) for one in notation.get("dra_extended", ())
            ),
        ),
    )


def as_container_devices(devices: Iterable[ContainerDevices]) -> Json:
    return [
        [one.resource_name, list(one.device_ids), one.numa_nodes and list(one.numa_nodes)] for one in devices
    ]


def as_pod_resources(pod: PodResources) -> Json:
    return {
        "name": pod.name,
        "ns": pod.namespace,
        "containers": [
            {"name": container.name, "devices": as_container_devices(container.devices)}
            for container in pod.containers
        ],
    }


def run_options_of(options: ContainerOptions) -> Json:
    return {
        "envs": dict(options.envs),
        "annotations": dict(options.annotations),
        "cdi": sorted(options.cdi_devices),
        "devices": sorted(
            f"{node.container_path}<-{node.host_path} {node.permissions}" for node in options.device_nodes
        ),
        "mounts": sorted(
            f"{mount.container_path}<-{mount.host_path} ro={str(mount.read_only).lower()}"
            for mount in options.mounts
        ),
    }


def decoded(content: bytes) -> Json:
    """Return what a checkpoint file says, in the notation of the recordings."""
    try:
        checkpoint = checkpoints.decode(content)
    except checkpoints.CheckpointError as error:
        return {"exists": True, "decode_error": str(error)}
    entries = []
    for entry in checkpoint.entries or ():
        try:
            response = CONTAINER_RESPONSE.decode(entry.alloc_resp or b"")
        except MalformedMessageError:
            response = None
        entries.append(
            {
                "uid": entry.pod_uid,
                "container": entry.container_name,
                "resource": entry.resource_name,
                "numa": {str(node): sorted(ids or ()) for node, ids in (entry.device_ids or {}).items()},
                "resp": response and response_of(response),
            }
        )
    order = ("uid", "container", "resource")
    return {
        "exists": True,
        "checksum_error": None,
        "entries": sorted(entries, key=lambda entry: [entry[key] for key in order]),
        "registered": {name: sorted(ids or ()) for name, ids in (checkpoint.registered or {}).items()},
    }


def response_of(response: ContainerResponse) -> Json:
    facts = {
        "envs": dict(response.envs),
        "annotations": dict(response.annotations),
        "cdi": list(response.cdi_devices),
        "devices": [
            [node.container_path, node.host_path, node.permissions] for node in response.device_nodes
        ],
        "mounts": [[mount.container_path, mount.host_path, mount.read_only] for mount in response.mounts],
    }
    return {key: fact for key, fact in facts.items() if fact}
