"""Another plugin's file: a configuration, or a manifest with configurations or flags inside. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from devplug.daemon.config.document import parse_document
from devplug.daemon.config.tree import ListNode, MapNode, RefusedNode, ScalarNode
from devplug.daemon.importers.draft import At, items_of, text_of
from devplug.errors import ConfigError, Problem, lines_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devplug.daemon.config.tree import Document, Node

Peer: TypeAlias = Literal["squat", "smarter", "nvidia"]

PEERS: Final[dict[Peer, str]] = {
    "squat": "squat/generic-device-plugin",
    "smarter": "smarter-device-manager",
    "nvidia": "NVIDIA's k8s-device-plugin",
}
"""The peers whose configurations are known, by the words of `--from`."""

_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)
_NVIDIA_KEYS: Final = frozenset({"flags", "sharing", "imex"})
_WHAT: Final = (
    "write a configuration of squat/generic-device-plugin (devices), smarter-device-manager (devicematch) or "
    "NVIDIA's k8s-device-plugin (version: v1), or a manifest that has one or squat's --device flags"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A configuration of one peer."""

    peer: Peer
    at: At
    """The whole configuration, or the one device of a `--device` flag."""
    key: str = ""
    """The key of the ConfigMap that it stands under."""
    is_domain: bool = False
    """Whether it is the value of squat's `--domain` instead."""


def parts_of(source: bytes | str, file_name: str, peer: Peer | None, key: str | None) -> list[Part]:
    """Return the configurations that `source` has, all of the same peer; of one key of a ConfigMap if asked.

    Raises `ConfigError` if it cannot be read, or is nobody's configuration, or several peers'.
    """
    source = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    text = source.decode("utf-8", "replace")
    if not any(map(_has_content, _SEPARATOR.split(text))):
        raise ConfigError(file_name, [Problem(0, 0, "", f"the file is empty; {_WHAT}")])
    documents = list(_documents(source, text))
    problems = [problem for document in documents for problem in document.problems]
    roots = [At(document.root) for document in documents if document.root is not None]
    if problems:
        raise ConfigError(file_name, problems)
    lines = lines_of(text)
    parts = [part for root in roots for part in _parts(root, peer, lines)]
    keys = sorted({part.key for part in parts if part.key})
    if key is not None:
        parts = [part for part in parts if part.key in {key, ""}]
        if key not in keys:
            there = f"it has {', '.join(keys)}" if keys else "it has no ConfigMap with configurations"
            raise ConfigError(file_name, [Problem(0, 0, "", f"has no {quoted(key)}; {there}")])
    elif len(keys) > 1:
        message = f"has several configurations ({', '.join(keys)}); choose one with --key"
        raise ConfigError(file_name, [Problem(0, 0, "", message)])
    found = sorted({part.peer for part in parts})
    if not any(not part.is_domain for part in parts):
        what = f"no configuration that is known here; {_WHAT}"
        if any(map(_is_ours, roots)):
            what = "this is a configuration of devplug already"
        raise ConfigError(file_name, [Problem(0, 0, "", what)])
    if len(found) > 1:
        message = f"has configurations of {' and '.join(found)}; choose one with --from"
        raise ConfigError(file_name, [Problem(0, 0, "", message)])
    return parts


def _documents(source: bytes, text: str) -> Iterator[Document]:
    """Yield the documents of a file, each with the lines of the whole one; empty ones are left out."""
    starts = [0, *(found.start() for found in _SEPARATOR.finditer(text)), len(text)]
    pieces = [(start, text[start:end]) for start, end in pairwise(starts)]
    if len(pieces) == 1 or text.encode("utf-8", "surrogatepass") != source:
        yield parse_document(source)  # as it is: the reader reports what is no text
        return
    for start, piece in pieces:
        if _has_content(piece):
            yield parse_document("\n" * (len(lines_of(text[:start])) - 1) + piece)


def _has_content(piece: str) -> bool:
    lines = lines_of(piece.removeprefix("---"))
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────


def _parts(at: At, peer: Peer | None, lines: Sequence[str]) -> Iterator[Part]:
    if isinstance(at.node, MapNode) and at.node.get("kind") and at.node.get("apiVersion"):
        yield from _parts_of_manifest(at, peer, lines)
    elif owner := peer or _owner(at):
        yield Part(owner, at)


