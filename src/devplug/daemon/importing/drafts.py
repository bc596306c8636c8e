"""A resource of ours while it is made out of a peer's, before the loader has judged it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.importing.remarks import At
    from devplug.yamltext import Value

__all__ = ["FOLDERS", "Draft", "as_template"]

FOLDERS: Final[dict[str, dict[str, Value]]] = {
    "/dev/bus/usb": {"subsystem": "usb", "name": "usb1"},
    "/dev/dri": {"subsystem": "drm", "name": "renderD128"},
    "/dev/infiniband": {"subsystem": "misc", "name": "rdma_cm"},
    "/dev/input": {"subsystem": "input", "name": "mice"},
    "/dev/net": {"subsystem": "misc", "name": "tun"},
    "/dev/snd": {"subsystem": "sound", "name": "timer"},
    "/dev/vfio": {"subsystem": "misc", "name": "vfio"},
}
"""The folders that peers are told to give out like a device node, which a runtime takes for all nodes in it,
and for each the selector of one device that is there whenever the folder is."""


def as_template(text: str) -> str:
    """Return a template that is this text, braces included."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(slots=True)
class Draft:
    """One resource; changed until it loads."""

    at: At
    """What it was made from."""
    name: str
    kind: str
    """The kind of discovery."""
    selectors: list[tuple[Value, At]]
    """Each selector, and what it was made from; at least one."""
    expose: dict[str, Value] = field(default_factory=dict)
    share: dict[str, Value] = field(default_factory=dict)
    others: dict[str, Value] = field(default_factory=dict)
    """Further keys of the resource."""
    allow: set[str] = field(default_factory=set)
    is_overlapping: bool = False
    """Whether another resource of the file has some of the same devices."""

    def value(self, *, is_short: bool = True) -> dict[str, Value]:
        """Return the resource as the file has it; `is_short` writes a single selector without a list."""
        selectors: list[Value] = [selector for selector, _ in self.selectors]
        one_only = is_short and len(selectors) == 1
        value: dict[str, Value] = {
            "name": self.name,
            "discover": {self.kind: selectors[0] if one_only else selectors},
        }
        if self.expose:
            value["expose"] = self.expose
        if self.share:
            value["share"] = self.share
        if self.is_overlapping:
            value["overlap"] = "shared"
        value |= self.others
        if self.allow:
            value["allow"] = sorted(self.allow)
        return value
