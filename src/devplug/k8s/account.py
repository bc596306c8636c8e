"""The account for calls of an API server: the pod's own ServiceAccount, or one of a kubeconfig."""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from devplug.errors import one_line
from devplug.k8s.errors import ClusterError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightkube import KubeConfig
    from lightkube.config.kubeconfig import SingleConfig

__all__ = [
    "ACCOUNT_FOLDER",
    "KUBECONFIG_VARIABLE",
    "Account",
    "chosen_account",
    "has_client",
    "may_have_account",
    "mounted_account",
]

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's ServiceAccount: its token, and the certificate of the API server."""

KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
"""Names a kubeconfig for where there is no ServiceAccount, as outside of a pod; for tools, several files."""

_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_ADVICE_TO_PODS: Final = "let the ServiceAccount {rights}"
_ADVICE_TO_PEOPLE: Final = "ask an administrator of the cluster for the right: {rights}"
_EXEC_VERSION: Final = "client.authentication.k8s.io/v1"


def may_have_account(folder: Path = ACCOUNT_FOLDER) -> bool:
    """Whether this machine or pod has an account for an API server, and a client; imports nothing heavy."""
    has_any = bool(os.environ.get(KUBECONFIG_VARIABLE)) or (folder / "token").exists()
    return has_any and has_client()


def has_client() -> bool:
    """Whether devplug[k8s] is installed, by which the API server is called."""
    from importlib.util import find_spec  # here: most daemons have no account

    return find_spec("lightkube") is not None


class Account(Struct, frozen=True):
    """An API server and the credentials for it. It holds secrets, and is valid for as long as they are."""

    config: SingleConfig
    where: str
    """Its name in messages, as in `the cluster of context lab`."""
    advice: str
    """The advice for a missing right, with `{rights}` in it."""

    @property
    def namespace(self) -> str:
        """The namespace that is meant where none is named."""
        return self.config.namespace or "default"

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, so that the environment's proxies do not apply."""
        host = urlsplit(self.config.cluster.server).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def mounted_account(folder: Path, rights: str) -> Account:
    """Return the account of a daemon: that of its pod, or of the one file that KUBECONFIG names.

    Imports lightkube, which takes a fifth of a second. Raises `ClusterError`; `rights` are named in its text
    if there is no account.
    """
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    is_mounted = (folder / "token").exists()
    # First this: a daemon without an account has no OpenSSL, and so cannot import lightkube.
    if has_client() and not is_mounted and not kubeconfig:
        raise ClusterError(
            f"no ServiceAccount is mounted and {KUBECONFIG_VARIABLE} is not set; give the pod a "
            f"ServiceAccount that may {rights}"
        )
    _need_lightkube()
    import lightkube

    try:
        if is_mounted:
            config = lightkube.KubeConfig.from_service_account(folder)
        else:
            config = lightkube.KubeConfig.from_file(str(kubeconfig))
        chosen = _single(config, None)
    except Exception as error:
        where = folder if is_mounted else kubeconfig
        raise ClusterError(
            f"cannot use the account in {where}: {_why(error)}; mend it or mount it again"
        ) from error
    return Account(chosen, "the cluster", _ADVICE_TO_PODS)


def chosen_account(
    kubeconfig: str | None, context: str | None, *, folder: Path = ACCOUNT_FOLDER, besides: str = ""
) -> Account:
    """Return the account that a person means, by kubectl's rules (client-go clientcmd/loader.go).

    That is the file that an option names; else those of KUBECONFIG, of which the first that says something
    is believed; else `~/.kube/config`; else the ServiceAccount of the pod that this runs in. Imports
    lightkube. Raises `ClusterError`, with `besides` at the end of its text.
    """
    _need_lightkube()
    import lightkube

    named = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE) or ""
    files = [kubeconfig] if kubeconfig else [file for file in named.split(os.pathsep) if file]
    context_name = context and f"context {context} of {named or _DEFAULT_KUBECONFIG}"
    try:
        if not files and not Path(_DEFAULT_KUBECONFIG).expanduser().is_file() and not context:
            if (folder / "token").exists():
                config = lightkube.KubeConfig.from_service_account(folder)
                return Account(_single(config, None), "the cluster of this pod", _ADVICE_TO_PODS)
            raise ClusterError(
                f"no cluster is known: {KUBECONFIG_VARIABLE} is not set and {_DEFAULT_KUBECONFIG} is not "
                f"there; name a file with --kubeconfig{besides}"
            )
        config = _merged(files or [_DEFAULT_KUBECONFIG])
        chosen = _single(config, context)
    except ClusterError:
        raise
    except Exception as error:  # a file of anybody's, which may have anything in it
        where = context_name or named or _DEFAULT_KUBECONFIG
        raise ClusterError(f"cannot use {where}: {_why(error)}{besides}") from error
    return Account(chosen, f"the cluster of context {chosen.context_name}", _ADVICE_TO_PEOPLE)


def _need_lightkube() -> None:
    try:
        import lightkube  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("lightkube is not installed; install devplug[k8s]") from error


def _why(error: Exception) -> str:
    """Return what is wrong with a file that may hold a token, without quoting it."""
    from lightkube.core.exceptions import ConfigError

    name = type(error).__name__
    if (mark := getattr(error, "problem_mark", None)) is not None:  # YAML's own text would show the line
        return f"{name} in line {mark.line + 1}, column {mark.column + 1}"
    is_harmless = isinstance(error, OSError | KeyError | ConfigError)
    return one_line(f"{name}: {error}" if is_harmless else f"{name}, it is not a valid kubeconfig", 120)


def _merged(files: list[str]) -> KubeConfig:
    """Return what several files say together; one that is not there says nothing, unless none is."""
    from lightkube import KubeConfig

    if len(files) > 1:
        files = [file for file in files if Path(file).expanduser().is_file()] or files[:1]
    found = [_with_whole_paths(KubeConfig.from_file(file)) for file in files]
    return KubeConfig(
        clusters=_first(one.clusters for one in found),
        contexts=_first(one.contexts for one in found),
        users=_first(one.users for one in found),
        current_context=next((one.current_context for one in found if one.current_context), None),
        fname=found[0].fname,
    )


def _first(parts: Iterable[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged = {**part, **merged}
    return merged


def _with_whole_paths(config: KubeConfig) -> KubeConfig:
    """Make paths absolute: each is meant from the folder of the file that it stands in."""
    folder = config.fname.absolute().parent if config.fname is not None else Path()
    for one in [*config.clusters.values(), *config.users.values()]:
        for word in ("certificate_auth", "client_cert", "client_key", "token_file"):
            if path := getattr(one, word, None):
                setattr(one, word, str(folder / path))
    return config


def _single(config: KubeConfig, context: str | None) -> SingleConfig:
    """Return the configuration of one context, also without a user or with exec plugins of v1."""
    from lightkube.config.models import User

    chosen = config.get(context)
    assert chosen is not None
    user = chosen.user or User()
    if user.exec is not None and user.exec.apiVersion == _EXEC_VERSION:
        # Its answer has the token where v1beta1 has it, the only thing that is read of it.
        user.exec.apiVersion += "beta1"
    return chosen._replace(user=user)
