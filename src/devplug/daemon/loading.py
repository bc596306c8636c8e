"""A file's text to a `Config`, or to a `ConfigError` with everything that is wrong with it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from devplug.daemon.availability import unavailable_findings
from devplug.daemon.config import Config
from devplug.daemon.decoding import Leaf, decode
from devplug.daemon.document import SIZE_LIMIT_BYTES, parse_document
from devplug.daemon.rules import rule_findings
from devplug.daemon.templates import Template, parse_template
from devplug.daemon.words import HINTS
from devplug.devices import ResourceName, resource_name_fault
from devplug.errors import ConfigError, Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from devplug.daemon.decoding import Decoded
    from devplug.daemon.tree import Document, Finding, Keys
    from devplug.devices import StrPath

__all__ = ["DEVICE_ROOTS", "load", "read_config_file"]

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


def load(source: bytes | str, file_name: str, *, roots: Collection[str] = DEVICE_ROOTS) -> Config:
    """Return the configuration that `source` is, or raise `ConfigError` with all that is wrong.

    `file_name` is for messages only. Device nodes must be below one of `roots`, which are absolute folders.
    Nothing is looked up: a configuration that loads here loads on every machine.
    """
    document = parse_document(source)
    if document.root is None:
        raise ConfigError(file_name, document.problems)
    decoded = decode(document, Config, LEAVES, HINTS)
    config = cast("Config", decoded.value)
    findings = [*rule_findings(config, roots), *unavailable_findings(config)]
    problems = {*document.problems, *decoded.problems, *_problems(document, decoded, findings)}
    if problems:
        raise ConfigError(file_name, problems)
    return config


def _problems(document: Document, decoded: Decoded, findings: list[Finding]) -> Iterator[Problem]:
    """Yield the findings with their lines, without those about values that could not be read anyway."""
    for finding in findings:
        if _is_made_up(finding.keys, decoded) or (finding.other and _is_made_up(finding.other, decoded)):
            continue
        message = finding.message
        if finding.other:
            other = document.problem(finding.other, "")
            message += f" ({other.path}, line {other.line})"
        yield document.problem(finding.keys, message)


def _is_made_up(keys: Keys, decoded: Decoded) -> bool:
    return any(keys[:length] in decoded.unusable for length in range(len(keys) + 1))


def read_config_file(path: StrPath) -> bytes:
    """Return the bytes of the file at `path`, or raise `ConfigError` that says why it cannot be read.

    Anything but a regular file is refused before it is opened: a pipe would block, a device might react.
    """
    file = Path(path)
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise OSError(errno.EINVAL, "it is a folder" if file.is_dir() else "it is not a regular file")
        # Not blocking, in case somebody put a pipe there since: then the second look refuses it.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            content = opened.read(SIZE_LIMIT_BYTES + 1)
            if len(content) > SIZE_LIMIT_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {SIZE_LIMIT_BYTES} bytes")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(0, 0, "", f"cannot read {file}: {reason}")
        raise ConfigError(str(file), [problem]) from error
    return content
