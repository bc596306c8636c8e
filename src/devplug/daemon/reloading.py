"""The configuration file, whenever it says something else: an edit, a replaced file, a ConfigMap's links."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.watching import shared_watcher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.watching import Subscription

__all__ = ["file_changes", "places_on_the_way"]

QUIET_SECONDS: Final = 0.1
"""How long nothing may happen before the file is read: an editor takes several steps."""

RESYNC_SECONDS: Final = 30.0

LINKS_LIMIT: Final = 40
"""As many links as the kernel follows (path_resolution(7))."""


def places_on_the_way(path: Path) -> list[str]:
    """Return every path at which something may be replaced so that `path` leads to another file.

    The kubelet renames a new link over `..data` when a ConfigMap changes; neither the file's own name nor
    what it led to is touched by that.
    """
    places: list[str] = []
    left = list(path.absolute().parts[1:])
    here = Path("/")
    links = 0
    while left:
        here /= left.pop(0)
        if here.name == "..":
            here = here.parent.parent
        elif here.is_symlink() and links < LINKS_LIMIT:
            links += 1
            places.append(str(here))
            target = here.readlink()
            left = [*(target.parts[1:] if target.is_absolute() else target.parts), *left]
            here = Path("/") if target.is_absolute() else here.parent
    return [*places, str(here)]


async def file_changes(
    path: Path, *, changed: asyncio.Event | None = None, resync_seconds: float = RESYNC_SECONDS
) -> AsyncGenerator[None, None]:
    """Yield after each time that the file at `path` may say something else; at least all `resync_seconds`.

    The caller compares: what was touched may be the same as before. Whoever sets `changed` has it look, too.
    """
    changed = changed or asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            while True:
                _arm(subscription, path)
                try:
                    async with asyncio.timeout(resync_seconds):
                        await changed.wait()
                        await _quiet(changed)
                except TimeoutError:
                    pass
                # Armed before the look: a link that is replaced meanwhile leads elsewhere.
                _arm(subscription, path)
                yield


def _arm(subscription: Subscription, path: Path) -> None:
    """Watch all of the way, and where it ends what is written, too."""
    places = places_on_the_way(path)
    subscription.arm(places, writes_in=str(Path(places[-1]).parent))


async def _quiet(changed: asyncio.Event) -> None:
    while changed.is_set():
        changed.clear()
        await asyncio.sleep(QUIET_SECONDS)
