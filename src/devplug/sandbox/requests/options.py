"""What the query of a request asks for, as a value, with the API server's refusals of what nobody can ask.

The rules are apimachinery's (apis/meta/internalversion/validation, apis/meta/v1/validation; query parameters
by runtime/conversion.go). Pure.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.changes import Selection
from devplug.sandbox.api.faults import forbidden, go_json, unsupported
from devplug.sandbox.api.fieldselectors import FieldSelector, FieldTerm, field_selector
from devplug.sandbox.api.objects import text, whole
from devplug.sandbox.api.selectors import LabelSelector, SelectorError, label_selector
from devplug.sandbox.api.statuses import bad_request, invalid
from devplug.sandbox.api.tables import IncludeObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.sandbox.api.faults import FieldFault
    from devplug.sandbox.api.kinds import Resource

__all__ = [
    "FieldValidation",
    "ListOptions",
    "Place",
    "WriteOptions",
    "continue_token",
    "dry_run_faults",
    "flag_of",
    "include_of",
    "list_options",
    "number_of",
    "place_of_token",
    "refuse_options",
    "write_options",
]

_EXACT: Final = "Exact"
_NOT_OLDER: Final = "NotOlderThan"
_MATCH: Final = "resourceVersionMatch"
_SENDS: Final = "sendInitialEvents"


class FieldValidation(enum.Enum):
    """What becomes of fields that a kind does not have."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list goes on that was answered in pieces: after one object, with the first piece's version."""

    version: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list, a watch or the deletion of many asks for."""

    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)
    version: str = ""
    """The resource version as the client wrote it; empty for none."""
    version_match: str = ""
    limit: int = 0
    """How many objects one answer may have; 0 for all."""
    place: Place | None = None
    bookmarks: bool = False
    sends_list: bool | None = None
    timeout_seconds: int | None = None

    def selection(self, namespace: str, name: str = "") -> Selection:
        """Return which objects are asked for, in one namespace or all, and perhaps of one name."""
        terms = self.fields.terms
        if name:
            terms = (*terms, FieldTerm("metadata.name", name))
        return Selection(namespace, self.labels, FieldSelector(terms))

    @property
    def selects(self) -> bool:
        """Whether some objects are left out."""
        return bool(self.labels.requirements or self.fields.terms)

    @property
    def is_exact(self) -> bool:
        """Whether only this version will do."""
        return self.version_match == _EXACT


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a change asks for."""

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.WARN


def list_options(query: Mapping[str, Sequence[str]], resource: Resource, *, watches: bool) -> ListOptions:
    """Return what is asked for; raises `StatusError`."""
    one = {key: values[0] for key, values in query.items() if values}
    try:
        labels = label_selector(one.get("labelSelector", ""))
        chosen = field_selector(one.get("fieldSelector", ""), resource)
    except SelectorError as error:
        raise bad_request(str(error)) from error
    options = ListOptions(
        labels,
        chosen,
        one.get("resourceVersion", ""),
        one.get(_MATCH, ""),
        max(number_of(query, "limit") or 0, 0),
        None if watches else place_of_token(one.get("continue", "")),
        flag_of(query, "allowWatchBookmarks") or False,
        flag_of(query, _SENDS),
        number_of(query, "timeoutSeconds"),
    )
    continues = bool(one.get("continue"))
    faults = (
        _watch_faults(options, continues=continues) if watches else _list_faults(options, continues=continues)
    )
    refuse_options("ListOptions", faults)
    return options


def write_options(query: Mapping[str, Sequence[str]], kind: str) -> WriteOptions:
    """Return what is asked for; `kind` is the one of the options, as in `CreateOptions`.

    Raises `StatusError`.
    """
    dry_runs = query.get("dryRun", ())
    wanted = (query.get("fieldValidation") or [""])[0]
    faults = list(dry_run_faults(dry_runs))
    known = ["", *(one.value for one in FieldValidation)]
    if wanted not in known:
        faults.append(unsupported("fieldValidation", wanted, sorted(known)))
    refuse_options(kind, faults)
    return WriteOptions(bool(dry_runs), FieldValidation(wanted or "Warn"))


