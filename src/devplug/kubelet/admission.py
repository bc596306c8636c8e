"""The kubelet's admission of a pod that is already bound to it: devices for each container, or a refusal.

The topology manager's hints and its verdict belong in here, before each container's allocation; under policy
`none`, the default, it has neither (topologymanager/scope_none.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.errors import AllocationError, RemoteError
from devplug.kubelet.pods import Rejection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from devplug.kubelet.pods import Container, Pod

__all__ = ["admit"]


async def admit(pod: Pod, allocate: Callable[[Pod, Container], Awaitable[None]]) -> Rejection | None:
    """Allocate for each container of `pod` in start order; return the refusal, or None if the pod may run.

    The first error ends it. What earlier containers got stays theirs until the pod is inactive.
    """
    for container in pod.in_start_order():
        try:
            await allocate(pod, container)
        except (AllocationError, RemoteError) as error:
            return Rejection.of_error(error)
    return None
