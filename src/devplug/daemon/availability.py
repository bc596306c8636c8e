"""What of the grammar this version builds: one table. The rest is read and checked, then refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug import __version__
from devplug.daemon.tree import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devplug.daemon.config import Config, Resource
    from devplug.daemon.tree import Keys

__all__ = ["DISCOVERS", "PREFERS", "unavailable_findings"]

DISCOVERS: Final = ("path", "static")
"""The kinds of discovery that have a source."""

PREFERS: Final = ("auto", "none")
"""The preferences that are ranked."""

_NOT_BUILT: Final[Mapping[Keys, Callable[[Resource], bool]]] = {
    ("expose", "cdiDevices"): lambda resource: bool(resource.expose.cdi_devices),
    ("expose", "strategy"): lambda resource: resource.expose.strategy != "deviceNodes",
    ("expose", "owner"): lambda resource: resource.expose.owner is not None,
    ("expose", "mode"): lambda resource: resource.expose.mode is not None,
    ("expose", "directories"): lambda resource: bool(resource.expose.directories),
    ("health",): lambda resource: bool(resource.health),
    ("onRelease",): lambda resource: resource.on_release is not None,
    ("nodeSelector",): lambda resource: bool(resource.node_selector),
}
"""Keys that must not say anything yet, and whether a resource says something there."""


def unavailable_findings(config: Config) -> Iterator[Finding]:
    """Yield every use of something that the grammar has and this version does not."""
    not_built = f"not built yet in devplug {__version__}"
    for index, resource in enumerate(config.resources):
        at: Keys = ("resources", index)
        for kind in resource.discover.alternatives:
            if kind not in DISCOVERS and getattr(resource.discover, kind):
                message = f"{not_built}; this version discovers: {', '.join(DISCOVERS)}"
                yield Finding((*at, "discover", kind), message)
        if resource.prefer not in PREFERS:
            message = f"{resource.prefer} is {not_built}; this version prefers: {', '.join(PREFERS)}"
            yield Finding((*at, "prefer"), message)
        for keys, is_used in _NOT_BUILT.items():
            if is_used(resource):
                yield Finding((*at, *keys), not_built)
