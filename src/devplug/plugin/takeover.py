"""The takeover of a resource name by another plugin, and its signs.

The kubelet does not report that a name was taken. The plugin that registers a name last gets its calls; the
plugin before it keeps its stream, and each list of either of them replaces the other's (handler.go,
manager.go). There are two signs: the kubelet lists devices that we never listed, and it ends our stream
again and again. Times are seconds of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import stat
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.devices import HealthState
from devplug.errors import one_line, quoted
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.linux.unix_sockets import peer_of
from devplug.logs import AUDIT
from devplug.plugin.registration import CUTS, CUTS_SECONDS
from devplug.plugin.resource_lock import is_made_here
from devplug.status import Takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from devplug.plugin.inventory import Inventory
    from devplug.plugin.snapshot import Snapshot

audit = logging.getLogger(AUDIT)
logger = logging.getLogger(__name__)

STRANGE_SECONDS: Final = 2.0
"""How far apart two answers with unknown devices must be: the kubelet may not have our latest list yet."""

VACANT_SECONDS: Final = 5.0
"""How long the kubelet has to list nothing before we register again: a busy kubelet reads our list late."""

FIRST_RENEWAL_SECONDS: Final = 60.0
LAST_RENEWAL_SECONDS: Final = 3600.0
"""The waits between registrations that are made only because the kubelet lists none of our devices."""

NAMED_IDS: Final = 20
NAMED_SOCKETS: Final = 8
"""How many devices and sockets a takeover names."""


class _Difference(Struct, frozen=True):
    """A difference of the kubelet's list from ours that all answers since a moment had."""

    strangers: frozenset[str]
    """The device IDs that only the kubelet lists; empty if the kubelet lists none at all."""
    since: float
    at: float
    """When the last answer was asked for."""

    @property
    def is_certain(self) -> bool:
        return self.at >= self.since + (STRANGE_SECONDS if self.strangers else VACANT_SECONDS)


