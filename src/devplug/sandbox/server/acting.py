"""What a request does to the registry: each verb is one act that ends before the next one begins.

Watches and logs, which go on, are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.events import core_event, grouped_event
from devplug.sandbox.api.faults import required, unsupported
from devplug.sandbox.api.objects import text
from devplug.sandbox.api.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patched
from devplug.sandbox.api.reviews import review
from devplug.sandbox.api.statuses import (
    StatusError,
    bad_request,
    expired,
    success,
    unclassified,
    unsupported_media_type,
)
from devplug.sandbox.api.storage import version_of
from devplug.sandbox.openapi.nulls import with_zeros
from devplug.sandbox.registry import EVENTS
from devplug.sandbox.requests.bodies import decoded_json, decoded_object, media_type_of
from devplug.sandbox.requests.deleting import delete_options
from devplug.sandbox.requests.fieldreports import of_body, of_patch
from devplug.sandbox.requests.options import (
    Place,
    continue_token,
    list_options,
    write_options,
)
from devplug.sandbox.requests.routes import Verb
from devplug.sandbox.server.answers import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.requests.fieldreports import FieldCheck
    from devplug.sandbox.requests.options import ListOptions
    from devplug.sandbox.requests.routes import Request

__all__ = ["Acts", "Outcome", "kept_resource", "page_of"]

_APPLY: Final = "application/apply-patch"
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
_DONE: Final[Object] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an act."""

    value: Object | Page
    """An object as it is kept, a Status, or several objects."""
    code: int = 200
    warnings: tuple[str, ...] = ()


def kept_resource(resource: Resource) -> Resource:
    """Return the resource under which the objects of another are kept: events are kept in their core form."""
    return EVENTS if resource.kind == "Event" else resource


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
        version, piece, continue_token(Place(version, *_key(piece[-1]))), None if options.selects else rest
    )


class Acts:
    """Does what requests ask; lives as long as the server. `perform` raises `StatusError`."""

    def __init__(self, registry: Registry, field_report: FieldCheck) -> None:
        self._registry = registry
        self._field_report = field_report

    def perform(self, request: Request, body: bytes, content_type: str) -> Outcome:
        """Do what is asked, with the body that came; return what came of it."""
        kept = kept_resource(request.resource)
        match request.verb:
            case Verb.GET:
                return Outcome(self._registry.get(kept, request.namespace, request.name))
            case Verb.CREATE:
                return self._create(request, body, content_type)
            case Verb.UPDATE:
                return self._update(request, body, content_type)
            case Verb.PATCH:
                return self._patch(request, body, content_type)
            case Verb.DELETE:
                return self._delete(request, body, content_type)
            case Verb.DELETE_MANY:
                return self._delete_many(request, body, content_type)
        options = list_options(request.query, request.resource, watches=False)
        return Outcome(page_of(self._registry, request, options))

    def _create(self, request: Request, body: bytes, content_type: str) -> Outcome:
        resource = request.resource
        if request.part_name == "binding" or resource.kind == "Binding":
            return self._bind(request, body, content_type)
        options = write_options(request.query, "CreateOptions")
        given = decoded_object(body, content_type, resource.kind, resource.api_version)
        warnings = of_body(resource, given, options.field_validation, self._field_report)
        if resource.is_review:
            return Outcome(review(resource, given.object), 201, warnings)
        made = self._registry.create(
            kept_resource(resource),
            request.namespace,
            _kept(resource, given.object),
            dry_run=options.dry_run,
        )
        return Outcome(made, 201, warnings)

    def _bind(self, request: Request, body: bytes, content_type: str) -> Outcome:
        options = write_options(request.query, "CreateOptions")
        binding = decoded_object(body, content_type, "Binding", "v1").object
        name = text(binding, "metadata", "name")
        if request.part_name and name != request.name:
            raise bad_request("name in URL does not match name in Binding object")
        faults = []
        if (kind := text(binding, "target", "kind")) not in {"", "Node"}:
            faults.append(unsupported("target.kind", kind, ["Node", "<empty>"]))
        if not text(binding, "target", "name"):
            faults.append(required("target.name"))
        if faults:
            told = ", ".join(map(str, faults))
            raise unclassified(told if len(faults) == 1 else f"[{told}]")
        node_name = text(binding, "target", "name")
        self._registry.bind(request.namespace, name, node_name, dry_run=options.dry_run)
        return Outcome(_DONE, 201)

    def _update(self, request: Request, body: bytes, content_type: str) -> Outcome:
        resource = request.resource
        options = write_options(request.query, "UpdateOptions")
        given = decoded_object(body, content_type, resource.kind, resource.api_version)
        _refuse_other_name(given.object, request)
        warnings = of_body(resource, given, options.field_validation, self._field_report)
        new = _kept(resource, given.object)
        stored = self._changed(request, lambda _: new, dry_run=options.dry_run)
        return Outcome(stored, warnings=warnings)

    def _patch(self, request: Request, body: bytes, content_type: str) -> Outcome:
        resource, media_type = request.resource, media_type_of(content_type)
        if media_type.startswith(_APPLY):
            told = "the devplug sandbox has no server-side apply; use kubectl apply without --server-side"
            raise StatusError(415, "UnsupportedMediaType", told)
        options = write_options(request.query, "PatchOptions")
        if media_type not in _PATCHES:
            raise unsupported_media_type(_PATCHES)
        patch = decoded_json(body)
        warnings: tuple[str, ...] = ()

        def change(kept: Object) -> Object:
            nonlocal warnings
            old = _outer(resource, kept)
            new = patched(old, media_type, patch.value, resource.kind)
            warnings = of_patch(
                resource, old, new, media_type, patch, options.field_validation, self._field_report
            )
            return _kept(resource, new)

        stored = self._changed(request, change, dry_run=options.dry_run)
        return Outcome(stored, warnings=warnings)

    def _changed(self, request: Request, change: Callable[[Object], Object], *, dry_run: bool) -> Object:
        return self._registry.update(
            kept_resource(request.resource),
            request.namespace,
            request.name,
            change,
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


def _kept(resource: Resource, one: Object) -> Object:
    read = with_zeros(resource, one)
    return core_event(read) if kept_resource(resource) != resource else read


def _outer(resource: Resource, one: Object) -> Object:
    return grouped_event(one) if kept_resource(resource) != resource else one


def _refuse_other_name(one: Object, request: Request) -> None:
    """Refuse an object whose name is not the path's (apiserver handlers/rest.go checkName)."""
    namespace, name = _key(one)
    if not name:
        told = f"the name of the object ({request.name} based on URL) was undeterminable"
        raise bad_request(f"{told}: name must be provided")
    if name != request.name:
        told = f"the name of the object ({name}) does not match the name on the URL ({request.name})"
        raise bad_request(told)
    if request.namespace and namespace and namespace != request.namespace:
        told = f"the namespace of the object ({namespace}) does not match the namespace on the request"
        raise bad_request(f"{told} ({request.namespace})")
