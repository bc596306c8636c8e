"""The listener of the server: the application on 127.0.0.1, over plain HTTP or TLS, until it is cancelled.

The HTTP is uvicorn's, without its signals, its logging and its access log: the sandbox has its own. Who may
connect, and for how long, is decided by `connections`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn

from devplug.errors import DevplugError, one_line
from devplug.k8s.podaccount import PodAccount
from devplug.sandbox.server.app import App
from devplug.sandbox.server.auth import kubeconfig
from devplug.sandbox.server.connections import ConnectionLimits, Connections, HttpConnection
from devplug.sandbox.server.handlers import BEAT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.server.app import Application, Control, Logs, Metrics

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 512
_IDLE_SECONDS: Final = 120
"""How long an idle connection is kept; client-go ends its own after 90 s, and so never meets this end."""
_DAYS: Final = "3650"
_ALTERNATIVE_NAMES: Final = f"subjectAltName=IP:{_HOST},DNS:localhost,DNS:kubernetes.default.svc"
_KEY_USAGE: Final = "keyUsage=critical,digitalSignature,keyCertSign"
_GRACE_SECONDS: Final = 5
"""How long a client may take to read the end of its answer when the server stops."""


class ServingError(DevplugError):
    """The server cannot listen with its settings; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate and key for TLS."""

    cert_file: Path
    """The certificate and what leads to who signed it, in PEM."""
    key_file: Path

    @classmethod
    def made_in(cls, folder: Path) -> Self:
        """Make a certificate for 127.0.0.1 that is its own authority, with its key, in a private folder.

        Raises `ServingError`.
        """
        made = cls(folder / "apiserver.crt", folder / "apiserver.key")
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS]
        extensions = ["-addext", _ALTERNATIVE_NAMES, "-addext", _KEY_USAGE]
        files = ["-keyout", str(made.key_file), "-out", str(made.cert_file)]
        command = ["openssl", "req", "-x509", "-subj", "/CN=devplug sandbox", *kind, *extensions, *files]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 -- our own words
        except OSError as error:
            raise ServingError(
                f"cannot make a certificate in {folder} with openssl: {error.strerror}; install openssl"
            ) from error
        except subprocess.CalledProcessError as error:
            raise ServingError(
                f"openssl cannot make a certificate in {folder}: {one_line(error.stderr)}"
            ) from error
        return made


class ApiServer:
    """The Kubernetes API of one registry on one port; lives as long as the sandbox.

    `listen` makes the address known; from then on clients can connect, and `run` answers them.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        logs: Logs,
        metrics: Metrics,
        control: Control,
        token: str,
        rbac: bool = False,
        port: int = 0,
        tls: Tls | None = None,
        beat_seconds: float = BEAT_SECONDS,
        betas: Sequence[Resource] = (),
        around: Callable[[Application], Application] = lambda app: app,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Serve `registry`; `around` may put something in front of the application that answers.

        `betas` are versions of kinds that are served besides `kinds.SERVED`, and `limits` are
        those of connections.
        """
        self._app = App(
            registry,
            logs=logs,
            metrics=metrics,
            control=control,
            token=token,
            rbac=rbac,
            beat_seconds=beat_seconds,
            betas=betas,
        )
        self._served = around(self._app)
        self._limits = limits or ConnectionLimits()
        self._token = token
        self._port = port
        self._tls = tls
        self._socket: socket.socket | None = None
        self._server: _Server | None = None

    def listen(self) -> None:
        """Take the port, or one that is free for 0; raises `ServingError`."""
        if self._socket is not None:
            return
        self._server = _Server(self._config(), self._limits)
        # The protocol has to be told: asyncio turns Nagle's algorithm off only for sockets that name it, and
        # with it every answer after the first waits 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((_HOST, self._port))
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            listener.close()
            why = getattr(error, "strerror", None) or error
            raise ServingError(
                f"cannot listen on {_HOST}:{self._port}: {why}; choose another port, or 0 for a free one"
            ) from error
        self._socket = listener

    def close(self) -> None:
        """Give the port back, if `run` has not done so."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def port(self) -> int:
        """The port, after `listen`."""
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def has_tls(self) -> bool:
        """Whether it serves https."""
        return self._tls is not None

    @property
    def url(self) -> str:
        """The address for kubectl, after `listen`; over plain HTTP it has the token in it, a secret."""
        return self._url(self._token)

    @property
    def kubeconfig(self) -> str:
        """The text of the administrator's kubeconfig, after `listen`. Raises `ServingError`."""
        return self.kubeconfig_of(self._token)

    def kubeconfig_of(self, token: str) -> str:
        """Return the text of a kubeconfig for who has this token, after `listen`. Raises `ServingError`."""
        ca_pem = b"" if self._tls is None else _read(self._tls.cert_file)
        return kubeconfig(self._url(token), token, ca_pem)

    def account_of(self, token: str, namespace: str = "default") -> PodAccount:
        """Return what a pod of this token has mounted, after `listen`, with TLS. Raises `ServingError`."""
        assert self._tls is not None
        return PodAccount(_HOST, self.port, token, _read(self._tls.cert_file), namespace)

    def _url(self, token: str) -> str:
        if self._tls is not None:
            return f"https://{_HOST}:{self.port}"
        return f"http://{_HOST}:{self.port}/{token}"

    async def run(self) -> None:
        """Answer requests until cancelled; then end all watches at once, and the rest in a few seconds."""
        self.listen()
        assert self._server is not None
        assert self._socket is not None
        server, listener = self._server, self._socket
        async with asyncio.TaskGroup() as server.tasks:
            try:
                await server.serve(sockets=[listener])
            finally:
                self._app.end()
                try:
                    if server.started:
                        await server.shutdown(sockets=[listener])
                finally:
                    server.abort()
                    self.close()

    def _config(self) -> uvicorn.Config:
        tls = self._tls
        config = uvicorn.Config(
            self._served,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=tls.cert_file if tls else None,
            ssl_keyfile=tls.key_file if tls else None,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            assert tls is not None
            raise ServingError(
                f"cannot serve TLS with the certificate {tls.cert_file} and the key {tls.key_file}: {error}; "
                "both are PEM files, and the key is the certificate's"
            ) from error
        return config


class _Server(uvicorn.Server):
    """A server that leaves signals to the program around it, and bounds its connections."""

    tasks: asyncio.TaskGroup
    """Has a task for each connection; set before the start."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self.limits = limits
        self.accepting: list[Connections] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, within bounds."""
        assert sockets is not None
        await self.lifespan.startup()
        for one in sockets:
            made = Connections(one, self._protocol, self.config.ssl, self.tasks, self.limits)
            made.open()
            self.accepting.append(made)
        self.servers = self.accepting  # type: ignore[assignment]
        self.started = True

    def _protocol(self) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state, self.limits)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def abort(self) -> None:
        """Cut the connections that `shutdown` leaves: those in use, and those that came meanwhile."""
        for connection in list(self.server_state.connections):
            assert isinstance(connection, HttpConnection)
            connection.abort()
        for one in self.accepting:
            one.close()
            one.abort()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ServingError(f"cannot read {file}: {error.strerror}") from error
