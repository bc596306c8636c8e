"""The pytest plugin: fixtures `kubelet`, `make_kubelet` and `kubelet_settings`. Loads nothing until used."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.kubelet.settings import KubeletSettings
    from devplug.testing.kubelet import SyncKubelet

__all__ = ["kubelet", "kubelet_settings", "make_kubelet"]


@pytest.fixture
def kubelet_settings() -> KubeletSettings | None:
    """How `kubelet` is made; override it for a topology policy or a machine. None: as the real one is."""
    return None


@pytest.fixture
def kubelet(
    make_kubelet: Callable[[KubeletSettings | None], SyncKubelet],
    kubelet_settings: KubeletSettings | None,
) -> SyncKubelet:
    """Run a kubelet of its own for the test, in a temporary folder; it and all plugins end with the test."""
    return make_kubelet(kubelet_settings)


@pytest.fixture
def make_kubelet() -> Iterator[Callable[[KubeletSettings | None], SyncKubelet]]:
    """Return a function that runs one more kubelet for the test."""
    from devplug.testing.kubelet import SyncKubelet

    with ExitStack() as stack:

        def make(settings: KubeletSettings | None = None) -> SyncKubelet:
            return stack.enter_context(SyncKubelet(settings))

        yield make
