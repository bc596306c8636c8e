"""The logs of containers: one bounded file for each run, written as the program prints, and read back.

They lie as the kubelet lays them out, NAMESPACE_POD_UID/CONTAINER/N.log with the restart count N
(kuberuntime/helpers.go BuildContainerLogsDirectory). Lines are as container runtimes write them: time,
stream, F for the end of a line or P for a part of it, text (kubernetes/design-proposals-archive
node/kubelet-cri-logging.md). The stream is always stdout: both share one pipe, so that what was printed
first stands first.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, part, text
from devplug.kubelet.gotext import go_quoted
from devplug.linux.notifier import Notifier
from devplug.sandbox.api.errors import bad_request
from devplug.sandbox.nodes.containercommand import image_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from devplug.sandbox.api.options import LogOptions

logger = logging.getLogger(__name__)

LINE_LIMIT_BYTES: Final = 16 * 1024
"""The longest text of one row; longer lines have several (containerd internal/cri/config: 16 KiB)."""

_BLOCK_BYTES: Final = 64 * 1024
_NANOSECONDS: Final = 1_000_000_000
LOG_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""How much of a run is kept (the kubelet's default containerLogMaxSize, apis/config/v1beta1/defaults.go)."""


# ── Lines ──


def nano_stamp(nanoseconds: int) -> str:
    """Return a moment since 1970 to the nanosecond, in UTC (kubelet types RFC3339NanoFixed)."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def records(line: bytes, stamp: str, *, is_complete: bool) -> bytes:
    """Return a line without its end, or a part of one, as rows of the file."""
    parts = [line[start : start + LINE_LIMIT_BYTES] for start in range(0, len(line), LINE_LIMIT_BYTES)]
    last = max(len(parts) - 1, 0)
    return b"".join(
        b"%s stdout %s %s\n" % (stamp.encode(), b"F" if is_complete and number == last else b"P", text)
        for number, text in enumerate(parts or [b""])
        if parts or is_complete
    )


def tail(rows: bytes, count: int) -> bytes:
    """Return the last `count` rows."""
    position = len(rows)
    for _ in range(count + 1):
        if position <= 0:
            return rows
        position = rows.rfind(b"\n", 0, position)
    return rows[position + 1 :]


def blocks(rows: bytes) -> Iterator[bytes]:
    """Yield rows in pieces that can be sent without keeping others waiting."""
    start = 0
    while start < len(rows):
        end = rows.find(b"\n", min(start + _BLOCK_BYTES, len(rows) - 1)) + 1 or len(rows)
        yield rows[start:end]
        start = end


class LogReader:
    """Turns rows into what one reader gets; lives as long as the reading (kubelet logs.go logWriter)."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        since = options.since
        # To the microsecond, that is all that a datetime has; texts of one form sort as the times do.
        self._since = f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z".encode() if since else b""
        self._left_bytes = options.limit_bytes
        self._is_new_line = True

    @property
    def is_done(self) -> bool:
        """Whether the reader has had all the bytes that it asked for."""
        return self._left_bytes is not None and self._left_bytes <= 0

    def bytes_of(self, rows: bytes) -> bytes:
        """Return what the reader gets of these rows."""
        sent = b"".join(map(self._line_of, rows.removesuffix(b"\n").split(b"\n")))
        if self._left_bytes is not None:
            sent = sent[: max(self._left_bytes, 0)]
            self._left_bytes -= len(sent)
        return sent

    def _line_of(self, row: bytes) -> bytes:
        stamp, _, rest = row.partition(b" ")
        _, _, rest = rest.partition(b" ")
        kind, _, line = rest.partition(b" ")
        starts_line, self._is_new_line = self._is_new_line, kind == b"F"
        if stamp < self._since:
            return b""
        prefix = stamp + b" " if self._options.timestamps and starts_line else b""
        return prefix + line + (b"\n" if kind == b"F" else b"")


# ── The log of one run ──


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.older")


def rows_of(path: Path) -> bytes:
    """Return all rows that are kept of a run; none if it has no log."""
    rows = b""
    for file in (_older(path), path):
        try:
            rows += file.read_bytes()
        except FileNotFoundError:
            continue
    return rows