class TakeoverDetector(Struct):
    """The detector of takeovers of one resource name.

    `on_change` is called when `takeover` changes, `wake` when a registration may have to be repeated.
    """

    resource_name: str
    inventory: Inventory
    folder: Path
    on_change: Callable[[], None]
    wake: Callable[[], None] = lambda: None
    takeover: Takeover | None = None
    """The suspected takeover; None for ten minutes after the last sign."""
    _registered_at: float | None = None
    _difference: _Difference | None = None
    _seen: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    """By sign: when it was seen last, and the devices that it shows."""
    _renewal_wait_seconds: float = FIRST_RENEWAL_SECONDS
    _not_before: float = -math.inf
    """When the next registration may be made because the kubelet lists none of our devices."""

    def review(self, *, registered_at: float | None, cuts: Sequence[float]) -> None:
        """Judge again; `cuts` are the times at which a kubelet that lives on has ended our last streams."""
        if registered_at != self._registered_at:
            self._registered_at, self._difference = registered_at, None
        if len(cuts) >= CUTS and cuts[-1] - cuts[-CUTS] <= CUTS_SECONDS:
            self._seen["cut"] = cuts[-1], ()
        self._judge()

    def listed(self) -> Snapshot | None:
        """Return the list that the kubelet should have by now; None while we are not registered."""
        return None if self._registered_at is None else self.inventory.snapshot

    def compare(self, asked_at: float, before: Snapshot, kubelet_ids: Collection[str]) -> None:
        """Compare the IDs that the kubelet listed at `asked_at` with ours; `before` was `listed` then."""
        after = self.listed()
        if after is None or self._registered_at is None or asked_at < self._registered_at:
            return
        strangers = frozenset(kubelet_ids) - before.devices.keys() - after.devices.keys()
        # Some kubelets before 1.23 list no devices without NUMA nodes.
        is_vacant = not kubelet_ids and bool(_healthy(before) & _healthy(after))
        last, since = self._difference, asked_at
        if last is not None and (strangers & last.strangers or (is_vacant and not last.strangers)):
            strangers, since = strangers & last.strangers, last.since
        self._difference = _Difference(strangers, since, asked_at) if strangers or is_vacant else None
        if kubelet_ids and not strangers:
            self._renewal_wait_seconds, self._not_before = FIRST_RENEWAL_SECONDS, -math.inf
        if self._is_lost:
            self._seen["listed"] = asked_at, tuple(sorted(strangers))
        if self.is_forgotten:
            self.wake()
        self._judge()

    @property
    def fault(self) -> str:
        """Why the resource is not ready: another plugin has its name. Empty if none has."""
        return self.takeover.reason if self.takeover is not None and self.takeover.is_lost else ""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the kubelet has to be asked again soon, to make a difference certain."""
        return self._difference is not None and not self._difference.is_certain

    @property
    def is_forgotten(self) -> bool:
        """Whether the kubelet certainly lists no devices under the name."""
        one = self._difference
        return one is not None and one.is_certain and not one.strangers

    @property
    def _is_lost(self) -> bool:
        one = self._difference
        return one is not None and one.is_certain and bool(one.strangers)

    def take_renewal(self) -> bool:
        """Whether to register again: when another plugin ends, the kubelet may have no list left."""
        now = _now()
        if not self.is_forgotten or now < self._not_before:
            return False
        self._difference, self._not_before = None, now + self._renewal_wait_seconds
        self._renewal_wait_seconds = min(2 * self._renewal_wait_seconds, LAST_RENEWAL_SECONDS)
        logger.warning(
            "the kubelet lists no device of the resource though its stream is open; registering again",
            extra={"resource_name": self.resource_name},
        )
        return True

    def _judge(self) -> None:
        """Bring `takeover` up to date, and log each new sign and the end of the last one."""
        now, before, is_lost = _now(), self.takeover, self._is_lost
        self._seen = {sign: one for sign, one in self._seen.items() if now <= one[0] + CUTS_SECONDS}
        signs = tuple(sorted(self._seen, reverse=True))
        ids = tuple(id_ for sign in signs for id_ in self._seen[sign][1])[:NAMED_IDS]
        last = ((), (), False) if before is None else (before.signs, before.device_ids, before.is_lost)
        if (signs, ids, is_lost) == last:
            return
        facts: dict[str, object] = {"resource_name": self.resource_name}
        if signs:
            reason = f"{_reason(signs, ids, is_lost=is_lost)}; {_advice(self.folder)}"
            since = time.time() if before is None else before.since
            self.takeover = Takeover(signs, since, reason, ids, is_lost)
            if not set(signs) <= set(last[0]):
                facts |= {"signs": list(signs), "reason": reason, "device_ids": list(ids)}
                audit.warning("another plugin registers this resource name", extra=facts)
        else:
            self.takeover = None
            audit.info("no sign of another plugin of this resource name for ten minutes", extra=facts)
        self.on_change()


def _healthy(snapshot: Snapshot) -> set[str]:
    return {one.id for one in snapshot.devices.values() if one.health.state is HealthState.HEALTHY}


def _now() -> float:
    return asyncio.get_running_loop().time()


# ── texts ──


def _reason(signs: Sequence[str], ids: Sequence[str], *, is_lost: bool) -> str:
    named = ", ".join(map(quoted, ids[:2])) + (f" and {len(ids) - 2} more" if len(ids) > 2 else "")
    texts = {
        "listed": f"the kubelet {'lists' if is_lost else 'listed'} {named}, which this plugin never listed",
        "cut": "the kubelet ends this plugin's stream again and again",
    }
    return f"another plugin registers this name: {'; '.join(texts[sign] for sign in signs)}"


def _advice(folder: Path) -> str:
    """Return what to do: the sockets by name, as most nodes have plugins for other hardware, too."""
    if found := other_sockets(folder):
        return f"stop it: one of the sockets {', '.join(found)}"
    return "its socket is not in the plugin folder; look for its pod on this node"


def other_sockets(folder: Path) -> list[str]:
    """Return the live sockets that devplug did not make, newest first, with their processes."""
    found: list[tuple[float, str]] = []
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 -- names alone
            if name != KUBELET_SOCKET and not is_made_here(name):
                with suppress(OSError):
                    status = (folder / name).lstat()
                    if stat.S_ISSOCK(status.st_mode):
                        found.append((-status.st_mtime, name))
    live = ((name, _listener(folder / name)) for _, name in sorted(found))
    texts = (f"{name} ({process})" if process else name for name, process in live if process is not None)
    return list(islice(texts, NAMED_SOCKETS))


def _listener(path: Path) -> str | None:
    """Return which process listens at a socket, "" if that cannot be seen from here; None if none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full, so there is one
            return ""
        except OSError:
            return None
        process = peer_of(probe).process
    if not process:  # it is in another container, whose processes have no numbers here
        return ""
    try:
        return f"process {process}, {one_line(Path(f'/proc/{process}/comm').read_text())}"
    except (OSError, ValueError):
        return f"process {process}"
