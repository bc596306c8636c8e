"""Templates of the configuration: `{name}` in a text stands for a fact about devices. Pure.

Not `str.format`: no attributes, no indices, no filters. `{{` and `}}` are braces of their own. Which variable
may stand in which template depends on the place and on the kind of discovery.
"""

from __future__ import annotations

import enum
import json
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.daemon.config.suggestions import nearest
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLURALS: Final[Mapping[str, str]] = {
    "id": "ids",
    "index": "indexes",
    "file": "files",
    "hostPath": "hostPaths",
    "containerPath": "containerPaths",
    "serial": "serials",
    "model": "models",
    "pciAddress": "pciAddresses",
    "uuid": "uuids",
    "interface": "interfaces",
    "numaNode": "numaNodes",
    "attr": "attrs",
}
"""Every variable of one device, and the name under which all of a container's devices have it."""

SINGULARS: Final[Mapping[str, str]] = {plural: singular for singular, plural in PLURALS.items()}

_PIECE: Final = r"\{\{|\}\}|\{([^{}]*)\}|[{}]"
_VARIABLE: Final = r"([A-Za-z][A-Za-z0-9_]*)(?:\.([A-Za-z0-9_][A-Za-z0-9_./:-]*))?"
_NOT_IN_PATHS: Final = r"[^A-Za-z0-9._:+@-]"
_NOT_IN_NAMES: Final = r"[^A-Za-z0-9_]"

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


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


class Variable(Struct, frozen=True):
    """One `{name}` or `{name.argument}` of a template."""

    name: str
    argument: str = ""
    """What stands after the dot: the attribute of `{attr.NAME}`, the node of `{containerPath.NAME}`."""

    @property
    def key(self) -> str:
        """The name under which a device's facts hold its value, always of one device: `id`, `attr.NAME`."""
        singular = SINGULARS.get(self.name, self.name)
        return f"{singular}.{self.argument}" if self.argument else singular

    def __str__(self) -> str:
        """Return it as it is written, with its braces."""
        return f"{{{self.name}.{self.argument}}}" if self.argument else f"{{{self.name}}}"


# No Struct: in what the file is decoded to, those are its maps.
class Template:
    """A parsed template. Made by `parse_template`; equal to another if the same text was written."""

    __slots__ = ("parts", "source")

    def __init__(self, source: str, parts: tuple[str | Variable, ...]) -> None:
        self.source = source
        """The text as it stands in the file."""
        self.parts = parts
        """Literal texts, with `{{` and `}}` already single, and the variables between them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Template({self.source!r}, {self.parts!r})"

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables in the order in which they stand."""
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @property
    def literal(self) -> str:
        """The text without its variables: all of it for a template that has none."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def __str__(self) -> str:
        """Return the text as it stands in the file."""
        return self.source


class Writing(enum.Enum):
    """Where a rendered value goes, which decides the characters that a device's own values may bring."""

    TEXT = "text"
    """As it is: environment values, annotations, arguments of a command."""
    PATH = "path"
    """In a path all but `A-Za-z0-9._:+@-` becomes `_`, and no value can make a part `.` or `..`."""
    NAME = "name"
    """In the name of an environment variable all but letters, digits and `_` becomes `_`."""


class Missing(Struct, frozen=True):
    """The answer instead of a text when a device has no value for a variable of the template."""

    variable: Variable

    @property
    def reason(self) -> str:
        """One line that says what is missing, for the device's health."""
        return f"no value for {self.variable}"


def parse_template(text: str) -> Template:
    """Return `text` parsed; raises ValueError that names the first thing wrong and what to write."""
    parts: list[str | Variable] = []
    literal = ""
    end = 0
    for token in re.finditer(_PIECE, text):
        literal += text[end : token.start()]
        end = token.end()
        match token.group():
            case "{{" | "}}" as doubled:
                literal += doubled[0]
            case "{" | "}" as single:
                raise ValueError(
                    f'has a "{single}" without its partner; write {single * 2} for a brace of its own',
                )
            case whole:
                variable = re.fullmatch(_VARIABLE, token.group(1))
                if not variable:
                    raise ValueError(
                        f"{quoted(whole)} is not a variable; write {{name}}, or {{{{ for a brace"
                    )
                if literal:
                    parts.append(literal)
                    literal = ""
                parts.append(Variable(variable.group(1), variable.group(2) or ""))
    literal += text[end:]
    if literal:
        parts.append(literal)
    return Template(text, tuple(parts))


