"""The time that a prepare takes: a slow API server, the kubelet's deadline, and calls that it gave up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.testbed import LATE
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, check
from devplug.errors import RemoteError

if TYPE_CHECKING:
    from devplug.conformance.dra.testbed import DriverBed
    from devplug.wire.dra import ClaimName, PreparedClaim

LANE = "late claims"
_CALLS: Final = 4
_ENDED: Final = "Canceled"
"""The status when the driver resets a call whose deadline is over, before the caller's own clock says so."""


@check(
    "DRA51",
    SHOULD,
    "A claim is prepared within 5 s.",
    why="the pod waits that long, and after 45 s the kubelet gives up and comes back a minute later",
    change="do slow work when devices are found, and not when a pod waits",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin.go (45 s)",
    lane=LANE,
)
async def prepares_soon(bed: DriverBed) -> str:
    """Take the time of one prepare."""
    claim = bed.allocate(*bed.free())
    begun = time.monotonic()
    await bed.prepare(claim)
    seconds = time.monotonic() - begun
    if seconds > bed.times.quick_claim_limit_seconds:
        raise FailedError(f"it took {seconds:.1f} s")
    return f"{1000 * seconds:.0f} ms"


@check(
    "DRA53",
    SHOULD,
    "A prepare waits for a slow API server.",
    why="a refused prepare costs its pod a minute, until the kubelet looks again",
    change="give the request the time that the kubelet gives the call: 45 s, less a little for the answer",
    source="pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod returns without an error)",
    lane=LANE,
)
async def waits_for_a_slow_api_server(bed: DriverBed) -> None:
    """Ask for a claim while each answer of the API server takes seconds."""
    claim = bed.allocate(*bed.free())
    seconds = bed.api.delay_seconds = bed.times.slow_answer_seconds
    try:
        await bed.prepare(claim, after=f"with an API server that takes {seconds:g} s for each answer")
    finally:
        bed.api.delay_seconds = 0.0


@check(
    "DRA54",
    SHOULD,
    "A prepare is answered within the kubelet's 45 s, even if the API server is silent.",
    why="`kubectl describe pod` says `context deadline exceeded`, and nobody can tell why",
    change="give up before the kubelet does, and answer what was waited for as the claim's error",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin.go (45 s)",
    lane="silent api",
    quick=False,
)
async def answers_before_the_kubelet_gives_up(bed: DriverBed) -> str:
    """Ask for a claim while the API server accepts requests and answers none."""
    claim = bed.allocate(*bed.free())
    bed.api.delay_seconds = 2 * bed.times.claim_limit_seconds
    begun = time.monotonic()
    try:
        answer = await bed.call_prepare(claim)
    except RemoteError as error:
        if error.status in {LATE, _ENDED}:
            raise FailedError(f"nothing came within {bed.times.claim_limit_seconds:g} s") from error
        return f"{error} after {time.monotonic() - begun:.0f} s"
    finally:
        bed.api.delay_seconds = 0.0
    words = answer[claim.uid].error if claim.uid in answer else "nothing"
    return f"{words} after {time.monotonic() - begun:.0f} s"


@check(
    "DRA55",
    MUST,
    "A claim whose prepare the kubelet gave up is prepared when it asks again.",
    why="the pod never starts: the second call is one too many for the driver, or gets half of the work",
    change="let the work of a cancelled call end by itself, or undo it; the next call joins or repeats it",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin.go (45 s); pkg/kubelet/cm/dra/manager.go (asks again)",
    lane=LANE,
)
async def prepares_what_was_given_up(bed: DriverBed) -> None:
    """Give a call up while the API server takes its time; call twice again, and compare the answers."""
    claim = bed.allocate(*bed.free())
    bed.api.delay_seconds = bed.times.slow_answer_seconds
    try:
        await bed.call_prepare(claim, seconds=bed.times.slow_answer_seconds / 4)
    except RemoteError:
        pass  # DeadlineExceeded of the caller, or the driver's own word for a call that has ended
    finally:
        bed.api.delay_seconds = 0.0
    first = await bed.prepare(claim, after="after a call that was given up")
    if await bed.prepare(claim, after="once more") != first:
        raise FailedError("the answers after the call that was given up differ")


@check(
    "DRA56",
    MUST,
    "A call of which one claim failed is made again with success, once the reason is gone.",
    why="the kubelet asks for all claims of a pod again; one refusal for ever keeps it from starting",
    change="remember no refusals, and answer what is prepared already as before",
    source="pkg/kubelet/cm/dra/manager.go (prepareResources: one call for all claims of a pod)",
    lane=LANE,
)
async def bears_a_second_try(bed: DriverBed) -> None:
    """Ask for two claims of which one has no allocation yet; allocate it, and ask for both again."""
    one, other = bed.free(2)
    claims = bed.allocate(one), bed.allocate()
    first = await bed.answers(*claims)
    if first[0].error:
        raise FailedError(f"the claim that is allocated is refused: {first[0].error}")
    bed.assign(claims[1], other)
    second = await bed.answers(*claims)
    if second[0] != first[0]:
        raise FailedError(f"first it was {first[0]}, then {second[0]}")
    if second[1].error:
        raise FailedError(f"the claim that is allocated since is refused: {second[1].error}")


@check(
    "DRA57",
    MUST,
    "A claim that is in a call twice is prepared and answered once.",
    why="two entries of a pod's resourceClaims may name one claim; who counts uses keeps its device for ever",
    change="prepare each UID of a call once, and answer it with one entry",
    source="pkg/kubelet/apis/dra/v1/api.proto, NodePrepareResourcesResponse (a map by UID)",
    lane=LANE,
)
async def bears_a_claim_twice(bed: DriverBed) -> None:
    """Name one claim twice in one call, to prepare it and then to unprepare it."""
    claim = bed.allocate(*bed.free())
    try:
        twice = await bed.call_prepare(claim, claim)
        if twice.keys() != {claim.uid} or twice[claim.uid].error:
            raise FailedError(f"prepare is answered with {dict(twice)}")
        ended = await bed.call_unprepare(claim, claim)
    except RemoteError as error:
        raise FailedError(f"the call is answered with {error}") from error
    if dict(ended) != {claim.uid: ""}:
        raise FailedError(f"unprepare is answered with {dict(ended)}")


@check(
    "DRA58",
    MUST,
    "Calls that come at the same time are all answered.",
    why="the kubelet starts pods side by side; one that is told `busy` waits a minute",
    change="let calls wait for one another, and those for one claim share its work",
    source="pkg/kubelet/pod_workers.go (a goroutine for each pod)",
    lane=LANE,
)
async def answers_side_by_side(bed: DriverBed) -> None:
    """Ask several times at once for each of two claims."""
    bed.require_endpoint()
    claims = [bed.allocate(device) for device in bed.free(2)]
    answers: dict[str, list[PreparedClaim]] = {claim.uid: [] for claim in claims}
    failures: list[str] = []

    async def ask(claim: ClaimName) -> None:
        try:
            answers[claim.uid].append(await bed.prepare(claim, after="asked for side by side"))
        except FailedError as error:
            failures.append(str(error))

    async with asyncio.TaskGroup() as group:
        for claim in claims * _CALLS:
            group.create_task(ask(claim))
    if failures:
        raise FailedError(f"{len(failures)} of {len(claims) * _CALLS} calls: {failures[0]}")
    for some in answers.values():
        if any(one != some[0] for one in some):
            raise FailedError(f"one claim is answered with {some[0]}, and with another answer")
