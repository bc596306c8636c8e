"""The CDI spec of one claim: a file of its own, with all that is known of the claim in its first line. Pure.

The file is YAML, of which JSON is a part, so that its first line can be a comment: annotations would keep
runtimes out that read no CDI 0.6.0, as containerd 1.7.0. What a driver has to know after its state file is
lost stands there, and nothing else is needed to go on.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from devplug.cdi.spec import (
    CdiDevice,
    CdiOwner,
    CdiSpec,
    device_name,
    faults,
    parse,
    qualified_name,
    response_device,
    text,
    unplugged,
)
from devplug.driver.claims import ClaimRefusedError, ClaimUse, DeviceUse
from devplug.errors import quoted
from devplug.wire.dra import PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.devices import ContainerResponse

_MARK: Final = "# devplug: "


def claim_kind(driver: str) -> str:
    """Return the CDI kind of all claims of a driver (dra.md D98)."""
    return f"k8s.{driver}/claim"


def claim_spec(
    driver: str,
    use: ClaimUse,
    responses: Sequence[ContainerResponse],
    owners: Sequence[CdiOwner],
    others: Sequence[tuple[str, CdiSpec]] = (),
) -> tuple[CdiSpec | None, ClaimUse]:
    """Return the spec of a claim, and its use with the names in it; None where containers get nothing of it.

    `responses` are what containers get of each device, in order, and `owners` who owns its nodes there.
    `others` are the claims that a container may have besides, by name, with their specs. Raises
    `ClaimRefusedError` for what no runtime would take.
    """
    kind = claim_kind(driver)
    made: dict[str, CdiDevice] = {}
    devices: list[DeviceUse] = []
    for device, response, owner in zip(use.devices, responses, owners, strict=True):
        own = response_device(device_name(f"{use.uid}-{device.name}"), response, owner)
        # Two requests may share one device (dra.md D86), and be configured differently.
        if made.get(own.name, own) != own:
            own = replace(own, name=device_name(f"{use.uid}-{device.name}-{device.request}"))
        is_given = bool(own.nodes or own.mounts or own.envs)
        if is_given:
            made[own.name] = own
        names = (*((qualified_name(kind, own.name),) if is_given else ()), *response.cdi_devices)
        devices.append(replace(device, cdi_names=names))
    spec = CdiSpec(kind, tuple(made.values()))
    if wrong := [*clashes(spec, others), *(faults(spec) if made else ())]:
        raise ClaimRefusedError("; ".join(wrong))
    return (spec if made else None), replace(use, devices=tuple(devices))


def current_spec(spec: CdiSpec, responses: Mapping[DeviceUse, ContainerResponse | None]) -> CdiSpec:
    """Return the spec of a prepared claim with the paths on the host as they are now.

    `responses` are what containers get now of its devices; None where one is not there. Where it has another
    number of nodes than before, it counts as gone, too: which is which is not known. One that is left out
    stays as it was, and so does all else that was given: other containers of the pod have it.
    """
    now = {name: response for device, response in responses.items() for name in device.cdi_names}

    def current(one: CdiDevice) -> CdiDevice:
        name = qualified_name(spec.kind, one.name)
        return _current_device(one, now[name]) if name in now else one

    return CdiSpec(spec.kind, tuple(map(current, spec.devices)))


def _current_device(device: CdiDevice, response: ContainerResponse | None) -> CdiDevice:
    if response is None or (len(response.device_nodes), len(response.mounts)) != (
        len(device.nodes),
        len(device.mounts),
    ):
        return unplugged(device)
    nodes = zip(device.nodes, response.device_nodes, strict=True)
    mounts = zip(device.mounts, response.mounts, strict=True)
    return replace(
        device,
        nodes=tuple(replace(one, host_path=now.host_path) for one, now in nodes),
        mounts=tuple(replace(one, host_path=now.host_path) for one, now in mounts),
    )


def clashes(spec: CdiSpec, others: Sequence[tuple[str, CdiSpec]]) -> Iterator[str]:
    """Yield the container paths at which a container would have to have two things of the host.

    A runtime gives it the last one, in silence: also of two requests of an init container's `limits`, which
    has devices of the containers after it (dra.md D91).
    """
    taken: dict[str, tuple[str, str]] = {}
    for claim, other in others:
        for path, host_path in _places(other):
            taken.setdefault(path, (host_path, f" of ResourceClaim {claim}"))
    for path, host_path in _places(spec):
        first, of = taken.setdefault(path, (host_path, ""))
        if first != host_path:
            yield (
                f"{first}{of} and {host_path} would both be {path} in a container that has both; write a "
                f"containerPath with {{index}}, as in {quoted(path + '{index}')}, or one that ends in /"
            )


def _places(spec: CdiSpec) -> Iterator[tuple[str, str]]:
    """Yield each path in containers, and what is there of the host."""
    for device in spec.devices:
        yield from ((one.path, one.host_path) for one in device.nodes)
        yield from ((one.container_path, one.host_path) for one in device.mounts)


def variables_of_two(specs: Sequence[CdiSpec]) -> list[str]:
    """Return the environment variables to which devices of these specs give different values."""
    values: dict[str, set[str]] = {}
    for name, value in (item for spec in specs for one in spec.devices for item in one.envs.items()):
        values.setdefault(name, set()).add(value)
    return sorted(name for name, found in values.items() if len(found) > 1)


def answer(use: ClaimUse, pool: str) -> PreparedClaim:
    """Return what the kubelet is told of a claim that is prepared."""
    return PreparedClaim(
        tuple(
            PreparedDevice(pool, one.name, (one.request,), one.cdi_names, one.share_id) for one in use.devices
        )
    )


# ── the file ──────────────────────────────────────────────────────────────────────────────────────


def file_name(driver: str, uid: str) -> str:
    """Return the name of the file of a claim."""
    return f"k8s.{driver}-claim-{uid}.yaml"


def uid_of_file(driver: str, name: str) -> str | None:
    """Return the UID of the claim that a file is named by; None for any other file."""
    found = re.fullmatch(rf"{re.escape(f'k8s.{driver}-claim-')}([A-Za-z0-9._-]+)\.yaml", name)
    return found and found[1]


def file_text(spec: CdiSpec, use: ClaimUse) -> str:
    """Return the content of the file. Only for a spec without faults."""
    known = json.dumps(msgspec.to_builtins(use))  # in ASCII, and on one line
    return f"{_MARK}{known}\n{text(spec)}"


def read_file(content: bytes) -> ClaimUse | None:
    """Return the claim of a file that our driver wrote; None for any other. Never raises."""
    first, _, _ = content.partition(b"\n")
    if not first.startswith(_MARK.encode()):
        return None
    try:
        return msgspec.json.decode(first[len(_MARK) :], type=ClaimUse)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_spec(driver: str, content: bytes) -> CdiSpec | None:
    """Return the spec in a file that our driver wrote; None for any other. Never raises."""
    return parse(content.partition(b"\n")[2], f"k8s.{driver}/")
