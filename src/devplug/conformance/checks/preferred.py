"""Preferred allocation: which devices a plugin would choose, of those that the kubelet may give."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from devplug.conformance.registry import MUST, NOTE, SHOULD, check
from devplug.conformance.rules.preferred import (
    completing_questions,
    foreign_fault,
    fresh_questions,
    missing_fault,
    repeat_fault,
    size_fault,
    total_question,
)
from devplug.conformance.times import FULL
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.wire.methods import GET_PREFERRED_ALLOCATION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devplug.conformance.rules.preferred import Ids
    from devplug.conformance.stage import Stage
    from devplug.exchange import PreferenceRequest

_API = "v1beta1 api.proto, service DevicePlugin, GetPreferredAllocation"


@check(
    "PRE01",
    MUST,
    "A preference has exactly as many devices as were asked for, or none.",
    why="the kubelet fills up or cuts off at random, so that the choice is lost",
    change="return allocation_size IDs per container request, or an empty list where there is no preference",
    source=f"{_API}; manager.go, devicesToAllocate, does not check the size",
    harmless=True,
)
async def has_the_size(stage: Stage) -> str:
    """Ask for one, two, nearly all and all of the devices, with and without some that must be included."""
    ids = _healthy(stage)
    return await _judge(stage, [*fresh_questions(ids), *completing_questions(ids)], size_fault)


@check(
    "PRE02",
    MUST,
    "A preference has all devices that must be included.",
    why="those are the container's already; a choice made around other ones does not fit them",
    change="put must_include_deviceIDs into the answer first, then choose the others to match them",
    source=f"{_API}, must_include_deviceIDs; topology_hints_test.go, TestGetPreferredAllocationParameters",
    harmless=True,
)
async def includes_what_it_must(stage: Stage) -> str:
    """Ask on behalf of a container that has one or more of its devices already."""
    return await _judge(stage, completing_questions(_healthy(stage, 3)), missing_fault)


@check(
    "PRE03",
    MUST,
    "A preference has only devices that are available.",
    why="the others belong to another pod; the kubelet drops them and takes any in their place",
    change="choose among available_deviceIDs of the request, not among all devices that the plugin has",
    source=f"{_API}, available_deviceIDs; manager.go, devicesToAllocate, intersects",
    harmless=True,
)
async def keeps_to_what_is_available(stage: Stage) -> str:
    """Ask while the first device counts as taken."""
    ids = _healthy(stage, 2)
    return await _judge(stage, [*fresh_questions(ids), *completing_questions(ids)], foreign_fault)


@check(
    "PRE04",
    MUST,
    "A preference has no device twice.",
    why="one ID is one device; the kubelet fills up with any other",
    change="leave out of the choice what is in the answer already, such as the IDs that must be included",
    source=f"{_API}; manager.go, devicesToAllocate, makes a set of it",
    harmless=True,
)
async def has_none_twice(stage: Stage) -> str:
    """Ask for several devices, with and without some that must be included."""
    ids = _healthy(stage, 2)
    return await _judge(stage, [*fresh_questions(ids), *completing_questions(ids)], repeat_fault)


@check(
    "PRE05",
    MUST,
    "A preference is never refused for a request that the kubelet can send.",
    why="the error rejects the pod, and the kubelet keeps its devices marked as taken",
    change="answer with an empty list where no choice can be made; and take requests that name every device",
    source="kubernetes/kubernetes#130145; manager.go, callGetPreferredAllocationIfAvailable",
    harmless=True,
)
async def is_never_an_error(stage: Stage) -> str:
    """Ask for one of all devices, then for other sizes, with some that must be included, one at a time."""
    ids = _healthy(stage)
    questions = [total_question(ids), *fresh_questions(ids), *completing_questions(ids)]
    for question in questions:
        try:
            await _ask(stage, question)
        except RemoteError as error:
            raise FailedError(
                f"for {question.size} of {len(question.available)} devices, with "
                f"{len(question.must_include)} that must be included, it answered {error}"
            ) from error
    return f"{len(questions)} questions answered"


@check(
    "PRE06",
    SHOULD,
    f"A preference is there within {FULL.preference_limit_seconds:g} s.",
    why="the kubelet waits for it without a limit of its own, and admits no other pod of the node meanwhile",
    change="compute what is costly when the devices change, not when the kubelet asks",
    source="manager.go, no timeout on GetPreferredAllocation; kubernetes/kubernetes#117435",
    harmless=True,
)
async def is_prompt(stage: Stage) -> str:
    """Ask for one device while all healthy ones are available, and take the time."""
    begun = time.monotonic()
    await _answer(stage, total_question(_healthy(stage)))
    took = time.monotonic() - begun
    if took > stage.times.preference_limit_seconds:
        raise FailedError(f"with {len(_healthy(stage))} devices available it took {took:.1f} s")
    return f"{1000 * took:.0f} ms"


@check(
    "PRE07",
    SHOULD,
    "Each container request of one call has a response, in its place.",
    why="callers read the responses by position",
    change="loop over container_requests, and append one response for each",
    source=f"{_API}, container_responses; kubelets up to 1.36 send one request per call",
    harmless=True,
)
async def answers_each_container(stage: Stage) -> None:
    """Ask for two containers in one call, each with a device of its own to choose from."""
    one, other = _healthy(stage, 2)[:2]
    requests = [total_question([one]), total_question([other])]
    answer = await stage.call(GET_PREFERRED_ALLOCATION, requests)
    if len(answer) not in (0, len(requests)):
        raise FailedError(f"{len(requests)} containers asked, and {len(answer)} were answered")
    if tuple(answer) == ((other,), (one,)):
        raise FailedError("the responses are not in the order of the requests")


@check(
    "PRE08",
    NOTE,
    "The same question has the same answer, in whatever order the devices are named.",
    why="a choice that is different each time is hard to follow from the outside",
    change="sort where several choices are equally good; the kubelet sends the IDs in random order",
    source="manager.go, devicesToAllocate, which chooses at random where it has no preference",
    harmless=True,
)
async def is_the_same_again(stage: Stage) -> str:
    """Ask the same a few times, with the IDs in turned order; the order of the answer does not matter."""
    question = fresh_questions(_healthy(stage, 3))[0]
    available = question.available
    answers = {
        frozenset(await _answer(stage, type(question)(available[turn:] + available[:turn], (), 1)))
        for turn in (0, 0, 1, 1)
    }
    if len(answers) > 1:
        chosen = ", ".join(sorted("+".join(sorted(answer)) or "none" for answer in answers))
        raise FailedError(f"asked four times for one of {len(available)} devices, it chose {chosen}")
    return "four times the same"


@check(
    "PRE09",
    NOTE,
    "A call of GetPreferredAllocation comes back even where it is not announced.",
    why="who asks all the same, a tool or a later kubelet, waits without a limit",
    change="return an error, best UNIMPLEMENTED, or an empty answer, at once",
    source=f"{_API}; DevicePluginOptions, get_preferred_allocation_available",
    harmless=True,
)
async def comes_back_unannounced(stage: Stage) -> str:
    """Ask for one device, announced or not, and wait for any answer or error."""
    error = await stage.refusal(GET_PREFERRED_ALLOCATION, [total_question(stage.healthy_ids())])
    if error is not None and error.status == "DeadlineExceeded":
        raise FailedError(f"nothing came within {stage.times.answer_seconds:g} s")
    return "answered" if error is None else error.status


# ── what they share ──


def _check_announced(stage: Stage) -> None:
    if not stage.options.preferred_allocation_available:
        raise SkippedError("preferred allocation is not announced in the options")


def _healthy(stage: Stage, at_least: int = 1) -> Sequence[str]:
    """Return all IDs that are available on an idle node.

    Raises `SkippedError` if they are too few, or if no preference is announced.
    """
    _check_announced(stage)
    stage.healthy_ids(at_least)
    return stage.client.healthy_ids


async def _ask(stage: Stage, question: PreferenceRequest) -> Ids:
    """Return the preference for one container, empty for none. Raises `RemoteError`."""
    answer = await stage.call(GET_PREFERRED_ALLOCATION, [question])
    return answer[0] if answer else ()


async def _answer(stage: Stage, question: PreferenceRequest) -> Ids:
    try:
        return await _ask(stage, question)
    except RemoteError as error:
        raise SkippedError(f"the question was refused, which PRE05 judges: {error}") from error


async def _judge(
    stage: Stage,
    questions: Sequence[PreferenceRequest],
    fault_of: Callable[[PreferenceRequest, Ids], str],
) -> str:
    """Ask all; raise `FailedError` for the first answer with a fault. Errors are what PRE05 is for."""
    answered = 0
    refusal = ""
    for question in questions:
        try:
            answer = await _ask(stage, question)
        except RemoteError as error:
            refusal = str(error)
            continue
        answered += 1
        if fault := fault_of(question, answer):
            raise FailedError(fault)
    if not answered:
        raise SkippedError(f"every question was refused, which PRE05 judges: {refusal}")
    return f"{answered} questions answered"
