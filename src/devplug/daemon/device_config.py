"""The parameters of a DeviceConfig, read as the configuration file is: strictly, with every problem. Pure."""

# Without `from __future__ import annotations`: msgspec would evaluate every text at each start.

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

from msgspec import Meta

from devplug.daemon.config.decoder import decode
from devplug.daemon.config.document import parse_document
from devplug.daemon.config.selectors import NO_TEXTS, Section
from devplug.daemon.config.types import Permissions
from devplug.driver.parameters import DeviceConfig

__all__ = ["DeviceConfigSection", "decode_device_config"]


class DeviceConfigSection(Section, frozen=True, kw_only=True):
    """What a DeviceClass or a ResourceClaim configures, as opaque parameters for our driver."""

    api_version: Annotated[
        Literal["devplug.io/v1"], Meta(description="Version of this format: devplug.io/v1.")
    ]
    kind: Annotated[Literal["DeviceConfig"], Meta(description="DeviceConfig.")]
    permissions: Annotated[
        Permissions | None,
        Meta(description="What the container may do; a claim can only take away. Default: as it is."),
    ] = None
    env: Annotated[Mapping[str, str], Meta(description="Further environment variables. Default: none.")] = (
        NO_TEXTS
    )
    container_path: Annotated[
        str | None,
        Meta(description="Path in the container; one that ends in / is a folder. Default: as it is."),
    ] = None


def decode_device_config(content: Mapping[str, object]) -> tuple[DeviceConfig, Sequence[str]]:
    """Return what is configured, and all that is wrong, each as `KEY: MESSAGE`."""
    document = parse_document(json.dumps(content))
    decoded = decode(document, DeviceConfigSection, {}, {})
    section = cast("DeviceConfigSection", decoded.value)
    config = DeviceConfig(section.permissions, env=section.env, container_path=section.container_path)
    return config, [str(problem) for problem in sorted({*document.problems, *decoded.problems})]
