"""The API server of a driver's test bed, as a value that whoever starts the judge gives it.

The judge knows this interface and no server: `devplug verify` and the tests give it the sandbox's, which is a
sibling of this package. So the judge stays free of the sandbox, and its rules of how a cluster is emulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from devplug.k8s.objects import Object
    from devplug.k8s.podaccount import PodAccount


class AnsweredRequest(Protocol):
    """A request whose answer has begun."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def path(self) -> str:
        """From `/api` or `/apis` on; `?watch` at its end marks a watch."""

    @property
    def code(self) -> int:
        """The HTTP status."""

    @property
    def at(self) -> float:
        """The monotonic time."""


class ClusterApi(Protocol):
    """An API server with the namespace `default` and one node; its kinds are of resource.k8s.io/v1."""

    refuse_code: int
    """The HTTP status of every answer; 0 to answer rightly."""
    delay_seconds: float
    """How long each answer is held back; a change is for requests that wait already, too."""
    dropped: Sequence[str]
    """The fields of devices in slices that it does not know, and drops."""
    kubeconfig: str
    """The text of a kubeconfig for it."""

    @property
    def account(self) -> PodAccount | None:
        """The driver's service account; None for a server without TLS."""

    @property
    def requests(self) -> Sequence[AnsweredRequest]:
        """All requests that were answered, the newest last."""

    async def start(self) -> None:
        """Listen again, at the same port."""

    async def stop(self) -> None:
        """Be away: every connection ends, and new ones are refused."""

    def slices(self) -> Sequence[Object]:
        """Return all ResourceSlices."""

    def create(self, kind: str, content: Object) -> Object:
        """Store a new object, with its status, and return it."""

    def replace(self, kind: str, name: str, change: Callable[[Object], Object], *, part: str = "") -> Object:
        """Store an object with a change, or its subresource `part`; return it."""

    def delete(self, kind: str, name: str) -> None:
        """Remove an object, if it is there."""

    def compact(self) -> None:
        """Forget the changes of slices so far: who watches since before gets 410."""


OpenClusterApi: TypeAlias = "Callable[[str, Callable[[], None]], AbstractAsyncContextManager[ClusterApi]]"
"""Opens one that listens, for a node's name; what is called after each request and change of a slice."""
