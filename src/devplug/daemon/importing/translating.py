"""A peer's file to a configuration of ours: its resources, the text, and what is told of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.daemon.grammar.tree import path_text
from devplug.daemon.importing.fitting import fitted
from devplug.daemon.importing.nvidia import nvidia_drafts
from devplug.daemon.importing.peerfile import PEERS, parts_of
from devplug.daemon.importing.remarks import Grade, Remarks
from devplug.daemon.importing.smarter import smarter_drafts
from devplug.daemon.importing.squat.resources import DEFAULT_DOMAIN, squat_devices, squat_drafts
from devplug.errors import one_line
from devplug.yamltext import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devplug.daemon.importing.drafts import Draft
    from devplug.daemon.importing.peerfile import Part, Peer
    from devplug.daemon.importing.remarks import Remark
    from devplug.yamltext import Value

__all__ = ["Translation", "translated"]


@dataclass(frozen=True, slots=True)
class Translation:
    """A peer's configuration as ours, and all there is to tell of it."""

    peer: Peer
    config: Value
    """What our loader reads; None if nothing could be translated."""
    text: str
    """The same as a file with comments; empty if nothing could be translated."""
    remarks: tuple[Remark, ...]
    """In the order of the peer's file."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return self.config is not None and all(one.grade is Grade.NOTE for one in self.remarks)


def translated(
    source: bytes | str,
    file_name: str,
    *,
    peer: Peer | None = None,
    domain: str | None = None,
    key: str | None = None,
) -> Translation:
    """Return the configuration that `source` is, made into one of ours.

    Without `peer` it is recognised by its content. `domain` goes before that of the file (squat only). `key`
    chooses one of several configurations in a ConfigMap. Raises `ConfigError`, with `file_name` in its lines,
    if the file cannot be read or is no configuration of a known peer.
    """
    parts = parts_of(source, file_name, peer, key)
    remarks = Remarks()
    owner = parts[0].peer
    drafts = fitted(list(_drafts(owner, parts, domain, remarks)), remarks)
    if not drafts:
        return Translation(owner, None, "", tuple(remarks))
    config: Value = {"version": 1, "resources": [draft.value() for draft in drafts]}
    return Translation(owner, config, _text(owner, file_name, drafts), tuple(remarks))


def _drafts(owner: Peer, parts: Sequence[Part], domain: str | None, remarks: Remarks) -> Iterator[Draft]:
    match owner:
        case "squat":
            devices = []
            said = domain or ""
            for part in sorted(parts, key=lambda one: not one.is_domain):  # flags go before the file
                if part.is_domain:
                    said = said or getattr(part.at.node, "text", "")
                    continue
                more, of_file = squat_devices(part.at, remarks)
                devices += more
                said = said or of_file
            yield from squat_drafts(devices, said.strip() or DEFAULT_DOMAIN, remarks)
        case "smarter":
            for part in parts:
                yield from smarter_drafts(part.at, remarks)
        case "nvidia":
            for part in parts:
                yield from nvidia_drafts(part.at, remarks)


def _text(owner: Peer, file_name: str, drafts: Sequence[Draft]) -> str:
    text = (
        f"# Translated by devplug import from {one_line(file_name)}, of {PEERS[owner]}.\n"
        "# Check it on a machine with: devplug validate FILE\n"
        "version: 1\nresources:\n"
    )
    for number, draft in enumerate(drafts):
        text += "\n" if number else ""
        where = path_text(draft.at.keys)
        comment = one_line(f"# from {f'{where}, ' if where else ''}line {draft.at.node.line}")
        lines = yaml_text([draft.value()]).splitlines()
        text += "".join(f"  {line}\n" for line in [comment, *lines])
    return text