def dry_run_faults(written: Sequence[object]) -> Iterator[FieldFault]:
    """Yield what is wrong with a `dryRun`; only `All` is known."""
    if any(one != "All" for one in written):
        yield unsupported("dryRun", list(written), ["All"])


def refuse_options(kind: str, faults: Sequence[FieldFault]) -> None:
    """Refuse options that have faults, with a 422."""
    if faults:
        raise invalid(f"{kind}.meta.k8s.io", "", faults)


def include_of(query: Mapping[str, Sequence[str]]) -> IncludeObject:
    """Return how much of an object stands in a row of a Table; raises `StatusError`."""
    written = (query.get("includeObject") or [""])[0]
    try:
        return IncludeObject(written or "Metadata")
    except ValueError as error:
        known = [one.value for one in IncludeObject]
        refuse_options("TableOptions", [unsupported("includeObject", written, known)])
        raise AssertionError from error


def flag_of(query: Mapping[str, Sequence[str]], name: str) -> bool | None:
    """Return a boolean, None if it is not told: only `false` and `0` are false (runtime/conversion.go)."""
    values = query.get(name)
    return None if not values else values[0].lower() not in {"false", "0"}


def number_of(query: Mapping[str, Sequence[str]], name: str) -> int | None:
    """Return a whole number, None if it is not told; raises `StatusError`."""
    written = (query.get(name) or [""])[0]
    if not written:
        return None
    digits = written[1:] if written[0] in "+-" else written
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f"strconv.ParseInt: parsing {go_json(written)}: invalid syntax")
    number = int(written) if len(digits) < 20 else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        raise bad_request(f"strconv.ParseInt: parsing {go_json(written)}: value out of range")
    return number


def continue_token(place: Place) -> str:
    """Return what a client sends back for the next piece of a list; opaque to it."""
    told = {"v": "meta.k8s.io/v1", "rv": place.version, "start": f"{place.namespace}/{place.name}"}
    return base64.urlsafe_b64encode(go_json(told).encode()).decode().rstrip("=")


def place_of_token(token: str) -> Place | None:
    """Return what `continue_token` wrote, None for an empty text; raises `StatusError`."""
    if not token:
        return None
    try:
        told = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise bad_request("continue key is not valid: it is none that this server has made") from error
    namespace, slash, name = text(told, "start").partition("/")
    if text(told, "v") != "meta.k8s.io/v1" or not slash or whole(told, "rv") < 1:
        raise bad_request("continue key is not valid: it is none that this server has made")
    return Place(whole(told, "rv"), namespace, name)


def _list_faults(options: ListOptions, *, continues: bool) -> list[FieldFault]:
    faults: list[FieldFault] = []
    if match := options.version_match:
        if not options.version:
            faults.append(forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if continues:
            faults.append(forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {_EXACT, _NOT_OLDER}:
            faults.append(unsupported(_MATCH, match, [_EXACT, _NOT_OLDER, ""]))
        if match == _EXACT and options.version == "0":
            faults.append(forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if options.sends_list is not None:
        faults.append(forbidden(_SENDS, f"{_SENDS} is forbidden for list"))
    return faults


def _watch_faults(options: ListOptions, *, continues: bool) -> list[FieldFault]:
    faults: list[FieldFault] = []
    match = options.version_match
    if options.sends_list is not None and match != _NOT_OLDER:
        faults.append(forbidden(_MATCH, f"{_SENDS} requires setting {_MATCH} to {_NOT_OLDER}"))
    if match:
        if options.sends_list is None:
            faults.append(forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_SENDS} is provided"))
        if match != _NOT_OLDER:
            faults.append(unsupported(_MATCH, match, [_NOT_OLDER]))
        if continues:
            faults.append(forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return faults
