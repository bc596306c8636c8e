"""The handlers of requests: each verb is one change of the registry, and a watch is a stream of events.

A verb ends before the next one begins. A watcher's stream has what changes, and now and then a bookmark when
nothing does; it knows nothing of HTTP, and whoever reads it ends it. Logs are served by `app`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, text
from devplug.sandbox.api.errors import (
    StatusError,
    bad_request,
    expired,
    required_field,
    success,
    unclassified,
    unsupported_field,
    unsupported_media_type,
)
from devplug.sandbox.api.options import ContinueToken, encoded_token, list_options, write_options
from devplug.sandbox.api.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patched
from devplug.sandbox.api.roles import GROUP
from devplug.sandbox.api.store import version_of
from devplug.sandbox.api.watchlog import ChangeType, bookmark
from devplug.sandbox.authorization.authorizer import EVERYTHING, Rights
from devplug.sandbox.authorization.tokens import issued
from devplug.sandbox.openapi.decoder import field_report
from devplug.sandbox.openapi.encoder import encoded
from devplug.sandbox.server.auth import review
from devplug.sandbox.server.bodies import (
    decoded_json,
    decoded_object,
    delete_options,
    media_type_of,
    of_body,
    of_patch,
)
from devplug.sandbox.server.responses import Page
from devplug.sandbox.server.routes import Verb
from devplug.sandbox.server.versions import asked_form, kept_form, kept_resource

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from devplug.sandbox.api.options import ListOptions
    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.server.routes import Request

_APPLY: Final = "application/apply-patch"
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
_DONE: Final[Object] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}

_UNENFORCED: Final = "the devplug sandbox keeps roles and enforces none; start it with --rbac for that"

BEAT_SECONDS: Final = 60.0
"""The time between two bookmarks of a quiet watch (cacher.go's bookmark timer)."""


# ── Verbs ──


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a verb."""

    value: Object | Page
    """An object as it is kept, a Status, or several objects."""
    code: int = 200
    warnings: tuple[str, ...] = ()


def page_of(registry: Registry, request: Request, options: ListOptions) -> Page:
    """Return the objects, or the next piece of them; raises `StatusError`.

    A piece that is not the first one is taken from what there is now, and told with the first one's version,
    so that who watches from there misses nothing.
    """
    selection = options.selection(request.namespace, request.name)
    listing = registry.listing(kept_resource(request.resource), selection, options.version)
    if options.is_exact and version_of(options.version) != listing.version:
        raise expired(version_of(options.version), listing.version)
    items, version = listing.items, listing.version
    if place := options.place:
        version = place.version
        items = tuple(one for one in items if _key(one) > (place.namespace, place.name))
    if not options.limit or len(items) <= options.limit:
        return Page(version, items)
    piece, rest = items[: options.limit], len(items) - options.limit
    return Page(
        version,
        piece,
        encoded_token(ContinueToken(version, *_key(piece[-1]))),
        None if options.selects else rest,
    )


class RequestHandlers:
    """Performs the verbs of requests; lives as long as the server. `perform` raises `StatusError`."""

    def __init__(self, registry: Registry, secret: str = "") -> None:
        """Change `registry`, and sign tokens with `secret`."""
        self._registry = registry
        self._secret = secret

    def perform(
        self, request: Request, body: bytes, content_type: str, rights: Rights = EVERYTHING
    ) -> Outcome:
        """Perform the verb of a request with its body, for a user with these rights; return the outcome."""
        kept = kept_resource(request.resource)
        match request.verb:
            case Verb.GET:
                return Outcome(self._registry.get(kept, request.namespace, request.name))
            case Verb.CREATE:
                return self._create(request, body, content_type, rights)
            case Verb.UPDATE:
                return self._update(request, body, content_type, rights)
            case Verb.PATCH:
                return self._patch(request, body, content_type, rights)
            case Verb.DELETE:
                return self._delete(request, body, content_type)
            case Verb.DELETE_MANY:
                return self._delete_many(request, body, content_type)
        options = list_options(request.query, request.resource, watches=False)
        return Outcome(page_of(self._registry, request, options))

    def _create(self, request: Request, body: bytes, content_type: str, rights: Rights) -> Outcome:
        resource = request.resource
        if request.part_name == "binding" or resource.kind == "Binding":
            return self._bind(request, body, content_type)
        if request.part_name == "token":
            return self._issue(request, body, content_type)
        options = write_options(request.query, "CreateOptions")
        given = decoded_object(body, content_type, resource.kind, resource.api_version)
        warnings = of_body(resource, given, options.field_validation, field_report)
        if resource.is_review:
            return Outcome(review(resource, given.object, rights), 201, warnings)
        if resource.group == GROUP and rights.authorizer is None:
            warnings = (*warnings, _UNENFORCED)
        rights.require_own_slice(resource, given.object)
        made = self._registry.create(
            kept_resource(resource),
            request.namespace,
            kept_form(resource, given.object),
            dry_run=options.dry_run,
        )
        return Outcome(made, 201, warnings)

    def _issue(self, request: Request, body: bytes, content_type: str) -> Outcome:
        account = self._registry.get(request.resource, request.namespace, request.name)
        asked = decoded_object(body, content_type, "TokenRequest", "authentication.k8s.io/v1").object
        return Outcome(issued(asked, account, self._registry, self._secret), 201)

    def _bind(self, request: Request, body: bytes, content_type: str) -> Outcome:
        options = write_options(request.query, "CreateOptions")
        binding = decoded_object(body, content_type, "Binding", "v1").object
        name = text(binding, "metadata", "name")
        if request.part_name and name != request.name:
            raise bad_request("name in URL does not match name in Binding object")
        errors = []
        if (kind := text(binding, "target", "kind")) not in {"", "Node"}:
            errors.append(unsupported_field("target.kind", kind, ["Node", "<empty>"]))
        if not text(binding, "target", "name"):
            errors.append(required_field("target.name"))
        if errors:
            message = ", ".join(map(str, errors))
            raise unclassified(message if len(errors) == 1 else f"[{message}]")
        node_name = text(binding, "target", "name")
        self._registry.bind(request.namespace, name, node_name, dry_run=options.dry_run)
        return Outcome(_DONE, 201)

    def _update(self, request: Request, body: bytes, content_type: str, rights: Rights) -> Outcome:
        resource = request.resource
        options = write_options(request.query, "UpdateOptions")
        given = decoded_object(body, content_type, resource.kind, resource.api_version)
        _refuse_other_name(given.object, request)
        warnings = of_body(resource, given, options.field_validation, field_report)
        new = kept_form(resource, given.object)
        stored = self._changed(request, lambda _: new, rights, dry_run=options.dry_run)
        return Outcome(stored, warnings=warnings)

    def _patch(self, request: Request, body: bytes, content_type: str, rights: Rights) -> Outcome:
        resource, media_type = request.resource, media_type_of(content_type)
        if media_type.startswith(_APPLY):
            message = "the devplug sandbox has no server-side apply; use kubectl apply without --server-side"
            raise StatusError(415, "UnsupportedMediaType", message)
        options = write_options(request.query, "PatchOptions")
        if media_type not in _PATCHES:
            raise unsupported_media_type(_PATCHES)
        patch = decoded_json(body)
        warnings: tuple[str, ...] = ()

        def change(kept: Object) -> Object:
            nonlocal warnings
            old = asked_form(resource, kept)
            new = patched(old, media_type, patch.value, resource.kind)
            warnings = of_patch(resource, old, new, media_type, patch, options.field_validation, field_report)
            return kept_form(resource, new)

        stored = self._changed(request, change, rights, dry_run=options.dry_run)
        return Outcome(stored, warnings=warnings)

    def _changed(
        self, request: Request, change: Callable[[Object], Object], rights: Rights, *, dry_run: bool
    ) -> Object:
        kept = kept_resource(request.resource)

        def permitted(old: Object) -> Object:
            new = change(old)
            if (kept.kind, request.part_name) == ("ResourceClaim", "status"):
                rights.require_claim_status(request.access, encoded(kept, new), old)
            return new

        return self._registry.update(
            kept,
            request.namespace,
            request.name,
            permitted,
            part_name=request.part_name,
            dry_run=dry_run,
        )

    def _delete(self, request: Request, body: bytes, content_type: str) -> Outcome:
        resource, kept = request.resource, kept_resource(request.resource)
        options = delete_options(body, content_type, request.query)
        deletion = self._registry.delete(
            kept,
            request.namespace,
            request.name,
            grace_seconds=options.grace_seconds,
            preconditions=options.preconditions,
            policy=options.policy,
            dry_run=options.dry_run,
        )
        one = deletion.object
        if deletion.is_gone and not resource.answers_deleted:
            one = success(resource.qualified, request.name, text(one, "metadata", "uid"))
        return Outcome(one)

    def _delete_many(self, request: Request, body: bytes, content_type: str) -> Outcome:
        options = delete_options(body, content_type, request.query)
        asked = list_options(request.query, request.resource, watches=False)
        page = page_of(self._registry, request, asked)
        kept = kept_resource(request.resource)
        deleted = []
        for one in page.items:
            namespace, name = _key(one)
            deletion = self._registry.delete(
                kept,
                namespace,
                name,
                grace_seconds=options.grace_seconds,
                preconditions=options.preconditions,
                policy=options.policy,
                dry_run=options.dry_run,
            )
            deleted.append(deletion.object)
        return Outcome(Page(self._registry.version, tuple(deleted)))


def _key(one: Object) -> tuple[str, str]:
    return text(one, "metadata", "namespace"), text(one, "metadata", "name")


def _refuse_other_name(one: Object, request: Request) -> None:
    """Refuse an object whose name is not the path's (apiserver handlers/rest.go checkName)."""
    namespace, name = _key(one)
    if not name:
        message = f"the name of the object ({request.name} based on URL) was undeterminable"
        raise bad_request(f"{message}: name must be provided")
    if name != request.name:
        message = f"the name of the object ({name}) does not match the name on the URL ({request.name})"
        raise bad_request(message)
    if request.namespace and namespace and namespace != request.namespace:
        message = f"the namespace of the object ({namespace}) does not match the namespace on the request"
        raise bad_request(f"{message} ({request.namespace})")


# ── Watches ──


async def watched(
    registry: Registry, request: Request, options: ListOptions, beat_seconds: float = BEAT_SECONDS
) -> AsyncGenerator[list[WatchEvent], None]:
    """Yield what is sent at once, perhaps nothing, and then what changes, for ever; raises `StatusError`.

    A bookmark tells the version up to which this very watcher has been sent everything: the registry is asked
    anew from there, and what it has not yet told comes before the bookmark.
    """
    resource = kept_resource(request.resource)
    selection = options.selection(request.namespace, request.name)
    lines = registry.watch(resource, selection, options.version, sends_list=options.sends_list)
    beat = beat_seconds if options.bookmarks else None
    ends_quiet = False
    while True:
        async with aclosing(lines):
            events = await anext(lines)
            reached = registry.version
            if ends_quiet:
                events = [*events, bookmark(resource, reached)]
            yield _asked(events, options)
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(beat):
                        events = await anext(lines)
                    reached = registry.version
                    yield _asked(events, options)
        ends_quiet = True
        lines = registry.watch(resource, selection, str(reached), sends_list=False)


def _asked(events: list[WatchEvent], options: ListOptions) -> list[WatchEvent]:
    if options.bookmarks:
        return events
    return [event for event in events if event.type is not ChangeType.BOOKMARK]
