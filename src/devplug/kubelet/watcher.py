"""The plugin watcher: plugins found by their sockets in `plugins_registry` (pkg/kubelet/pluginmanager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from devplug.kubelet.changes import Changes
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.registration import Registration
    from devplug.kubelet.settings import KubeletSettings

__all__ = ["PluginWatcher"]


class PluginWatcher:
    """Finds sockets in a folder and registers what serves them. Lives from `open` to `close`."""

    def __init__(
        self,
        folder: Path,
        registration: Registration,
        tasks: asyncio.TaskGroup,
        changes: Changes,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        self._folder = folder

    async def open(self) -> None:
        """Make the folder if need be, and watch it."""

    async def close(self) -> None:
        """Stop watching; safe to repeat."""
