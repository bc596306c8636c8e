"""The texts made of several values: names, labels' values and the image. Pure.

`texts/_helpers.tpl` says the same in Helm's language; a test compares both.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.deploy.template import value_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.k8s.yaml import Value

__all__ = ["CHART", "Release", "names_of"]

CHART: Final = "devplug"
"""Name of the chart, and what a pod's label `app.kubernetes.io/name` has."""

NAME_LIMIT: Final = 63
"""Longest label (RFC 1123), and so longest name of most objects."""


@dataclass(frozen=True, slots=True)
class Release:
    """One deployment: how it is called, where it is, who manages it, and which version it is."""

    name: str
    namespace: str
    version: str
    service: str = "devplug"
    """`Helm`, or what wrote the manifests."""


def names_of(values: Mapping[str, Value], release: Release) -> dict[str, str]:
    """Return each named text, by its name."""

    def text(path: str) -> str:
        return str(value_at(values, path))

    name = _cut(text("nameOverride") or CHART)
    full = text("fullnameOverride") or (release.name if name in release.name else f"{release.name}-{name}")
    full = _cut(full)
    namespace = text("namespaceOverride") or release.namespace
    account = text("serviceAccount.name") or (
        full if value_at(values, "serviceAccount.create") else "default"
    )
    tag = text("image.tag") or release.version
    image = f"@{text('image.digest')}" if text("image.digest") else f":{tag}"
    return {
        "name": name,
        "fullname": full,
        "namespace": namespace,
        "instance": release.name,
        "version": release.version,
        "managedBy": release.service,
        "serviceAccountName": account,
        "configMapName": text("config.existingConfigMap") or full,
        "configKey": text("config.key") if text("config.existingConfigMap") else "config.yaml",
        "image": f"{text('image.repository')}{image}",
        "checksum": hashlib.sha256(text("config.inline").encode()).hexdigest(),
    }


def _cut(text: str) -> str:
    return text[:NAME_LIMIT].removesuffix("-")
