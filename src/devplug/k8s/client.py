"""The client of an API server: objects of a few kinds, as maps, over one connection at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from devplug.backoff import backoff_seconds
from devplug.errors import one_line
from devplug.k8s.errors import ClusterError, explained
from devplug.pace import Pace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from lightkube import AsyncClient

    from devplug.k8s.account import Account
    from devplug.k8s.objects import Object

__all__ = [
    "ANSWER_SECONDS",
    "CLAIMS",
    "CLAIM_TEMPLATES",
    "DEVICE_CLASSES",
    "EVENTS",
    "NODES",
    "PODS",
    "READING_RIGHTS",
    "SLICES",
    "ApiServer",
    "Kind",
    "Retries",
    "connected",
    "device_classes",
    "resource_slices",
]

ANSWER_SECONDS: Final = 30.0
"""Longest wait for an answer."""

LIST_PAGE: Final = 500

WATCHES_PER_SECOND: Final = 0.2
"""How often watches may begin, after the first few: who stands between may end each one at once."""

READING_RIGHTS: Final = (
    "kubectl create clusterrole devplug-view --verb=get,list --resource=pods,nodes,events, "
    "and bind it with kubectl create clusterrolebinding"
)
"""The commands that give a person the rights for all our tools."""


class Kind(Struct, frozen=True):
    """A kind of object, with its names in the API."""

    group: str
    """Empty for the core group."""
    version: str
    name: str
    plural: str
    is_namespaced: bool


NODES: Final = Kind("", "v1", "Node", "nodes", is_namespaced=False)
PODS: Final = Kind("", "v1", "Pod", "pods", is_namespaced=True)
EVENTS: Final = Kind("", "v1", "Event", "events", is_namespaced=True)


_RESOURCE: Final = "resource.k8s.io"
CLAIMS: Final = Kind(_RESOURCE, "v1", "ResourceClaim", "resourceclaims", is_namespaced=True)
CLAIM_TEMPLATES: Final = Kind(
    _RESOURCE, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", is_namespaced=True
)
DEVICE_CLASSES: Final = Kind(_RESOURCE, "v1", "DeviceClass", "deviceclasses", is_namespaced=False)
SLICES: Final = Kind(_RESOURCE, "v1", "ResourceSlice", "resourceslices", is_namespaced=False)


def device_classes(version: str) -> Kind:
    """Return the DeviceClasses of one version of resource.k8s.io."""
    return replace(DEVICE_CLASSES, version=version)


def resource_slices(version: str) -> Kind:
    """Return the ResourceSlices of one version of resource.k8s.io."""
    return replace(SLICES, version=version)


class Retries(Struct, frozen=True):
    """The waits after failures: each is twice the one before, and half of it is random."""

    first_seconds: float = 1.0
    most_seconds: float = 60.0

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after so many failures in a row."""
        longest = backoff_seconds(failures, self.first_seconds, self.most_seconds)
        return longest * random.uniform(0.5, 1)  # noqa: S311 -- so that not all machines come back at once


@asynccontextmanager
async def connected(account_of: Callable[[], Account]) -> AsyncIterator[ApiServer]:
    """A client of an API server with this account; it makes no call yet. Raises `ClusterError`."""
    # In a thread: the import and the certificates take a fifth of a second, in which pods may be admitted.
    server = await asyncio.to_thread(lambda: ApiServer(account_of()))
    try:
        yield server
    finally:
        await server.close()


