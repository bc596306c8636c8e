"""Allocate: which devices a container gets, and in which shape the answer comes.

Who gets nothing is in `refusals`, many calls are in `allocateload`, and what an answer holds in `responses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.answers import answers, demand_none, sample, steady
from devplug.conformance.registry import MUST, check
from devplug.conformance.rules.response import items
from devplug.conformance.stage import LATE, once
from devplug.conformance.verdicts import FailedError, NoAnswerError, SkippedError
from devplug.errors import RemoteError

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage


@check(
    "ALL01",
    MUST,
    "A healthy device is given to whoever asks for it.",
    why="the kubelet counts it as free, and each pod that gets it fails with UnexpectedAdmissionError",
    change="answer Allocate for every device that the list calls Healthy, or list it as Unhealthy",
    source="v1beta1 api.proto, Allocate; pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources",
)
async def healthy_device_is_given(stage: Stage) -> str:
    """Call Allocate for up to 16 of the healthy devices, one after the other."""
    ids = sample(stage)
    refused: list[str] = []
    for id_ in ids:
        try:
            await stage.allocate([id_])
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
    "kubelets crash; what comes beyond the first is ignored",
    change="put one element into container_responses for each element of container_requests",
    source="v1beta1 api.proto, AllocateResponse; kubernetes/kubernetes#66596",
)
async def one_response_for_one_container(stage: Stage) -> None:
    """Call Allocate for one container with one device and count the container responses."""
    (id_,) = sample(stage, 1)
    try:
        responses = await stage.allocate([id_])
    except RemoteError as error:
        raise SkippedError(f"{id_} cannot be had (see ALL01, ALL10): {error}") from error
    if len(responses) != 1:
        raise FailedError(f"one container that asks for {id_} has {len(responses)} container responses")


@check(
    "ALL03",
    MUST,
    "Two container requests in one call have two responses, in the order of the requests.",
    why="each container would be given the other's device",
    change="walk through container_requests and append one response for each, or refuse more than one",
    source="v1beta1 api.proto, AllocateRequest and AllocateResponse",
)
async def responses_are_in_order(stage: Stage) -> None:
    """Ask for two devices in two container requests of one call; compare with what each alone brings."""
    first_id, second_id = stage.healthy_ids(2)
    try:
        responses = await stage.allocate([first_id], [second_id])
    except RemoteError as error:
        raise SkippedError(f"two containers in one call are refused: {error}") from error
    if len(responses) != 2:
        raise FailedError(f"two container requests in one call have {len(responses)} container responses")
    given = await once(stage, answers)
    first, second = (given.get((id_,)) for id_ in (first_id, second_id))
    if first is None or second is None or items(first) == items(second):
        return
    if [items(one) for one in responses] == [items(second), items(first)]:
        raise FailedError(f"asked for {first_id} and then {second_id}, it answers in the other order")


@check(
    "ALL04",
    MUST,
    "Several devices for one container come in one response that holds all that each brings.",
    why="the kubelet reads the first container response only: the container starts without its other devices",
    change="merge the device nodes, mounts and CDI names of all requested devices into one response",
    source="manager.go reads ContainerResponses[0]; project-akri/akri, one response per device",
)
async def devices_come_together(stage: Stage) -> None:
    """Ask for two devices, each alone and both for one container, and look for what got lost."""
    ids = stage.healthy_ids(2)
    alone = [await steady(stage, id_) for id_ in ids]
    try:
        responses = await stage.allocate(ids)
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
