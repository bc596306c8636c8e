"""Mutants of prepare and unprepare, and of the CDI files of claims."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devplug.errors import InvalidRequestError
from devplug.wire.dra import ClaimName, PreparedClaim, PreparedDevice
from tests.conformance.dra.mutants import Mutant, fails
from tests.conformance.dra.right_driver import ClaimError


@fails("DRA40", also=("DRA41",))
class AnswersOneDevice(Mutant):
    """Answers the same device, whatever is allocated."""

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        right = super().device(uid, result)
        return PreparedDevice(
            right.pool_name, "dev-3", right.request_names, right.cdi_device_ids, right.share_id
        )


@fails("DRA41")
class TakesAllResults(Mutant):
    """Prepares what other drivers should."""

    async def use(self, claim: ClaimName) -> list[dict[str, Any]]:
        ours = await super().use(claim)
        found = await self.read(claim)
        results: list[dict[str, Any]] = found["status"]["allocation"]["devices"]["results"]
        return results if len(results) > len(ours) else ours


@fails("DRA42")
class NamesTheAlternative(Mutant):
    """Answers the request with the alternative in it, as the result has it."""

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        right = super().device(uid, result)
        names = (result["request"],)
        return PreparedDevice(right.pool_name, right.device_name, names, right.cdi_device_ids, right.share_id)


@fails("DRA43")
class ForgetsShareIds(Mutant):
    """Answers no share ID."""

    def device(self, uid: str, result: Mapping[str, Any]) -> PreparedDevice:
        return super().device(uid, {**result, "shareID": None})


@fails("DRA44", also=("DRA14", "DRA52", "DRA55", "DRA56", "DRA57", "DRA68", "DRA70", "DRA72", "DRA81"))
class RefusesTheSecondPrepare(Mutant):
    """Takes a claim that it knows for a fault of the kubelet."""

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        if claim.uid in self.prepared:
            return PreparedClaim(error="the claim is prepared already")
        return await super().answer(claim)


@fails("DRA45")
class LooksAtNamesOnly(Mutant):
    """Does not compare the UID."""

    def check_uid(self, found: Mapping[str, Any], claim: ClaimName) -> None:
        pass


@fails("DRA46")
class AnswersNothingForWhatIsGone(Mutant):
    """Answers a claim that does not exist with no devices and no error."""

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        answer = await super().answer(claim)
        return PreparedClaim() if "404" in answer.error else answer


@fails("DRA47")
class AnswersNothingForWhatIsNotAllocated(Mutant):
    """Answers a claim without an allocation with no devices and no error."""

    def check_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        if results:
            super().check_results(results)


@fails("DRA48", "DRA59")
class BelievesEveryAllocation(Mutant):
    """Does not look whether a device is there."""

    def check_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        if not results:
            raise ClaimError("nothing is allocated")


@fails("DRA59")
class TakesAnyPool(Mutant):
    """Looks devices up by their name alone."""

    def check_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        super().check_results([{**one, "pool": self.pool()} for one in results])


@fails("DRA49")
class FailsTheWholeCall(Mutant):
    """Answers a call with an error for one bad claim in it."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        answers = await super().prepare(claims)
        for answer in answers.values():
            if answer.error:
                raise InvalidRequestError(answer.error)
        return answers


