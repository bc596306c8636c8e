"""The account for calls of an API server: the pod's own ServiceAccount, or one of a kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from devplug.errors import one_line
from devplug.k8s.errors import ClusterError
from devplug.k8s.kubeconfig import Cluster, KubeconfigError, User, read_kubeconfigs

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's ServiceAccount: its token, and the certificate of the API server."""

KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
"""Names a kubeconfig for where there is no ServiceAccount, as outside of a pod; for tools, several files."""

_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_ADVICE_TO_PODS: Final = "let the ServiceAccount {rights}"
_ADVICE_TO_PEOPLE: Final = "ask an administrator of the cluster for the right: {rights}"


def may_have_account(folder: Path = ACCOUNT_FOLDER) -> bool:
    """Whether this machine or pod has an account for an API server; nothing heavy is imported."""
    return bool(os.environ.get(KUBECONFIG_VARIABLE)) or (folder / "token").exists()


class Account(Struct, frozen=True):
    """An API server and the credentials for it. It holds secrets, and is valid for as long as they are."""

    cluster: Cluster
    user: User
    where: str
    """Its name in messages, as in `the cluster of context lab`."""
    advice: str
    """The advice for a missing right, with `{rights}` in it."""
    namespace: str = "default"
    """The namespace that is meant where none is named."""


def mounted_account(folder: Path, rights: str) -> Account:
    """Return the account of a daemon: that of its pod, or of the one file that KUBECONFIG names.

    Raises `ClusterError`; `rights` are named in its text if there is no account.
    """
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    is_mounted = (folder / "token").exists()
    if not is_mounted and not kubeconfig:
        raise ClusterError(
            f"no ServiceAccount is mounted and {KUBECONFIG_VARIABLE} is not set; give the pod a "
            f"ServiceAccount that may {rights}"
        )
    try:
        if is_mounted:
            return _service_account(folder, "the cluster")
        _, cluster, user, namespace = read_kubeconfigs([Path(str(kubeconfig)).expanduser()]).chosen(None)
    except (KubeconfigError, OSError, ValueError) as error:
        where = folder if is_mounted else kubeconfig
        raise ClusterError(
            f"cannot use the account in {where}: {_why(error)}; mend it or mount it again"
        ) from error
    return Account(cluster, user, "the cluster", _ADVICE_TO_PODS, namespace or "default")


def chosen_account(
    kubeconfig: str | None, context: str | None, *, folder: Path = ACCOUNT_FOLDER, besides: str = ""
) -> Account:
    """Return the account that a person means, by kubectl's rules (client-go clientcmd/loader.go).

    That is the file that an option names; else those of KUBECONFIG, of which the first that says something
    is believed; else `~/.kube/config`; else the ServiceAccount of the pod that this runs in. Raises
    `ClusterError`, with `besides` at the end of its text.
    """
    named = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE) or ""
    files = [kubeconfig] if kubeconfig else [file for file in named.split(os.pathsep) if file]
    context_name = context and f"context {context} of {named or _DEFAULT_KUBECONFIG}"
    try:
        if not files and not Path(_DEFAULT_KUBECONFIG).expanduser().is_file() and not context:
            if (folder / "token").exists():
                return _service_account(folder, "the cluster of this pod")
            raise ClusterError(
                f"no cluster is known: {KUBECONFIG_VARIABLE} is not set and {_DEFAULT_KUBECONFIG} is not "
                f"there; name a file with --kubeconfig{besides}"
            )
        read = read_kubeconfigs([Path(file).expanduser() for file in files or [_DEFAULT_KUBECONFIG]])
        name, cluster, user, namespace = read.chosen(context)
    except (KubeconfigError, OSError, ValueError) as error:
        where = context_name or named or _DEFAULT_KUBECONFIG
        raise ClusterError(f"cannot use {where}: {_why(error)}{besides}") from error
    where = f"the cluster of context {name}"
    return Account(cluster, user, where, _ADVICE_TO_PEOPLE, namespace or "default")


def _service_account(folder: Path, where: str) -> Account:
    """Return the account of this pod, as client-go finds it (rest/config.go, InClusterConfig)."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeconfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority = f"[{host}]" if ":" in host else host
    cluster = Cluster(f"https://{authority}:{port}", certificate_authority=str(folder / "ca.crt"))
    user = User(token_file=str(folder / "token"))
    return Account(cluster, user, where, _ADVICE_TO_PODS, (folder / "namespace").read_text().strip())


def _why(error: Exception) -> str:
    return one_line(error.strerror or str(error) if isinstance(error, OSError) else str(error), 120)
