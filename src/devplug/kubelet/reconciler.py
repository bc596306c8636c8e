"""The reconciler: the plugins to register, the registered ones, and the next steps. Pure.

These are the plugin manager's rules (pluginmanager/cache, pluginmanager/reconciler, util/goroutinemap). Where
the real one ranges over Go maps, and so goes at random, we go by the order in which sockets were made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from devplug.backoff import backoff_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = TypeVar("Value")

FIRST_BACKOFF_SECONDS: Final = 0.5
LAST_BACKOFF_SECONDS: Final = 122.0
"""Two minutes and two seconds (exponentialbackoff/exponential_backoff.go)."""


@dataclass(frozen=True, slots=True)
class WatchedPlugin:
    """A plugin that was registered over its socket."""

    identity: int
    """The identity of the socket that it was registered over."""
    name: str
    """Its resource name, or the name of a driver."""
    endpoint: str
    """The path of the socket that serves it, absolute unless the plugin says otherwise."""
    type: str = "DevicePlugin"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a path is left alone after a failure; times are seconds on one clock."""

    failed_at_seconds: float
    failures: int = 1

    @property
    def wait_seconds(self) -> float:
        """How long that is: twice as long after each more failure, within the two bounds."""
        return backoff_seconds(self.failures, FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS)

    def is_over(self, now: float) -> bool:
        """Whether the path may be tried again; not yet at the very end of the wait, as in Go."""
        return now - self.failed_at_seconds > self.wait_seconds

    @classmethod
    def after(cls, previous: Backoff | None, now: float) -> Backoff:
        """Return the wait after one more failure."""
        return cls(now, 1 if previous is None else previous.failures + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next steps, in this order. Paths of sockets."""

    unregister: tuple[str, ...] = ()
    register: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateOfWorld:
    """The desired and the actual state of the world, in the real kubelet's terms; by socket path.

    A path is one name for all that happens there: its backoff outlives the socket that caused it, and is
    forgotten with the next success only.
    """

    desired: Mapping[str, int] = field(default_factory=dict)
    """The sockets that were seen made and not yet removed, with the identity that each making got."""
    actual: Mapping[str, WatchedPlugin] = field(default_factory=dict)
    """The plugins that were registered, or are in the last step of it."""
    attempts: frozenset[str] = frozenset()
    """The paths whose registration is under way: one at a time each."""
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    last_identity: int = 0

    def plan(self, now: float) -> Plan:
        """Return what to do now. A path that is unregistered is registered again by a later look."""
        unregister = [
            path
            for path, plugin in self.actual.items()
            if self.desired.get(path) != plugin.identity and self._is_free(path, now)
        ]
        register = [path for path in self.desired if path not in self.actual and self._is_free(path, now)]
        return Plan(tuple(unregister), tuple(register))

    def _is_free(self, path: str, now: float) -> bool:
        backoff = self.backoffs.get(path)
        return path not in self.attempts and (backoff is None or backoff.is_over(now))

    # ── what the folder tells ──

    def created(self, path: str) -> StateOfWorld:
        """Return the state after a socket was made, or made again: each making has an identity of its own."""
        identity = self.last_identity + 1
        return replace(self, desired={**self.desired, path: identity}, last_identity=identity)

    def removed(self, path: str) -> StateOfWorld:
        """Return the state after a file was removed, whatever it was."""
        return replace(self, desired=_without(self.desired, path))

    # ── what attempts tell ──

    def began(self, path: str) -> StateOfWorld:
        """Return the state with an attempt under way."""
        return replace(self, attempts=self.attempts | {path})

    def added(self, path: str, plugin: WatchedPlugin) -> StateOfWorld:
        """Return the state with a plugin that passed the checks; a later error may remove it."""
        return replace(self, actual={**self.actual, path: plugin})

    def taken_out(self, path: str) -> StateOfWorld:
        """Return the state without a plugin that could not be registered after all."""
        return replace(self, actual=_without(self.actual, path))

    def succeeded(self, path: str) -> StateOfWorld:
        """Return the state after an attempt that ended well: the failures before it are forgotten."""
        return replace(self, attempts=self.attempts - {path}, backoffs=_without(self.backoffs, path))

    def failed(self, path: str, now: float) -> StateOfWorld:
        """Return the state after an attempt that failed at `now`."""
        backoff = Backoff.after(self.backoffs.get(path), now)
        return replace(self, attempts=self.attempts - {path}, backoffs={**self.backoffs, path: backoff})

    def unregistered(self, path: str) -> StateOfWorld:
        """Return the state after a plugin was unregistered, which counts as a success for its path."""
        return self.taken_out(path).succeeded(path)


def _without(values: Mapping[str, Value], path: str) -> dict[str, Value]:
    return {key: value for key, value in values.items() if key != path}