@fails("DRA50")
class LeavesBadClaimsOut(Mutant):
    """Has no entry for a claim that it cannot prepare."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        answers = await super().prepare(claims)
        return {uid: answer for uid, answer in answers.items() if not answer.error}


@fails("DRA51", also=("DRA84",), quick_claim_limit_seconds=0.3)
class PreparesSlowly(Mutant):
    """Resets the device while the pod waits."""

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        await asyncio.sleep(0.5)
        return await super().answer(claim)


@fails("DRA52")
class WaitsForTheOldUnprepare(Mutant):
    """Refuses a device that it has for another claim, whatever the API server says of that."""

    async def use(self, claim: ClaimName) -> list[dict[str, Any]]:
        ours = await super().use(claim)
        held = {one["device"] for results in self.prepared.values() for one in results}
        if any(one["device"] in held for one in ours):
            raise ClaimError("the device is in use")
        return ours


@fails("DRA60", also=("DRA50", "DRA57", "DRA67"))
class RefusesToUnprepareTwice(Mutant):
    """Takes it for an error that there is nothing to do."""

    async def end_of(self, claim: ClaimName) -> str:
        return await super().end_of(claim) if claim.uid in self.prepared else "the claim is not prepared"


@fails("DRA61", also=("DRA52", "DRA60", "DRA77"))
class AsksForTheClaimToUnprepare(Mutant):
    """Reads the claim in unprepare, and needs it to be there."""

    patience_seconds = 0.3

    async def end_of(self, claim: ClaimName) -> str:
        if claim.uid in self.prepared:
            try:
                await self.read(claim)
            except ClaimError as error:
                if "404" in str(error):
                    return str(error)
        return await super().end_of(claim)


@fails("DRA62", also=("DRA52",))
class NamesWhatItDoesNotWrite(Mutant):
    """Calls the device otherwise in the answer than in the file."""

    def spec_of(self, uid: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        spec = super().spec_of(uid, results)
        return {**spec, "kind": f"k8s.{self.name}/device"}


@fails("DRA63", also=("DRA62",))
class WritesAnInvalidFile(Mutant):
    """Forgets the version of the specification, and permissions are a word."""

    def spec_of(self, uid: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        spec = super().spec_of(uid, results)
        for device in spec["devices"]:
            device["containerEdits"] = {"deviceNodes": [{"path": "dev/null", "permissions": "all"}]}
        return {**spec, "cdiVersion": ""}


@fails("DRA64")
class WritesInPlace(Mutant):
    """Writes one file for all claims under the name that runtimes read."""

    def cdi_file(self, uid: str) -> Path:
        return self.place.cdi / f"k8s.{self.name}.json"

    def keep(self, uid: str, results: list[dict[str, Any]]) -> None:
        self.prepared[uid] = results
        self.save()
        self.write_all()

    def forget(self, uid: str) -> None:
        if self.prepared.pop(uid, None) is not None:
            self.save()
            self.write_all()

    def write_all(self) -> None:
        specs = [self.spec_of(uid, results) for uid, results in self.prepared.items()]
        devices = [device for spec in specs for device in spec["devices"]]
        if devices:
            self.cdi_file("").write_text(json.dumps({**specs[0], "devices": devices}))
        else:
            self.cdi_file("").unlink(missing_ok=True)


@fails("DRA65", also=("DRA37", "DRA73"))
class LeavesItsFiles(Mutant):
    """Forgets a claim, and not its file."""

    def forget(self, uid: str) -> None:
        if self.prepared.pop(uid, None) is not None:
            self.save()


@fails("DRA66")
class LeavesTemporaryFiles(Mutant):
    """Links the finished file to its name, and leaves the other name."""

    def write(self, path: Path, content: object) -> None:
        super().write(path, content)
        path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp").write_text("")


@fails("DRA67")
class MakesPathsOfUids(Mutant):
    """Removes the file of whatever UID it is told."""

    def cdi_file(self, uid: str) -> Path:
        return self.place.cdi / f"{uid}.json"

    def forget(self, uid: str) -> None:
        self.prepared.pop(uid, None)
        self.cdi_file(uid).unlink(missing_ok=True)
        self.save()


@fails("DRA76")
class AsksTheApiServerToUnprepare(Mutant):
    """Reads the claim in unprepare, and takes only its absence for an answer."""

    async def end_of(self, claim: ClaimName) -> str:
        try:
            await self.api.request("GET", self.claims.format(claim.namespace, claim.name))
        except OSError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 -- a status is an answer
            self.say(str(error))
        return await super().end_of(claim)


@fails("DRA77")
class AsksTheApiServerOnce(Mutant):
    """Refuses a claim at the first error of the API server."""

    patience_seconds = 0.0


@fails("DRA68")
class CountsPrepares(Mutant):
    """Ends a claim at its last unprepare, as if the kubelet called as often for the one as for the other."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counts: Counter[str] = Counter()

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        answer = await super().answer(claim)
        self.counts[claim.uid] += not answer.error
        return answer

    async def end_of(self, claim: ClaimName) -> str:
        self.counts[claim.uid] -= 1
        return "" if self.counts[claim.uid] > 0 else await super().end_of(claim)
