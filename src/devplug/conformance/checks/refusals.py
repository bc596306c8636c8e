"""Allocate: which requests are refused, and how the refusals read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.answers import demand_none, sample
from devplug.conformance.registry import MUST, NOTE, SHOULD, check
from devplug.conformance.rules.response import refusal_faults
from devplug.conformance.stage import once
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.devices import HEALTHY
from devplug.wire.methods import ALLOCATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.conformance.stage import Stage
    from devplug.errors import RemoteError


def _unknown_id(stage: Stage) -> str:
    listed = {device.id for device in stage.devices}
    return next(id_ for n in range(len(listed) + 1) if (id_ := f"no-such-device-{n}") not in listed)


def _broken_ids(stage: Stage) -> Sequence[str]:
    return sorted({device.id for device in stage.devices if device.health != HEALTHY})


async def _accepted(stage: Stage, *containers: Sequence[str]) -> bool:
    return await stage.refusal(ALLOCATE, [tuple(ids) for ids in containers]) is None


@check(
    "ALL05",
    MUST,
    "An ID that was never listed is refused.",
    why="the pod starts without its device and fails somewhere else",
    change="look every requested ID up in the list, and answer with the status NotFound if one is not there",
    source="v1beta1 api.proto, Allocate; NVIDIA/k8s-device-plugin refuses it",
)
async def unknown_id_is_refused(stage: Stage) -> None:
    """Ask for a device with an ID that is in no list."""
    id_ = _unknown_id(stage)
    if await _accepted(stage, [id_]):
        raise FailedError(f"{id_} was never listed, and Allocate gives it")


@check(
    "ALL06",
    SHOULD,
    "A device that is listed as Unhealthy is refused.",
    why="it can fail between the kubelet's choice and the call; the container then has a broken device",
    change="look at the health of every requested device, and answer with FailedPrecondition",
    source="manager.go chooses, unlocks, then calls Allocate; intel pkg/deviceplugin/server.go refuses it",
)
async def unhealthy_device_is_refused(stage: Stage) -> None:
    """Ask for the devices that the list calls Unhealthy, up to four, one by one."""
    ids = _broken_ids(stage)[:4]
    if not ids:
        raise SkippedError("no device is listed as Unhealthy")
    given = [id_ for id_ in ids if await _accepted(stage, [id_])]
    if given:
        raise FailedError(f"Unhealthy, and given: {', '.join(given)}")


@check(
    "ALL07",
    NOTE,
    "The same ID twice in one request is refused.",
    why="no kubelet asks so: whoever does is wrong, and one device counts for two",
    change="answer with InvalidArgument if an ID comes twice",
    source="manager.go, the kubelet's IDs are a set",
)
async def repeated_id_is_refused(stage: Stage) -> None:
    """Ask for one device twice in one container request."""
    (id_,) = sample(stage, 1)
    if await _accepted(stage, [id_, id_]):
        raise FailedError(f"{id_} is asked for twice in one request, and it is answered")


@check(
    "ALL08",
    NOTE,
    "A call without container requests is refused.",
    why="an empty answer hides the caller's mistake",
    change="answer with InvalidArgument if container_requests is empty",
    source="manager.go, each call of the kubelet has one container request",
)
async def call_without_containers_is_refused(stage: Stage) -> None:
    """Call Allocate with an empty message."""
    if await _accepted(stage):
        raise FailedError("Allocate without a container request is answered")


@check(
    "ALL09",
    NOTE,
    "A container request without IDs is refused.",
    why="a container that asks for no device and gets an answer has nothing, and nobody is told",
    change="answer with InvalidArgument if a container request has no IDs",
    source="manager.go, no call is made where no device is needed",
)
async def container_without_ids_is_refused(stage: Stage) -> None:
    """Call Allocate with one container request that holds no ID."""
    if await _accepted(stage, []):
        raise FailedError("a container request without IDs is answered")


async def _refusals(stage: Stage) -> Sequence[RemoteError]:
    """Ask for what should be refused, in every way, and return the errors that came."""
    (id_,) = sample(stage, 1)
    requests: list[list[tuple[str, ...]]] = [[(_unknown_id(stage),)], [], [()], [(id_, id_)]]
    requests += [[(broken,)] for broken in _broken_ids(stage)[:1]]
    errors = [await stage.refusal(ALLOCATE, request) for request in requests]
    refusals = [error for error in errors if error and error.status != "DeadlineExceeded"]
    if not refusals:
        raise SkippedError("nothing that it was asked for was refused")
    return refusals


@check(
    "ALL28",
    SHOULD,
    "A refusal is one line of at most 200 bytes that tells nothing of the plugin's inside.",
    why="the kubelet puts the text into the pod's status, where its user has to understand it",
    change="say in one sentence what was asked for and what to do, and log the rest",
    source="pkg/kubelet/cm/devicemanager/manager.go and pkg/kubelet/lifecycle, the message of "
    "UnexpectedAdmissionError",
)
async def refusals_are_readable(stage: Stage) -> str:
    """Ask for unknown, repeated, unhealthy and no devices, and read the errors."""
    refusals = await once(stage, _refusals)
    demand_none(fault for error in refusals for fault in refusal_faults(error.text))
    return f"{len(refusals)} refusals"


@check(
    "ALL29",
    NOTE,
    "A refusal's status says who has to act.",
    why="Unknown makes a caller's mistake, a broken device and a fault of the plugin look alike",
    change="answer with NotFound, FailedPrecondition, InvalidArgument or Unavailable, as it is",
    source="grpc.io, status codes; plain errors of Go are Unknown",
)
async def refusals_have_a_status(stage: Stage) -> str:
    """Ask for unknown, repeated, unhealthy and no devices, and look at the status of the errors."""
    refusals = await once(stage, _refusals)
    unknown = [error for error in refusals if error.status == "Unknown"]
    if unknown:
        raise FailedError(f"{len(unknown)} of {len(refusals)} refusals have the status Unknown: {unknown[0]}")
    return ", ".join(sorted({error.status for error in refusals}))
