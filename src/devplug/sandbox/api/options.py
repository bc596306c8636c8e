"""The options in the query of a request, as values: lists and watches, writes, and pod logs. Pure.

The rules and refusals of what nobody can ask are apimachinery's (apis/meta/internalversion/validation,
apis/meta/v1/validation; query parameters by runtime/conversion.go). Those of `pods/log` are the API server's
(registry/core/pod/strategy.go LogLocation, apis/core/validation ValidatePodLogOptions) and the kubelet's
(kubelet_pods.go validateContainerLogStatus).
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text, whole
from devplug.k8s.times import moment
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import (
    bad_request,
    forbidden_field,
    go_json,
    invalid,
    invalid_field,
    unsupported_field,
)
from devplug.sandbox.api.fieldselectors import FieldSelector, FieldTerm, field_selector
from devplug.sandbox.api.labelselectors import LabelSelector, SelectorError, label_selector
from devplug.sandbox.api.tables import IncludeObject
from devplug.sandbox.api.watchlog import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from devplug.sandbox.api.errors import FieldError
    from devplug.sandbox.api.kinds import Resource

_EXACT: Final = "Exact"
_NOT_OLDER: Final = "NotOlderThan"
_MATCH: Final = "resourceVersionMatch"
_SENDS: Final = "sendInitialEvents"
_INIT: Final = "initContainers"
_EPHEMERAL: Final = "ephemeralContainers"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_WAITING: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


# ── Lists, watches and writes ──


class FieldValidation(enum.Enum):
    """The treatment of fields that a kind does not have."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The position where the next piece of a list begins, at the first piece's version."""

    version: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list, a watch or the deletion of many."""

    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)
    version: str = ""
    """The resource version as the client wrote it; empty for none."""
    version_match: str = ""
    limit: int = 0
    """How many objects one answer may have; 0 for all."""
    place: ContinueToken | None = None
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
    """The options of a change."""

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
        None if watches else decoded_token(one.get("continue", "")),
        flag_of(query, "allowWatchBookmarks") or False,
        flag_of(query, _SENDS),
        number_of(query, "timeoutSeconds"),
    )
    continues = bool(one.get("continue"))
    errors = (
        _watch_errors(options, continues=continues) if watches else _list_errors(options, continues=continues)
    )
    refuse_options("ListOptions", errors)
    return options


def write_options(query: Mapping[str, Sequence[str]], kind: str) -> WriteOptions:
    """Return what is asked for; `kind` is the one of the options, as in `CreateOptions`.

    Raises `StatusError`.
    """
    dry_runs = query.get("dryRun", ())
    wanted = (query.get("fieldValidation") or [""])[0]
    errors = list(dry_run_errors(dry_runs))
    known = ["", *(one.value for one in FieldValidation)]
    if wanted not in known:
        errors.append(unsupported_field("fieldValidation", wanted, sorted(known)))
    refuse_options(kind, errors)
    return WriteOptions(bool(dry_runs), FieldValidation(wanted or "Warn"))


def dry_run_errors(written: Sequence[object]) -> Iterator[FieldError]:
    """Yield what is wrong with a `dryRun`; only `All` is known."""
    if any(one != "All" for one in written):
        yield unsupported_field("dryRun", list(written), ["All"])


def refuse_options(kind: str, errors: Sequence[FieldError]) -> None:
    """Refuse options that have errors, with a 422."""
    if errors:
        raise invalid(f"{kind}.meta.k8s.io", "", errors)


def include_of(query: Mapping[str, Sequence[str]]) -> IncludeObject:
    """Return how much of an object stands in a row of a Table; raises `StatusError`."""
    written = (query.get("includeObject") or [""])[0]
    try:
        return IncludeObject(written or "Metadata")
    except ValueError as error:
        known = [one.value for one in IncludeObject]
        refuse_options("TableOptions", [unsupported_field("includeObject", written, known)])
        raise AssertionError from error


def flag_of(query: Mapping[str, Sequence[str]], name: str) -> bool | None:
    """Return a boolean, None if it is not given: only `false` and `0` are false (runtime/conversion.go)."""
    values = query.get(name)
    return None if not values else values[0].lower() not in {"false", "0"}


def number_of(query: Mapping[str, Sequence[str]], name: str) -> int | None:
    """Return a whole number, None if it is not given; raises `StatusError`."""
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


def encoded_token(place: ContinueToken) -> str:
    """Return what a client sends back for the next piece of a list; opaque to it."""
    document = {"v": "meta.k8s.io/v1", "rv": place.version, "start": f"{place.namespace}/{place.name}"}
    return base64.urlsafe_b64encode(go_json(document).encode()).decode().rstrip("=")


def decoded_token(token: str) -> ContinueToken | None:
    """Return what `encoded_token` wrote, None for an empty text; raises `StatusError`."""
    if not token:
        return None
    try:
        document = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise bad_request("continue key is not valid: it is none that this server has made") from error
    namespace, slash, name = text(document, "start").partition("/")
    if text(document, "v") != "meta.k8s.io/v1" or not slash or whole(document, "rv") < 1:
        raise bad_request("continue key is not valid: it is none that this server has made")
    return ContinueToken(whole(document, "rv"), namespace, name)


def _list_errors(options: ListOptions, *, continues: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if match := options.version_match:
        if not options.version:
            errors.append(
                forbidden_field(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
            )
        if continues:
            errors.append(forbidden_field(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {_EXACT, _NOT_OLDER}:
            errors.append(unsupported_field(_MATCH, match, [_EXACT, _NOT_OLDER, ""]))
        if match == _EXACT and options.version == "0":
            errors.append(forbidden_field(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if options.sends_list is not None:
        errors.append(forbidden_field(_SENDS, f"{_SENDS} is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions, *, continues: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.version_match
    if options.sends_list is not None and match != _NOT_OLDER:
        errors.append(forbidden_field(_MATCH, f"{_SENDS} requires setting {_MATCH} to {_NOT_OLDER}"))
    if match:
        if options.sends_list is None:
            errors.append(
                forbidden_field(_MATCH, f"{_MATCH} is forbidden for watch unless {_SENDS} is provided")
            )
        if match != _NOT_OLDER:
            errors.append(unsupported_field(_MATCH, match, [_NOT_OLDER]))
        if continues:
            errors.append(forbidden_field(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return errors


# ── Pod logs ──


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `pods/log`: the container, and the part of its log."""

    container: str
    follow: bool = False
    previous: bool = False
    """Whether the log of the run before is meant."""
    timestamps: bool = False
    """Whether each line begins with its time."""
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


