"""Which command stands in for an image: which NAME of `--image NAME=COMMAND` is meant. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["mapped"]

_DEFAULT_REGISTRY: Final = "docker.io"
_DEFAULT_FOLDER: Final = "library"
_DEFAULT_TAG: Final = "latest"
"""What is meant where an image does not say it (distribution/reference normalize.go)."""


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
