"""The client of an API server: objects of a few kinds, as maps."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from devplug.backoff import backoff_seconds
from devplug.k8s.answers import ANSWER_LIMIT_BYTES, decoded_object
from devplug.k8s.errors import AnswerError, UnreachableError, explained
from devplug.k8s.objects import maps, text, whole
from devplug.linux.notifier import within
from devplug.pace import Pace
from devplug.web.messages import TooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    from devplug.k8s.account import Account
    from devplug.k8s.objects import Object

LIST_PAGE: Final = 500
"""Objects that are asked for at once; a quarter of it after an answer that was too large."""

LIST_LIMIT: Final = 200_000
"""Objects of a list; Kubernetes is made for 150,000 pods."""

_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"

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
DEVICE_TAINT_RULES: Final = tuple(
    Kind(_RESOURCE, version, "DeviceTaintRule", "devicetaintrules", is_namespaced=False)
    for version in ("v1beta2", "v1alpha3")
)
"""The versions of the DeviceTaintRules, the newest first: a cluster may serve any of them, or none."""


def resource_slices(version: str) -> Kind:
    """Return the ResourceSlices of one version of resource.k8s.io."""
    return replace(SLICES, version=version)


LEAST_SECONDS: Final = 1.0
"""The shortest wait that an answer over another connection ends."""


class Retries(Struct, frozen=True):
    """The waits after failures: each is twice the one before, and half of it is random."""

    first_seconds: float = 1.0
    most_seconds: float = 60.0

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after so many failures in a row."""
        longest = backoff_seconds(failures, self.first_seconds, self.most_seconds)
        return longest * random.uniform(0.5, 1)  # noqa: S311 -- so that not all machines come back at once


async def until_next_try(seconds: float, error: Exception) -> None:
    """Wait so long after a failure; after one without an answer, until the API server gives another answer.

    Another connection of this process may get that answer. It ends the wait after a second at the earliest,
    as two connections that fail in turn would end each other's waits.
    """
    from devplug.k8s.calls import answers  # here: few daemons have an API server

    answer = answers().next
    least = min(seconds, LEAST_SECONDS)
    await asyncio.sleep(least)
    if isinstance(error, UnreachableError):
        await within(seconds - least, answer.wait())
    else:
        await asyncio.sleep(seconds - least)


@asynccontextmanager
async def connected(account_of: Callable[[], Account]) -> AsyncIterator[ApiServer]:
    """A client of an API server with this account; it makes no call yet. Raises `ClusterError`."""
    server = ApiServer(account_of())
    try:
        yield server
    finally:
        server.close()


