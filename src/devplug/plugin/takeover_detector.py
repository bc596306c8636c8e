"""The detector of takeovers of one resource name: it collects the signs of another plugin, and logs them.

What they mean is decided by `takeover`.
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
from devplug.errors import one_line
from devplug.kubelet_dir import KUBELET_SOCKET
from devplug.linux.unix_sockets import peer_of
from devplug.logs import AUDIT
from devplug.plugin.resource_lock import is_of_another_name
from devplug.plugin.takeover import (
    LASTS_SECONDS,
    NEVER_COMPARED,
    Comparison,
    Listed,
    Seen,
    given_is_proof,
    suspicion_of,
)
from devplug.status import ForeignSocket, Takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from devplug.plugin.inventory import Inventory
    from devplug.plugin.takeover import Sign, Suspicion

__all__ = ["FIRST_RENEWAL_SECONDS", "TakeoverDetector", "foreign_sockets"]

audit = logging.getLogger(AUDIT)
logger = logging.getLogger(__name__)

_GIVEN_LIMIT: Final = 1_000
"""How many devices are remembered that another plugin gave out."""

FIRST_RENEWAL_SECONDS: Final = 60.0
LAST_RENEWAL_SECONDS: Final = 3600.0
"""How long after a registration that was made only because the kubelet has none of our devices the next such
one may come: one that never shows our devices is not helped by many."""


class TakeoverDetector(Struct):
    """The detector of takeovers of one resource name; lives as long as the plugin is served.

    `socket_name` is the file name of our own socket in `folder`. `on_change` is called whenever `takeover`
    has changed, `wake` when there may be a registration to make again.
    """

    resource_name: str
    inventory: Inventory
    folder: Path
    socket_name: str
    on_change: Callable[[], None]
    wake: Callable[[], None] = lambda: None
    wall_clock: Callable[[], float] = time.time
    takeover: Takeover | None = None
    """The suspected takeover; None if there is no sign of one."""
    _comparison: Comparison = NEVER_COMPARED
    _given: dict[str, float] = field(default_factory=dict)
    _registered_at: float | None = None
    _strange_calls: Sequence[float] = ()
    _cuts: Sequence[float] = ()
    _suspicion: Suspicion | None = None
    _renewals: int = 0
    _renewed_at: float = -math.inf

    # ── what is seen ──

    def review(
        self, *, registered_at: float | None, cuts: Sequence[float], strange_calls: Sequence[float]
    ) -> None:
        """Judge the signs at our socket again: the registration, if there is one, lost streams, calls.

        A difference between the lists counts only as long as the registration is the same.
        """
        if registered_at != self._registered_at:
            self._registered_at, self._comparison = registered_at, self._comparison.anew()
        self._cuts, self._strange_calls = cuts, strange_calls
        self._judge()

    def listed(self) -> Listed | None:
        """Return the list that the kubelet should have by now; None while we are not registered."""
        if self._registered_at is None:
            return None
        devices = self.inventory.snapshot.devices
        return Listed(
            frozenset(devices),
            frozenset(id_ for id_, one in devices.items() if one.health.state is HealthState.HEALTHY),
        )

    def compare(self, asked_at: float, before: Listed, kubelet_ids: Collection[str]) -> None:
        """Compare an answer of the kubelet: the IDs of the healthy devices that it has of this name.

        It was asked at `asked_at`, the loop's time, and `before` is what `listed` returned then.
        """
        after = self.listed()
        if after is None or self._registered_at is None or asked_at < self._registered_at:
            return
        self._comparison = self._comparison.answered(asked_at, before, after, kubelet_ids)
        if kubelet_ids and not self._comparison.strangers:
            self._renewals = 0
        if self._comparison.is_abandoned:
            self.wake()
        self._judge()

    def note_given(self, device_id: str) -> None:
        """Record that a container got a device of this name without our Allocate."""
        now = _now()
        if given_is_proof(now, self._registered_at) and len(self._given) < _GIVEN_LIMIT:
            self._given[device_id] = math.inf
            self._judge()

    def note_released(self, device_id: str) -> None:
        """Record that it was released."""
        if device_id in self._given:
            self._given[device_id] = _now()
            self._judge()

    # ── what follows from it ──

    @property
    def fault(self) -> str:
        """Why the resource is not ready: another plugin has its name. Empty if none has."""
        return self.takeover.reason if self.takeover is not None and self.takeover.is_lost else ""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the kubelet has to be asked again soon."""
        return self._registered_at is not None and self._comparison.is_in_doubt

    @property
    def is_forgotten(self) -> bool:
        """Whether the kubelet has none of our devices, and nobody else's."""
        return self._comparison.is_abandoned

    def take_renewal(self) -> bool:
        """Whether to register again now, because the kubelet has none of our devices and nobody else's.

        This happens after another plugin of this name has ended: the kubelet then has neither list.
        """
        wait_seconds = min(FIRST_RENEWAL_SECONDS * 2.0 ** min(self._renewals - 1, 16), LAST_RENEWAL_SECONDS)
        if not self._comparison.is_abandoned or (self._renewals and _now() < self._renewed_at + wait_seconds):
            return False
        self._renewals, self._renewed_at = self._renewals + 1, _now()
        self._comparison = self._comparison.anew()
        logger.warning(
            "the kubelet lists no device of the resource though its stream is open; registering again",
            extra={"resource_name": self.resource_name},
        )
        return True

    def _judge(self) -> None:
        now = _now()
        self._given = {id_: at for id_, at in self._given.items() if at >= now - LASTS_SECONDS}
        suspicion = suspicion_of(
            Seen(now, self._comparison, self._given, self._strange_calls, self._cuts),
        )
        if suspicion == self._suspicion:
            return
        before, self._suspicion = self._suspicion, suspicion
        if suspicion is None:
            self.takeover = None
            audit.info(
                "no sign of another plugin of this resource name for ten minutes",
                extra={"resource_name": self.resource_name},
            )
        else:
            sockets = foreign_sockets(self.folder, self.resource_name, self.socket_name)
            since = self.takeover.since if self.takeover is not None else self.wall_clock()
            reason = f"{suspicion.reason}; {_advice(sockets)}"
            self.takeover = Takeover(
                signs=tuple(sign.value for sign in suspicion.signs),
                since=since,
                reason=reason,
                device_ids=suspicion.device_ids,
                sockets=sockets,
                is_lost=suspicion.is_lost,
            )
            if _has_grown(before, suspicion):
                self._tell(self.takeover)
        self.on_change()

    def _tell(self, takeover: Takeover) -> None:
        audit.warning(
            "another plugin registers this resource name",
            extra={
                "resource_name": self.resource_name,
                "signs": list(takeover.signs),
                "reason": takeover.reason,
                "device_ids": list(takeover.device_ids),
                "sockets": [_described(one) for one in takeover.sockets],
            },
        )


