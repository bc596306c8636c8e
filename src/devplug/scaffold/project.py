"""The project of a new plugin: names in, texts out. Nothing here touches the user's disk."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted
from devplug.k8s.resource_names import resource_name_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_LIMIT: Final = 63
"""The longest name, in characters: it is the value of a label in the DaemonSet (RFC 1123)."""

TRIAL_NODES: Final = ("/dev/null", "/dev/zero", "/dev/full")
"""What a project is judged with: device nodes that every Linux has, and that do no harm."""

_NAME: Final = re.compile(r"[a-z]([a-z0-9]|-(?=[a-z0-9]))*")
"""At once the name of a Python distribution, a DNS label, an image, and a package with `_` for `-`."""

_WORD: Final = re.compile("@([A-Z]+)@")
_LIBRARIES: Final = frozenset(
    {"click", "devplug", "google", "grpc", "msgspec", "prometheus_client", "pytest", "rich", "tests", "yaml"}
)
"""Packages of which a second one would hide what the project needs; `tests` is the project's own folder."""

_FILES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pyproject.toml": "pyproject.toml.in",
        "README.md": "README.md.in",
        ".gitignore": "gitignore.in",
        "src/@PACKAGE@/__init__.py": "init.py.in",
        "src/@PACKAGE@/__main__.py": "main.py.in",
        "src/@PACKAGE@/plugin.py": "plugin.py.in",
        "tests/test_plugin.py": "test_plugin.py.in",
        "tests/test_conformance.py": "test_conformance.py.in",
        "Dockerfile": "Dockerfile.in",
        "wheels/README.md": "wheels.md.in",
        "deploy/daemonset.yaml": "daemonset.yaml.in",
        ".github/workflows/ci.yaml": "ci.yaml.in",
    }
)
"""Each file of a project, and its template, whose name keeps tools from taking it for a file of ours."""


@dataclass(frozen=True, slots=True)
class Project:
    """The names of a project to be; `project_faults` says whether they will do."""

    name: str
    """What the project, its image and its DaemonSet are called, as in `my-fpga`."""
    resource_name: str
    """What pods ask for, as in `example.com/my-fpga`."""

    @property
    def package(self) -> str:
        """The Python package: `my_fpga`."""
        return self.name.replace("-", "_")


def project_faults(project: Project) -> tuple[str, ...]:
    """Return everything that keeps these names from making a project; each says what to change."""
    faults = [f"name {quoted(project.name)} {fault}" for fault in (_name_fault(project),) if fault]
    if fault := resource_name_fault(project.resource_name):
        faults.append(f"resource name {quoted(project.resource_name)} {fault}")
    return tuple(faults)


def _name_fault(project: Project) -> str | None:
    if not _NAME.fullmatch(project.name):
        tame = re.sub(r"[^a-z0-9]+", "-", project.name.lower()).strip("-0123456789")[:NAME_LIMIT].rstrip("-")
        return (
            "must be lower-case letters and digits with single '-' between them, a letter first"
            f"{f', as in {quoted(tame)}' if tame else ''}"
        )
    if len(project.name) > NAME_LIMIT:
        return f"has {len(project.name)} characters; at most {NAME_LIMIT} fit into a label"
    package = project.package
    if keyword.iskeyword(package):
        return f"is a word of Python's own; write {quoted(f'{project.name}-plugin')}"
    if package in sys.stdlib_module_names or package in _LIBRARIES:
        return f"would hide the Python package {package}; write {quoted(f'{project.name}-plugin')}"
    return None


def project_files(project: Project, version: str) -> dict[str, str]:
    """Return the text of each file by its path in the project; the names must have no fault.

    `version` is the oldest devplug that the project takes.
    """
    words = {
        "NAME": project.name,
        "PACKAGE": project.package,
        "RESOURCE": project.resource_name,
        "DRIVER": project.resource_name.partition("/")[0],
        "RESOURCEKEY": project.resource_name.replace(".", "\\."),
        "VARIABLE": project.package.upper(),
        "VERSION": version,
    }
    templates = resources.files("devplug.scaffold") / "templates"

    def filled(text: str) -> str:
        return _WORD.sub(lambda found: words[found[1]], text)

    return {
        filled(path): filled((templates / template).read_text(encoding="utf-8"))
        for path, template in _FILES.items()
    }