def _owner(at: At) -> Peer | None:
    """Return whose configuration this is, by what only that peer has."""
    match at.node:
        case MapNode(items=items):
            keys = {key.text.lower() for key, _ in items}
            if "devices" in keys or "device" in keys or {"name", "groups"} <= keys:
                return "squat"
            version = at.node.get("version")
            is_v1 = isinstance(version, ScalarNode) and version.text == "v1"
            return "nvidia" if is_v1 or keys & _NVIDIA_KEYS else None
        case ListNode(items=entries):
            keys = {key.text.lower() for one in entries if isinstance(one, MapNode) for key, _ in one.items}
            if "devicematch" in keys:
                return "smarter"
            return "squat" if {"name", "groups"} <= keys else None
    return None


def _is_ours(at: At) -> bool:
    version = at.node.get("version") if isinstance(at.node, MapNode) else None
    return isinstance(version, ScalarNode) and version.text == "1"


def _parts_of_manifest(at: At, peer: Peer | None, lines: Sequence[str]) -> Iterator[Part]:
    match text_of(_below(at, "kind")):
        case "ConfigMap":
            for text in _values(_below(at, "data")):
                # A ConfigMap also has what is no configuration: only what somebody knows is one.
                inner = _inner(text, lines)
                key = str(text.keys[-1])
                if not isinstance(inner, At):
                    continue
                for part in _parts(inner, None, lines):
                    if peer in {None, part.peer}:
                        yield Part(part.peer, part.at, key)
        case "List":
            for item in items_of(_below(at, "items")):
                yield from _parts(item, peer, lines)
        case _:
            if peer in {None, "squat"}:
                yield from _parts_of_pod(at, lines)


def _parts_of_pod(at: At, lines: Sequence[str]) -> Iterator[Part]:
    """Yield what stands behind squat's flags in the containers of a pod, or of what makes pods."""
    spec = _below(at, "spec")
    template = _below(_below(spec, "template"), "spec") or spec
    for container in items_of(_below(template, "containers")):
        words = [*items_of(_below(container, "command")), *items_of(_below(container, "args"))]
        for number, word in enumerate(words):
            name, equals, _ = (text_of(word) or "").partition("=")
            following = words[number + 1] if number + 1 < len(words) else None
            value = word if equals else following
            if value is None or name not in {"--device", "--domain"}:
                continue
            if name == "--domain":
                yield Part("squat", _cut(value, "--domain="), is_domain=True)
                continue
            inner = _inner(_cut(value, "--device="), lines)
            yield Part(
                "squat",
                inner
                if isinstance(inner, At)
                else At(RefusedNode(value.node.line, value.node.column), value.keys),
            )


def _cut(at: At, prefix: str) -> At:
    node = at.node
    assert isinstance(node, ScalarNode)
    return At(ScalarNode(node.line, node.column, node.text.removeprefix(prefix), quoted=True), at.keys)


def _below(at: At | None, key: str) -> At | None:
    if at is None or not isinstance(at.node, MapNode) or (node := at.node.get(key)) is None:
        return None
    return At(node, (*at.keys, key))


def _values(at: At | None) -> Iterator[At]:
    if at is not None and isinstance(at.node, MapNode):
        for key, node in at.node.items:
            yield At(node, (*at.keys, key.text))


# ── text inside a text ────────────────────────────────────────────────────────────────────────────


def _inner(at: At, lines: Sequence[str]) -> At | None:
    """Return what the YAML inside of a text is, with its places in the whole file; None if it is none."""
    text = text_of(at)
    if not text:
        return None
    document = parse_document(text)
    if document.root is None or document.problems:
        return None
    inner = lines_of(text)

    def place(line: int, column: int) -> tuple[int, int]:
        number = at.node.line + line  # in a block, the text begins in the line after the | or >
        written = lines[number - 1] if number <= len(lines) else ""
        own = inner[line - 1] if line <= len(inner) else ""
        if "\n" in text and written.strip() == own.strip():
            return number, column + len(written) - len(written.lstrip()) - len(own) + len(own.lstrip())
        return at.node.line, at.node.column

    return At(_moved(document.root, place), at.keys)


def _moved(node: Node, place: Callable[[int, int], tuple[int, int]]) -> Node:
    line, column = place(node.line, node.column)
    match node:
        case ScalarNode():
            return ScalarNode(line, column, node.text, node.kind, node.reading, node.quoted)
        case ListNode():
            return ListNode(line, column, tuple(_moved(one, place) for one in node.items))
        case MapNode():
            pairs = ((_moved(key, place), _moved(one, place)) for key, one in node.items)
            kept = {key.text: (key, one) for key, one in pairs if isinstance(key, ScalarNode)}
            return MapNode(line, column, kept, node.braces)
    return RefusedNode(line, column)