def _has_grown(before: Suspicion | None, after: Suspicion) -> bool:
    known: set[Sign] = set() if before is None else set(before.signs)
    return not known.issuperset(after.signs)


def _advice(sockets: Sequence[ForeignSocket]) -> str:
    """Return what to do: the live sockets by name, as most nodes have plugins for other hardware, too."""
    live = [one.name for one in sockets if one.is_live]
    if not live:
        return "its socket is not in the plugin folder; look for its pod on this node"
    return f"stop it: one of the sockets {', '.join(live)}"


def _described(one: ForeignSocket) -> str:
    state = "live" if one.is_live else "dead"
    return f"{one.name} ({state}{f', {one.process}' if one.process else ''})"


def _now() -> float:
    return asyncio.get_running_loop().time()


# ── the sockets of others ──

LOOKED_AT: Final = 1_000
"""How many files of the folder are checked at most."""

SOCKETS_LIMIT: Final = 8


def foreign_sockets(folder: Path, resource_name: str, own: str) -> tuple[ForeignSocket, ...]:
    """Return the sockets that may be of another plugin of this name, the newest first; at most eight.

    Those that devplug has made for other names are left out, and so is `own`, the file name of ours. Each is
    connected to for a moment, which a server does not notice; nothing is sent.
    """
    found = sorted(_foreign(folder, resource_name, own), key=lambda one: (-one.made_at, one.name))
    return tuple(found[:SOCKETS_LIMIT])


def _foreign(folder: Path, resource_name: str, own: str) -> Iterator[ForeignSocket]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, LOOKED_AT)]
    except OSError:
        return
    for name in names:
        if name in {KUBELET_SOCKET, own} or is_of_another_name(name, resource_name):
            continue
        with suppress(OSError):
            status = (folder / name).lstat()
            if stat.S_ISSOCK(status.st_mode):
                listener = _listener(folder / name)
                yield ForeignSocket(
                    name=name,
                    is_live=listener is not None,
                    made_at=status.st_mtime,
                    process=listener or "",
                )


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
        return f"{process} ({one_line(Path(f'/proc/{process}/comm').read_text())})"
    except (OSError, ValueError):
        return str(process)
