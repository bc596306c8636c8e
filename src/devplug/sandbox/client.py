"""The client of a sandbox that is up in a folder: for its own operations, and its Kubernetes API."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from devplug.errors import DevplugError, one_line
from devplug.k8s.objects import Object, text
from devplug.sandbox.control import PREFIX
from devplug.sandbox.server.auth import kubeconfig

if TYPE_CHECKING:
    from devplug.sandbox.sandboxdir import SandboxDir, SandboxRecord

_TOKEN_SECONDS: Final = 365 * 24 * 3600
_ANSWER_SECONDS: Final = 60.0
"""A kubelet's restart takes a moment: its plugins register again."""


class ClientError(DevplugError):
    """The sandbox refuses, or does not answer; the text says what to change."""


class NoSandboxError(ClientError):
    """No sandbox is up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the sandbox."""

    code: int
    body: Object


class SandboxClient:
    """Asks the sandbox that is up in a folder, with one connection for each question."""

    def __init__(self, place: SandboxDir) -> None:
        record = place.running()
        if record is None:
            raise NoSandboxError(f"no sandbox is up in {place.folder}; start one: devplug sandbox up")
        self._place = place
        self.record: SandboxRecord = record

    def operate(self, method: str, *steps: str, **body: object) -> Object:
        """Have an operation of the sandbox done; raises `ClientError` with what it says."""
        path = PREFIX + "/".join(quote(step, safe="") for step in steps)
        answer = self.ask(method, path, body if method == "POST" else None)
        if answer.code != 200:
            raise ClientError(text(answer.body, "error") or f"the sandbox answers {answer.code} to {path}")
        return answer.body

    def ask(
        self, method: str, path: str, body: object = None, media_type: str = "application/json"
    ) -> Answer:
        """Ask the API server; raises `ClientError` if nothing answers."""
        url = urlsplit(self.record.server)
        headers = {"Authorization": f"Bearer {self.record.token}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body)
            headers["Content-Type"] = media_type
        connection = self._connection(url.scheme, url.netloc)
        try:
            connection.request(method, url.path.rstrip("/") + path, content, headers)
            answer = connection.getresponse()
            found = json.loads(answer.read() or b"{}")
        except (OSError, HTTPException, ValueError) as error:
            why = one_line(str(error) or type(error).__name__, 120)
            raise ClientError(
                f"the sandbox in {self._place.folder} (process {self.record.pid}) does not answer: {why}"
            ) from error
        finally:
            connection.close()
        return Answer(answer.status, found if isinstance(found, dict) else {})

    def account(self, namespace: str, name: str, node: str) -> str:
        """Return the text of a kubeconfig for a service account on a node; raises `ClientError`."""
        bound = {"kind": "Node", "apiVersion": "v1", "name": node}
        asked = {"spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}/token"
        answer = self.ask("POST", path, asked)
        token = text(answer.body, "status", "token")
        if not token:
            raise ClientError(f"the sandbox makes no token: {text(answer.body, 'message')}")
        record = self.record
        try:
            ca_pem = Path(record.certificate).read_bytes() if record.certificate else b""
        except OSError as error:
            raise ClientError(f"cannot read {record.certificate}: {error.strerror}") from error
        return kubeconfig(record.server.replace(record.token, token), token, ca_pem)

    def _connection(self, scheme: str, host: str) -> HTTPConnection:
        if scheme != "https":
            return HTTPConnection(host, timeout=_ANSWER_SECONDS)
        # The certificate itself is what is trusted, whatever names stand in it and whoever signed it.
        context = ssl.create_default_context(cafile=self.record.certificate or None)
        context.check_hostname = not self.record.certificate
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return HTTPSConnection(host, timeout=_ANSWER_SECONDS, context=context)
