"""Allocate: which devices a container gets, in which shape the answer comes, and which requests are refused.

Many calls are in `allocate_load`, and what an answer holds in `responses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.answers import answer, answers, demand_none, sample, steady
from devplug.conformance.response_rules import items, refusal_faults
from devplug.conformance.rules import total_question
from devplug.conformance.testbed import LATE, once
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, NoAnswerError, SkippedError, check
from devplug.devices import HEALTHY
from devplug.errors import RemoteError
from devplug.wire.deviceplugin import ALLOCATE, GET_PREFERRED_ALLOCATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.devices import ContainerResponse

# ── answers ──


@check(
    "ALL01",
    MUST,
    "Allocate succeeds for every healthy device.",
    why="the kubelet counts the device as free, and each pod that gets it fails with "
    "UnexpectedAdmissionError",
    change="answer Allocate for every device that the list calls Healthy, or list it as Unhealthy",
    source="v1beta1 api.proto, Allocate; pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources",
)
async def healthy_device_is_given(bed: TestBed) -> str:
    """Call Allocate for up to 16 of the healthy devices, one after the other."""
    ids = sample(bed)
    refused: list[str] = []
    for id_ in ids:
        try:
            await bed.allocate([id_])
        except NoAnswerError as error:
            raise FailedError(str(error)) from error
        except RemoteError as error:
            refused.append(f"{id_} is listed as Healthy, and Allocate answers {error}")
            if error.status == LATE:
                break
    demand_none(refused)
    return f"{len(ids)} devices"


@check(
    "ALL02",
    MUST,
    "One container request has one container response.",
    why="without a response the kubelet fails the pod and keeps its devices (kubernetes#130145), and older "
    "kubelets crash; responses beyond the first are ignored",
    change="put one element into container_responses for each element of container_requests",
    source="v1beta1 api.proto, AllocateResponse; kubernetes/kubernetes#66596",
)
async def one_response_for_one_container(bed: TestBed) -> None:
    """Call Allocate for one container with one device and count the container responses."""
    (id_,) = sample(bed, 1)
    try:
        responses = await bed.allocate([id_])
    except RemoteError as error:
        raise SkippedError(f"Allocate refuses {id_} (see ALL01, ALL10): {error}") from error
    if len(responses) != 1:
        raise FailedError(f"one container that asks for {id_} has {len(responses)} container responses")


@check(
    "ALL03",
    MUST,
    "Two container requests in one call have two responses, in the order of the requests.",
    why="otherwise each container gets the other's device",
    change="walk through container_requests and append one response for each, or refuse more than one",
    source="v1beta1 api.proto, AllocateRequest and AllocateResponse",
)
async def responses_are_in_order(bed: TestBed) -> None:
    """Ask for two devices in two container requests of one call; compare with two single calls."""
    first_id, second_id = bed.healthy_ids(2)
    try:
        responses = await bed.allocate([first_id], [second_id])
    except RemoteError as error:
        raise SkippedError(f"two containers in one call are refused: {error}") from error
    if len(responses) != 2:
        raise FailedError(f"two container requests in one call have {len(responses)} container responses")
    given = await once(bed, answers)
    first, second = (given.get((id_,)) for id_ in (first_id, second_id))
    if first is None or second is None or items(first) == items(second):
        return
    if [items(one) for one in responses] == [items(second), items(first)]:
        raise FailedError(f"the responses for {first_id} and {second_id} are in the other order")


@check(
    "ALL04",
    MUST,
    "The response for several devices has everything that each of them brings alone.",
    why="the kubelet reads the first container response only: the container starts without its other devices",
    change="merge the device nodes, mounts and CDI names of all requested devices into one response",
    source="manager.go reads ContainerResponses[0]; project-akri/akri, one response per device",
)
async def devices_come_together(bed: TestBed) -> None:
    """Ask for two devices, each alone and both for one container, and look for what is missing."""
    ids = bed.healthy_ids(2)
    alone = [await steady(bed, id_) for id_ in ids]
    try:
        responses = await bed.allocate(ids)
    except RemoteError as error:
        raise SkippedError(f"two devices for one container are refused: {error}") from error
    if len(responses) != 1:
        raise FailedError(f"two devices for one container came in {len(responses)} container responses")
    together = _things(items(responses[0]))
    own = set().union(*map(_things, alone))
    # A CDI name may say which of the container's devices it is, or stand for both: then it is another.
    is_renamed = any(kind == "CDI name" for kind, _ in together - own)
    missing = [
        f"{kind} {name} of {id_} is not in the response for {' and '.join(ids)}"
        for id_, given in zip(ids, alone, strict=True)
        for kind, name in sorted(_things(given) - together)
        if not (is_renamed and kind == "CDI name")
    ]
    demand_none(missing)


def _things(given: frozenset[tuple[str, ...]]) -> set[tuple[str, str]]:
    """Return the host paths and CDI names of `items`: what must be there whatever else comes with it."""
    places = {"device node": 2, "mount": 2, "CDI name": 1}
    return {(part[0], part[places[part[0]]]) for part in given if part[0] in places}


# ── refusals ──


def _unknown_id(bed: TestBed) -> str:
    listed = {device.id for device in bed.devices}
    return next(id_ for n in range(len(listed) + 1) if (id_ := f"no-such-device-{n}") not in listed)


def _broken_ids(bed: TestBed) -> Sequence[str]:
    return sorted({device.id for device in bed.devices if device.health != HEALTHY})


async def _accepted(bed: TestBed, *containers: Sequence[str]) -> bool:
    return await bed.refusal(ALLOCATE, [tuple(ids) for ids in containers]) is None


@check(
    "ALL05",
    MUST,
    "An ID that was never listed is refused.",
    why="otherwise the pod starts without its device and fails later",
    change="look every requested ID up in the list, and answer with the status NotFound if one is not there",
    source="v1beta1 api.proto, Allocate; NVIDIA/k8s-device-plugin refuses it",
)
async def unknown_id_is_refused(bed: TestBed) -> None:
    """Ask for a device with an ID that is in no list."""
    id_ = _unknown_id(bed)
    if await _accepted(bed, [id_]):
        raise FailedError(f"Allocate gives out {id_}, which was never listed")


@check(
    "ALL06",
    SHOULD,
    "A device that is listed as Unhealthy is refused.",
    why="a device can fail between the kubelet's choice and the call; the container then has a broken one",
    change="look at the health of every requested device, and answer with FailedPrecondition",
    source="manager.go chooses, unlocks, then calls Allocate; intel pkg/deviceplugin/server.go refuses it",
)
async def unhealthy_device_is_refused(bed: TestBed) -> None:
    """Ask for the devices that the list calls Unhealthy, up to four, one by one."""
    ids = _broken_ids(bed)[:4]
    if not ids:
        raise SkippedError("no device is listed as Unhealthy")
    given = [id_ for id_ in ids if await _accepted(bed, [id_])]
    if given:
        raise FailedError(f"Allocate gives out what is listed as Unhealthy: {', '.join(given)}")


@check(
    "ALL07",
    NOTE,
    "The same ID twice in one request is refused.",
    why="no kubelet sends such a request: its sender is at fault, and would count one device as two",
    change="answer with InvalidArgument if an ID comes twice",
    source="manager.go, the kubelet's IDs are a set",
)
async def repeated_id_is_refused(bed: TestBed) -> None:
    """Ask for one device twice in one container request."""
    (id_,) = sample(bed, 1)
    if await _accepted(bed, [id_, id_]):
        raise FailedError(f"a request that names {id_} twice is answered")


@check(
    "ALL08",
    NOTE,
    "A call without container requests is refused.",
    why="an empty answer hides the caller's mistake",
    change="answer with InvalidArgument if container_requests is empty",
    source="manager.go, each call of the kubelet has one container request",
)
async def call_without_containers_is_refused(bed: TestBed) -> None:
    """Call Allocate with an empty message."""
    if await _accepted(bed):
        raise FailedError("Allocate without a container request is answered")


@check(
    "ALL09",
    NOTE,
    "A container request without IDs is refused.",
    why="the container starts without a device, and nobody notices",
    change="answer with InvalidArgument if a container request has no IDs",
    source="manager.go, no call is made where no device is needed",
)
async def container_without_ids_is_refused(bed: TestBed) -> None:
    """Call Allocate with one container request that holds no ID."""
    if await _accepted(bed, []):
        raise FailedError("a container request without IDs is answered")


async def _refusals(bed: TestBed) -> Sequence[RemoteError]:
    """Ask for what should be refused, in every way, and return the errors that came."""
    (id_,) = sample(bed, 1)
    requests: list[list[tuple[str, ...]]] = [[(_unknown_id(bed),)], [], [()], [(id_, id_)]]
    requests += [[(broken,)] for broken in _broken_ids(bed)[:1]]
    errors = [await bed.refusal(ALLOCATE, request) for request in requests]
    refusals = [error for error in errors if error and error.status != "DeadlineExceeded"]
    if not refusals:
        raise SkippedError("the plugin refused none of these requests")
    return refusals


@check(
    "ALL28",
    SHOULD,
    "A refusal is one line of at most 200 bytes without a stack trace.",
    why="the kubelet puts the text into the pod's status, where its user has to understand it",
    change="say in one sentence what was asked for and what to do, and log the rest",
    source="pkg/kubelet/cm/devicemanager/manager.go and pkg/kubelet/lifecycle, the message of "
    "UnexpectedAdmissionError",
)
async def refusals_are_readable(bed: TestBed) -> str:
    """Ask for unknown, repeated, unhealthy and no devices, and read the errors."""
    refusals = await once(bed, _refusals)
    demand_none(fault for error in refusals for fault in refusal_faults(error.text))
    return f"{len(refusals)} refusals"


@check(
    "ALL29",
    NOTE,
    "The status code of a refusal says who has to act.",
    why="Unknown makes a caller's mistake, a broken device and a fault of the plugin look alike",
    change="answer with NotFound, FailedPrecondition, InvalidArgument or Unavailable, whichever applies",
    source="grpc.io, status codes; plain errors of Go are Unknown",
)
async def refusals_have_a_status(bed: TestBed) -> str:
    """Ask for unknown, repeated, unhealthy and no devices, and look at the status of the errors."""
    refusals = await once(bed, _refusals)
    unknown = [error for error in refusals if error.status == "Unknown"]
    if unknown:
        raise FailedError(f"{len(unknown)} of {len(refusals)} refusals have the status Unknown: {unknown[0]}")
    return ", ".join(sorted({error.status for error in refusals}))


# ── a kubelet that has forgotten an allocation ──


@check(
    "ALL33",
    SHOULD,
    "A device that a running container has is not allocated to another one.",
    why="kubelets up to 1.36 can forget an allocation if a pod ends while another Allocate runs; then they "
    "offer the device to a second pod, and both have it. The fault is the kubelet's, and the API does not "
    "demand that a plugin notices it",
    change="in GetPreferredAllocation prefer devices that PodResources does not list at that moment; in "
    "Allocate refuse a device that a List, asked during the call, names for this resource. The refusal costs "
    "this pod, and the kubelet corrects its records. Do not decide by an older List",
    source="kubernetes/kubernetes#137534; manager.go of 1.36, UpdateAllocatedDevices and "
    "allocateContainerResources",
)
async def held_device_is_not_given(bed: TestBed) -> str:
    """Allocate a device, list its pod in PodResources, and offer it again: in a preference, then in Allocate.

    Allocate comes only if the plugin does not prefer another device. A plugin that reads PodResources from
    time to time gets a moment to do so.
    """
    id_ = await _choice(bed)
    given = await answer(bed, id_)
    bed.list_as_held(id_)
    try:
        questions = bed.kubelet.questions
        await bed.kubelet.until(lambda: bed.kubelet.questions > questions, bed.times.settle_seconds)
        if (chosen := await _choice(bed)) != id_:
            return f"{id_} is held, and {chosen} is preferred"
        if error := await bed.refusal(ALLOCATE, [(id_,)]):
            if error.status == LATE:
                raise SkippedError("Allocate gave no answer, which ALL12 judges")
            return f"{id_} is held, and refused with {error.status}"
    finally:
        bed.kubelet.pods = ()
    if other := await _alike(bed, id_, given):
        raise SkippedError(f"{id_} and {other} get the same device nodes or CDI names: they are shared")
    raise FailedError(
        f"PodResources listed {id_} for pod default/first, and Allocate gave it to a second container"
    )


async def _choice(bed: TestBed) -> str:
    """Return the device that a kubelet allocates to a container which wants one, if it takes all for free."""
    ids = bed.healthy_ids(max(1, len(bed.client.healthy_ids)))
    if not bed.options.preferred_allocation_available or len(ids) == 1:
        return ids[0]
    try:
        preferences = await bed.call(GET_PREFERRED_ALLOCATION, [total_question(ids)])
    except RemoteError as error:
        raise SkippedError(f"the question was refused, which PRE05 judges: {error}") from error
    return next((id_ for preference in preferences for id_ in preference if id_ in ids), ids[0])


async def _alike(bed: TestBed, id_: str, given: ContainerResponse) -> str:
    """Return another device ID with the same device nodes or CDI names, empty if there is none."""
    wanted = _hardware(given)
    for other in sample(bed):
        if other != id_ and wanted and _hardware(await answer(bed, other)) == wanted:
            return other
    return ""


def _hardware(response: ContainerResponse) -> frozenset[tuple[str, str]]:
    """Return what of a response names hardware."""
    nodes = {(str(node.host_path), str(node.container_path)) for node in response.device_nodes}
    return frozenset(nodes or {(name, "") for name in response.cdi_devices})