def log_options(query: Mapping[str, Sequence[str]], pod: Object, now: datetime) -> LogOptions:
    """Return what is asked of a pod's logs; raises `StatusError`."""
    container = _container(pod, (query.get("container") or [""])[0])
    tail, limit = number_of(query, "tailLines"), number_of(query, "limitBytes")
    seconds, written = number_of(query, "sinceSeconds"), (query.get("sinceTime") or [""])[0]
    since = moment(written) if written else None
    if written and since is None:
        raise bad_request(f"parsing time {go_quoted(written)}: it is no time as RFC 3339 has it")
    errors = []
    if tail is not None and tail < 0:
        errors.append(invalid_field("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        errors.append(invalid_field("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and written:
        errors.append(
            forbidden_field("sinceSeconds", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        )
    elif seconds is not None and seconds < 1:
        errors.append(invalid_field("sinceSeconds", seconds, "must be greater than 0"))
    if errors:
        raise invalid("PodLogOptions", text(pod, "metadata", "name"), errors)
    if seconds is not None:
        since = now - timedelta(seconds=min(seconds, 10**9))
    return LogOptions(
        container,
        flag_of(query, "follow") or False,
        flag_of(query, "previous") or False,
        flag_of(query, "timestamps") or False,
        tail,
        limit,
        since,
    )


def refuse_without_log(pod: Object, options: LogOptions) -> None:
    """Refuse where the container has no log, or not yet, with a 400."""
    about = f"container {go_quoted(options.container)} in pod {go_quoted(text(pod, 'metadata', 'name'))}"
    statuses = [one for word in _STATUSES for one in entries(pod, "status", word)]
    found = next((fields(one) for one in statuses if text(one, "name") == options.container), None)
    if found is None:
        raise bad_request(f"{about} is not available")
    state, has_ended_before = fields(found, "state"), "terminated" in fields(found, "lastState")
    if options.previous:
        if not has_ended_before:
            raise bad_request(f"previous terminated {about} not found")
    elif not (has_ended_before or state.keys() & {"running", "terminated"}):
        reason = text(state, "waiting", "reason")
        state_text = f"is waiting to start: {_WAITING.get(reason, reason)}" if "waiting" in state else ""
        raise bad_request(f"{about} {state_text or 'is waiting to start - no logs yet'}")


def _container(pod: Object, asked: str) -> str:
    """Return the container that is meant."""
    name = text(pod, "metadata", "name")
    names, init, ephemeral = (
        [text(one, "name") for one in entries(pod, "spec", word)]
        for word in ("containers", _INIT, _EPHEMERAL)
    )
    if asked:
        if asked not in {*names, *init, *ephemeral}:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(names) == 1:
        return names[0]
    message = f"a container name must be specified for pod {name}"
    if names:
        message += f", choose one of: [{' '.join(names)}]"
    if init:
        message += f" or one of the init containers: [{' '.join(init)}]"
    if ephemeral:
        message += f" or one of the ephemeral containers: [{' '.join(ephemeral)}]"
    raise bad_request(message)
