"""The configuration file: its reading, and while it is served its edits, which are applied or refused.

An edit is a change of the file, a replaced file, or a ConfigMap's links that lead elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.daemon.config.loader import load
from devplug.errors import ConfigError, KubeletError, PluginError, Problem
from devplug.linux.durable_file import read_regular
from devplug.linux.inotify import shared_watcher
from devplug.linux.trust import UntrustedError, check_trusted, sudo_users
from devplug.metrics.families import Counts
from devplug.status import ConfigStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from devplug.daemon.config.types import Config
    from devplug.daemon.daemon import Daemon
    from devplug.devices import StrPath
    from devplug.linux.inotify import Subscription

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 0.1
"""How long the file must be quiet before it is read: an editor takes several steps."""

RESYNC_SECONDS: Final = 30.0

LINKS_LIMIT: Final = 40
"""As many links as the kernel follows (path_resolution(7))."""

PROBLEMS_LIMIT: Final = 20
"""Most problems of one edit that are logged; `devplug validate` shows them all."""

RETRY_SECONDS: Final = 1.0
"""How soon a file that could not be read is tried again; it is logged only once."""


# ── whenever it says something else ───────────────────────────────────────────────────────────────


def places_on_the_way(path: Path) -> list[str]:
    """Return every path whose replacement makes `path` lead to another file.

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


async def _file_changes(
    path: Path, *, changed: asyncio.Event | None = None, resync_seconds: float = RESYNC_SECONDS
) -> AsyncGenerator[None, None]:
    """Yield after each possible change of the file at `path`; at least every `resync_seconds`.

    The caller compares the content, which may be the same as before. Setting `changed` makes it yield, too.
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


# ── what is made of an edit ───────────────────────────────────────────────────────────────────────


class ConfigFile:
    """The configuration file of a daemon; lives as long as that. `on_change` is called for each edit.

    Setting `look_again` makes it read the file.
    """

    def __init__(
        self,
        file: Path,
        daemon: Daemon,
        on_change: Callable[[], None],
        look_again: asyncio.Event | None = None,
    ) -> None:
        self._file = file
        self._daemon = daemon
        self._on_change = on_change
        self._look_again = look_again or asyncio.Event()
        self.status = ConfigStatus(file=str(file), applied_at=time.time())
        """The status of the file as it is now."""
        self.reloads = Counts()
        """Edits by result: `applied`, `refused`."""
        for result in ("applied", "refused"):
            self.reloads.begin(result)

    async def follow(self, config: Config) -> None:
        """Apply what the file says whenever that changes, until cancelled; a bad edit is logged instead.

        `config` is its content at the first reading.
        """
        last: Config | ConfigError = config
        fresh: Config | ConfigError
        read: bytes | None = None
        async for _ in _file_changes(self._file, changed=self._look_again):
            try:
                # As at the start, on the loop: it is a few KB of a tmpfs or a local disk, pipes are refused,
                # and a mount that hangs would have held the look at the links on the way to it already.
                text = read_served_file(self._file)
            except ConfigError as error:
                read, fresh = None, error
                # Nothing tells when descriptors or memory are there again, or a right to it.
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._look_again.set)
            else:
                if text == read:  # ten thousand devices take a fifth of a second to understand
                    continue
                read, fresh = text, self._understood(text)
            if fresh == last or (isinstance(fresh, ConfigError) and str(fresh) == str(last)):
                continue
            if isinstance(fresh, ConfigError):
                self._refuse(fresh)
            else:
                await self._reload(fresh)
            last = fresh

    def _understood(self, text: bytes) -> Config | ConfigError:
        try:
            return load(text, str(self._file))
        except ConfigError as error:
            return error

    def _refuse(self, error: ConfigError) -> None:
        logger.error(
            "reload failed: the file has mistakes; the previous configuration stays in effect",
            extra={"file": error.file, "problems": len(error.problems)},
        )
        lines = error.lines()[:PROBLEMS_LIMIT]
        for line in lines:
            logger.error(line)
        self._note("refused", *lines)

    async def _reload(self, config: Config) -> None:
        last, before = self._daemon.config, self._daemon.resources()
        try:
            await self._daemon.apply(config)
        except (PluginError, KubeletError) as error:
            logger.error(  # noqa: TRY400 -- the text says it all
                "reload failed: the file cannot be served; the previous configuration stays in effect",
                extra={"reason": str(error)},
            )
            if last is not None:
                await self._go_back(last)
            self._note("refused", str(error))
            return
        after = self._daemon.resources()
        logger.info(
            "configuration reloaded",
            extra={
                "file": str(self._file),
                "added": sorted(after.keys() - before.keys()),
                "changed": sorted(name for name in after if after[name] != before.get(name, after[name])),
                "removed": sorted(before.keys() - after.keys()),
            },
        )
        self._note("applied")

    async def _go_back(self, config: Config) -> None:
        try:
            await self._daemon.apply(config)
        except (PluginError, KubeletError) as error:
            logger.error(  # noqa: TRY400 -- the text says it all
                "the previous configuration cannot be served either; the resources that can be are served",
                extra={"reason": str(error)},
            )

    def _note(self, result: str, *problems: str) -> None:
        self.reloads.add(result)
        applied_at = self.status.applied_at if problems else time.time()
        self.status = ConfigStatus(file=str(self._file), applied_at=applied_at, problems=problems)
        self._on_change()


# ── the reading ───────────────────────────────────────────────────────────────────────────────────


def read_served_file(path: StrPath) -> bytes:
    """Return the bytes of a file that is to be served; raises `ConfigError`, also if others could change it.

    Its author chooses what containers get, and which commands are started here.
    """
    advice = f"give it to root or to the user of this process, and let no other write: chmod go-w {path}"
    try:
        check_trusted(path, advice, users=sudo_users(), trusts_read_only=True)
    except UntrustedError as error:
        raise ConfigError(str(path), [Problem(0, 0, "", str(error))]) from error
    return read_config_file(path)


def read_config_file(path: StrPath) -> bytes:
    """Return the bytes of the file at `path`, or raise `ConfigError` that says why it cannot be read.

    Anything but a regular file is refused.
    """
    file = Path(path)
    try:
        return read_regular(file, SIZE_LIMIT_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(0, 0, "", f"cannot read {file}: {reason}")
        raise ConfigError(str(file), [problem]) from error
