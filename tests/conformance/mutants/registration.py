"""Mutants that register wrongly, or not at all."""

from __future__ import annotations

from tests.conformance.mutants import Mutant


class NeverRegisters(Mutant):
    """Serves its socket and waits to be found."""

    fails = ("REG01",)

    async def live(self) -> None:
        await self.serve()
        await self.stopping.wait()
