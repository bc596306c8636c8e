"""What a class or a claim configures our driver with: a DeviceConfig, merged and checked. Pure.

A class is an administrator's, a claim anybody's: a claim may take permissions away, and never adds any. The
decoder is the caller's, so that mistakes read like those in the configuration file.
"""

from __future__ import annotations

import posixpath
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec
from msgspec import Struct, field

from devplug.container_rules import ENV_VALUE_LIMIT_BYTES, container_path_fault, loads_code
from devplug.devices import ContainerResponse, DeviceNode
from devplug.driver.claims import ClaimRefusedError
from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.driver.claims import Parameters

API_VERSION: Final = "devplug.io/v1"
KIND: Final = "DeviceConfig"

_ENV_NAME: Final = re.compile(r"[!-<>-~]+")
_NO_ENV: Final[Mapping[str, str]] = MappingProxyType({})


class DeviceConfig(Struct, frozen=True):
    """What containers get differently; what is not said stays as the resource has it."""

    permissions: str | None = None
    """Some of r, w and m, for all device nodes."""
    takes_away: bool = False
    """Whether the permissions can only take away from those of a node: no class says any, but a claim."""
    env: Mapping[str, str] = _NO_ENV
    """Further environment variables."""
    container_path: str | None = None
    """Where the device node is in the container; one that ends in / is a folder for nodes."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the values, each with its key."""
        if self.permissions is not None and (
            not self.permissions or not set(self.permissions) <= set("rwm") or not _is_set(self.permissions)
        ):
            yield f"permissions: {quoted(self.permissions)} is not possible; write some of r, w and m"
        yield from self._env_problems()
        path = self.container_path
        if path is not None:
            normal = posixpath.normpath(path) + ("/" if path.endswith("/") and path != "/" else "")
            if not path.startswith("/") or path.startswith("//"):
                yield f"containerPath: {quoted(path)} is not absolute"
            elif not path.isprintable():
                yield f"containerPath: {quoted(path)} has characters that do not print"
            elif path != normal:
                yield f"containerPath: {quoted(path)} is not in normal form; write {quoted(normal)}"
            elif path != "/dev/" and (fault := container_path_fault(path.rstrip("/") or "/")):
                yield f"containerPath: {quoted(path)} {fault}; write another path"

    def _env_problems(self) -> Iterator[str]:
        for name, value in self.env.items():
            if not _ENV_NAME.fullmatch(name):
                yield f"env: the name {quoted(name)} must be printable ASCII without '='"
            if loads_code(name):
                yield (
                    f"env: the variable {quoted(name)} decides which programs and libraries run in the "
                    "container; only the configuration can set it"
                )
            if "\0" in value:
                yield f"env.{name}: has a NUL byte"
            if len(value.encode()) > ENV_VALUE_LIMIT_BYTES:
                yield f"env.{name}: is longer than {ENV_VALUE_LIMIT_BYTES} bytes"


class ParameterDecoder(Protocol):
    """What reads a DeviceConfig out of a map."""

    def __call__(self, content: Mapping[str, object], /) -> tuple[DeviceConfig, Sequence[str]]:
        """Return what is configured, and all that is wrong, each as `KEY: MESSAGE`."""


class _Content(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: Literal["devplug.io/v1"]
    kind: Literal["DeviceConfig"]
    permissions: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    container_path: str | None = None


def decoded(content: Mapping[str, object], /) -> tuple[DeviceConfig, Sequence[str]]:
    """Return what is configured, and what is wrong: the decoder of drivers in code, which loads no other."""
    try:
        found = msgspec.convert(content, _Content)
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$")
        key = place.rstrip("`").lstrip(".") or "keys"
        return DeviceConfig(), [f"{key}: {why}"]
    return DeviceConfig(found.permissions, env=found.env, container_path=found.container_path), []


def merged(parameters: Iterable[Parameters], decode: ParameterDecoder) -> DeviceConfig:
    """Return what all parameters of a device say together: later ones count, those of a claim come last.

    Raises `ClaimRefusedError` with every problem of all of them.
    """
    problems: list[str] = []
    limit, allowed, path, env = None, None, None, dict[str, str]()
    for one in parameters:
        config, wrong = decode(one.content)
        found = list(wrong or config.problems())
        if not found and config.permissions is not None:
            allowed = config.permissions
            if one.is_from_class:
                limit = allowed
            elif limit is not None:
                found += _added(allowed, limit)
        problems += (f"{one.path}: {problem}" for problem in found)
        env.update(config.env)
        path = config.container_path or path
    if problems:
        raise ClaimRefusedError("; ".join(dict.fromkeys(problems)))
    return DeviceConfig(allowed, limit is None, MappingProxyType(env) if env else _NO_ENV, path)


def _added(wanted: str, limit: str) -> Iterator[str]:
    if more := "".join(word for word in wanted if word not in limit):
        yield (
            f"permissions: a claim cannot add {quoted(more)} to the {quoted(limit)} that it may have; "
            "its DeviceClass can"
        )


def configured(response: ContainerResponse, config: DeviceConfig) -> ContainerResponse:
    """Return what containers get of one device, as configured. Raises `ClaimRefusedError`.

    Annotations are left out: a driver has no way to give any.
    """
    nodes = response.device_nodes
    path = config.container_path
    if path is not None and not path.endswith("/") and len(nodes) > 1:
        raise ClaimRefusedError(
            f"containerPath: {quoted(path)} is one path, and the device has {len(nodes)} nodes; "
            f"write {quoted(path + '/')}"
        )
    for node in nodes if path is not None else ():
        if fault := container_path_fault(_path(node, path)):
            raise ClaimRefusedError(f"containerPath: {quoted(_path(node, path))} {fault}; write another path")
    if config.permissions is not None and config.takes_away:
        added = {text for node in nodes for text in _added(config.permissions, node.permissions)}
        if added:
            raise ClaimRefusedError(min(added))
    try:
        return ContainerResponse(
            device_nodes=[
                DeviceNode(node.host_path, _path(node, path), config.permissions or node.permissions)
                for node in nodes
            ],
            mounts=response.mounts,
            envs={**response.envs, **config.env},
            cdi_devices=response.cdi_devices,
        )
    except PluginError as error:
        raise ClaimRefusedError(str(error)) from error


def _path(node: DeviceNode, path: str | None) -> str:
    if path is None:
        return node.container_path
    return path + posixpath.basename(node.container_path) if path.endswith("/") else path


def _is_set(word: str) -> bool:
    return len(set(word)) == len(word)
