"""Text to tree: strict YAML (JSON is part of it) with the place of every value, and nothing of our grammar.

Built from the parser's events and not by composing nodes: composing recurses, follows aliases and keeps the
last of two equal keys before anybody can look. Nothing is ever constructed by a tag.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import yaml
from msgspec import Struct
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from devplug.daemon.config.tree import Document, ListNode, MapNode, RefusedNode, ScalarNode, path_text
from devplug.errors import Problem, end_of, lines_of, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.daemon.config.tree import Kind, Node

SIZE_LIMIT_BYTES: Final = 1024 * 1024
DEPTH_LIMIT: Final = 32
NODES_LIMIT: Final = 100_000
"""Limits that no honest file comes near: the grammar is ten deep, and 1,000 resources are 20,000 nodes."""

READING_LIMIT: Final = 64
"""Longer numbers are not worked out: base 60 and big integers take time in the square of their length."""

# What YAML 1.2 takes for a number and PyYAML, which reads 1.1, for a text: the next tool may read it so.
_NUMBER_1_2: Final = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_CONTROL: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BARE_BRACES: Final = r"\{[A-Za-z]+[.}]"
_KIND_OF_TAG: Final[Mapping[str, Kind]] = {
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "null": "null",
}


FASTEST_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader over libyaml, or its own, thirty times slower, where it was built without."""


def parse_document(source: bytes | str, loader: type = FASTEST_LOADER) -> Document:
    """Return the one YAML document of `source`, with every problem that does not end the reading."""
    text = _decoded(source)
    if isinstance(text, Problem):
        return Document(None, (text,))
    builder = _Builder(end_of(text))
    try:
        for event in yaml.parse(text, Loader=loader):
            if not builder.take(event):
                return Document(None, tuple(builder.problems))
    except yaml.MarkedYAMLError as error:
        return Document(None, (*builder.problems, _syntax_problem(error, text)))
    except yaml.YAMLError as error:  # the reader's own: characters that are none, as U+FFFF
        problem = Problem(0, 0, "", f"this is not YAML: {one_line(str(error))}")
        return Document(None, (*builder.problems, problem))
    if builder.root is None and not builder.problems:
        builder.problems.append(Problem(0, 0, "", "the file is empty; write version: 1 and resources"))
    return Document(builder.root, tuple(builder.problems))


def _decoded(source: bytes | str) -> str | Problem:
    """Return the characters of a file, or the one reason why they are none."""
    if isinstance(source, str):
        source = source.encode("utf-8", "surrogatepass")
    if len(source) > SIZE_LIMIT_BYTES:
        return Problem(0, 0, "", f"the file has {len(source)} bytes; at most {SIZE_LIMIT_BYTES} are read")
    if source.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Problem(1, 1, "", "the file is UTF-16; save it as UTF-8")
    if source.startswith(b"\xef\xbb\xbf"):
        return Problem(1, 1, "", "the file starts with a byte order mark; save it as UTF-8 without one")
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        before = source[: error.start].decode()
        wrong = f"the byte 0x{source[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return Problem(*end_of(before), "", wrong)
    if found := _CONTROL.search(text):
        name = "a NUL byte" if found.group() == "\0" else f"the character U+{ord(found.group()):04X}"
        return Problem(*end_of(text[: found.start()]), "", f"{name} cannot stand in this file")
    return text


class _Mark(Protocol):
    line: int
    column: int


def _place(mark: _Mark | None, end: tuple[int, int]) -> tuple[int, int]:
    """Return where a mark is, as people count; libyaml's end of a file is a line that is not there."""
    return min((mark.line + 1, mark.column + 1), end) if mark else (0, 0)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    line, column = _place(error.problem_mark or error.context_mark, end_of(text))
    written = lines_of(text)[line - 1] if line else ""
    if written.startswith("\t"):
        advice = "; indent with spaces, not with tabs"
    elif re.search(_BARE_BRACES, written):
        advice = '; a text with braces needs quotes, as in "/dev/serial{index}"'
    else:
        advice = ""
    return Problem(line, column, "", one_line(f"this is not YAML: {error.problem or error.context}{advice}"))


class _Open(Struct):
    """A list or map whose end has not come yet."""

    line: int
    column: int
    is_map: bool
    braces: bool
    entries: list[Node] = []
    pairs: dict[str, tuple[ScalarNode, Node]] = {}
    key: ScalarNode | RefusedNode | None = None
    """The key whose value comes next."""
    refused: bool = False

    def closed(self) -> Node:
        if self.refused:
            return RefusedNode(self.line, self.column)
        if self.is_map:
            return MapNode(self.line, self.column, self.pairs, self.braces)
        return ListNode(self.line, self.column, tuple(self.entries))


