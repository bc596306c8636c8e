"""The objects whose security context is tried: what `devplug manifests` writes for a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from devplug.daemon.config.loader import load
from devplug.deploy.manifests import manifests, values_for
from devplug.deploy.names import Release
from devplug.deploy.security_context import needs_of
from devplug.k8s.yaml import Value


def daemon_set(config: str, values: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """Return the DaemonSet for a configuration, with these values of the chart over the defaults."""
    granted = values_for(needs_of(load(config.encode(), "config.yaml")))
    objects = manifests({**granted, **(values or {})}, Release("devplug", "devplug", "0.1.0"))
    (found,) = (one for one in objects if one["kind"] == "DaemonSet")
    return cast("dict[str, Any]", found)
