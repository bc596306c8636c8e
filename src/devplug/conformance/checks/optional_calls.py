"""Optional calls of the API: GetPreferredAllocation and PreStartContainer, announced in the options.

The first says which devices a plugin would choose, of those that the kubelet may give; the second is what it
does with a container's devices right before each of its starts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.answers import answer
from devplug.conformance.rules import (
    completing_questions,
    foreign_fault,
    fresh_questions,
    missing_fault,
    repeat_fault,
    size_fault,
    total_question,
)
from devplug.conformance.times import FULL
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import RemoteError
from devplug.wire.deviceplugin import GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devplug.conformance.rules import Ids
    from devplug.conformance.testbed import TestBed
    from devplug.wire.values import PreferenceRequest

_API = "v1beta1 api.proto, service DevicePlugin, GetPreferredAllocation"

KUBELET_LIMIT_SECONDS: Final = 30.0
"""How long the kubelet waits for the call (constants.go, KubeletPreStartContainerRPCTimeoutInSecs)."""

_UNKNOWN = "devplug-verify-no-such-device"
_LATE = "DeadlineExceeded"
_PRE_START_API = "v1beta1 api.proto, service DevicePlugin, PreStartContainer"


# ── GetPreferredAllocation ──


@check(
    "PRE01",
    MUST,
    "A preference has exactly as many devices as were asked for, or none.",
    why="the kubelet adds or drops devices at random to reach the size, so the choice is lost",
    change="return allocation_size IDs per container request, or an empty list where there is no preference",
    source=f"{_API}; manager.go, devicesToAllocate, does not check the size",
    harmless=True,
)
async def has_the_size(bed: TestBed) -> str:
    """Ask for one, two, nearly all and all of the devices, with and without some that must be included."""
    ids = _healthy(bed)
    return await _judge(bed, [*fresh_questions(ids), *completing_questions(ids)], size_fault)


@check(
    "PRE02",
    MUST,
    "A preference has all devices that must be included.",
    why="the container has those already; a choice that ignores them does not fit",
    change="put must_include_deviceIDs into the answer first, then choose the others to match them",
    source=f"{_API}, must_include_deviceIDs; topology_hints_test.go, TestGetPreferredAllocationParameters",
    harmless=True,
)
async def includes_what_it_must(bed: TestBed) -> str:
    """Ask on behalf of a container that has one or more of its devices already."""
    return await _judge(bed, completing_questions(_healthy(bed, 3)), missing_fault)


@check(
    "PRE03",
    MUST,
    "A preference has only devices that are available.",
    why="the others may belong to another pod; the kubelet drops them and takes any in their place",
    change="choose among available_deviceIDs of the request, not among all devices that the plugin has",
    source=f"{_API}, available_deviceIDs; manager.go, devicesToAllocate, intersects",
    harmless=True,
)
async def keeps_to_what_is_available(bed: TestBed) -> str:
    """Ask while the first device counts as taken."""
    ids = _healthy(bed, 2)
    return await _judge(bed, [*fresh_questions(ids), *completing_questions(ids)], foreign_fault)


@check(
    "PRE04",
    MUST,
    "A preference has no device twice.",
    why="a repeated ID counts once, and the kubelet adds any other device in its place",
    change="leave out of the choice what is in the answer already, such as the IDs that must be included",
    source=f"{_API}; manager.go, devicesToAllocate, makes a set of it",
    harmless=True,
)
async def has_none_twice(bed: TestBed) -> str:
    """Ask for several devices, with and without some that must be included."""
    ids = _healthy(bed, 2)
    return await _judge(bed, [*fresh_questions(ids), *completing_questions(ids)], repeat_fault)


@check(
    "PRE05",
    MUST,
    "A preference is never refused for a request that the kubelet can send.",
    why="the error rejects the pod, and the kubelet keeps its devices marked as taken",
    change="answer with an empty list where no choice can be made, and accept requests that name every "
    "device",
    source="kubernetes/kubernetes#130145; manager.go, callGetPreferredAllocationIfAvailable",
    harmless=True,
)
async def is_never_an_error(bed: TestBed) -> str:
    """Ask for one of all devices, then for other sizes, with some that must be included, one at a time."""
    ids = _healthy(bed)
    questions = [total_question(ids), *fresh_questions(ids), *completing_questions(ids)]
    for question in questions:
        try:
            await _ask(bed, question)
        except RemoteError as error:
            raise FailedError(
                f"for {question.size} of {len(question.available)} devices, with "
                f"{len(question.must_include)} that must be included, the plugin answered {error}"
            ) from error
    return f"{len(questions)} questions answered"


@check(
    "PRE06",
    SHOULD,
    f"GetPreferredAllocation is answered within {FULL.preference_limit_seconds:g} s.",
    why="the kubelet waits for the answer without a limit, and admits no other pod of the node meanwhile",
    change="do the expensive work when the devices change, not when the kubelet asks",
    source="manager.go, no timeout on GetPreferredAllocation; kubernetes/kubernetes#117435",
    harmless=True,
)
async def is_prompt(bed: TestBed) -> str:
    """Ask for one device while all healthy ones are available, and take the time."""
    begun = time.monotonic()
    await _answer(bed, total_question(_healthy(bed)))
    took = time.monotonic() - begun
    if took > bed.times.preference_limit_seconds:
        raise FailedError(f"with {len(_healthy(bed))} devices available the answer took {took:.1f} s")
    return f"{1000 * took:.0f} ms"


@check(
    "PRE07",
    SHOULD,
    "Each container request of one call has a response, in the order of the requests.",
    why="callers read the responses by position",
    change="loop over container_requests, and append one response for each",
    source=f"{_API}, container_responses; kubelets up to 1.36 send one request per call",
    harmless=True,
)
async def answers_each_container(bed: TestBed) -> None:
    """Ask for two containers in one call, each with one device to choose from."""
    one, other = _healthy(bed, 2)[:2]
    requests = [total_question([one]), total_question([other])]
    answer = await bed.call(GET_PREFERRED_ALLOCATION, requests)
    if len(answer) not in (0, len(requests)):
        raise FailedError(f"{len(requests)} container requests got {len(answer)} responses")
    if tuple(answer) == ((other,), (one,)):
        raise FailedError("the responses are not in the order of the requests")


@check(
    "PRE08",
    NOTE,
    "The same request gets the same choice, whatever the order of its device IDs.",
    why="nobody can reproduce a choice that differs each time",
    change="sort where several choices are equally good; the kubelet sends the IDs in random order",
    source="manager.go, devicesToAllocate, which chooses at random where it has no preference",
    harmless=True,
)
async def is_the_same_again(bed: TestBed) -> str:
    """Ask the same four times, with the IDs in two orders; the order of the answer does not matter."""
    question = fresh_questions(_healthy(bed, 3))[0]
    available = question.available
    answers = {
        frozenset(await _answer(bed, type(question)(available[turn:] + available[:turn], (), 1)))
        for turn in (0, 0, 1, 1)
    }
    if len(answers) > 1:
        chosen = ", ".join(sorted("+".join(sorted(answer)) or "none" for answer in answers))
        raise FailedError(
            f"of four equal requests for one of {len(available)} devices the choices were {chosen}"
        )
    return "four equal answers"


@check(
    "PRE09",
    NOTE,
    "GetPreferredAllocation is answered even if the options do not announce it.",
    why="a tool or a later kubelet that calls it anyway waits without a limit",
    change="return an error, preferably UNIMPLEMENTED, or an empty answer, at once",
    source=f"{_API}; DevicePluginOptions, get_preferred_allocation_available",
    harmless=True,
)
async def preference_comes_unannounced(bed: TestBed) -> str:
    """Ask for one device, whether the call is announced or not, and wait for any answer or error."""
    error = await bed.refusal(GET_PREFERRED_ALLOCATION, [total_question(bed.healthy_ids())])
    if error is not None and error.status == "DeadlineExceeded":
        raise FailedError(f"nothing came within {bed.times.answer_seconds:g} s")
    return "answered" if error is None else error.status


def _require_preferences(bed: TestBed) -> None:
    if not bed.options.preferred_allocation_available:
        raise SkippedError("preferred allocation is not announced in the options")


def _healthy(bed: TestBed, at_least: int = 1) -> Sequence[str]:
    """Return all IDs that are available on an idle node.

    Raises `SkippedError` if they are too few, or if no preference is announced.
    """
    _require_preferences(bed)
    bed.healthy_ids(at_least)
    return bed.client.healthy_ids


async def _ask(bed: TestBed, question: PreferenceRequest) -> Ids:
    """Return the preference for one container, empty for none. Raises `RemoteError`."""
    answer = await bed.call(GET_PREFERRED_ALLOCATION, [question])
    return answer[0] if answer else ()


async def _answer(bed: TestBed, question: PreferenceRequest) -> Ids:
    try:
        return await _ask(bed, question)
    except RemoteError as error:
        raise SkippedError(f"the question was refused, which PRE05 judges: {error}") from error


async def _judge(
    bed: TestBed,
    questions: Sequence[PreferenceRequest],
    fault_of: Callable[[PreferenceRequest, Ids], str],
) -> str:
    """Ask all; raise `FailedError` for the first answer with a fault. Errors are what PRE05 is for."""
    answered = 0
    refusal = ""
    for question in questions:
        try:
            answer = await _ask(bed, question)
        except RemoteError as error:
            refusal = str(error)
            continue
        answered += 1
        if fault := fault_of(question, answer):
            raise FailedError(fault)
    if not answered:
        raise SkippedError(f"every question was refused, which PRE05 judges: {refusal}")
    return f"{answered} questions answered"


# ── PreStartContainer ──


@check(
    "PST01",
    MUST,
    "PreStartContainer succeeds for a device that was just allocated.",
    why="otherwise the container does not start, and the kubelet tries again and again",
    change="let the call succeed for every device that Allocate gives out",
    source=f"{_PRE_START_API}; manager.go, callPreStartContainerIfNeeded",
)
async def succeeds(bed: TestBed) -> None:
    """Allocate a device, then call PreStartContainer for it, as the kubelet does."""
    error = await _pre_start(bed, await _allocated(bed))
    if error is not None and error.status == _LATE:
        raise SkippedError("no answer came, which PST02 judges")
    if error is not None:
        raise FailedError(f"the plugin answered {error}")


@check(
    "PST02",
    MUST,
    f"PreStartContainer is answered within {KUBELET_LIMIT_SECONDS:g} s.",
    why="the kubelet gives up then, and the container does not start",
    change="give up on the device before that, and return an error that says what is wrong with it",
    source="constants.go, KubeletPreStartContainerRPCTimeoutInSecs; endpoint.go, preStartContainer",
)
async def is_in_time(bed: TestBed) -> str:
    """Allocate a device, call PreStartContainer for it, and take the time until any answer."""
    id_ = await _allocated(bed)
    begun = time.monotonic()
    error = await _pre_start(bed, id_)
    took = time.monotonic() - begun
    if error is not None and error.status == _LATE:
        raise FailedError(f"nothing came within {took:.1f} s")
    return f"{1000 * took:.0f} ms"


@check(
    "PST03",
    MUST,
    "PreStartContainer succeeds again for the same devices.",
    why="a container that restarts keeps its devices without another Allocate, and would never start again",
    change="reset the device each time; keep no state by which a second call differs from the first",
    source="manager.go, GetDeviceRunContainerOptions, runs before every start",
)
async def may_come_again(bed: TestBed) -> None:
    """Allocate a device once, then call PreStartContainer for it three times."""
    id_ = await _allocated(bed, -1)
    error = await _pre_start(bed, id_)
    if error is not None:
        raise SkippedError(f"the first call failed already, which PST01 judges: {error}")
    for count in (2, 3):
        error = await _pre_start(bed, id_)
        if error is not None:
            raise FailedError(f"call number {count} was answered with {error}")


@check(
    "PST04",
    SHOULD,
    "PreStartContainer is refused for a device that the plugin does not have.",
    why="otherwise the container starts with a device that is gone or was not prepared",
    change="return an error, preferably NOT_FOUND, for IDs that are not in the present list",
    source="manager.go, GetDeviceRunContainerOptions, which does not look at health before a restart",
)
async def refuses_unknown(bed: TestBed) -> str:
    """Call PreStartContainer with an ID that was never listed."""
    _require_pre_start(bed)
    error = await _pre_start(bed, _UNKNOWN)
    if error is None:
        raise FailedError(f"PreStartContainer succeeds for {_UNKNOWN}, which was never listed")
    return error.status


@check(
    "PST05",
    NOTE,
    "PreStartContainer is answered even if the options do not announce it.",
    why="a tool or a later kubelet that calls it anyway waits without a limit",
    change="return an error, preferably UNIMPLEMENTED, or an empty answer, at once",
    source=f"{_PRE_START_API}; DevicePluginOptions, pre_start_required",
)
async def pre_start_comes_unannounced(bed: TestBed) -> str:
    """Allocate a device, call PreStartContainer for it, and wait for any answer or error."""
    is_announced = bed.options.pre_start_required
    (id_,) = bed.healthy_ids(1)
    await answer(bed, id_)
    error = await _pre_start(bed, id_) if is_announced else await bed.refusal(PRE_START_CONTAINER, (id_,))
    if error is not None and error.status == _LATE and not is_announced:
        raise FailedError(f"nothing came within {bed.times.answer_seconds:g} s")
    return "answered" if error is None else error.status


def _require_pre_start(bed: TestBed) -> None:
    if not bed.options.pre_start_required:
        raise SkippedError("pre-start is not announced in the options")


async def _allocated(bed: TestBed, which: int = 0) -> str:
    """Allocate one of two devices, or the only one; return its ID."""
    _require_pre_start(bed)
    id_ = bed.healthy_ids(min(2, len(bed.client.healthy_ids)) or 1)[which]
    await answer(bed, id_)
    return id_


async def _pre_start(bed: TestBed, id_: str) -> RemoteError | None:
    """Return the error that PreStartContainer meets within the kubelet's own time, None for success."""
    try:
        seconds = min(bed.times.return_seconds, KUBELET_LIMIT_SECONDS)
        await bed.call(PRE_START_CONTAINER, (id_,), seconds=seconds)
    except RemoteError as error:
        return error
    return None
