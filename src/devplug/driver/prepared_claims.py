"""The claims that are in use on this node: their state file, and their CDI files, which are the truth.

1. A use is in the state file before a device is touched, and until it is released: after any crash the next
   process knows what to release. A use that begins is on the disk before `note` returns. An end is not
   synced: after a power cut the use is ended again.
2. The state file has the uses in its first line, and then one line for each change. Lines that wait for one
   sync share the next. A line that was cut off, and what follows it, does not count. The file is rewritten
   when there are many lines, or after a write that failed.
3. A use is prepared if its CDI file is there and of this boot: after a reboot all has to be prepared again.
   So only the state file has to be on the disk, and readers see only whole CDI files.
   A copy of the CDI file lies beside the state file. The copy counts: the CDI file is restored from it if
   another program removes or changes it. Without a copy, as of an earlier release, the CDI file counts.
4. Two instances of a driver share the files. Only the holder of the lock works on claims and writes, and it
   first reads what the other instance wrote.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from devplug.cdi.files import content_of, explained, is_remains, opened, try_lock, write_locked
from devplug.driver.claim_spec import file_name, file_text, read_file, read_spec, uid_of_file
from devplug.driver.claims import ClaimUse, used_devices
from devplug.errors import KubeletError
from devplug.holds.claim_holders import claim_holds
from devplug.linux.durable_file import NoStateError, read_state, remove_remains, write_whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from devplug.cdi.spec import CdiSpec
    from devplug.devices import Device
    from devplug.holds.hardware import Use
    from devplug.wire.values import PodResources

logger = logging.getLogger(__name__)

STATE_NAME: Final = "prepared_claims.json"
LOCK_NAME: Final = "prepared_claims.lock"
COPIES_NAME: Final = "cdi"
"""The folder with the copies of CDI files."""

LOCK_AGAIN_SECONDS: Final = 0.02
LOCK_PATIENCE_SECONDS: Final = 20.0
_Stamp: TypeAlias = tuple[int, int, int, int] | None

_MARK: Final = "c1a100000000"
"""Stands in the names of CDI files that are being written; what tells them apart is their random part."""


def published_uses(driver: str, cdi_folder: Path) -> Iterator[ClaimUse]:
    """Yield the uses in the CDI files of a driver's claims: a container can start with these devices."""
    for name in _names(cdi_folder):
        if (uid := uid_of_file(driver, name)) is None or (content := _content_at(cdi_folder / name)) is None:
            continue
        use = read_file(content)
        if use is not None and use.uid == uid:
            yield use


