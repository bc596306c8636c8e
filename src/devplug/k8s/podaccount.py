"""The service account of a pod, as the kubelet mounts it: two variables and three files.

client-go's `rest.InClusterConfig` (rest/config.go) reads nothing else, and always uses https.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.k8s.account import ACCOUNT_FOLDER
from devplug.linux.processes import can_mount

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"
_PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class PodAccount:
    """The access of a pod to the API server. It holds a secret."""

    host: str
    port: int
    token: str
    """Empty for a pod without one (`automountServiceAccountToken: false`), which has no files either."""
    ca_pem: bytes
    namespace: str = "default"

    def write(self, folder: Path) -> None:
        """Write the files that a container finds in `ACCOUNT_FOLDER` into a folder, unless they are there."""
        folder.mkdir(parents=True, exist_ok=True)
        if not self.token:
            return
        files = {"ca.crt": self.ca_pem, "namespace": self.namespace.encode(), "token": self.token.encode()}
        for name, content in files.items():
            file = folder / name
            if not file.exists() or file.read_bytes() != content:
                file.touch(mode=_PRIVATE)
                file.write_bytes(content)


@dataclass(frozen=True, slots=True)
class PodAccess:
    """The part of a program's surroundings by which it finds the API server."""

    variables: Mapping[str, str] = field(default_factory=lambda: {_HOST: "", _PORT: ""})
    """Environment variables. By default they hide the cluster in whose pod this machine may be."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders to mount, by path."""

    @classmethod
    def of(cls, account: PodAccount | None, folder: Path) -> PodAccess:
        """Return the access of the programs of one pod, and write its files into a folder.

        Without an account, or the right to mount, they find no in-cluster configuration.
        """
        if account is None or not can_mount():
            return cls()
        account.write(folder)
        return cls({_HOST: account.host, _PORT: str(account.port)}, {str(ACCOUNT_FOLDER): folder})
