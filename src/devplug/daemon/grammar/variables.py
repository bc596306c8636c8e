"""Which variables may stand in which template: the place and the kind of discovery decide. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.templates import PLURALS, SINGULARS
from devplug.daemon.grammar.words import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.daemon.grammar.templates import Template, Variable

__all__ = ["VARIABLES_OF_KIND", "Place", "template_faults"]

VARIABLES_OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "path": frozenset({"id", "index", "file", "hostPath", "containerPath", "numaNode"}),
    "bundle": frozenset({"id", "index", "file", "hostPath", "containerPath", "numaNode"}),
    "usb": frozenset(PLURALS) - {"pciAddress", "uuid", "interface"},
    "pci": frozenset(PLURALS) - {"uuid", "interface"},
    "sysfs": frozenset(PLURALS) - {"uuid", "interface"},
    "net": frozenset({"id", "index", "interface", "pciAddress", "numaNode", "attr"}),
    "nvidia": frozenset(PLURALS) - {"interface", "attr"},
    "static": frozenset({"id", "index", "numaNode"}),
}
"""What a device of each kind can know of itself."""

WITH_ARGUMENT: Final = frozenset({"attr", "attrs", "containerPath", "containerPaths"})
NEEDS_ARGUMENT: Final = frozenset({"attr", "attrs"})
ONLY_OF_ALL: Final = frozenset({"count", "json"})

PEERS_VARIABLES: Final[Mapping[str, str]] = {
    "bdf": "pciAddress",
    "address": "pciAddress",
    "pci": "pciAddress",
    "name": "file",
    "basename": "file",
    "path": "hostPath",
    "device": "hostPath",
    "mountPath": "containerPath",
    "numa": "numaNode",
    "i": "index",
    "n": "index",
    "indices": "indexes",
    "devices": "hostPaths",
    "paths": "hostPaths",
}
"""Names that people bring along from elsewhere, and ours for the same thing."""


class Place(enum.Enum):
    """A place of a template; the value is the set of variables that do not exist there yet."""

    ID = frozenset({"id", "index", "containerPath"})
    """The device's ID: made before any container is known."""
    CONTAINER_PATH = frozenset({"containerPath"})
    """The path in the container."""
    PROBE = frozenset({"index", "containerPath"})
    """A health rule or a clean-up command: it runs outside any container."""
    ONE = frozenset[str]()
    """Mounts, CDI names, and environment variables whose name has a variable."""
    ALL = frozenset[str](("",))
    """Any other environment variable, and annotations: all of the container's devices at once."""


def template_faults(template: Template, kind: str, place: Place) -> Iterator[str]:
    """Yield what keeps `template` from standing in `place` of a resource that discovers `kind`.

    An empty `kind` is one that could not be read: any variable may exist then.
    """
    known = VARIABLES_OF_KIND.get(kind, frozenset(PLURALS)) - place.value
    for variable in dict.fromkeys(template.variables):
        if fault := _fault(variable, kind, place, known):
            yield fault


def _fault(variable: Variable, kind: str, place: Place, known: frozenset[str]) -> str | None:
    name = variable.name
    allowed = {PLURALS[one] for one in known} | ONLY_OF_ALL if place is Place.ALL else known
    if name in allowed:
        return _argument_fault(variable, kind)
    if name in ONLY_OF_ALL:
        return f"{variable} is about all devices of a container; here stands one device"
    if name in PLURALS and PLURALS[name] in allowed:
        return f"{variable} is one; write {_renamed(variable, PLURALS[name])}"
    if name in SINGULARS and SINGULARS[name] in allowed:
        return f"{variable} is all; write {_renamed(variable, SINGULARS[name])}"
    words = " ".join(f"{{{one}}}" for one in sorted(allowed))
    if name in PLURALS or name in SINGULARS:
        return f"{variable} has no value here; known here: {words or 'nothing'}"
    ours = PEERS_VARIABLES.get(name, "")
    ours = PLURALS.get(ours, ours) if place is Place.ALL else ours
    if ours not in allowed:
        ours = nearest(name, allowed)
    return f"{variable} is not known; " + (f"did you mean {{{ours}}}?" if ours else f"known here: {words}")


def _argument_fault(variable: Variable, kind: str) -> str | None:
    name = variable.name
    if variable.argument and name not in WITH_ARGUMENT:
        return f"{variable} takes nothing after the dot; write {{{name}}}"
    if variable.argument and SINGULARS.get(name, name) == "containerPath" and kind in {"path", "static"}:
        return f"{variable} needs a device of several nodes; discover.{kind} has one; write {{{name}}}"
    if not variable.argument and name in NEEDS_ARGUMENT:
        return f"{variable} needs the attribute's name, as in {{{name}.serial}}"
    return None


def _renamed(variable: Variable, name: str) -> str:
    return f"{{{name}.{variable.argument}}}" if variable.argument else f"{{{name}}}"
