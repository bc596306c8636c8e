"""What goes with each request to an API server: the Authorization header, and the certificates of TLS."""

from __future__ import annotations

import asyncio
import binascii
import os
from base64 import b64decode, b64encode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from devplug.errors import one_line
from devplug.k8s.errors import ClusterError
from devplug.k8s.objects import text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

    from devplug.k8s.kubeconfig import Cluster, ExecPlugin, User

_EXEC_GROUP: Final = "client.authentication.k8s.io/"


class Credentials:
    """The credentials of a user, for one request after the other."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._printed_token = ""

    async def authorization(self) -> str:
        """Return the header's value; empty for none. Raises `ClusterError`, `OSError`."""
        user = self._user
        if user.token_file:
            return f"Bearer {_text_of(user.token_file)}"
        if user.token:
            return f"Bearer {user.token}"
        if user.exec is not None:
            self._printed_token = self._printed_token or await _printed_token(user.exec)
            return f"Bearer {self._printed_token}"
        if user.username:
            return f"Basic {b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
        return ""

    def expire(self) -> bool:
        """Take it that the server knows the last ones no more; return whether others can be had."""
        was_printed, self._printed_token = bool(self._printed_token), ""
        return was_printed


def _text_of(file: str) -> str:
    return Path(file).read_text().strip()


async def _printed_token(plugin: ExecPlugin) -> str:
    """Return the token that a credential plugin prints."""
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {
        **os.environ,
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        **{variable.name: variable.value for variable in plugin.env or []},
    }
    name = f"the credential plugin {plugin.command}"
    if not plugin.api_version.startswith(_EXEC_GROUP):
        raise ClusterError(f"{name} has an apiVersion other than {_EXEC_GROUP}v1; mend the kubeconfig")
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *(plugin.args or []),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ClusterError(f"cannot run {name}: {error.strerror}; install it") from error
    try:
        printed, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        why = one_line(said.decode(errors="replace"), 120)
        raise ClusterError(f"{name} ended with {process.returncode}: {why}")
    try:
        token = text(msgspec.json.decode(printed), "status", "token")
    except msgspec.DecodeError:
        token = ""
    if not token:
        raise ClusterError(f"{name} printed no token; certificates of such plugins are not supported")
    return token


def tls_context(cluster: Cluster, user: User) -> SSLContext:
    """Return what is trusted and shown in TLS with a cluster. Raises `OSError`, `ValueError`."""
    import ssl

    if cluster.certificate_authority_data:
        context = ssl.create_default_context(cadata=_decoded(cluster.certificate_authority_data).decode())
    elif cluster.certificate_authority:
        context = ssl.create_default_context(cafile=cluster.certificate_authority)
    else:
        context = ssl.create_default_context()
        if cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    # Python 3.13 wants of a cluster's own authority what Go does not, and what many do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if user.client_certificate or user.client_certificate_data:
        with (
            _file(user.client_certificate, user.client_certificate_data) as certificate,
            _file(user.client_key, user.client_key_data) as key,
        ):
            context.load_cert_chain(certificate, key or None)
    return context


def _decoded(data: str) -> bytes:
    try:
        return b64decode("".join(data.split()), validate=True)
    except binascii.Error:
        raise ValueError("a certificate or key in it is no base64") from None


@contextmanager
def _file(path: str, data: str) -> Iterator[str]:
    """The path of a file with these data, which are nowhere on a disk; `path` where there are none."""
    if not data:
        yield path
        return
    descriptor = os.memfd_create("devplug-credentials")
    try:
        os.write(descriptor, _decoded(data))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
