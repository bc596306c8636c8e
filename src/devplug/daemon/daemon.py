"""A configuration as served plugins: one for each resource that this machine has."""

from __future__ import annotations

import fnmatch
import logging
import os
import platform
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug.daemon.configured import ConfiguredPlugin
from devplug.plugin.serving import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.daemon.config import Config, Resource
    from devplug.devices import StrPath
    from devplug.plugin.serving import Serving

__all__ = ["NODE_NAME_VARIABLE", "resources_of", "serve_config"]

logger = logging.getLogger(__name__)

NODE_NAME_VARIABLE = "NODE_NAME"
"""Where a DaemonSet puts the machine's name in Kubernetes; else the host name counts."""


def resources_of(config: Config, node_name: str) -> list[Resource]:
    """Return the resources that `nodeNames` gives to the machine of this name."""
    return [
        resource
        for resource in config.resources
        if not resource.node_names
        or any(fnmatch.fnmatchcase(node_name, pattern) for pattern in resource.node_names)
    ]


@asynccontextmanager
async def serve_config(config: Config, *, plugin_dir: StrPath | None = None) -> AsyncIterator[Serving]:
    """Serve every resource of `config` that this machine has, until the block is left.

    Raises what `devplug.serve` raises.
    """
    node_name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
    resources = resources_of(config, node_name)
    if skipped := [resource.name for resource in config.resources if resource not in resources]:
        logger.info("resources of other machines are left out", extra={"names": skipped, "node": node_name})
    async with serve(
        *(ConfiguredPlugin(resource) for resource in resources), plugin_dir=plugin_dir
    ) as serving:
        yield serving
