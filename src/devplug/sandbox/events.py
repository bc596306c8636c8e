"""The event recorder of the sandbox's own parts: `kubectl get events` shows what happened, and how often."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, text, whole
from devplug.k8s.times import micro_stamp, stamp
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.registry import EVENTS

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.registry import Registry

_REMEMBERED: Final = 4096
"""How many events are remembered in order to be counted up (client-go record events_cache.go)."""


def reference(one: Object, field_path: str = "") -> Object:
    """Return what an event says of the object that it is about."""
    found: Object = {
        "kind": text(one, "kind"),
        "namespace": text(one, "metadata", "namespace"),
        "name": text(one, "metadata", "name"),
        "uid": text(one, "metadata", "uid"),
        "apiVersion": text(one, "apiVersion"),
        "resourceVersion": text(one, "metadata", "resourceVersion"),
        "fieldPath": field_path,
    }
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class EventSource:
    """The component that writes an event."""

    component: str
    host: str = ""
    """The node, or for the newer form the instance of the component."""
    writes_series: bool = False
    """Whether it writes events in the newer form (KEP-383), as the scheduler does: with a time instead of a
    count, and with a series for what happens again."""


def new_event(
    about: Object, type_: str, reason: str, message: str, source: EventSource, now: datetime
) -> Object:
    """Return an event that has happened once; `about` is a `reference`."""
    nanoseconds = int(now.timestamp() * 1e6) * 1000
    common: Object = {
        "metadata": {
            "name": f"{text(about, 'name')}.{nanoseconds:x}",
            "namespace": text(about, "namespace") or "default",
        },
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": type_,
        "reportingComponent": source.component,
        "reportingInstance": source.host,
    }
    if source.writes_series:
        return {
            **common,
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": micro_stamp(now),
            "action": "Binding" if reason == "Scheduled" else "Scheduling",
        }
    named = {"component": source.component, "host": source.host}
    return {
        **common,
        "source": {key: value for key, value in named.items() if value},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
        "eventTime": None,
    }


def event_again(event: Object, now: datetime) -> Object:
    """Return an event that has happened once more."""
    if text(event, "eventTime"):
        count = whole(event, "series", "count") or 1
        return {**event, "series": {"count": count + 1, "lastObservedTime": micro_stamp(now)}}
    return {**event, "count": whole(event, "count") + 1, "lastTimestamp": stamp(now)}


class EventRecorder:
    """The event recorder of one component; lives as long as the component.

    An event that cannot be stored, because its namespace is ending, is dropped.
    """

    def __init__(self, registry: Registry, source: EventSource) -> None:
        self.is_cut_off = False
        """Whether the component cannot reach the API server, so that events are dropped."""
        self._registry = registry
        self._source = source
        self._written: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()

    def event(self, about: Object, type_: str, reason: str, message: str) -> None:
        """Write down that something has happened; `about` is a `reference`, `type_` Normal or Warning."""
        if self.is_cut_off:
            return
        now = self._registry.now
        # A series is of an object as it was: what a first refusal writes into it begins the next series
        # (client-go events/event_broadcaster.go getKey, which looks at no message, however).
        version = text(about, "resourceVersion") if self._source.writes_series else ""
        name = text(about, "uid") or text(about, "name")
        key = (name, version, text(about, "fieldPath"), type_, reason, message)
        with suppress(StatusError):
            if (place := self._written.get(key)) and self._registry.find(EVENTS, *place):
                self._registry.update(EVENTS, *place, lambda event: event_again(event, now))
                return
            event = new_event(about, type_, reason, message, self._source, now)
            while self._registry.find(EVENTS, *_place_of(event)) is not None:
                # Two events in one microsecond would have one name, and the second would be lost.
                now += timedelta(microseconds=1)
                event = new_event(about, type_, reason, message, self._source, now)
            event = self._registry.create(EVENTS, text(event, "metadata", "namespace"), event)
            self._written[key] = _place_of(event)
            while len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)


def _place_of(event: Object) -> tuple[str, str]:
    return text(event, "metadata", "namespace"), text(event, "metadata", "name")
