"""The names in a deployment: those of its objects, of the image, and of the release itself. Pure.

The chart's `templates/_helpers.tpl` says the same in Helm's language; a test compares both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.deploy.chart import Values

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


@dataclass(frozen=True, slots=True)
class Names:
    """The names in one deployment."""

    release: Release
    name: str
    """What it is: `devplug`, unless another is wanted."""
    fullname: str
    """Of the DaemonSet and most objects around it."""
    namespace: str
    service_account: str
    config_map: str
    config_key: str
    """The key of the ConfigMap that has the configuration file."""
    image: str

    @property
    def role(self) -> str:
        """Roles of the cluster have no namespace, and two deployments may have one name."""
        return f"{self.namespace}-{self.fullname}"


def names_of(values: Values, release: Release) -> Names:
    """Return the names of a deployment with these values."""
    config, image, account = values["config"], values["image"], values["serviceAccount"]
    name = _cut(values["nameOverride"] or CHART)
    full = release.name if name in release.name else f"{release.name}-{name}"
    full = _cut(values["fullnameOverride"] or full)
    version = f"@{image['digest']}" if image["digest"] else f":{image['tag'] or release.version}"
    return Names(
        release,
        name,
        full,
        values["namespaceOverride"] or release.namespace,
        account["name"] or (full if account["create"] else "default"),
        config["existingConfigMap"] or full,
        config["key"] if config["existingConfigMap"] else "config.yaml",
        f"{image['repository']}{version}",
    )


def class_name(resource_name: str) -> str:
    """Return the name of a resource's DeviceClass: `serial.example.com` of example.com/serial."""
    domain, _, kind = resource_name.partition("/")
    return f"{kind.lower().replace('_', '-')}.{domain}"


def _cut(text: str) -> str:
    return text[:NAME_LIMIT].removesuffix("-")
