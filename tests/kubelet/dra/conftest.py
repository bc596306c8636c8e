"""What the tests of the DRA manager share: a clock that costs nothing, and a cluster of claims."""

from __future__ import annotations

import pytest

from tests.kubelet.dra_driver import FakeCluster
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()
