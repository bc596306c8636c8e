"""Templates of the configuration: `{name}` in a text stands for a fact about devices. Pure.

Not `str.format`: no attributes, no indices, no filters. `{{` and `}}` are braces of their own. Which names
may stand where is in `variables`.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "PLURALS",
    "SINGULARS",
    "Missing",
    "Template",
    "Variable",
    "Writing",
    "parse_template",
    "render_all",
    "render_one",
]

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

_TOKEN: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_VARIABLE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:\.([A-Za-z0-9_][A-Za-z0-9_./:-]*))?")
_NOT_IN_PATHS: Final = re.compile(r"[^A-Za-z0-9._:+@-]")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Variable:
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


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. Made by `parse_template`; equal to another if the same text was written."""

    source: str
    """The text as it stands in the file."""
    parts: tuple[str | Variable, ...]
    """Literal texts, with `{{` and `}}` already single, and the variables between them."""

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


@dataclass(frozen=True, slots=True)
class Missing:
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
    for token in _TOKEN.finditer(text):
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
                variable = _VARIABLE.fullmatch(token.group(1))
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
            return _NOT_IN_PATHS.sub("_", fact)
        case Writing.NAME:
            return _NOT_IN_NAMES.sub("_", fact)


def _without_dot_parts(path: str) -> str:
    """Mend parts `.` and `..`: literal text has none (the file is checked), so a device's value made them."""
    return "/".join("_" * len(part) if part in {".", ".."} else part for part in path.split("/"))
