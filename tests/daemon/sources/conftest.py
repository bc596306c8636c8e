"""The machine on which the sources' tests look for devices."""

from __future__ import annotations

import pytest

from tests.daemon.hosts import MAY_MAKE_NODES, NO_NODES
from tests.daemon.machines import Machine
from tests.daemon.systrees import machine_with_everything


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if not MAY_MAKE_NODES:
        pytest.skip(NO_NODES)
    return machine_with_everything(tmp_path_factory.mktemp("everything"))
