"""The logs of all containers: where they are, which runs are kept, and what a reader gets of them.

They lie as the kubelet lays them out, NAMESPACE_POD_UID/CONTAINER/N.log with the restart count N
(kuberuntime/helpers.go BuildContainerLogsDirectory).
"""

from __future__ import annotations

import shlex
import shutil
import time
from typing import TYPE_CHECKING

from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.objects import entries, part, text
from devplug.sandbox.api.statuses import bad_request
from devplug.sandbox.containers.logfile import LogFile, rows_of
from devplug.sandbox.containers.loglines import LogTeller, blocks, nano_stamp, records, tail
from devplug.sandbox.containers.words import image_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.requests.podlogs import LogOptions

__all__ = ["Logs", "in_name_only"]


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
        teller = LogTeller(options)
        path = self._path_of(pod, options)
        log = self._open.get(path) if path else None
        seen_bytes = log.written_bytes if log else 0
        rows = rows_of(path) if path else self._rows_in_name_only(pod, options)
        if options.tail_lines is not None:
            rows = tail(rows, options.tail_lines)
        while True:
            for block in blocks(rows):
                if told := teller.tell(block):
                    yield told
                if teller.is_done:
                    return
            if log is None or not options.follow:
                return
            news = log.news
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
