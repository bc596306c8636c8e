"""The service account of a pod, as the kubelet mounts it: two variables and three files.

client-go's `rest.InClusterConfig` (rest/config.go) reads nothing else, and always uses https.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PodAccount"]


@dataclass(frozen=True, slots=True)
class PodAccount:
    """The access of a pod to the API server. It holds a secret."""

    host: str
    port: int
    token: str
    ca_pem: bytes
    namespace: str = "default"

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of its containers."""
        return {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": str(self.port)}

    def write(self, folder: Path) -> None:
        """Write the files that a container finds in `devplug.k8s.account.ACCOUNT_FOLDER` into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.crt").write_bytes(self.ca_pem)
        (folder / "namespace").write_text(self.namespace)
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(self.token)
