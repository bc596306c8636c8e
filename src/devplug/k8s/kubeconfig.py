"""Kubeconfigs: clusters, users and contexts of one file or several, by kubectl's rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from devplug.errors import DevplugError, quoted
from devplug.linux.trust import UntrustedError, check_trusted, sudo_users

if TYPE_CHECKING:
    from collections.abc import Sequence


class KubeconfigError(DevplugError):
    """A kubeconfig cannot be used; the text says why, and repeats nothing of it that may be a secret."""


class Cluster(Struct, frozen=True, rename="kebab"):
    """An API server, and how it is known to be the right one."""

    server: str
    certificate_authority: str = ""
    """A file of certificates; an absolute path once it was read."""
    certificate_authority_data: str = ""
    """Their text in base64."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    """The name in the server's certificate, if it is not that of its URL."""
    proxy_url: str = ""


class ExecVariable(Struct, frozen=True):
    """A variable in the environment of a credential plugin."""

    name: str
    value: str


class ExecPlugin(Struct, frozen=True, rename="camel"):
    """A command that prints the credentials (client-go credential plugins)."""

    api_version: str
    command: str
    """Looked for on the PATH if there is no slash in it, else an absolute path once it was read."""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None


class User(Struct, frozen=True, rename="kebab"):
    """The credentials of a user; all are secrets, or lead to some."""

    token: str = ""
    token_file: str = field(name="tokenFile", default="")
    """Read for each request, as what is in it expires and is replaced."""
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecPlugin | None = None

    def __repr__(self) -> str:
        """Return no secret."""
        return "User(...)"


class _Context(Struct, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct, frozen=True):
    name: str
    cluster: Cluster


class _NamedUser(Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(Struct, frozen=True):
    name: str
    context: _Context


class _File(Struct, frozen=True, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


class Kubeconfig(Struct, frozen=True):
    """What kubeconfigs say together."""

    clusters: dict[str, Cluster]
    users: dict[str, User]
    contexts: dict[str, _Context]
    current_context: str = ""

    def chosen(self, context: str | None) -> tuple[str, Cluster, User, str]:
        """Return the name, the cluster, the user and the namespace of a context, or of the current one.

        Who has no user asks as nobody. Raises `KubeconfigError`, also if others could change a file that the
        cluster or the user names.
        """
        name = context or self.current_context
        if not name:
            raise KubeconfigError("it has no current-context")
        found = self.contexts.get(name)
        if found is None:
            raise KubeconfigError(f"it has no context {quoted(name)}")
        cluster = self.clusters.get(found.cluster)
        if cluster is None:
            raise KubeconfigError(f"its context {quoted(name)} has a cluster that it has not")
        user = self.users.get(found.user) if found.user else User()
        if user is None:
            raise KubeconfigError(f"its context {quoted(name)} has a user that it has not")
        files = (cluster.certificate_authority, user.token_file, user.client_certificate, user.client_key)
        for file in files:
            if file:
                _check_trusted(Path(file))
        return name, cluster, user, found.namespace


def read_kubeconfigs(files: Sequence[Path]) -> Kubeconfig:
    """Return what several files say together; of what two say, the first is believed.

    One that is not there says nothing, unless none is. Raises `KubeconfigError`, `OSError`.
    """
    if len(files) > 1:
        files = [file for file in files if file.is_file()] or files[:1]
    found = [_with_whole_paths(_read(file), file.absolute().parent) for file in files]
    return Kubeconfig(
        _first([{one.name: one.cluster for one in file.clusters or []} for file in found]),
        _first([{one.name: one.user or User() for one in file.users or []} for file in found]),
        _first([{one.name: one.context for one in file.contexts or []} for file in found]),
        next((file.current_context for file in found if file.current_context), ""),
    )


def _read(file: Path) -> _File:
    import yaml

    _check_trusted(file)
    try:
        read = convert(yaml.safe_load(file.read_text()), _File)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark  # its own text would show the line, in which a token may be
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise KubeconfigError(f"it is no YAML{where}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError("it is no YAML") from error
    except (ValidationError, RecursionError, ValueError) as error:
        raise KubeconfigError(f"{type(error).__name__}, it is not a valid kubeconfig") from error
    return read


def _check_trusted(file: Path) -> None:
    """Raise `KubeconfigError` for a file that other users could change.

    They would choose the commands that are started, and the server to which the user's own token is sent.
    """
    advice = f"give it to root or to the user of this process, and let no other write: chmod go-w {file}"
    try:
        check_trusted(file, advice, users=sudo_users(), trusts_read_only=True)
    except UntrustedError as error:
        raise KubeconfigError(str(error)) from error


_T = TypeVar("_T")


def _first(parts: Sequence[dict[str, _T]]) -> dict[str, _T]:
    merged: dict[str, _T] = {}
    for part in parts:
        merged = {**part, **merged}
    return merged


def _with_whole_paths(read: _File, folder: Path) -> _File:
    """Make paths absolute: each is meant from the folder of the file that it stands in."""

    def whole(path: str) -> str:
        return str(folder / path) if path else ""

    def whole_user(user: User) -> User:
        plugin = user.exec
        if plugin is not None and "/" in plugin.command:
            plugin = replace(plugin, command=whole(plugin.command))
        return replace(
            user,
            token_file=whole(user.token_file),
            client_certificate=whole(user.client_certificate),
            client_key=whole(user.client_key),
            exec=plugin,
        )

    return replace(
        read,
        clusters=[
            replace(
                one,
                cluster=replace(one.cluster, certificate_authority=whole(one.cluster.certificate_authority)),
            )
            for one in read.clusters or []
        ],
        users=[replace(one, user=whole_user(one.user or User())) for one in read.users or []],
    )
