"""What the tests of the DRA manager share: a clock that costs nothing, and a cluster of claims."""

from __future__ import annotations

import pytest

from tests.kubelet.dra_driver import FakeCluster
from tests.virtualtime import BACKEND


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()
