"""Pod manifests: the YAML or JSON that people write, to a pod as the kubelet gets it from the API server.

What a manifest may say is `podspecs`'; here are the texts, and where in them something stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import yaml
from yaml.constructor import SafeConstructor

from devplug.errors import ConfigError, Problem, one_line, quoted
from devplug.kubelet.podspecs import PodReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.kubelet.pods import Pod
    from devplug.kubelet.podspecs import Place

__all__ = ["read_manifest", "read_pod"]

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEPTH_LIMIT: Final = 100
"""Pods are a dozen levels deep; the parser's C code ends the whole process at some ten thousands."""


def read_pod(source: str | Mapping[str, object], *, uid: str | None = None, file: str = "pod") -> Pod:
    """Return the pod that a manifest describes: a text, or the maps and lists that a text stands for.

    A manifest without `metadata.uid` gets `uid`, else one made from namespace and name. Raises `ConfigError`
    with every problem, under the name `file`, and with the line of each in a text.
    """
    reader = _read_text(source, file) if isinstance(source, str) else PodReader(source)
    pod = reader.pod(uid)
    if reader.problems:
        raise ConfigError(file, reader.problems)
    return pod


def read_manifest(source: str, *, file: str = "pod") -> Mapping[str, object]:
    """Return the maps and lists of a text that describes a pod. Raises `ConfigError` as `read_pod` does."""
    reader = _read_text(source, file)
    reader.pod(None)
    if reader.problems or not isinstance(reader.content, Mapping):
        raise ConfigError(file, reader.problems)
    return reader.content


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


def _read_text(text: str, file: str) -> PodReader:
    """Read the one document of a text; raises `ConfigError` for what is not even that."""
    try:
        if mark := _too_deep(text):
            problem = Problem(*_line_and_column(mark), "", f"is more than {_DEPTH_LIMIT} levels deep")
            raise ConfigError(file, [problem])
        documents = [
            node
            for node in yaml.compose_all(text, Loader=_LOADER)
            if not (isinstance(node, yaml.ScalarNode) and not node.value)
        ]
        if len(documents) == 1:
            doubled = list(_doubled_keys(documents[0]))  # before the next step, which rewrites merged maps
            content = SafeConstructor().construct_document(documents[0])
            if content is not None:
                return PodReader(content, partial(_position, documents[0]), doubled)
            documents = []  # `null` says nothing, as no text does
    except yaml.MarkedYAMLError as error:
        place = _line_and_column(error.problem_mark or error.context_mark)
        problem = Problem(*place, "", f"this is not YAML: {one_line(str(error.problem or error.context))}")
        raise ConfigError(file, [problem]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that are none; dates and numbers that are none.
        problem = Problem(0, 0, "", f"this is not YAML: {one_line(str(error))}")
        raise ConfigError(file, [problem]) from error
    if not documents:
        raise ConfigError(file, [Problem(0, 0, "", "the manifest is empty; write a pod")])
    problem = Problem(
        *_line_and_column(documents[1].start_mark),
        "",
        f"this is the second of {len(documents)} documents, and a manifest is one pod; give each by itself",
    )
    raise ConfigError(file, [problem])


def _too_deep(text: str) -> Any:  # noqa: ANN401 -- PyYAML has two classes for a mark
    """Return the mark of the first list or map that is too deep, or None."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH_LIMIT:
            return event.start_mark
    return None


def _line_and_column(mark: Any) -> tuple[int, int]:  # noqa: ANN401 -- as above
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _doubled_keys(root: yaml.Node) -> Iterator[Problem]:
    """Yield the keys that stand in a map again; YAML would read the last one and say nothing."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                waiting += (key, value)
                if isinstance(key, yaml.ScalarNode):
                    line, column = _line_and_column(key.start_mark)
                    if key.value in lines:
                        wrong = f"the key {quoted(key.value)} stands here again; the first is in line "
                        yield Problem(line, column, "", f"{wrong}{lines[key.value]}")
                    lines.setdefault(key.value, line)


def _position(root: yaml.Node, place: Place) -> tuple[int, int]:
    """Return line and column of a value, or of the nearest thing around it."""
    node = root
    for step in place:
        inner = _inner(node, step)
        if inner is None:
            break
        node = inner
    return _line_and_column(node.start_mark)


def _inner(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        found = [value for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.value == step]
        return found[-1] if found else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        inner: yaml.Node = node.value[step]
        return inner
    return None