class ApiServer:
    """A client of an API server with one account; lives as long as the block of `connected`.

    Every question ends within `ANSWER_SECONDS` or raises `ClusterError`. `rights` are named in its text
    if the server refuses, and `when_absent` is its text if the object does not exist.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self._client = _client(account)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(
        self, kind: Kind, name: str, *, namespace: str = "", rights: str = "", when_absent: str = ""
    ) -> Object:
        """Return one object; raises `NotThereError` if it is not there and `when_absent` says so."""
        absent = when_absent or f"there is no {kind.name} {name}"
        with explained(self._advice(rights), absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._client.get(_resource(kind), name, namespace=namespace or None)
            return dict(cast("Mapping[str, object]", found))

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: Mapping[str, str] | None = None,
        rights: str = "",
        when_absent: str = "",
    ) -> Sequence[Object]:
        """Return all objects of a kind, in one namespace or in all, page by page.

        `labels` is a selector as kubectl has it.
        """
        found, _ = await self._listed(kind, namespace, labels, fields, rights, when_absent)
        return found

    async def list_to_watch(
        self, kind: Kind, *, fields: Mapping[str, str] | None = None, rights: str = "", when_absent: str = ""
    ) -> tuple[Sequence[Object], str]:
        """Return all objects of a kind, and the version from which `watch` goes on."""
        return await self._listed(kind, "", "", fields, rights, when_absent)

    async def _listed(
        self,
        kind: Kind,
        namespace: str,
        labels: str,
        fields: Mapping[str, str] | None,
        rights: str,
        when_absent: str,
    ) -> tuple[Sequence[Object], str]:
        with explained(self._advice(rights), when_absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                found = self._client.list(
                    _resource(kind),
                    namespace=(namespace or "*") if kind.is_namespaced else None,
                    chunk_size=LIST_PAGE,
                    # To lightkube this is one key that has to exist, which it writes as it stands.
                    labels={labels: None} if labels else None,
                    fields=dict(fields) if fields else None,
                )
                # Its public name is an error where a server gives no version.
                return [dict(one) async for one in found], found._resourceVersion or ""  # noqa: SLF001

    async def watch(
        self,
        kind: Kind,
        *,
        seconds: float,
        fields: Mapping[str, str] | None = None,
        since: str = "",
        rights: str = "",
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yield changes (`ADDED`, `MODIFIED`, `DELETED` and the object) for so long.

        They begin after the version `since`, or without one with what there is. Raises `ExpiredError` if the
        server no longer knows what has changed since then.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        # Without a version, a watch begins with what there is: the first event shows that it is allowed.
        events = self._client.watch(
            _resource(kind),
            fields=dict(fields) if fields else None,
            server_timeout=int(seconds) + 1,
            resource_version=since or None,
        )
        async with aclosing(cast("AsyncGenerator[tuple[str, Mapping[str, object]]]", events)) as stream:
            while True:
                with explained(self._advice(rights)):
                    try:
                        async with asyncio.timeout_at(deadline):
                            change, found = await anext(stream)
                    except TimeoutError:
                        return
                yield change, dict(found)

    async def create(self, kind: Kind, content: Object, *, namespace: str = "", rights: str = "") -> Object:
        """Make an object and return it as it is stored; `content` may leave out its apiVersion and kind.

        Raises `ExistsError` if there is one of that name.
        """
        with explained(self._advice(rights)):
            async with asyncio.timeout(ANSWER_SECONDS):
                create: Any = self._client.create  # its overloads know no classes that are made here
                made = await create(
                    _resource(kind)(content), **({"namespace": namespace} if namespace else {})
                )
            return dict(made)

    async def create_dry_run(self, kind: Kind, content: Object, *, rights: str = "") -> Object:
        """Return an object without a namespace as it would be stored, and store nothing."""
        with explained(self._advice(rights)):
            async with asyncio.timeout(ANSWER_SECONDS):
                create: Any = self._client.create
                return dict(await create(_resource(kind)(content), dry_run=True))

    async def replace(
        self, kind: Kind, content: Object, *, rights: str = "", when_absent: str = ""
    ) -> Object:
        """Replace an object without a namespace, and return it as it is stored.

        Raises `ExistsError` if it is not at the `resourceVersion` of `content` any more.
        """
        with explained(self._advice(rights), when_absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                put: Any = self._client.replace
                return dict(await put(_resource(kind)(content)))

    async def delete(self, kind: Kind, name: str, *, rights: str = "", when_absent: str = "") -> None:
        """Delete an object without a namespace."""
        with explained(self._advice(rights), when_absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.delete(_resource(kind), name)

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: object,
        *,
        namespace: str = "",
        rights: str = "",
        when_absent: str = "",
    ) -> None:
        """Change an object, but for its status, by a merge patch."""
        from lightkube.types import PatchType

        with explained(self._advice(rights), when_absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.patch(
                    _resource(kind), name, patch, namespace=namespace or None, patch_type=PatchType.MERGE
                )

    async def patch_status(
        self,
        kind: Kind,
        name: str,
        patch: object,
        *,
        namespace: str = "",
        dry_run: bool = False,
        rights: str = "",
        when_absent: str = "",
    ) -> None:
        """Change an object's status: by a JSON patch if `patch` is a list, else by strategic merge."""
        from lightkube.types import PatchType

        type_ = PatchType.JSON if isinstance(patch, list) else PatchType.STRATEGIC
        with explained(self._advice(rights), when_absent):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.patch(
                    _status_of(kind),
                    name,
                    patch,
                    namespace=namespace or None,
                    patch_type=type_,
                    dry_run=dry_run,
                )

    def _advice(self, rights: str) -> str:
        return self.account.advice.format(rights=rights or READING_RIGHTS)


def _client(account: Account) -> AsyncClient:
    import lightkube

    # It logs each request at INFO.
    http = logging.getLogger("httpx2")
    if http.level == logging.NOTSET:
        http.setLevel(logging.WARNING)
    try:
        client = lightkube.AsyncClient(account.config, trust_env=not account.is_here)
        # It begins a watch again as soon as one ends, and has no option for that.
        client._client._client.event_hooks["request"].append(_paced_watches())  # noqa: SLF001
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}", 120)
        raise ClusterError(
            f"cannot use the account of {account.where}: {why}; mend it or mount it again"
        ) from error
    return client


def _paced_watches() -> Callable[[Any], Awaitable[None]]:
    """Return a hook of a client that has its watches wait for their turn."""
    pace = Pace(WATCHES_PER_SECOND)

    async def wait(request: Any) -> None:  # noqa: ANN401 -- of lightkube's HTTP client
        if request.url.params.get("watch") != "true":
            return
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(pace.wait_seconds(clock()))
        pace.spend(clock())

    return wait


@cache
def _resource(kind: Kind) -> Any:  # noqa: ANN401 -- lightkube's classes are made here
    """Return lightkube's class for objects that stay maps, with every field that the server sends."""
    from lightkube import generic_resource as generic

    base = generic.GenericNamespacedResource if kind.is_namespaced else generic.GenericGlobalResource
    info = generic.create_api_info(kind.group, kind.version, kind.name, kind.plural)
    return type(kind.name, (base,), {"_api_info": info})


@cache
def _status_of(kind: Kind) -> Any:  # noqa: ANN401 -- as above
    from lightkube import generic_resource as generic
    from lightkube.core.resource import ApiInfo

    base = generic.GenericNamespacedStatus if kind.is_namespaced else generic.GenericGlobalStatus
    main = _resource(kind)._api_info.resource  # noqa: SLF001 -- lightkube's own way to say it
    info = ApiInfo(main, kind.plural, ["get", "patch", "put"], parent=main, action="status")
    return type(f"{kind.name}Status", (base,), {"_api_info": info})
