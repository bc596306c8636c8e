"""What `pods/log` asks for, of which container, and when there is nothing to tell.

The rules and sentences are the API server's (registry/core/pod/strategy.go LogLocation, apis/core/validation
ValidatePodLogOptions) and the kubelet's (kubelet_pods.go validateContainerLogStatus). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.faults import forbidden, invalid
from devplug.sandbox.api.objects import entries, fields, text
from devplug.sandbox.api.statuses import bad_request
from devplug.sandbox.api.statuses import invalid as invalid_object
from devplug.sandbox.api.times import moment
from devplug.sandbox.requests.options import flag_of, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from devplug.sandbox.api.objects import Object

__all__ = ["LogOptions", "log_options", "refuse_without_log"]

_INIT: Final = "initContainers"
_EPHEMERAL: Final = "ephemeralContainers"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_WAITING: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of which container's log is asked for."""

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
    faults = []
    if tail is not None and tail < 0:
        faults.append(invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        faults.append(invalid("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and written:
        faults.append(
            forbidden("sinceSeconds", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        )
    elif seconds is not None and seconds < 1:
        faults.append(invalid("sinceSeconds", seconds, "must be greater than 0"))
    if faults:
        raise invalid_object("PodLogOptions", text(pod, "metadata", "name"), faults)
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
        told = f"is waiting to start: {_WAITING.get(reason, reason)}" if "waiting" in state else ""
        raise bad_request(f"{about} {told or 'is waiting to start - no logs yet'}")


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
    told = f"a container name must be specified for pod {name}"
    if names:
        told += f", choose one of: [{' '.join(names)}]"
    if init:
        told += f" or one of the init containers: [{' '.join(init)}]"
    if ephemeral:
        told += f" or one of the ephemeral containers: [{' '.join(ephemeral)}]"
    raise bad_request(told)
