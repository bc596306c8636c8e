"""The pytest plugin: fixtures `kubelet`, `make_kubelet` and `kubelet_settings`. Loads nothing until used.

The report of a test that failed with one of them has what `SyncKubelet.story` tells.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import pluggy

    from devplug.kubelet.settings import KubeletSettings
    from devplug.testing.kubelet import SyncKubelet

_RUNNING: pytest.StashKey[list[SyncKubelet]] = pytest.StashKey()
"""The kubelets of a test, as long as it runs."""


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
def make_kubelet(request: pytest.FixtureRequest) -> Iterator[Callable[[KubeletSettings | None], SyncKubelet]]:
    """Return a function that runs one more kubelet for the test."""
    from devplug.testing.kubelet import SyncKubelet

    running = request.node.stash.setdefault(_RUNNING, [])
    with ExitStack() as stack:
        stack.callback(running.clear)

        def make(settings: KubeletSettings | None = None) -> SyncKubelet:
            kubelet = stack.enter_context(SyncKubelet(settings))
            running.append(kubelet)
            return kubelet

        yield make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Add to the report of a failed test what its kubelets and its plugins' programs have to tell."""
    report = (yield).get_result()
    kubelets = item.stash.get(_RUNNING, [])
    if report.failed and kubelets and call.excinfo is not None:
        from devplug.testing.pods import NotInTimeError

        if not isinstance(call.excinfo.value, NotInTimeError):
            report.sections += [("kubelet", kubelet.story()) for kubelet in kubelets]
