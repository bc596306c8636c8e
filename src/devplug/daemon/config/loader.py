"""The loader of the configuration: a file's text to a `Config`, or to a `ConfigError` with every problem.

The parameters of a DeviceConfig are read in the same way: strictly, with every problem.
"""

# Without `from __future__ import annotations`: msgspec would evaluate every text at each start.

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

from msgspec import Meta, Struct

from devplug.daemon.config.decoder import Decoded, Leaf, decode
from devplug.daemon.config.document import parse_document
from devplug.daemon.config.rules import rule_findings
from devplug.daemon.config.selectors import NO_TEXTS, Section
from devplug.daemon.config.suggestions import SUGGESTIONS
from devplug.daemon.config.templates import Template, parse_template
from devplug.daemon.config.tree import Document, Finding, Keys
from devplug.daemon.config.types import Config, Permissions
from devplug.errors import ConfigError, Problem, quoted
from devplug.k8s.resource_names import ResourceName, resource_name_fault

if TYPE_CHECKING:
    from devplug.driver.parameters import DeviceConfig

DEVICE_ROOTS: Final = ("/dev", "/run", "/tmp")  # noqa: S108 -- only looked at, never written
"""The folders below which device nodes may be: the usual one, and those where programs make their own."""


def _read_resource_name(text: str) -> ResourceName:
    if fault := resource_name_fault(text):
        raise ValueError(f"{quoted(text)} {fault}")
    return ResourceName(text)


LEAVES: Final[Mapping[type, Leaf]] = {
    ResourceName: Leaf(_read_resource_name, str.__new__(ResourceName, "")),
    Template: Leaf(parse_template, Template("", ())),
}
"""The types of the configuration that are read from a text."""


class ConfigReading(Struct, frozen=True):
    """What was made of a file's text, however wrong it is."""

    document: Document
    config: Config | None
    """With made-up values where the file's could not be read; None if it is no tree at all."""
    problems: tuple[Problem, ...]
    """All that is wrong, in file order; empty if `config` is what the file says."""

    def located(self, findings: Iterable[Finding]) -> Iterator[Problem]:
        """Yield findings of later checks with their places in the file."""
        return map(self._located, findings)

    def _located(self, finding: Finding) -> Problem:
        message = finding.message
        if finding.other:
            other = self.document.problem(finding.other, "")
            message += f" ({other.path}, line {other.line})"
        return self.document.problem(finding.keys, message)


def load(source: bytes | str, file_name: str, *, roots: Collection[str] = DEVICE_ROOTS) -> Config:
    """Return the configuration that `source` is, or raise `ConfigError` with all that is wrong.

    `file_name` is for messages only. Device nodes must be below one of `roots`, which are absolute folders.
    Nothing is looked up: a configuration that loads here loads on every machine.
    """
    reading = read(source, roots=roots)
    if reading.problems or reading.config is None:
        raise ConfigError(file_name, reading.problems)
    return reading.config


def read(source: bytes | str, *, roots: Collection[str] = DEVICE_ROOTS) -> ConfigReading:
    """Return what `source` says and all that is wrong with it: `load` without an exception."""
    document = parse_document(source)
    if document.root is None:
        return ConfigReading(document, None, tuple(sorted(document.problems)))
    decoded = decode(document, Config, LEAVES, SUGGESTIONS)
    config = cast("Config", decoded.value)
    reading = ConfigReading(document, config, ())
    sure = (finding for finding in rule_findings(config, roots) if not _is_about_made_up(finding, decoded))
    problems = {*document.problems, *decoded.problems, *reading.located(sure)}
    return ConfigReading(document, config, tuple(sorted(problems)))


def _is_about_made_up(finding: Finding, decoded: Decoded) -> bool:
    """Whether a finding is about a value that could not be read anyway."""
    return _is_made_up(finding.keys, decoded) or bool(finding.other and _is_made_up(finding.other, decoded))


def _is_made_up(keys: Keys, decoded: Decoded) -> bool:
    return any(keys[:length] in decoded.unusable for length in range(len(keys) + 1))


# ── the parameters of a DeviceConfig ──────────────────────────────────────────────────────────────


class DeviceConfigSection(Section, frozen=True, kw_only=True):
    """What a DeviceClass or a ResourceClaim configures, as opaque parameters for our driver."""

    api_version: Annotated[
        Literal["devplug.io/v1"], Meta(description="Version of this format: devplug.io/v1.")
    ]
    kind: Annotated[Literal["DeviceConfig"], Meta(description="DeviceConfig.")]
    permissions: Annotated[
        Permissions | None,
        Meta(description="What the container may do; a claim can only take away. Default: as it is."),
    ] = None
    env: Annotated[Mapping[str, str], Meta(description="Further environment variables. Default: none.")] = (
        NO_TEXTS
    )
    container_path: Annotated[
        str | None,
        Meta(description="Path in the container; one that ends in / is a folder. Default: as it is."),
    ] = None


def decode_device_config(content: Mapping[str, object]) -> tuple["DeviceConfig", Sequence[str]]:
    """Return what is configured, and all that is wrong, each as `KEY: MESSAGE`."""
    from devplug.driver.parameters import DeviceConfig  # most daemons serve no claims

    document = parse_document(json.dumps(content))
    decoded = decode(document, DeviceConfigSection, {}, {})
    section = cast("DeviceConfigSection", decoded.value)
    config = DeviceConfig(section.permissions, env=section.env, container_path=section.container_path)
    return config, [str(problem) for problem in sorted({*document.problems, *decoded.problems})]
