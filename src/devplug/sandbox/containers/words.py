"""What the program of a container is told: its words and its variables, as the pod's spec has them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.programs import DEFAULT_DIR, filled
from devplug.sandbox.api.objects import entries, fields, part, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.sandbox.api.objects import Object

__all__ = ["expanded", "field_value", "image_of", "mounts_default_dir", "variables_of", "words_of"]

ARGUMENTS: Final = "{args}"
"""The word of a command in whose place the container's arguments come."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_OF_MAP: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def image_of(pod: Object, container: str) -> str:
    """Return the image of a pod's container, of whatever sort; empty if it has no such container."""
    for sort in ("containers", "initContainers", "ephemeralContainers"):
        for one in entries(pod, "spec", sort):
            if text(one, "name") == container:
                return text(one, "image")
    return ""


def expanded(written: str, variables: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced where there is such a variable, and `$$` by `$`.

    See k8s.io/kubernetes third_party/forked/golang/expansion/expand.go.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else variables.get(name, found.group())

    return _REFERENCE.sub(value, written)


def variables_of(
    container: Object, pod: Object, node_name: str, given: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """Return the variables of a container: those that are `given`, then those of its spec, which win.

    Of `valueFrom` only the fields of the pod are known here; what stands in config maps, secrets and
    resources is left out (kubelet_pods.go makeEnvironmentVariables).
    """
    variables = dict(given)
    for entry in entries(container, "env"):
        name = text(entry, "name")
        if part(entry, "valueFrom") is None:
            variables[name] = expanded(text(entry, "value"), variables)
        elif path := text(entry, "valueFrom", "fieldRef", "fieldPath"):
            variables[name] = field_value(pod, path, node_name)
    return variables


def field_value(pod: Object, path: str, node_name: str) -> str:
    """Return what a variable has of a field of its pod (the downward API); empty for what is not there."""
    if found := _OF_MAP.fullmatch(path):
        sort, key = found.groups()
        return text(fields(pod, "metadata", sort), key)
    match path:
        case "spec.nodeName":
            return node_name
        case "spec.serviceAccountName":
            return text(pod, "spec", "serviceAccountName") or "default"
        case "status.podIPs" | "status.hostIPs":
            return ",".join(text(one, "ip") for one in entries(pod, *path.split(".")))
    return text(pod, *path.split("."))


def words_of(
    command: Sequence[str], container: Object, variables: Mapping[str, str], places: Mapping[str, str]
) -> list[str]:
    """Return the command that stands in for a container's image, with its placeholders filled.

    It comes in place of the image's entry point and of the container's own `command`. The container's
    arguments come where the word `{args}` stands, and nowhere without it.
    """
    arguments = [expanded(one, variables) for one in _texts(container, "args")]

    def words() -> Iterator[str]:
        for word in command:
            if word == ARGUMENTS:
                yield from arguments
            else:
                yield filled(word, places)

    return list(words())


def mounts_default_dir(pod: Object, container: Object) -> bool:
    """Whether a container has the node's plugin folder, by itself or with the folders around it."""
    volumes = {
        text(volume, "name")
        for volume in entries(pod, "spec", "volumes")
        if _holds_default_dir(text(volume, "hostPath", "path"))
    }
    return any(text(mount, "name") in volumes for mount in entries(container, "volumeMounts"))


def _holds_default_dir(path: str) -> bool:
    folder = path.rstrip("/")
    return bool(folder) and f"{DEFAULT_DIR}/".startswith(f"{folder}/")


def _texts(owner: Object, key: str) -> Iterator[str]:
    for one in entries(owner, key):
        if isinstance(one, str):
            yield one
