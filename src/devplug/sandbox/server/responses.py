"""The responses of the server, in the form that `Accept` chooses: objects, Tables, or metadata alone. Pure.

The choice is the API server's (apiserver endpoints/handlers/negotiation); everything is JSON.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, fields, text, with_part
from devplug.sandbox.api.errors import not_acceptable
from devplug.sandbox.api.tables import IncludeObject, table
from devplug.sandbox.server.versions import asked_form, kept_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from devplug.sandbox.api.errors import StatusError
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.watchlog import WatchEvent

_JSON: Final = "application/json"
_META: Final = "meta.k8s.io/v1"
_OFFERED: Final = (
    _JSON,
    f"{_JSON};as=Table;g=meta.k8s.io;v=v1",
    f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
)

_READERS: Final = ("Mozilla/5.0", "Wget", "curl")
"""Clients whose answers people read themselves (handlers/negotiation isPrettyPrint)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer."""

    code: int
    body: bytes = b""
    media_type: str = _JSON
    warnings: tuple[str, ...] = ()
    """Sentences for people, which kubectl prints."""


class Form(enum.Enum):
    """In which form objects are answered."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of one kind, which are answered together."""

    version: int
    items: tuple[Object, ...]
    continue_token: str = ""
    """What the next piece is asked for with; empty if this is the last one."""
    remaining: int | None = None
    """How many come after this piece, where that is known."""

    @property
    def meta(self) -> Object:
        """The metadata of the list."""
        meta: Object = {"resourceVersion": str(self.version)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining:
            meta["remainingItemCount"] = self.remaining
        return meta


@dataclass(frozen=True, slots=True)
class _Clause:
    media_type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    quality: float = 1.0


def accepted_forms(accept: str) -> list[tuple[str, Mapping[str, str]]]:
    """Return what a client takes, best first: media types and their parameters, in small letters."""
    clauses = [_clause(written) for written in accept.split(",") if written.strip()] or [_Clause("*/*")]
    clauses.sort(key=lambda clause: -clause.quality)
    return [(clause.media_type, clause.parameters) for clause in clauses if clause.quality]


def form_of(accept: str) -> Form:
    """Return the form that a client takes and we have; raises `StatusError` (406)."""
    for media_type, parameters in accepted_forms(accept):
        if media_type not in {_JSON, "application/*", "*/*"}:
            continue
        kind = parameters.get("as", "").removesuffix("list")
        if kind and (parameters.get("g"), parameters.get("v")) != ("meta.k8s.io", "v1"):
            continue
        for form in Form:
            if form.value.lower() == kind:
                return form
    raise not_acceptable(_OFFERED)


def json_text(value: object, *, pretty: bool = False) -> bytes:
    """Return a JSON document with a line's end after it."""
    if pretty:
        return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
    return (json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def wants_pretty(query: Mapping[str, Sequence[str]], user_agent: str) -> bool:
    """Whether a person reads the answer as it is, so that it has lines and indents."""
    if values := query.get("pretty"):
        return values[0].lower() not in {"false", "0"}
    return user_agent.startswith(_READERS)


def json_answer(
    value: object, code: int = 200, *, pretty: bool = False, warnings: tuple[str, ...] = ()
) -> Answer:
    """Answer a JSON document."""
    return Answer(code, json_text(value, pretty=pretty), warnings=warnings)


def text_answer(body: str, code: int = 200) -> Answer:
    """Answer a text."""
    return Answer(code, body.encode(), "text/plain; charset=utf-8")


def refusal_answer(refusal: StatusError, *, pretty: bool = False) -> Answer:
    """Answer a refusal, which is a Status whatever form the client takes."""
    return json_answer(refusal.status, refusal.code, pretty=pretty)


def rendered_object(
    resource: Resource,
    one: Object,
    form: Form,
    now: datetime,
    include: IncludeObject = IncludeObject.METADATA,
    *,
    with_columns: bool = True,
) -> Object:
    """Return one object, as it is kept, in a form; a Status stays one."""
    if text(one, "kind") == "Status":
        return one
    match form:
        case Form.TABLE:
            version = text(one, "metadata", "resourceVersion")
            made = table(resource, [one], version, now, include, with_columns=with_columns)
            return _with_outer_rows(resource, made, include)
        case Form.METADATA:
            return _metadata(one)
    return asked_form(resource, one)


def rendered_page(
    resource: Resource, page: Page, form: Form, now: datetime, include: IncludeObject = IncludeObject.METADATA
) -> Object:
    """Return objects, as they are kept, as a list in a form; the items of a list do not tell their kind."""
    match form:
        case Form.TABLE:
            made = table(resource, page.items, str(page.version), now, include)
            return _with_outer_rows(resource, {**made, "metadata": page.meta}, include)
        case Form.METADATA:
            items = [_metadata(one) for one in page.items]
            return {
                "kind": "PartialObjectMetadataList",
                "apiVersion": _META,
                "metadata": page.meta,
                "items": items,
            }
    items = [
        {key: value for key, value in asked_form(resource, one).items() if key not in {"kind", "apiVersion"}}
        for one in page.items
    ]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": page.meta,
        "items": items,
    }


def watch_lines(
    resource: Resource,
    events: Iterable[WatchEvent],
    form: Form,
    now: datetime,
    include: IncludeObject = IncludeObject.METADATA,
    *,
    with_columns: bool = False,
) -> bytes:
    """Return what a watcher reads of events, one line each; the first Table of a watch has its columns."""
    lines: list[bytes] = []
    for event in events:
        first = with_columns and not lines
        sent = rendered_object(resource, event.object, form, now, include, with_columns=first)
        lines.append(json_text({"type": event.type.value, "object": sent}))
    return b"".join(lines)


def error_line(refusal: StatusError) -> bytes:
    """Return what a watcher reads last when the watch cannot go on."""
    return json_text({"type": "ERROR", "object": refusal.status})


def _clause(written: str) -> _Clause:
    media_type, *rest = (word.strip() for word in written.lower().split(";"))
    parameters = dict(word.split("=", 1) for word in rest if "=" in word)
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return _Clause(media_type, parameters, quality)


def _metadata(one: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": fields(one, "metadata")}


def _with_outer_rows(resource: Resource, made: Object, include: IncludeObject) -> Object:
    if include is not IncludeObject.OBJECT or kept_resource(resource) == resource:
        return made
    rows = made["rows"]
    assert isinstance(rows, list)
    return with_part(
        made, [{**row, "object": asked_form(resource, fields(row, "object"))} for row in rows], "rows"
    )
