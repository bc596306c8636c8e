"""The tests of plugins: a kubelet for those that need no cluster and know nothing of asyncio.

pytest finds the fixtures `kubelet` and `make_kubelet` by itself; without pytest, `SyncKubelet` is a context
manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devplug.testing.kubelet import SyncKubelet

__all__ = ["SyncKubelet"]


def __getattr__(name: str) -> object:
    """Load the kubelet only when it is wanted: every pytest run imports this package for its fixtures."""
    if name not in __all__:
        raise AttributeError(name)
    from devplug.testing.kubelet import SyncKubelet

    return SyncKubelet
