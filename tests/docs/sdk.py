"""The reference page of the SDK, from its signatures and docstrings: `python -m tests.docs.sdk`."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import devplug
from devplug.testing import SyncKubelet
from devplug.testing.pods import AdmittedPod, ContainerView
from devplug.testing.resource_claims import ResourceClaims

_HEAD: Final = """\
# The SDK

Every public name of `import devplug`, and what the pytest fixture offers, from the docstrings.
[A device plugin in five minutes](five-minutes.md) has an example, [Testing](testing.md) the fixture.
A name that is not on this page is internal and may change in any version.
"""
_GROUPS: Final = (
    ("Write a plugin", ("DevicePlugin", "run", "serve", "Serving")),
    (
        "Describe devices",
        ("Device", "DeviceNode", "Mount", "Health", "ContainerResponse", "Partition", "Version", "stable_id"),
    ),
    ("Find devices", ("watch_paths", "DeviceFeed")),
    ("Errors", ("DevplugError", "PluginError", "AllocationError", "UnhealthyDeviceError")),
)
_FIXTURE: Final = (SyncKubelet, AdmittedPod, ContainerView, ResourceClaims)


def page() -> str:
    """Return the whole page as Markdown."""
    assert {name for _, names in _GROUPS for name in names} == set(devplug.__all__)
    parts = [_HEAD]
    for title, names in _GROUPS:
        parts.append(f"## {title}\n")
        parts += [_entry(f"devplug.{name}", getattr(devplug, name)) for name in names]
    parts.append("## The pytest fixture\n\nThe fixture `kubelet` is a `SyncKubelet`.\n")
    parts += [_entry(one.__name__, one) for one in _FIXTURE]
    return "\n".join(parts)


def _entry(title: str, value: Any) -> str:
    kind = "class " if inspect.isclass(value) else ""
    lines = [f"### `{title}`\n", f"```text\n{kind}{_signature(value)}: ...\n```\n", _prose(value)]
    if inspect.isclass(value):
        lines += [f"- `{name}`" + (f": {text}" if text else "") for name, text in _fields(value)]
        members = list(_methods(value))
        lines += ["", "| Method | What it does |", "|---|---|"] if members else []
        lines += [f"| `{name}` | {text} |" for name, text in members]
    return "\n".join(lines).rstrip() + "\n"


def _signature(value: Any) -> str:
    prefix = "async def " if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value) else ""
    prefix = "" if inspect.isclass(value) else prefix or "def "
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        text = "(...)"
    if inspect.isclass(value):
        text = text.partition(" -> ")[0]
        text = "" if text in {"()", "(*args, **kwargs)"} else text
    return f"{prefix}{value.__name__}{_plain(text)}"


def _plain(signature: str) -> str:
    """Return a signature without quotes around annotations and without addresses of defaults."""
    signature = re.sub(r"<(?:[^<>]|<[^<>]*>)*>|mappingproxy\(\{\}\)", "...", signature)
    return re.sub(r": '([^']*)'|-> '([^']*)'", _bare, signature)


def _bare(found: re.Match[str]) -> str:
    return f": {found[1]}" if found[1] is not None else f"-> {found[2]}"


def _prose(value: Any) -> str:
    text = inspect.cleandoc(value.__doc__ or "")
    return _escaped("\n\n".join(" ".join(one.split()) for one in text.split("\n\n"))) + "\n"


def _fields(value: type) -> Iterator[tuple[str, str]]:
    """Yield the public attributes of a class that have a docstring below them, properties too."""
    body = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(body, ast.ClassDef)
    for node, following in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        if not name.startswith("_"):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = str(following.value.value) if is_text else ""  # type: ignore[union-attr]
            default = (
                f" = {ast.unparse(node.value)}"
                if node.value and "field(" not in ast.unparse(node.value)
                else ""
            )
            said = f" {_escaped(' '.join(text.split()))}" if text else ""
            yield f"{name}: {ast.unparse(node.annotation)}{default}", said.strip()
    for name, member in vars(value).items():
        if isinstance(member, property) and not name.startswith("_"):
            yield name, _escaped(" ".join((member.__doc__ or "").split()))


def _methods(value: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            text = inspect.cleandoc(function.__doc__ or "")
            arguments = _plain(str(inspect.signature(function)))
            arguments = re.sub(r"^\((self|cls)(, /)?(, )?", "(", arguments)
            is_async = inspect.iscoroutinefunction(function)
            yield (
                f"{'async ' if is_async else ''}{name}{arguments}".replace("|", "\\|"),
                _escaped(" ".join(text.split())).replace("|", "\\|"),
            )


def _escaped(text: str) -> str:
    """Return text whose emphasis and angle brackets Markdown leaves as they are."""
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(page())
