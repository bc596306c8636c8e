"""The command and environment of a container, and the program that stands in for its image. Pure.

Which NAME of `--image NAME=COMMAND` is meant by an image follows the names of container registries.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_DEFAULT_REGISTRY: Final = "docker.io"
_DEFAULT_FOLDER: Final = "library"
_DEFAULT_TAG: Final = "latest"
"""What is meant where an image does not say it (distribution/reference normalize.go)."""

ARGUMENTS: Final = "{args}"
"""The word of a command in whose place the container's arguments come."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_OF_MAP: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


# ── The program of an image ──


def mapped(image: str, images: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    """Return the command for an image, None if it has none.

    A name may leave out the registry, the folders before the last part, the tag and the digest. Of several
    that fit, the one that is written like the image has it; then the one with more of the path, and of
    those the one that says the tag and the digest, only the digest, only the tag, neither. An image
    without a tag is `latest`, one without a registry is of docker.io.
    """
    if image in images:
        return images[image]
    return next((images[name] for name in _names(image) if name in images), None)


def _names(image: str) -> Iterator[str]:
    """Yield all names of an image, those that say more first."""
    name, _, digest = image.partition("@")
    folders, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    parts = [*folders.split("/"), last] if slash else [last]
    is_registry = len(parts) > 1 and ("." in parts[0] or ":" in parts[0] or parts[0] == "localhost")
    if not is_registry:
        parts = [_DEFAULT_REGISTRY, *([_DEFAULT_FOLDER] if len(parts) == 1 else []), *parts]
    if not digest:
        endings = [f":{tag or _DEFAULT_TAG}", ""]
    elif tag:
        endings = [f":{tag}@{digest}", f"@{digest}", f":{tag}", ""]
    else:
        endings = [f"@{digest}", ""]
    for start in range(len(parts)):
        for ending in endings:
            yield "/".join(parts[start:]) + ending


# ── Arguments and variables ──


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


def words_of(command: Sequence[str], container: Object, variables: Mapping[str, str]) -> list[str]:
    """Return the command that stands in for a container's image, with the container's arguments.

    It comes in place of the image's entry point and of the container's own `command`. The container's
    arguments come where the word `{args}` stands, and nowhere without it.
    """
    arguments = [expanded(one, variables) for one in _texts(container, "args")]

    def words() -> Iterator[str]:
        for word in command:
            if word == ARGUMENTS:
                yield from arguments
            else:
                yield word

    return list(words())


def host_paths(pod: Object, container: Object) -> list[str]:
    """Return the paths of the node that a container mounts."""
    volumes = {
        text(volume, "name"): text(volume, "hostPath", "path") for volume in entries(pod, "spec", "volumes")
    }
    mounted = (volumes.get(text(mount, "name"), "") for mount in entries(container, "volumeMounts"))
    return sorted({path for path in mounted if path})


def _texts(owner: Object, key: str) -> Iterator[str]:
    for one in entries(owner, key):
        if isinstance(one, str):
            yield one
