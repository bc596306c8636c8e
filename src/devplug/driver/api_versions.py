"""The version of resource.k8s.io that an API server serves, found by asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.dra.versions import API_VERSIONS
from devplug.k8s.client import resource_slices
from devplug.k8s.errors import NotThereError

if TYPE_CHECKING:
    from devplug.k8s.client import ApiServer

_NO_SLICE: Final = {"metadata.name": "none"}
"""So that the answer is short: whether there is one of that name does not matter."""


async def served_version(server: ApiServer, *, rights: str) -> str:
    """Return the newest version that the server has; raises `NotThereError` if it has none of them."""
    for version in API_VERSIONS:
        try:
            await server.list(
                resource_slices(version),
                fields=_NO_SLICE,
                rights=rights,
                when_absent=f"the API server has no resource.k8s.io/{version}",
            )
        except NotThereError:
            continue
        return version
    raise NotThereError(
        f"the API server has no resource.k8s.io in {', '.join(API_VERSIONS)}: DRA needs Kubernetes 1.32 or "
        "later, with the API turned on"
    )