class _Builder:
    """Makes the tree out of events. Lives for one document."""

    def __init__(self, end: tuple[int, int]) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._end = end
        self._open: list[_Open] = []
        self._nodes = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> bool:
        """Take the next event; return False if reading on makes no sense."""
        line, column = _place(event.start_mark, self._end)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._report(line, column, "a second document starts here; a file has one")
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            self._add(self._open.pop().closed())
        elif isinstance(event, yaml.NodeEvent):
            self._nodes += 1
            if self._nodes > NODES_LIMIT:
                message = f"the file has more than {NODES_LIMIT} values"
                self.problems.append(Problem(line, column, "", message))
                return False
            return self._take_node(event, line, column)
        return True

    def _take_node(self, event: yaml.NodeEvent, line: int, column: int) -> bool:
        if isinstance(event, yaml.AliasEvent):
            wrong = f"*{event.anchor}: aliases are not supported; write the value out"
            self._report(line, column, wrong)
            self._add(RefusedNode(line, column))
            return True
        # Anchors are refused as well: one without an alias does nothing, and each alias is a report already.
        if event.anchor is not None:
            self._report(line, column, f"&{event.anchor}: anchors are not supported; leave it out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            short = tag.replace("tag:yaml.org,2002:", "!!")
            self._report(line, column, f"the tag {quoted(short)} is not supported; leave it out")
        if isinstance(event, yaml.ScalarEvent):
            whole = RefusedNode(line, column) if tag else self._whole(_scalar(event, line, column))
            self._add(whole)
            return True
        if len(self._open) >= DEPTH_LIMIT:
            self._report(line, column, f"is more than {DEPTH_LIMIT} levels deep")
            return False
        is_map = isinstance(event, yaml.MappingStartEvent)
        self._open.append(
            _Open(line, column, is_map, bool(getattr(event, "flow_style", None)), refused=tag is not None)
        )
        return True

    def _whole(self, node: ScalarNode) -> Node:
        """Return `node`, unless its text has half a character: escapes can write one."""
        try:
            node.text.encode()
        except UnicodeEncodeError:
            self._report(node.line, node.column, "has half of a surrogate pair; write the character itself")
            return RefusedNode(node.line, node.column)
        return node

    def _add(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if not parent.is_map:
            parent.entries.append(node)
        elif parent.key is None:
            parent.key = self._checked_key(parent, node)
        else:
            if isinstance(parent.key, ScalarNode):
                parent.pairs.setdefault(parent.key.text, (parent.key, node))
            parent.key = None

    def _checked_key(self, parent: _Open, node: Node) -> ScalarNode | RefusedNode:
        place = RefusedNode(node.line, node.column)
        if not isinstance(node, ScalarNode):
            if not isinstance(node, RefusedNode):
                self._report(node.line, node.column, "a key must be a text; a text with braces needs quotes")
            parent.refused = parent.refused or parent.braces
            return place
        if node.kind != "text":
            read = node.reading if node.reading != node.text else f"a {node.kind}"
            what = f"YAML reads the key {node.text} as {read}; write {quoted(node.text)}"
            self._report(node.line, node.column, what if node.text else "the key is empty")
        elif node.text == "<<" and not node.quoted:
            self._report(node.line, node.column, "merge keys (<<) are not supported; write the values out")
            return place
        if node.text in parent.pairs:
            first = parent.pairs[node.text][0]
            what = f"the key {quoted(node.text)} stands here again; the first is in line {first.line}"
            self._report(node.line, node.column, what)
            return place
        return node

    def _report(self, line: int, column: int, message: str) -> None:
        self.problems.append(Problem(line, column, path_text(list(self._keys())), message))

    def _keys(self) -> Iterator[str | int]:
        """Yield the way to the value that comes next."""
        for frame in self._open:
            if not frame.is_map:
                yield len(frame.entries)
            elif isinstance(frame.key, ScalarNode):
                yield frame.key.text


_RESOLVER: Final = Resolver()
_CONSTRUCTOR: Final = SafeConstructor()


def _scalar(event: yaml.ScalarEvent, line: int, column: int) -> ScalarNode:
    text = event.value
    if event.style:
        return ScalarNode(line, column, text, quoted=True)
    tag = str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
    tag = tag.removeprefix("tag:yaml.org,2002:")
    if tag in {"str", "merge"}:
        if _NUMBER_1_2.fullmatch(text):
            return ScalarNode(line, column, text, "number", _number_1_2(text))
        return ScalarNode(line, column, text)
    if tag not in _KIND_OF_TAG:
        return ScalarNode(line, column, text, "other", "a date" if tag == "timestamp" else f"a {tag}")
    return ScalarNode(line, column, text, _KIND_OF_TAG[tag], _reading(tag, text))


def _reading(tag: str, text: str) -> str:
    """Return what YAML makes of a plain text that is not a text to it."""
    if tag == "null":
        return "nothing"
    if tag == "bool":
        return "true" if text.lower() in {"yes", "true", "on"} else "false"
    if len(text) > READING_LIMIT:
        return "a number"
    node = yaml.ScalarNode(f"tag:yaml.org,2002:{tag}", text)
    try:
        if tag == "int":
            return str(_CONSTRUCTOR.construct_yaml_int(node))
        return str(_CONSTRUCTOR.construct_yaml_float(node))
    except (ValueError, OverflowError):
        return "a number"


def _number_1_2(text: str) -> str:
    if len(text) > READING_LIMIT:
        return "a number"
    return str(
        int(text, 8)
        if text.startswith("0o")
        else int(text, 16)
        if text.startswith("0x")
        else int(text)
        if text.lstrip("+-").isdecimal()
        else float(text)
    )
