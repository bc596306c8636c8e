"""The file that keeps the sandbox's objects over its end (`--state`): how it is read, written and refused.

It is an SQLite database with one row for each object. The registry does not know of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from contextlib import ExitStack, aclosing, closing, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.errors import DevplugError, one_line
from devplug.k8s.objects import Object, text
from devplug.linux.trust import UntrustedError, check_trusted
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.api.watchlog import ChangeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.registry import Registry

logger = logging.getLogger(__name__)

_APPLICATION_ID: Final = 0x64707367
"""The application ID in the file's header (sqlite.org/pragma.html#pragma_application_id)."""

_SCHEMA_VERSION: Final = 1

_PAUSE_SECONDS: Final = 0.2
"""Between two writings: many changes at once are one, and a crash of the machine loses no more than this."""

_RETRY_SECONDS: Final = 1.0

_STORED: Final = {one.storage: one for one in reversed(SERVED) if "list" in one.verbs}
"""What is kept, by the name of its storage; both versions of events are one."""

_SCHEMA: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    storage TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, object TEXT NOT NULL,
    PRIMARY KEY (storage, namespace, name)
) WITHOUT ROWID;
INSERT INTO facts VALUES ('version', 1);
"""

_Key: TypeAlias = tuple[str, str, str]


class StateFileError(DevplugError):
    """A file cannot keep the sandbox's objects; the text says what to do. Nothing was written to it."""


class StateFile:
    """The open file; nobody else writes it meanwhile. Made by `opened`."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self._database = database
        self._lock = threading.Lock()
        self._is_over = False
        self.version: int = database.execute("SELECT value FROM facts WHERE name = 'version'").fetchone()[0]
        """The resource version up to which all is kept."""
        self.contents = tuple(_read(database))
        """The objects as they were when the file was opened."""
        self._saved = {_key(resource, one): _version(one) for resource, one in self.contents}
        self._changed: dict[_Key, Object | None] = {}
        self._woken = asyncio.Event()

    async def run(self, registry: Registry) -> None:
        """Keep what changes, a fraction of a second later, until cancelled; what is left is kept then.

        A full disk is logged, and tried again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for resource in _STORED.values():
                    group.create_task(self._follow(registry, resource))
                group.create_task(self._keep_writing(registry))
        finally:
            self._write_last(registry)

    async def _follow(self, registry: Registry, resource: Resource) -> None:
        async with aclosing(registry.follow(resource)) as events:
            async for event in events:
                key = _key(resource, event.object)
                if event.type is ChangeType.DELETED:
                    self._changed[key] = None
                elif self._saved.get(key) != _version(event.object):
                    self._changed[key] = event.object
                else:
                    continue
                self._woken.set()

    async def _keep_writing(self, registry: Registry) -> None:
        is_logged = False
        while True:
            await self._woken.wait()
            self._woken.clear()
            taken, version = self._taken(), registry.version
            try:
                await asyncio.to_thread(self._write, taken, version)
            except sqlite3.Error as error:
                if not is_logged:
                    logger.error(  # noqa: TRY400 -- what happened is said by SQLite's sentence
                        "the sandbox's state could not be written; trying again",
                        extra={"file": str(self.path), "reason": str(error)},
                    )
                is_logged = True
                self._changed = taken | self._changed
                self._woken.set()
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                is_logged = False
                await asyncio.sleep(_PAUSE_SECONDS)

    def _taken(self) -> dict[_Key, Object | None]:
        taken, self._changed = self._changed, {}
        return taken

    def _write_last(self, registry: Registry) -> None:
        """Write all that differs from what is saved: a writing may have been cut off."""
        with self._lock:
            self._is_over = True
        here = {_key(resource, one): one for resource in _STORED.values() for one in registry.all(resource)}
        gone = dict.fromkeys(self._saved.keys() - here.keys())
        try:
            self._save(here | gone, registry.version)
        except sqlite3.Error as error:
            raise StateFileError(f"{self.path} could not be written at the end: {error}") from error

    def _write(self, changed: dict[_Key, Object | None], version: int) -> None:
        """Write from a thread, which may come too late."""
        with self._lock:
            if not self._is_over:
                self._save(changed, version)

    def _save(self, changed: Mapping[_Key, Object | None], version: int) -> None:
        with self._database as database:
            for key, one in changed.items():
                if one is None:
                    database.execute(
                        "DELETE FROM objects WHERE storage = ? AND namespace = ? AND name = ?", key
                    )
                elif self._saved.get(key) != _version(one):
                    database.execute(
                        "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*key, json.dumps(one))
                    )
            database.execute("UPDATE facts SET value = ? WHERE name = 'version'", (version,))
        for key, one in changed.items():
            if one is None:
                self._saved.pop(key, None)
            else:
                self._saved[key] = _version(one)


@contextmanager
def opened(path: Path) -> Iterator[StateFile]:
    """Open the file for one sandbox, or make it; raises `StateFileError`, and leaves others' files alone."""
    with ExitStack() as stack:
        try:
            # Its pods are programs that are started.
            check_trusted(path, f"chmod go-w {path}, or name another file")
        except UntrustedError as error:
            raise StateFileError(str(error)) from error
        try:
            is_new = not path.exists() or path.stat().st_size == 0
            database = stack.enter_context(closing(_connected(path)))
            if is_new:
                _make(database)
            else:
                _check(path, database)
            state = StateFile(path, database)
        except (sqlite3.Error, OSError, ValueError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_BUSY:
                raise StateFileError(
                    f"{path} is in use, probably by another sandbox; end that one or name another file"
                ) from error
            raise StateFileError(
                f"{path} cannot keep the sandbox's state ({one_line(str(error), 120)}); "
                "move it away, or name another file"
            ) from error
        yield state


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=0, check_same_thread=False)
    # The lock stays from the first reading to the end.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    return database


def _make(database: sqlite3.Connection) -> None:
    database.executescript(
        f"BEGIN EXCLUSIVE; PRAGMA application_id = {_APPLICATION_ID}; "
        f"PRAGMA user_version = {_SCHEMA_VERSION}; {_SCHEMA} COMMIT;"
    )


def _check(path: Path, database: sqlite3.Connection) -> None:
    (whose,) = database.execute("PRAGMA application_id").fetchone()
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    if whose != _APPLICATION_ID:
        raise StateFileError(f"{path} is a database of another program; name another file")
    if schema != _SCHEMA_VERSION:
        raise StateFileError(
            f"{path} was written by a newer devplug (layout {schema}, this one knows {_SCHEMA_VERSION}); "
            "use that one, or name another file"
        )
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StateFileError(
            f"{path} is damaged ({one_line(found, 120)}); move it away, or name another file"
        )
    database.execute("BEGIN EXCLUSIVE")
    database.commit()


def _read(database: sqlite3.Connection) -> Iterator[tuple[Resource, Object]]:
    for storage, written in database.execute("SELECT storage, object FROM objects"):
        if storage not in _STORED:
            raise ValueError(f"it has {storage}, which this devplug does not know")
        one = json.loads(written)
        if not isinstance(one, dict):
            raise ValueError(f"an entry of {storage} is no object")  # noqa: TRY004 -- of the file, not of us
        yield _STORED[storage], one


def _key(resource: Resource, one: Object) -> _Key:
    return resource.storage, text(one, "metadata", "namespace"), text(one, "metadata", "name")


def _version(one: Object) -> str:
    return text(one, "metadata", "resourceVersion")