def render_one(
    template: Template,
    facts: Mapping[str, str | int],
    writing: Writing = Writing.TEXT,
) -> str | Missing:
    """Return `template` with one device's facts in it, or which of them is missing.

    Keys of `facts` are those of `Variable.key`. An empty value counts as missing: it would make two devices
    look alike.
    """
    text = ""
    for part in template.parts:
        if isinstance(part, str):
            text += part
        elif (fact := str(facts.get(part.key, ""))) == "":
            return Missing(part)
        else:
            text += _written(fact, writing)
    return _without_dot_parts(text) if writing is Writing.PATH and template.variables else text


def render_all(template: Template, facts_of_all: Sequence[Mapping[str, str | int]]) -> str:
    """Return `template` with the facts of all of a container's devices, in the order given.

    A plural becomes a list joined with `,`: a comma inside a value becomes `%2C`, a missing value is empty.
    `{count}` is how many devices there are, `{json}` everything that is known of them.
    """
    return "".join(
        part if isinstance(part, str) else _rendered_plural(part, facts_of_all) for part in template.parts
    )


def _rendered_plural(variable: Variable, facts_of_all: Sequence[Mapping[str, str | int]]) -> str:
    if variable.name == "count":
        return str(len(facts_of_all))
    if variable.name == "json":
        return json.dumps([dict(facts) for facts in facts_of_all], separators=(",", ":"), sort_keys=True)
    return ",".join(str(facts.get(variable.key, "")).replace(",", "%2C") for facts in facts_of_all)


def _written(fact: str, writing: Writing) -> str:
    match writing:
        case Writing.TEXT:
            return fact
        case Writing.PATH:
            return re.sub(_NOT_IN_PATHS, "_", fact)
        case Writing.NAME:
            return re.sub(_NOT_IN_NAMES, "_", fact)


def _without_dot_parts(path: str) -> str:
    """Mend parts `.` and `..`: literal text has none (the file is checked), so a device's value made them."""
    return "/".join("_" * len(part) if part in {".", ".."} else part for part in path.split("/"))


# ── which variables may stand where ───────────────────────────────────────────────────────────────


class TemplatePlace(enum.Enum):
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


def template_faults(template: Template, kind: str, place: TemplatePlace) -> Iterator[str]:
    """Yield what keeps `template` from standing in `place` of a resource that discovers `kind`.

    An empty `kind` is one that could not be read: any variable may exist then.
    """
    known = VARIABLES_OF_KIND.get(kind, frozenset(PLURALS)) - place.value
    for variable in dict.fromkeys(template.variables):
        if fault := _fault(variable, kind, place, known):
            yield fault


def _fault(variable: Variable, kind: str, place: TemplatePlace, known: frozenset[str]) -> str | None:
    name = variable.name
    allowed = {PLURALS[one] for one in known} | ONLY_OF_ALL if place is TemplatePlace.ALL else known
    if name in allowed:
        return _argument_fault(variable, kind)
    if name in ONLY_OF_ALL:
        return f"{variable} is about all devices of a container, and this text is about one; leave it out"
    if name in PLURALS and PLURALS[name] in allowed:
        return f"{variable} stands for one device; write {_renamed(variable, PLURALS[name])}"
    if name in SINGULARS and SINGULARS[name] in allowed:
        return f"{variable} stands for all devices; write {_renamed(variable, SINGULARS[name])}"
    words = " ".join(f"{{{one}}}" for one in sorted(allowed))
    if name in PLURALS or name in SINGULARS:
        return f"{variable} has no value here; known here: {words or 'nothing'}"
    ours = PEERS_VARIABLES.get(name, "")
    ours = PLURALS.get(ours, ours) if place is TemplatePlace.ALL else ours
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
