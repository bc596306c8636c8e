"""The files that other processes of this node write about what they hold, read again when they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

__all__ = ["IN_CODE", "OtherFiles"]

IN_CODE: Final = "code"
"""The owner of what a plugin in code records: only that program can serve its resource and its driver."""

Content = TypeVar("Content")


class OtherFiles(Generic[Content]):
    """The content of other processes' files. `paths` returns them, and `read` one's content.

    `watched` is a glob of them: it has an event when one comes, goes or is replaced. `read` returns None for
    a file that cannot be read, which it logs: what it had before counts on.
    """

    def __init__(
        self, watched: str, paths: Callable[[], Iterable[Path]], read: Callable[[Path], Content | None]
    ) -> None:
        self.watched = watched
        self.revision = 0
        """A number that changes with `contents`."""
        self.contents: Mapping[Path, Content] = {}
        self._paths = paths
        self._read = read
        self._stamps: Mapping[Path, tuple[int, int, int]] = {}

    def refresh(self) -> bool:
        """Read what has changed; return whether anything has."""
        stamps = {}
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue
            stamps[path] = status.st_ino, status.st_mtime_ns, status.st_size
        if stamps == self._stamps:
            return False
        contents: dict[Path, Content] = {}
        for path, stamp in stamps.items():
            before = self.contents.get(path)
            content = before if stamp == self._stamps.get(path) else self._read(path)
            if (content := before if content is None else content) is not None:
                contents[path] = content
        self._stamps, self.contents = stamps, contents
        self.revision += 1
        return True
