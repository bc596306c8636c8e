"""The record that a node keeps of one container, and its change at each start and end. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.k8s.objects import fields, part, text, whole
from devplug.k8s.times import later, moment

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 300.0
"""Of starts that follow ends (kubelet.go backOffPeriod, MaxContainerBackOff)."""

_FORGOTTEN_SECONDS: Final = 2 * _LONGEST_BACKOFF_SECONDS
"""A container that has run for longer than this begins anew (client-go flowcontrol backoff.go hasExpired)."""

_LOST: Final = 255
"""The exit code of a container whose end nobody saw, as of a boot of the machine."""


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of one start of a container."""

    exit_code: int
    started: datetime | None
    finished: datetime
    container_id: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container of one pod, as long as the pod is here. Replaced at each change."""

    name: str
    started: datetime | None = None
    """Since when it runs; None while it does not."""
    container_id: str = ""
    """Of the start that runs, or of the last one."""
    image: str = ""
    """That it was started with; empty before its first start."""
    starts: int = 0
    has_started: bool = True
    """Whether its startup probe has succeeded since it runs; true without one."""
    passes: bool = True
    """What its readiness probe says since it runs; true without one."""
    ended: Termination | None = None
    """Its last end."""
    ended_before: Termination | None = None
    """The end before that."""
    is_stale: bool = False
    """Whether the last end was before a boot of the node, so that an init container has to run again."""
    waits_for: str = ""
    """Why it waits, in the API's word, once it was tried; empty for a container that is on its way."""
    message: str = ""
    """More about why it waits."""
    retry_at: datetime | None = None
    """When a start that failed is tried again."""
    backoffs: int = 0
    """How many restarts in a row have made the next one later; 0 before the second restart."""
    backoff_since: datetime | None = None
    """When that became so."""

    @property
    def is_running(self) -> bool:
        """Whether it runs, if only in name."""
        return self.started is not None

    @property
    def is_started(self) -> bool:
        """Whether it runs, and its startup probe has succeeded."""
        return self.is_running and self.has_started

    @property
    def is_ready(self) -> bool:
        """Whether it runs, and its probes say that it is ready."""
        return self.is_started and self.passes

    @property
    def has_ended(self) -> bool:
        """Whether it was started and does not run."""
        return self.started is None and self.ended is not None

    @property
    def restart_count(self) -> int:
        """How often it was started again."""
        return max(self.starts - 1, 0)

    @property
    def backoff_seconds(self) -> float:
        """How long after its end the next start may be."""
        return backoff_seconds(self.backoffs, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)

    @property
    def may_start_at(self) -> datetime | None:
        """When it may be started again after its last end; None if it has not ended."""
        if self.ended is None:
            return None
        return later(self.ended.finished, 0 if self._has_recovered else self.backoff_seconds)

    @property
    def _has_recovered(self) -> bool:
        if self.ended is None or self.backoff_since is None:
            return True
        return (self.ended.finished - self.backoff_since).total_seconds() > _FORGOTTEN_SECONDS

    def is_of(self, image: str) -> bool:
        """Whether it was started with this image, or not yet; the backoff is that image's alone."""
        return self.image in {"", image}

    def running(
        self, now: datetime, container_id: str, image: str, probed: Collection[str] = ()
    ) -> ContainerRecord:
        """Return the record of a container that has just started; each restart doubles the backoff.

        `probed` are the kinds of its probes: until the first success it has not started, or is not ready.
        """
        if not self.is_of(image):
            return replace(self, image=image).patient().running(now, container_id, image, probed)
        backoffs, since = self.backoffs, self.backoff_since
        if self.ended is not None and not self.is_stale:
            backoffs = 1 if self._has_recovered else backoffs + 1
            since = now
        return replace(
            self,
            started=now,
            container_id=container_id,
            image=image,
            starts=self.starts + 1,
            has_started="Startup" not in probed,
            passes="Readiness" not in probed,
            is_stale=False,
            waits_for="",
            message="",
            retry_at=None,
            backoffs=backoffs,
            backoff_since=since,
        )

    def terminated(
        self, exit_code: int, finished: datetime, *, reason: str = "", message: str = ""
    ) -> ContainerRecord:
        """Return the record of a container that has ended."""
        reason = reason or ("Error" if exit_code else "Completed")
        end = Termination(exit_code, self.started, finished, self.container_id, reason, message)
        return replace(self, started=None, ended=end, ended_before=self.ended)

    def waiting(self, reason: str, message: str, retry_at: datetime | None = None) -> ContainerRecord:
        """Return the record of a container that waits, with the reason and message of its status."""
        return replace(self, waits_for=reason, message=message, retry_at=retry_at)

    def patient(self) -> ContainerRecord:
        """Return the record after a start of the kubelet, which remembers no backoff."""
        return replace(self, backoffs=0, backoff_since=None)

    def lost(self, now: datetime) -> ContainerRecord:
        """Return the record after a boot of the node."""
        gone = self.terminated(_LOST, now, reason="Unknown") if self.is_running else self
        return replace(
            gone.patient(), is_stale=gone.ended is not None, waits_for="", message="", retry_at=None
        )


def record_of(name: str, status: object, now: datetime) -> ContainerRecord:
    """Return the record of a container of which only its API status is left, as after a boot of the node."""
    restarts = whole(status, "restartCount")
    state, last = fields(status, "state"), _termination(part(status, "lastState", "terminated"), now)
    ended = _termination(state.get("terminated"), now)
    record = ContainerRecord(
        name, None, text(status, "containerID"), text(status, "image"), ended=ended or last
    )
    if ended is not None:
        record = replace(record, ended_before=last)
    if running := fields(state, "running"):
        record = replace(record, started=moment(text(running, "startedAt")) or now)
    was_started = record.is_running or record.ended is not None
    return replace(record, starts=restarts + was_started).lost(now)


def _termination(state: object, now: datetime) -> Termination | None:
    if not isinstance(state, dict):
        return None
    return Termination(
        whole(state, "exitCode"),
        moment(text(state, "startedAt")),
        moment(text(state, "finishedAt")) or now,
        text(state, "containerID"),
        text(state, "reason"),
        text(state, "message"),
    )
