"""Mutants that trust their callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from devplug.conformance.raw_clients import raw
from devplug.errors import InvalidRequestError
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.deviceplugin import Method
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName, PreparedClaim
from devplug.wire.sockets import Binding, unary
from tests.conformance.dra.mutants import Mutant, fails


class DecodesByHand(Mutant):
    """Decodes requests itself."""

    def service_bindings(self) -> tuple[Binding, ...]:
        left = super().service_bindings()[2 * len(self.served) :]
        return (
            *(self.by_hand(PREPARE[one], self.prepare) for one in self.served),
            *(self.by_hand(UNPREPARE[one], self.unprepare) for one in self.served),
            *left,
        )

    def by_hand(self, method: Method[Any, Any], answer: Any) -> Binding:
        async def call(request: bytes) -> bytes:
            return method.response.encode(await answer(self.decoded(method, request)))

        return unary(raw(method), call)

    def decoded(self, method: Method[Any, Any], request: bytes) -> Any:
        return method.request.decode(request)


@fails("DRA83")
class AnswersWhatItCannotRead(DecodesByHand):
    """Takes bytes that it cannot decode for a call without claims."""

    def decoded(self, method: Method[Any, Any], request: bytes) -> Any:
        try:
            return super().decoded(method, request)
        except MalformedMessageError:
            return ()


@fails("DRA84")
class EndsAtManyClaims(Mutant):
    """Has room for sixty-four claims in a call."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        if len(claims) > 64:
            self.stopping.set()
        return await super().prepare(claims)


@fails("DRA85")
class RefusesNewFields(DecodesByHand):
    """Refuses a message that has more than it knows."""

    def decoded(self, method: Method[Any, Any], request: bytes) -> Any:
        found = super().decoded(method, request)
        if len(method.request.encode(found)) != len(request):
            raise InvalidRequestError("there is an unknown field")
        return found


@fails("DRA86")
class MakesPathsOfNames(Mutant):
    """Puts names into the path of a request as they are."""

    def path_of(self, claim: ClaimName) -> str:
        super().path_of(claim)
        return self.claims.format(claim.namespace, claim.name)