class PreparedClaims:
    """The claims in use; lives as long as the driver, and is the only one in its process that writes them.

    `folder` has the state file, `cdi_folder` the CDI files. All that writes is called within `locked`.
    """

    def __init__(self, driver: str, folder: Path, cdi_folder: Path, boot: str) -> None:
        self.revision = 0
        """A number that changes whenever `claims` does."""
        self.claims: dict[str, ClaimUse] = {}
        """By UID. Right while the lock is held; before that, as of the last time that it was."""
        self.released: dict[str, ClaimUse] = {}
        """By UID: the claims that have released their devices, which are to be cleaned up."""
        self.are_records_lost = False
        """Whether the state file was lost, so that `released` is not known."""
        self.seen: dict[str, Sequence[Device | None]] = {}
        """By UID: the devices as they were when the CDI file was last held against them; None for each that
        was not offered."""
        self._equal: dict[str, tuple[_Stamp, _Stamp]] = {}
        """By UID: the CDI file and its copy as they were when they had the same content."""
        self.asked_for: set[str] = set()
        """The UIDs of claims that the kubelet has had prepared since it came."""
        self.pods: Callable[[], Sequence[PodResources]] = tuple
        """Returns what the kubelet's PodResources listed last; nothing where that is not known, or is old."""
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        """By UID or device, while somebody has or wants it; the list is as long as they are many."""
        self._driver = driver
        self._folder = folder
        self.cdi_folder = cdi_folder
        self._boot_id = boot
        self._fd = -1
        self._users = 0
        self._taking = asyncio.Lock()
        self._log = ClaimLog(folder / STATE_NAME)
        self._is_first = True
        """Whether the CDI files were never looked at."""
        self._is_stale = False
        """Whether another process has written since they were looked at."""

    @property
    def cdi_files(self) -> str:
        """A glob of the CDI files."""
        return str(self._cdi_path("*"))

    def is_prepared(self, use: ClaimUse) -> bool:
        """Whether a claim is prepared in this boot of the machine."""
        if use.boot_id != self._boot_id:
            return False
        # One of which containers get nothing has no file: nobody can take it away.
        return not _has_file(self._driver, use) or self._cdi_path(use.uid).exists()

    def held_ids(self, resource_name: str) -> frozenset[str]:
        """Return the IDs of a resource's devices that claims use."""
        return frozenset(one.device_id for one in used_devices(self.claims.values(), resource_name))

    def prepared_ids(self, resource_name: str) -> frozenset[str]:
        """Return those of `held_ids` that a container may have: their claims are prepared."""
        prepared = (use for use in self.claims.values() if use.boot_id == self._boot_id)
        return frozenset(one.device_id for one in used_devices(prepared, resource_name))

    def ids_to_clean(self, resource_name: str) -> frozenset[str]:
        """Return the IDs of a resource's devices that no claim uses, and that are to be cleaned up."""
        return frozenset(one.device_id for one in used_devices(self.released.values(), resource_name))

    def recorded(self) -> Iterator[ClaimUse]:
        """Yield the claims in use, and the released claims with devices to clean up."""
        yield from self.claims.values()
        yield from self.released.values()

    def use_of(self, resource_name: str, device_id: str) -> Use | None:
        """Return what containers have of a device, or had until it is to be cleaned up, as far as known."""
        devices = used_devices(self.recorded(), resource_name)
        return next((one.use for one in devices if one.device_id == device_id), None)

    def recall(self) -> None:
        """Know the claims from the start, as far as both tell: the first lock makes them agree."""
        self.revision += 1
        with suppress(OSError, msgspec.DecodeError):
            self.claims, self.released = _parted(self._log.read())
        for folder in (self.cdi_folder, self._folder / COPIES_NAME):
            with suppress(OSError):
                uses = list(published_uses(self._driver, folder))
                is_copy = folder != self.cdi_folder
                self.claims.update(
                    (use.uid, use) for use in uses if not is_copy or use.boot_id == self._boot_id
                )

    def refresh(self) -> bool:
        """Learn what another process has written since; return whether it has written anything."""
        with suppress(OSError):
            if not self._users and not self._is_first and not self._log.is_current():
                self._is_stale = True  # who takes the lock reads everything
                self.recall()
                return True
        return False

    # ── the locks ──

    @asynccontextmanager
    async def alone(self, uid: str) -> AsyncIterator[None]:
        """Be the only task of this process for a claim, or a device, in this block."""
        lock, users = self._locks.setdefault(uid, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[uid]

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock for a block; several blocks of a process hold it together. Raises `KubeletError`."""
        async with self._taking:
            if not self._users:
                await self._take()
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self.close()

    async def _take(self) -> None:
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._fd = os.open(self._folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            await self._until_free()
            if self._is_first or self._is_stale or not self._log.is_current():
                await asyncio.to_thread(self._load)
        except OSError as error:
            self.close()
            raise KubeletError(f"cannot use {self._folder}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    async def _until_free(self) -> None:
        """Wait for the lock; nothing tells when it is free."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOCK_PATIENCE_SECONDS
        while not try_lock(self._fd):
            if loop.time() > deadline:
                raise KubeletError("another instance of the driver is still at work on a claim; tried again")
            await asyncio.sleep(LOCK_AGAIN_SECONDS)

    def close(self) -> None:
        """Let go of the lock. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # ── changes ──

    async def begin(self, use: ClaimUse) -> None:
        """Note that a use begins: once this returns, it is known whatever dies."""
        self.claims[use.uid] = use
        self.revision += 1
        await self._note(Entry(use), is_durable=True)

    async def publish(self, use: ClaimUse, spec: CdiSpec | None) -> ClaimUse:
        """Make a use prepared: runtimes find its devices once this returns. Raises `KubeletError`."""
        prepared = replace(use, boot_id=self._boot_id)
        self.revision += 1
        if spec is None:
            self.claims[use.uid] = prepared
            await self._note(Entry(prepared), is_durable=False)
        else:
            content = file_text(spec, prepared).encode()
            name = file_name(self._driver, use.uid)
            await asyncio.to_thread(self._write, name, content)
            self.claims[use.uid] = prepared
        return prepared

    def lost(self) -> Sequence[str]:
        """Return the UIDs of prepared claims whose CDI file another program has removed or changed."""
        return [uid for uid in self.claims if self._is_lost(uid)]

    def _is_lost(self, uid: str) -> bool:
        """Whether the CDI file of a claim differs from its copy; they are read if the files have changed."""
        stamps = _stamp(self._cdi_path(uid)), _stamp(self._copy_path(uid))
        if stamps[1] is None or self._equal.get(uid) == stamps:
            return False
        with suppress(OSError):
            if _content_at(self._cdi_path(uid)) == _content_at(self._copy_path(uid)):
                self._equal[uid] = stamps
                return False
        return True

    async def restore(self, uid: str) -> None:
        """Restore the CDI file of a prepared claim if it was removed or changed. Raises `KubeletError`."""
        if (use := self.claims.get(uid)) is not None and self._is_lost(uid):
            restored = await asyncio.to_thread(self._restored, use)
            if restored is not None:
                self.claims[uid] = restored
                self.revision += 1
                self.seen.pop(uid, None)  # its devices may have changed since

    def _restored(self, use: ClaimUse) -> ClaimUse | None:
        """Restore a CDI file from its copy; remove a copy that is of no use."""
        copy = self._copy_path(use.uid)
        content = _content_at(copy)
        known = None if content is None else read_file(content)
        if content is None or known is None or known.boot_id != self._boot_id or not known.uses_as(use):
            copy.unlink(missing_ok=True)
            return None
        is_there = os.path.lexists(self._cdi_path(use.uid))
        with explained(self.cdi_folder, "write"):
            _write(self.cdi_folder, copy.name, content)
        logger.warning(
            "another program has %s the CDI file of a prepared claim; it is restored",
            "changed" if is_there else "removed",
            extra={"claim": str(use), "claim_uid": use.uid, "path": str(self._cdi_path(use.uid))},
        )
        return known

    def _write(self, name: str, content: bytes) -> None:
        self._write_copy(name, content)  # first, as the copy counts
        with explained(self.cdi_folder, "write"):
            _write(self.cdi_folder, name, content)

    def _write_copy(self, name: str, content: bytes) -> None:
        with _failing_on(self._folder / COPIES_NAME):
            _write(self._folder / COPIES_NAME, name, content)

    def spec_of(self, uid: str) -> CdiSpec | None:
        """Return the spec of a claim as we wrote it; None if it has none."""
        content = _content_at(self._copy_path(uid)) or _content_at(self._cdi_path(uid))
        return None if content is None else read_spec(self._driver, content)

    def unpublish(self, uid: str) -> None:
        """Make a use unprepared: no container can start with its devices any more. Raises `KubeletError`."""
        with explained(self.cdi_folder, "remove from"):
            self._copy_path(uid).unlink(missing_ok=True)
            self._cdi_path(uid).unlink(missing_ok=True)

    def may_be_in_use(self, use: ClaimUse) -> bool:
        """Whether the kubelet may know a claim: not if it lists others without this one, nor after a boot.

        A kubelet before 1.34 may list none (`claim_holds`).
        """
        is_any_listed = any(True for _ in claim_holds(self.pods()))
        return self.is_listed(use) or (not is_any_listed and use.boot_id in {"", self._boot_id})

    def is_listed(self, use: ClaimUse) -> bool:
        """Whether the kubelet lists a container with a claim."""
        key = self._driver, use.namespace, use.name
        holds = claim_holds(self.pods())
        return any((one.driver, one.claim_namespace, one.claim_name) == key for one in holds)

    async def end(self, uid: str) -> None:
        """Note that a use is over."""
        was_released = self.released.pop(uid, None) is not None
        if self._forget(uid) or was_released:
            self.revision += 1
            await self._note(Entry(ended=uid), is_durable=False)

    def _forget(self, uid: str) -> bool:
        """Forget a claim in use; return whether it was one."""
        self.seen.pop(uid, None)
        self._equal.pop(uid, None)
        self.asked_for.discard(uid)
        return self.claims.pop(uid, None) is not None

    async def _note(self, entry: Entry, *, is_durable: bool) -> None:
        with _failing_on(self._folder / STATE_NAME):
            await self._log.note(entry, {**self.released, **self.claims}, is_durable=is_durable)

    async def leave(self, use: ClaimUse) -> None:
        """Note that a use is over, and that its devices are to be cleaned up."""
        left = replace(use, boot_id="", is_released=True)
        if self.released.get(use.uid) == left:
            return
        self._forget(use.uid)
        self.released[use.uid] = left
        self.revision += 1
        await self._note(Entry(left), is_durable=True)

    # ── reading ──

    def _load(self) -> None:
        """Read both, and make them agree: at the start, and after another instance has written."""
        claims, self.released = _parted(self._kept())
        with explained(self.cdi_folder, "read"):
            claims.update(self._published(claims))
        if self._is_first:
            self._restore_all(claims)
        self.claims = claims
        self.revision += 1
        self._is_first = self._is_stale = False

    def _published(self, claims: Mapping[str, ClaimUse]) -> Iterator[tuple[str, ClaimUse]]:
        """Yield the uses in CDI files, and remove those of an earlier boot; `claims` has the state file."""
        for name in _names(self.cdi_folder):
            path = self.cdi_folder / name
            if self._is_first and is_remains(name):
                _discard_remains(path)
            uid = uid_of_file(self._driver, name)
            if uid is None:
                continue
            if uid in claims and self._is_lost(uid) and not path.is_dir():
                restored = self._restored(claims[uid])
                if restored is not None:
                    yield uid, restored
                    continue
            content = _content_at(path)
            if content is not None and not content.strip(b"\0"):
                path.unlink(missing_ok=True)  # what a power cut leaves on some file systems
                continue
            use = None if content is None else read_file(content)
            if use is None or use.uid != uid:
                logger.warning(
                    "a CDI file with a name of ours is not ours; it is left alone", extra={"path": str(path)}
                )
                continue
            if use.boot_id != self._boot_id:
                # Its paths may be those of other devices by now.
                path.unlink(missing_ok=True)
                use = replace(use, boot_id="")
            elif content is not None and not self._copy_path(uid).exists():
                self._write_copy(name, content)  # an earlier release of ours has prepared it
            yield uid, use

    def _restore_all(self, claims: dict[str, ClaimUse]) -> None:
        """Restore the CDI files that were removed while no driver ran."""
        for name in _names(self._folder / COPIES_NAME):
            path = self._folder / COPIES_NAME / name
            use = claims.get(uid_of_file(self._driver, name) or "")
            if is_remains(name):
                _discard_remains(path)
            elif use is None:
                path.unlink(missing_ok=True)
            elif not self._cdi_path(use.uid).exists() and (restored := self._restored(use)) is not None:
                claims[use.uid] = restored

    def _kept(self) -> dict[str, ClaimUse]:
        """Return the uses in the state file; one that cannot be read is put aside."""
        path = self._folder / STATE_NAME
        remove_remains(path)
        try:
            self.are_records_lost |= self._is_first and not path.exists() and self._has_published()
            return self._log.read()
        except (msgspec.DecodeError, NoStateError) as error:
            self.are_records_lost = True
            spare = path.with_name(f"{STATE_NAME}.unreadable")
            path.replace(spare)
            logger.error(  # noqa: TRY400 -- it is no bug
                "the file of prepared claims cannot be read; it is rebuilt from the CDI files",
                extra={"path": str(spare), "reason": str(error)},
            )
            return {}

    def _has_published(self) -> bool:
        """Whether there are CDI files of claims, or copies of them."""
        folders = self.cdi_folder, self._folder / COPIES_NAME
        return any(uid_of_file(self._driver, name) for folder in folders for name in _names(folder))

    def _cdi_path(self, uid: str) -> Path:
        return self.cdi_folder / file_name(self._driver, uid)

    def _copy_path(self, uid: str) -> Path:
        return self._folder / COPIES_NAME / file_name(self._driver, uid)


@contextmanager
def _failing_on(path: Path) -> Iterator[None]:
    """Raise `KubeletError` in place of an `OSError` of a write to this path."""
    try:
        yield
    except OSError as error:
        raise KubeletError(f"cannot write {path}: {error.strerror or error}") from error


def _parted(uses: Mapping[str, ClaimUse]) -> tuple[dict[str, ClaimUse], dict[str, ClaimUse]]:
    """Return the uses that last, and the released uses with devices to clean up."""
    lasting = {uid: use for uid, use in uses.items() if not use.is_released}
    return lasting, {uid: use for uid, use in uses.items() if use.is_released}


def _has_file(driver: str, use: ClaimUse) -> bool:
    own = f"k8s.{driver}/claim="
    return any(name.startswith(own) for device in use.devices for name in device.cdi_names)


def _write(folder: Path, name: str, content: bytes) -> None:
    os.close(write_locked(folder, name, _MARK, content, is_durable=False))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return []


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _content_at(path: Path) -> bytes | None:
    fd = opened(path)
    if fd is None:
        return None
    try:
        return content_of(fd)
    finally:
        os.close(fd)


def _discard_remains(path: Path) -> None:
    """Remove what a writer left that died half way; one that lives has it locked."""
    fd = opened(path)
    if fd is not None:
        with suppress(OSError):
            if try_lock(fd):
                path.unlink(missing_ok=True)
        os.close(fd)


# ── the state file ──

LINES_LEAST: Final = 64
"""Fewer lines than these are never put together."""


class _Start(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    claims: tuple[ClaimUse, ...]


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line: a use that began, or has other devices now, or the UID of one that ended."""

    begun: ClaimUse | None = None
    ended: str = ""


def state_text(claims: Mapping[str, ClaimUse]) -> str:
    """Return the content of a file without further lines."""
    return msgspec.json.encode(_Start(1, tuple(claims.values()))).decode() + "\n"


def claims_in(content: bytes) -> tuple[dict[str, ClaimUse], int | None]:
    """Return the claims by UID, and the number of lines after the first; None if there is one cut off.

    Raises `msgspec.DecodeError` if the first line has no start of the file.
    """
    first, *lines = content.split(b"\n")
    try:
        claims = {use.uid: use for use in msgspec.json.decode(first, type=_Start).claims}
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    for line in lines[:-1]:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return claims, None
        if entry.begun is not None:
            claims[entry.begun.uid] = entry.begun
        claims.pop(entry.ended, None)
    return claims, len(lines) - 1 if lines and not lines[-1] else None


class ClaimLog:
    """The owner of the file; lives as long as the driver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = asyncio.Lock()
        self._lines: int | None = None
        """How many there are after the first; None if the next write has to replace the file."""
        self._waiting: list[Entry] = []
        self._is_sync_due = False
        self._noted = 0
        self._written = 0
        """How many entries were noted, and how many of them the file has."""
        self._read: _Stamp = None
        """The identity of the file as it was read or written last."""

    def is_current(self) -> bool:
        """Whether the file is as it was read or written last."""
        return self._read is not None and self._stamp() == self._read

    def read(self) -> dict[str, ClaimUse]:
        """Return the claims by UID, none without a file.

        Raises `OSError`, and `msgspec.DecodeError` for a file that is damaged.
        """
        self._lines = None
        self._read = self._stamp()
        try:
            content = read_state(self._path)
        except FileNotFoundError:
            return {}
        claims, self._lines = claims_in(content)
        return claims

    async def note(self, entry: Entry, claims: Mapping[str, ClaimUse], *, is_durable: bool) -> None:
        """Note what has become of `claims`, which has it already. Raises `OSError`: it may be noted or not.

        With `is_durable` the disk has it when this returns.
        """
        self._waiting.append(entry)
        self._is_sync_due |= is_durable
        self._noted += 1
        number = self._noted
        async with self._writing:
            if self._written >= number:
                return  # with another one
            entries, self._waiting = self._waiting, []
            is_sync_due, self._is_sync_due = self._is_sync_due, False
            number = self._noted
            lines = None if self._lines is None else self._lines + len(entries)
            # Compact the file preferably when no call waits for the disk.
            limit = (2 if is_sync_due else 1) * (LINES_LEAST + 2 * len(claims))
            is_whole = lines is None or lines > limit
            content = state_text(claims) if is_whole else _text_of(entries)
            self._lines = self._read = None  # for as long as it is not sure how this ends
            if is_whole:
                await asyncio.to_thread(write_whole, self._path, content)
            else:
                await asyncio.to_thread(_append, self._path, content, is_sync_due)
            self._lines = 0 if is_whole else lines
            self._written = number
            self._read = self._stamp()

    def _stamp(self) -> _Stamp:
        return _stamp(self._path) or (0, 0, 0, 0)


def _text_of(entries: list[Entry]) -> str:
    return "".join(msgspec.json.encode(entry).decode() + "\n" for entry in entries)


def _append(path: Path, content: str, is_sync_due: bool) -> None:  # noqa: FBT001 -- called by to_thread
    with path.open("ab", buffering=0) as file:
        data = content.encode()
        if file.write(data) != len(data):
            raise OSError(28, os.strerror(28), str(path))  # the disk is full
        if is_sync_due:
            os.fdatasync(file.fileno())
