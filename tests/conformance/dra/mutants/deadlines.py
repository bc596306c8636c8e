"""Mutants of the time that a prepare takes, and of calls that come again or at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from devplug.errors import InvalidRequestError
from devplug.wire.dra import ClaimName, PreparedClaim
from tests.conformance.dra.mutants import Mutant, fails
from tests.conformance.dra.right_driver import ClaimError


@fails("DRA53", also=("DRA77",), slow_answer_seconds=3.0)
class HasNoTimeForTheApiServer(Mutant):
    """Gives the API server a second to answer."""

    patience_seconds = 0.0
    answer_seconds = 1.0


@fails("DRA54", also=("DRA84",), claim_limit_seconds=2.0)
class WaitsForEver(Mutant):
    """Waits for the API server, however long it takes."""

    answer_seconds = 3600.0


@fails("DRA55", also=("DRA53", "DRA58"), slow_answer_seconds=4.0)
class StaysBusy(Mutant):
    """Notes that it prepares a claim, and forgets to strike it out where the call was cancelled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.busy: set[str] = set()

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        if claim.uid in self.busy:
            return PreparedClaim(error="the claim is being prepared")
        self.busy.add(claim.uid)
        answer = await super().answer(claim)
        self.busy.discard(claim.uid)
        return answer


@fails("DRA56")
class RemembersRefusals(Mutant):
    """Answers what it has once refused as it did then."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.refused: dict[str, str] = {}

    async def use(self, claim: ClaimName) -> list[dict[str, Any]]:
        if claim.uid in self.refused:
            raise ClaimError(self.refused[claim.uid])
        try:
            return await super().use(claim)
        except ClaimError as error:
            self.refused[claim.uid] = str(error)
            raise


@fails("DRA57")
class RefusesClaimsTwice(Mutant):
    """Takes a claim that is in a call twice for a fault of the kubelet."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        if len({claim.uid for claim in claims}) < len(claims):
            raise InvalidRequestError("a claim is there twice")
        return await super().prepare(claims)


@fails("DRA58")
class DoesOneThingAtATime(Mutant):
    """Refuses what comes while it works."""

    async def answer(self, claim: ClaimName) -> PreparedClaim:
        if self.lock.locked():
            return PreparedClaim(error="busy")
        async with asyncio.timeout(60):
            return await super().answer(claim)
