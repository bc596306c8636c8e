"""Our transport and grpcio's at either end: what a conversation is, it has to be over all four pairings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from devplug.wire.transport import GRPCIO, OWN, Transport, chosen


@dataclass(frozen=True)
class Pairing:
    """Who serves, and who calls."""

    server: Transport
    client: Transport

    def __str__(self) -> str:
        return f"{self.server.name}-serves-{self.client.name}"


PAIRINGS = [Pairing(server, client) for server in (OWN, GRPCIO) for client in (OWN, GRPCIO)]


@pytest.fixture(params=PAIRINGS, ids=str)
def pairing(request: pytest.FixtureRequest) -> Iterator[Pairing]:
    """Each in its turn, for every test of a module that uses it."""
    found: Pairing = request.param
    with chosen(server=found.server, client=found.client):
        yield found