class ApiServer:
    """A client of an API server with one account; lives as long as the block of `connected`.

    Every request is answered within 30 seconds, or raises `ClusterError`. `rights` are named in its text
    if the server refuses, and `when_absent` is its text if the object does not exist.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        from devplug.k8s.calls import ApiCalls  # here: few daemons have an API server

        self._calls = ApiCalls(account)
        self._watch_pace = Pace(WATCHES_PER_SECOND)

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    async def get(
        self, kind: Kind, name: str, *, namespace: str = "", rights: str = "", when_absent: str = ""
    ) -> Object:
        """Return one object; raises `NotThereError` if it is not there and `when_absent` says so."""
        absent = when_absent or f"there is no {kind.name} {name}"
        with explained(self._advice(rights), absent):
            return await self._calls.ask("GET", _path(kind, namespace, name))

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
        query = {"labelSelector": labels, "fieldSelector": _selector(fields)}
        page_size = LIST_PAGE
        found: list[Object] = []
        with explained(self._advice(rights), when_absent):
            while True:
                query["limit"] = str(page_size)
                try:
                    page = await self._calls.ask("GET", _path(kind, namespace), query)
                except TooLargeError:
                    if page_size == 1:
                        raise
                    page_size = max(1, page_size // 4)
                    continue
                found += maps(page, "items")
                query["continue"] = text(page, "metadata", "continue")
                if len(found) > LIST_LIMIT:
                    raise TooLargeError(f"the API server lists more than {LIST_LIMIT} objects of one kind")
                if not query["continue"]:
                    return found, text(page, "metadata", "resourceVersion")

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
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        query = {"watch": "true", "timeoutSeconds": str(int(seconds) + 1), "fieldSelector": _selector(fields)}
        version = since
        while True:
            with explained(self._advice(rights)):
                try:
                    async with asyncio.timeout_at(deadline):
                        await asyncio.sleep(self._watch_pace.wait_seconds(clock()))
                        self._watch_pace.spend(clock())
                        stream = await self._calls.begin(
                            "GET", _path(kind), query | {"resourceVersion": version}
                        )
                except TimeoutError:
                    return
            try:
                async with aclosing(stream.lines(ANSWER_LIMIT_BYTES)) as lines:
                    while True:
                        with explained(self._advice(rights)):
                            try:
                                async with asyncio.timeout_at(deadline):
                                    line = await anext(lines, None)
                            except TimeoutError:
                                return
                            if line is None:
                                break
                            change, found = _event(line)
                        # Without a version, a watch begins with what there is.
                        version = text(found, "metadata", "resourceVersion")
                        yield change, found
            finally:
                stream.close()

    async def create(self, kind: Kind, content: Object, *, namespace: str = "", rights: str = "") -> Object:
        """Make an object and return it as it is stored; `content` may leave out its apiVersion and kind.

        Raises `ExistsError` if there is one of that name.
        """
        with explained(self._advice(rights)):
            return await self._calls.ask("POST", _path(kind, namespace), {}, _whole(kind, content))

    async def create_dry_run(self, kind: Kind, content: Object, *, rights: str = "") -> Object:
        """Return an object without a namespace as it would be stored, and store nothing."""
        with explained(self._advice(rights)):
            return await self._calls.ask("POST", _path(kind), {"dryRun": "All"}, _whole(kind, content))

    async def replace(
        self, kind: Kind, content: Object, *, rights: str = "", when_absent: str = ""
    ) -> Object:
        """Replace an object without a namespace, and return it as it is stored.

        Raises `ExistsError` if it is not at the `resourceVersion` of `content` any more.
        """
        path = _path(kind, "", text(content, "metadata", "name"))
        with explained(self._advice(rights), when_absent):
            return await self._calls.ask("PUT", path, {}, _whole(kind, content))

    async def delete(self, kind: Kind, name: str, *, rights: str = "", when_absent: str = "") -> None:
        """Delete an object without a namespace."""
        with explained(self._advice(rights), when_absent):
            await self._calls.ask("DELETE", _path(kind, "", name))

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
        with explained(self._advice(rights), when_absent):
            await self._calls.ask("PATCH", _path(kind, namespace, name), {}, patch, media_type=_MERGE)

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
        path = f"{_path(kind, namespace, name)}/status"
        query = {"dryRun": "All" if dry_run else ""}
        media_type = _JSON_PATCH if isinstance(patch, list) else _STRATEGIC
        with explained(self._advice(rights), when_absent):
            await self._calls.ask("PATCH", path, query, patch, media_type=media_type)

    def _advice(self, rights: str) -> str:
        return self.account.advice.format(rights=rights or READING_RIGHTS)


def _path(kind: Kind, namespace: str = "", name: str = "") -> str:
    """Return the path of an object, or of all of its kind."""
    group = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.is_namespaced else ""
    return f"{group}{within}/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _selector(fields: Mapping[str, str] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in (fields or {}).items())


def _whole(kind: Kind, content: Object) -> Object:
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {"apiVersion": version, "kind": kind.name, **content}


def _event(line: bytes) -> tuple[str, Object]:
    """Return one event of a watch. Raises `AnswerError` for that which ends it, `ValueError` for nonsense."""
    event = decoded_object(line)
    change, found = text(event, "type"), event.get("object")
    if change == "ERROR":
        raise AnswerError(whole(found, "code"), text(found, "message") or text(found, "reason"))
    if not change or not isinstance(found, dict):
        raise ValueError("an event of a watch has no object")
    return change, found