class LogFile:
    """The log of a run that goes on; `close` ends it. Its file stays.

    When half of what may be kept is written, the file becomes the older half, and a new one is begun; so at
    least that much can always be read, where the kubelet's own rotation lets a reader begin with nothing.
    """

    def __init__(
        self,
        path: Path,
        limit_bytes: int = LOG_LIMIT_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Begin the file; `clock` has nanoseconds since 1970."""
        path.parent.mkdir(parents=True, exist_ok=True)
        _older(path).unlink(missing_ok=True)
        self._path = path
        self._half_bytes = limit_bytes // 2
        self._clock = clock
        self._file = path.open("wb", buffering=0)
        self._size_bytes = 0
        self._rest = b""
        self._is_failing = False
        self.written_bytes = 0
        """Of all rows since the beginning, kept or not."""
        self.is_closed = False
        self.news = Notifier()
        """Of what was written, and of the end."""

    def feed(self, printed: bytes) -> None:
        """Write down what the program has printed; the start of a line waits for its end."""
        whole, newline, rest = (self._rest + printed).rpartition(b"\n")
        stamp = nano_stamp(self._clock())
        rows = b""
        if newline:
            rows = b"".join(records(line, stamp, is_complete=True) for line in whole.split(b"\n"))
        if len(rest) >= LINE_LIMIT_BYTES:
            rows += records(rest, stamp, is_complete=False)
            rest = b""
        self._rest = rest
        self._write(rows)

    def close(self) -> None:
        """End the log, with what there is of a last line. Safe to repeat."""
        if self.is_closed:
            return
        if self._rest:
            self._write(records(self._rest, nano_stamp(self._clock()), is_complete=False))
            self._rest = b""
        self.is_closed = True
        self._file.close()
        self.news.notify()

    def newest(self, count_bytes: int) -> bytes:
        """Return the last rows, so many bytes of them, or as many as are kept."""
        rows = rows_of(self._path)
        return rows[max(len(rows) - count_bytes, 0) :]

    def _write(self, rows: bytes) -> None:
        if not rows:
            return
        try:
            if self._size_bytes and self._size_bytes + len(rows) > self._half_bytes:
                self._path.replace(_older(self._path))
                self._file.close()
                self._file = self._path.open("wb", buffering=0)
                self._size_bytes = 0
            self._file.write(rows)
        except OSError as error:
            if not self._is_failing:
                logger.warning("a container's log cannot be written", extra={"error": str(error)})
            self._is_failing = True
            return
        self._size_bytes += len(rows)
        self.written_bytes += len(rows)
        self.news.notify()


# ── The logs of all containers ──


def in_name_only(container: str, image: str) -> str:
    """Return the line that is the log of a container in which nothing runs."""
    option = shlex.quote(f"{image.partition('@')[0]}=COMMAND")
    return (
        f'container "{container}" is Running in name only: nothing runs in it; for a program of this machine '
        f"in its place, start the sandbox anew with: devplug sandbox up --image {option}"
    )


class Logs:
    """The logs below one folder; live as long as the sandbox, their files longer.

    Of each container the newest run and the one before it are kept.
    """

    def __init__(self, folder: Path, maps: Callable[[str], bool]) -> None:
        """Keep logs below `folder`; `maps` says whether a program runs for an image."""
        self._folder = folder
        self._maps = maps
        self._open: dict[Path, LogFile] = {}

    def begin(self, pod: Object, container: str, restart_count: int) -> LogFile:
        """Begin the log of a run, and throw away those before the last; `end` must follow."""
        path = self._folder_of(pod, container) / f"{restart_count}.log"
        for number in self._runs(path.parent):
            if number < restart_count - 1:
                for file in path.parent.glob(f"{number}.log*"):
                    file.unlink()
        log = self._open[path] = LogFile(path)
        return log

    def end(self, log: LogFile) -> None:
        """End the log of a run: readers who follow it come to their end."""
        log.close()
        self._open = {path: one for path, one in self._open.items() if one is not log}

    def forget(self, pod_uid: str) -> None:
        """Throw the logs of a pod away that is gone."""
        for folder in self._folder.glob(f"*_{pod_uid}"):
            shutil.rmtree(folder, ignore_errors=True)

    async def read(self, pod: Object, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yield what a reader asks for; see `LogOptions`. Raises 400 without a run before this one."""
        reader = LogReader(options)
        path = self._path_of(pod, options)
        log = self._open.get(path) if path else None
        seen_bytes = log.written_bytes if log else 0
        rows = rows_of(path) if path else self._rows_in_name_only(pod, options)
        if options.tail_lines is not None:
            rows = tail(rows, options.tail_lines)
        while True:
            for block in blocks(rows):
                if sent := reader.bytes_of(block):
                    yield sent
                if reader.is_done:
                    return
            if log is None or not options.follow:
                return
            news = log.news.next
            if log.written_bytes == seen_bytes:
                if log.is_closed:
                    return
                await news.wait()
            rows = log.newest(log.written_bytes - seen_bytes)
            seen_bytes = log.written_bytes

    # ── inside ──

    def _path_of(self, pod: Object, options: LogOptions) -> Path | None:
        """Return the file of the run that is asked for; None if the container has never run."""
        container = options.container
        folder = self._folder_of(pod, container)
        runs = self._runs(folder)
        if not options.previous:
            return folder / f"{runs[-1]}.log" if runs else None
        if runs and folder / f"{runs[-1]}.log" not in self._open and _is_waiting(pod, container):
            return folder / f"{runs[-1]}.log"  # the next run has not begun
        if len(runs) > 1:
            return folder / f"{runs[-2]}.log"
        pod_name = text(pod, "metadata", "name")
        raise bad_request(
            f"previous terminated container {go_quoted(container)} in pod {go_quoted(pod_name)} not found"
        )

    def _rows_in_name_only(self, pod: Object, options: LogOptions) -> bytes:
        container = options.container
        image = image_of(pod, container)
        if self._maps(image):
            return b""
        line = in_name_only(container, image)
        return records(line.encode(), nano_stamp(time.time_ns()), is_complete=True)

    def _folder_of(self, pod: Object, container: str) -> Path:
        namespace, name, uid = (text(pod, "metadata", key) for key in ("namespace", "name", "uid"))
        return self._folder / f"{namespace}_{name}_{uid}" / container

    @staticmethod
    def _runs(folder: Path) -> list[int]:
        """Return the restart counts of the runs that are kept, the newest last."""
        return sorted(int(file.stem) for file in folder.glob("*.log") if file.stem.isdecimal())


def _is_waiting(pod: Object, container: str) -> bool:
    return any(
        text(one, "name") == container and part(one, "state", "waiting") is not None
        for sort in ("containerStatuses", "initContainerStatuses")
        for one in entries(pod, "status", sort)
    )
