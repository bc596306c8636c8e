"""The settings of a sandbox, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.kubelet.topology import TopologySettings
from devplug.sandbox.scheduler import ScoringSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of one sandbox."""

    folder: Path
    """Where it is; see `sandboxdir`."""
    nodes: int = 1
    numa_nodes: int = 1
    """How many each node has."""
    topology: TopologySettings = field(default_factory=TopologySettings)
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    like_real_timing: bool = False
    """Whether a node's status follows what happens every ten seconds, as on a real node; else at once."""
    port: int = 0
    """Of the API server, on 127.0.0.1; 0 takes a free one."""
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Image → the local command that is started for its containers."""
    rbac: bool = False
    """Whether each user of the API may do only what roles allow; else everybody may do everything."""
    state: Path | None = None
    """The file that keeps the objects; None keeps them in memory."""
    certificate: Path | None = None
    """The API server's certificate, in PEM; None serves without TLS."""
    key: Path | None = None
    """Its private key."""
